"""`aiokq consume`: print the records of topics; `record_reader` reads the records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aiokq.cli.model_options import Given, with_models
from aiokq.cli.options import BootstrapServers, ConfigFile
from aiokq.cli.output import Output
from aiokq.cli.record_options import PrintOptions, ReadOptions
from aiokq.cli.records import Format, formatter, unescaped
from aiokq.cli.session import Session
from aiokq.cli.start_positions import parse_start

if TYPE_CHECKING:
    from aiokq.cluster.settings import ClusterSettings
    from aiokq.consumer.settings import ConsumerSettings

__all__ = ["consume"]

OutputFormat = Annotated[
    Format | None,
    typer.Option(
        "--format",
        "-o",
        help="text (the default) escapes unprintable characters; json prints all parts; raw "
        "prints the bytes unchanged.",
        show_default=False,
    ),
]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line, like --format json.")
]
ReadCommitted = Annotated[
    bool,
    typer.Option("--read-committed", help="Omit records of open and aborted transactions."),
]


@with_models
def consume(
    ctx: typer.Context,
    given: Given[ReadOptions],
    *,
    output_format: OutputFormat = None,
    as_json: AsJsonLines = False,
    printed: Given[PrintOptions],
    committed: ReadCommitted = False,
    bootstrap_servers: BootstrapServers = None,
    config: ConfigFile = None,
) -> None:
    """Print the records of topics.

    By default the command reads from the beginning, until Ctrl-C. In text, bytes that are not UTF-8
    are printed as \\xNN and control characters are escaped; in JSON, keys, values and header values
    are strings if they are UTF-8, else {"base64": "..."}.

    START is beginning, end, an offset, -N for the last N offsets of each partition, or a time:
    2026-01-31T12:00:00Z (local time without the Z), @MS for milliseconds since 1970, or PT1H for an
    hour ago. With --group, START is beginning or end, and applies to partitions without a committed
    offset.
    """
    from aiokq.cli.record_reader import RecordReader

    session: Session = ctx.obj
    if given["partitions"] and len(given["topics"]) > 1:
        raise typer.BadParameter("--partition goes with one topic: give only one")
    parts = printed.build(separator=unescaped(printed["separator"]))
    kind = _format(output_format, parts, as_json=as_json)
    wanted = given.build(start=parse_start(given["start"], session.now_ms()))
    if wanted.group is not None:
        _check_member(wanted)
    shared, own = _settings(bootstrap_servers, config, wanted.group, committed=committed)
    session.run(
        RecordReader(session.cluster(shared), own, wanted, Output(), formatter(kind, parts))()
    )


def _format(given: Format | None, parts: PrintOptions, *, as_json: bool) -> Format:
    if as_json and given not in (None, Format.JSON):
        raise typer.BadParameter(
            f"--json and --format {given} exclude each other: give one of them"
        )
    kind = Format.JSON if as_json else given or Format.TEXT
    if kind is Format.RAW and (parts.headers or parts.timestamps or parts.offsets):
        raise typer.BadParameter(
            "the format raw prints only values, and keys with --keys: for headers, timestamps "
            "and offsets use --format text or json"
        )
    return kind


def _check_member(wanted: ReadOptions) -> None:
    if wanted.partitions:
        raise typer.BadParameter(
            "--partition and --group exclude each other: the members of a group "
            "share all partitions"
        )
    if not isinstance(wanted.start, str):
        raise typer.BadParameter(
            "with --group, --from must be beginning or end, and applies only to partitions "
            "without a committed offset; `aiokq groups reset` and `rewind` change committed "
            "offsets"
        )
    if not wanted.follow:
        raise typer.BadParameter(
            "--until-end and --group exclude each other, because a member has only some of the "
            "partitions: end the command by --max-messages or Ctrl-C"
        )


def _settings(
    bootstrap_servers: str | None, config: Path | None, group: str | None, *, committed: bool
) -> tuple[ClusterSettings, ConsumerSettings]:
    """Return the cluster settings, and the consumer settings that are not cluster settings."""
    from aiokq.cli.settings import client_settings, own_settings
    from aiokq.cluster.settings import ClusterSettings
    from aiokq.consumer.settings import ConsumerSettings
    from aiokq.core.errors import ConfigError

    settings = client_settings(
        ConsumerSettings,
        bootstrap_servers,
        config,
        group_id=group,
        isolation_level="read_committed" if committed else None,
    )
    if group is None and settings.group_id is not None:
        raise ConfigError(
            f"group_id={settings.group_id!r}: this command reads from the given offsets and "
            "commits nothing: omit group_id, or join the group by --group"
        )
    # Reading a topic must not create it, even if the brokers create topics automatically.
    shared = client_settings(
        ClusterSettings, bootstrap_servers, config, allow_auto_create_topics=False
    )
    return shared, own_settings(settings)
