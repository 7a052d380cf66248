"""Data source with which a load runs its tasks: format("aiokq_load_files"), internal to `load`.

The writer receives Arrow batches, so pandas is not needed. The driver writes the reports of the
tasks to a file in the temporary directory.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from aiokq import TopicPartition
from aiokq.spark.loading.task_files import (
    ROWS,
    PartitionCount,
    TaskReport,
    TaskSpec,
    WrittenFile,
    write,
)

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

__all__ = ["LoadFilesSource", "write_files"]

REPORT: Final = "report.json"


@dataclass
class _Reported(WriterCommitMessage):
    report: TaskReport


class LoadFilesSource(DataSource):
    """Data source that writes one batch to files; the option ``spec`` is a pickled `TaskSpec`."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "aiokq_load_files"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        spec = pickle.loads(base64.b64decode(self.options["spec"]))
        assert isinstance(spec, TaskSpec)
        return _Writer(spec)


class _Writer(DataSourceArrowWriter):
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Reported:
        """Write the rows of one task; called in a worker."""
        return _Reported(write(self._spec, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Write the reports of the committed attempts; called in the driver."""
        reports = [m.report for m in messages if isinstance(m, _Reported)]
        _report_path(self._spec).write_text(json.dumps(_document(reports)))


def write_files(frame: DataFrame, spec: TaskSpec) -> TaskReport:
    """Write the rows of a frame in Spark tasks; return the combined report of all tasks.

    Args:
        frame: frame with the columns of format("aiokq").
        spec: instructions for the tasks; the directories must exist and be empty.

    Raises:
        PySparkException: a task has failed as often as Spark allows.
    """
    options = {"spec": base64.b64encode(pickle.dumps(spec)).decode()}
    frame.write.format(LoadFilesSource.name()).options(**options).mode("append").save()
    document = json.loads(_report_path(spec).read_text())
    return TaskReport(
        files=[WrittenFile(*file) for file in document["files"]],
        counts={
            TopicPartition(topic, partition): PartitionCount(rows, dead)
            for topic, partition, rows, dead in document["counts"]
        },
    )


def _report_path(spec: TaskSpec) -> Path:
    return Path(spec.directories[ROWS]).with_name(REPORT)


def _document(reports: list[TaskReport]) -> dict[str, list[list[str | int]]]:
    totals: dict[TopicPartition, PartitionCount] = {}
    for report in reports:
        for tp, count in report.counts.items():
            before = totals.get(tp, PartitionCount())
            totals[tp] = PartitionCount(before.rows + count.rows, before.dead + count.dead)
    files = [f for report in reports for f in report.files]
    return {
        "files": [[f.kind, f.path, f.rows, f.size] for f in sorted(files, key=lambda f: f.path)],
        "counts": [[*tp, count.rows, count.dead] for tp, count in sorted(totals.items())],
    }
