"""ExportRun: one run of `aiokq spark export`, with its progress bar, summary and exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from aiokq.cli.output import Json, Output
from aiokq.cli.session import Session, Terminated
from aiokq.core.errors import ConfigError
from aiokq.core.options import flag

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokq import Cluster, NewTopic, ProducerSettings
    from aiokq.spark.exporting.columns import ExportColumns
    from aiokq.spark.exporting.run import Exported
    from aiokq.spark.exporting.sending import ExportProgress
    from aiokq.spark.exporting.transactions import ExportTransactions

__all__ = ["ExportRun"]


class ExportRun:
    """One export, with a progress bar on a terminal and a summary at the end.

    Args:
        cluster: a cluster that is not started; the run starts and closes it.
        settings: settings of the producer and the cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        sources: Sequence[str],
        topic: str,
        columns: ExportColumns,
        out: Output,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._sources = sources
        self._topic = topic
        self._columns = columns
        self._out = out
        self._progress: ExportProgress | None = None

    def run(
        self,
        session: Session,
        *,
        create: NewTopic | None,
        resume: Path | None,
        verify: bool,
        transactions: ExportTransactions | None,
    ) -> None:
        """Run the export and set the exit code of the output.

        Raises:
            KafkaError, OSError: raised by `aiokq.spark.export`.
            KeyboardInterrupt, Terminated: the export was interrupted; its progress is printed.
        """
        from aiokq.spark.exporting.failures import ColumnError

        started = perf_counter()
        try:
            with self._shown() as report:
                done = session.run(self._export(report, create, resume, verify, transactions))
        except (KeyboardInterrupt, Terminated):
            self._interrupted(resume)
            raise
        except ColumnError as error:
            typed = flag(type(self._columns), error.option)
            raise ConfigError(f"{typed}: {error.problem}") from None
        seconds = perf_counter() - started
        if self._out.as_json:
            self._out.json_line(self._document(done, seconds))
        else:
            self._summary(done, seconds)
        self._judge(done)
        self._out.flush()

    async def _export(
        self,
        report: Callable[[ExportProgress], None],
        create: NewTopic | None,
        resume: Path | None,
        verify: bool,
        transactions: ExportTransactions | None,
    ) -> Exported:
        from aiokq import ClusterSettings
        from aiokq.spark.exporting.run import export

        settings = self._settings
        own = {
            name: getattr(settings, name)
            for name in settings.explicit
            if name not in ClusterSettings.model_fields
        }
        async with self._cluster as cluster:
            return await export(
                cluster,
                self._sources,
                self._topic,
                columns=self._columns,
                producer=own,
                create=create,
                resume=resume,
                verify=verify,
                transactions=transactions,
                told=report,
            )

    @contextmanager
    def _shown(self) -> Iterator[Callable[[ExportProgress], None]]:
        """Yield a callback that moves a progress bar.

        If stderr is not a terminal or the output is JSON, there is no bar.
        """
        if self._out.as_json or not sys.stderr.isatty():
            yield self._note
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            Remaining(),
            console=console,
            transient=True,
        )
        task = bar.add_task(self._topic, total=None)

        def report(progress: ExportProgress) -> None:
            if self._progress is None:
                console.print(progress.columns)
            self._note(progress)
            bar.update(task, total=progress.total, completed=progress.done)

        with bar:
            yield report

    def _note(self, progress: ExportProgress) -> None:
        self._progress = progress

    def _interrupted(self, resume: Path | None) -> None:
        if self._progress is None:
            return
        more = (
            f"the same command continues from there, using {resume}"
            if resume is not None
            else "the same command writes all rows again (with --resume FILE it continues)"
        )
        self._out.note(
            f"aiokq: interrupted: {self._progress.done} of {self._progress.total} rows are "
            f"acknowledged; {more}"
        )

    def _summary(self, done: Exported, seconds: float) -> None:
        sent = done.rows - done.resumed
        files = f"{done.files} file{'' if done.files == 1 else 's'}"
        before = f", {done.resumed} by earlier runs" if done.resumed else ""
        self._out.line(
            f"{done.rows} row{'' if done.rows == 1 else 's'} of {files} acknowledged by "
            f"{self._topic}{before}; {sent} now ({done.size} bytes) in {seconds:.2f} s"
        )
        found = done.checked
        if found is not None and done.verified:
            others = f", and {found.others} records of other producers" if found.others else ""
            self._out.line(f"verified: {found.rows} rows are in the log, unchanged{others}")

    def _judge(self, done: Exported) -> None:
        found = done.checked
        if found is None or done.verified:
            return
        if found.rows < done.rows:
            self._out.trouble(
                f"{done.rows - found.rows} of {done.rows} acknowledged rows are not in the log: "
                "retention or compaction has removed them, or records were deleted (see `aiokq "
                f"topics describe {self._topic}`: retention counts from the time of a record)"
            )
        else:
            self._out.trouble(
                f"{self._topic} has other keys or values than the rows: was the topic recreated?"
            )

    def _document(self, done: Exported, seconds: float) -> Json:
        found = done.checked
        return {
            "topic": self._topic,
            "created": done.created,
            "columns": None if self._progress is None else self._progress.columns,
            "files": done.files,
            "rows": done.rows,
            "resumed": done.resumed,
            "sent": done.rows - done.resumed,
            "bytes": done.size,
            "seconds": round(seconds, 3),
            "partitions": {str(p): count for p, count in done.partitions.items()},
            "verified": done.verified,
            "in_log": None if found is None else found.rows,
            "others": None if found is None else found.others,
        }
