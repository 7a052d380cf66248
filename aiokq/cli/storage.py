"""`aiokq storage`: format log directories and examine them, as Kafka's `kafka-storage` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from aiokq.cli.error_text import FAILED
from aiokq.cli.help_text import examples
from aiokq.cli.model_options import Given, with_models
from aiokq.cli.node_settings import NodeOptions, node_of
from aiokq.cli.options import AsJson
from aiokq.cli.output import Output
from aiokq.cli.storage_adopt import adopt
from aiokq.cli.storage_options import FormatChoices, feature_levels, quorum_of
from aiokq.core.errors import ConfigError

if TYPE_CHECKING:
    from aiokq.cli.node_settings import Node

__all__ = ["storage"]

storage = typer.Typer(
    name="storage",
    help="Format log directories, examine them, and adopt those of a quorum of several nodes.",
    no_args_is_help=True,
)


@storage.command(
    "format",
    epilog=examples(
        "aiokq storage format -c server.properties -t $(aiokq storage random-uuid)",
        "aiokq storage format -t MkU3OEVBNTcwNTJENDM2Qg --data-dir ./kafka-data --standalone",
        "aiokq storage format -c server.properties -t MkU3OEVBNTcwNTJENDM2Qg -r 4.2 "
        "-f eligible.leader.replicas.version=0",
        "aiokq storage format -c server.properties -t MkU3OEVBNTcwNTJENDM2Qg "
        "-S 'SCRAM-SHA-256=[name=alice,password=alice-secret]'",
    ),
)
@with_models
def format_(
    choices: Given[FormatChoices], given: Given[NodeOptions], as_json: AsJson = False
) -> None:
    """Format the log directories of a node: write their ids and the first metadata records.

    A broker formats new directories by itself. Use this command before the first start to choose
    the id of the cluster, levels of features, credentials or the kind of the quorum. Apache Kafka 4
    opens the directories, too.

    If a directory is formatted already, nothing is written and the exit code is 1, unless
    --ignore-formatted is given.
    """
    import random

    from aiokq.broker.metadata.image.features import METADATA_VERSION, METADATA_VERSIONS
    from aiokq.broker.metadata.stopped_broker.formatting import FormatOptions, format_directories
    from aiokq.core.clock import SystemClock
    from aiokq.core.files import OsFiles
    from aiokq.fastpath import crc32c

    out = Output(as_json=as_json)
    chosen = choices.build()
    node = node_of(given.build(), of_kafka=chosen.no_initial_controllers)
    node_id = 0 if node.node_id is None else node.node_id
    quorum = quorum_of(chosen, node, node_id)
    done = format_directories(
        OsFiles(),
        FormatOptions(
            node_id=node_id,
            cluster_id=chosen.cluster_id,
            directories=_directories(node),
            metadata_directory=node.metadata_directory,
            standalone=quorum.standalone,
            metadata_directory_id=quorum.directory_id,
            without_voters=quorum.without_voters,
            release=chosen.release_version,
            features=feature_levels(chosen.features),
            scram=chosen.add_scram,
            ignore_formatted=chosen.ignore_formatted,
        ),
        random=random.SystemRandom(),
        timestamp_ms=SystemClock().timestamp_ms(),
        crc32c=crc32c,
    )
    if as_json:
        out.document(
            {
                "cluster_id": chosen.cluster_id,
                "node_id": node_id,
                "formatted": list(done.formatted),
                "kept": list(done.kept),
                "features": dict(done.levels),
            }
        )
        return
    if not done.formatted:
        out.line("All of the log directories are already formatted.")
        return
    level = METADATA_VERSIONS[done.levels[METADATA_VERSION]]
    others = [f"{name}={number}" for name, number in done.levels.items() if number]
    out.line(f"Bootstrap metadata: {', '.join(others)}")
    if quorum.standalone is not None:
        kind = "dynamic metadata voter directory"
    else:
        kind = "metadata directory"
    for path in sorted(done.formatted):
        what = kind if path == done.metadata_directory else "data directory"
        out.line(f"Formatting {what} {path} with {METADATA_VERSION} {level}.")


@storage.command(
    epilog=examples(
        "aiokq storage info -c server.properties",
        "aiokq storage info --data-dir ./kafka-data --json",
    )
)
@with_models
def info(given: Given[NodeOptions], as_json: AsJson = False) -> None:
    """Show the log directories of a node, their ids and their problems.

    Nothing is changed, and the node may be running. Exit code 1 if there are problems.
    """
    from aiokq.broker.inspection.storage_info import storage_info
    from aiokq.core.files import OsFiles

    out = Output(as_json=as_json)
    node = node_of(given.build(), of_kafka=True)
    directories = _directories(node)
    if node.metadata_directory is not None:
        directories += (node.metadata_directory,)
    result = storage_info(OsFiles(), directories)
    if result.problems:
        out.exit_code = FAILED
    if as_json:
        out.document(
            {
                "directories": list(result.found),
                "metadata": dict(result.metadata),
                "problems": list(result.problems),
            }
        )
        raise typer.Exit(out.exit_code)
    if result.found:
        _list(out, "Found log directory:", "Found log directories:", result.found)
    if result.metadata:
        shown = ", ".join(f"{name}={value}" for name, value in result.metadata.items())
        out.line(f"Found metadata: {{{shown}}}")
        out.line()
    if result.problems:
        _list(out, "Found problem:", "Found problems:", result.problems)
    raise typer.Exit(out.exit_code)


@storage.command("random-uuid", epilog=examples("aiokq storage random-uuid"))
def random_uuid() -> None:
    """Print a random id in Kafka's form, for example for a new cluster."""
    import random

    from aiokq.broker.metadata.stopped_broker.formatting import random_uuid as make

    Output().line(make(random.SystemRandom()))


storage.command(
    epilog=examples(
        "aiokq storage adopt /var/lib/kafka --dry-run", "aiokq storage adopt /var/lib/kafka"
    )
)(adopt)


def _list(out: Output, one: str, several: str, lines: tuple[str, ...]) -> None:
    out.line(one if len(lines) == 1 else several)
    for line in lines:
        out.line(f"  {line}")
    out.line()


def _directories(node: Node) -> tuple[str, ...]:
    if not node.directories:
        raise ConfigError(
            "no log directory is named: give --data-dir DIR, or --config FILE with log.dirs"
        )
    return node.directories
