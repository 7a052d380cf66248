"""`aiokq log hand-over`: prepare the log directories of a stopped broker for Apache Kafka."""

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
    """Tell Apache Kafka which topics are in the directories of a stopped broker.

    The command writes bootstrap.checkpoint, which a new controller of Kafka 4.0 or later reads;
    nothing else is changed. Start Kafka with these log.dirs and the printed node.id, without
    kafka-storage format.
    """
    from aiokq.broker.kraft.bootstrap import hand_over as write
    from aiokq.core.clock import SystemClock
    from aiokq.core.files import OsFiles

    out = Output(as_json=as_json)
    paths = [str(path.absolute()) for path in directories]
    done = write(OsFiles(), paths, SystemClock().timestamp_ms())
    if as_json:
        out.document(
            {
                "cluster_id": done.cluster_id,
                "node_id": done.node_id,
                "topics": done.topics,
                "partitions": done.partitions,
                "files": list(done.paths),
            }
        )
        return
    out.line(f"Kafka will find topics={done.topics} partitions={done.partitions}")
    out.line(f"node.id={done.node_id}")
    out.line(f"log.dirs={','.join(paths)}")
