"""`aiokq log hand-over`: prints the settings that Apache Kafka needs, and changes nothing.

The command will be removed in the next release.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aiokq.cli.options import AsJson
from aiokq.cli.output import Output

__all__ = ["hand_over"]


def hand_over(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="All log directories of one node, in the order of Kafka's log.dirs.",
            exists=True,
            file_okay=False,
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Change nothing: log directories need no hand-over to Apache Kafka any more.

    The metadata in the directories is in Kafka's own format, so Kafka 4.0 or later starts with the
    directories as they are. The command prints the settings that Kafka needs, and will be removed
    in the next release.
    """
    from aiokq.broker.log.locked_directories import locked_directories
    from aiokq.broker.metadata.stopped_broker.stopped_log import read_stopped_log
    from aiokq.core.files import OsFiles

    out = Output(as_json=as_json)
    files, paths = OsFiles(), [str(path.absolute()) for path in directories]
    with locked_directories(files, paths) as ids:
        stopped = read_stopped_log(files, paths, ids)
    voters = "" if stopped.state.kraft_version else f"{stopped.node_id}@localhost:9093"
    if as_json:
        out.document(
            {
                "cluster_id": stopped.properties.cluster_id,
                "node_id": stopped.node_id,
                "log_dirs": paths,
                "metadata_log_dir": stopped.log_directory,
                "controller_quorum_voters": voters or None,
            }
        )
        return
    out.line("nothing to do: Apache Kafka 4.0 or later starts with these directories as they are")
    out.line(f"node.id={stopped.node_id}")
    out.line(f"log.dirs={','.join(paths)}")
    out.line(f"metadata.log.dir={stopped.log_directory}")
    if voters:
        out.line(f"controller.quorum.voters={voters}")
