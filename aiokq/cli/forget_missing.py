"""`aiokq log forget-missing`: give up log directories whose disks are lost for good."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from aiokq.cli.options import NOT_DONE, AsJson, DryRun, Execute, executing
from aiokq.cli.output import Output

__all__ = ["forget_missing"]


def forget_missing(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="All remaining log directories of the node.",
            exists=True,
            file_okay=False,
            show_default=False,
        ),
    ],
    dry_run: DryRun = False,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Forget log directories that a stopped broker has lost for good.

    At its next start, the broker recreates the lost partitions in the remaining directories. The
    new partitions are empty, and their offsets begin at 0. Without this command the partitions stay
    offline after every start, because the broker cannot distinguish lost from unmounted disks.
    """
    from aiokq.broker.metadata.stopped_broker.forgetting import forget_missing as forget
    from aiokq.core.clock import SystemClock
    from aiokq.core.files import OsFiles

    do_it = executing(dry_run=dry_run, execute=execute)
    out = Output(as_json=as_json)
    paths = [str(path.absolute()) for path in directories]
    lost = forget(OsFiles(), paths, execute=do_it, now_ms=SystemClock().timestamp_ms())
    if as_json:
        out.document(
            {
                "forgotten": list(lost.paths),
                "partitions": [
                    {"topic": one.topic, "partition": one.partition} for one in lost.partitions
                ],
                "executed": do_it,
            }
        )
        return
    if not lost.paths:
        out.line("no log directory is missing")
        return
    for path in lost.paths:
        out.line(f"missing: {path}")
    counts = Counter(one.topic for one in lost.partitions)
    if counts:
        out.table(["topic", "partitions that start again, empty"], list(map(list, counts.items())))
    out.line("forgotten" if do_it else NOT_DONE)
