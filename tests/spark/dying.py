"""A source whose processes are killed, or fail, at a point that a test chose; else it is "aiokq".

The option ``_die`` of format "dying" is JSON: ``at`` ("latestOffset", "partitions" or "read"),
``how`` ("raise", "kill": this process, "killgroup": the driver with its JVM), ``from``: the least
start at which it happens (of a range of the task for "read", else the sum of the batch's
partitions), and ``once``: a file that is made, and whose being there prevents it.
``_hold`` is a file that latestOffset waits for; ``_begun`` one that says that it does.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from aiokq.spark import AiokqDataSource
from aiokq.spark.batch_reader import TaskRanges
from aiokq.spark.offsets import OffsetMap, SourceOffset
from aiokq.spark.options import ReadOptions
from aiokq.spark.stream_reader import LimitedStreamReader

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["DyingDataSource", "kill_driver"]

Offset = Mapping[str, Mapping[str, int]]


DRIVER = "AIOKQ_TEST_DRIVER"
"""Variable with the pid of a driver whose JVM is in a session of its own."""


def kill_driver() -> None:
    """Kill the driver, its JVM and the processes of its streams, all at once."""
    driver = int(os.environ.get(DRIVER, os.getpid()))
    children = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
    groups = {os.getpgid(int(pid)) for pid in (driver, *children)}
    for group in sorted(groups, key=lambda group: group == os.getpgrp()):
        os.killpg(group, signal.SIGKILL)  # its own group last
    time.sleep(60)


class DyingDataSource(AiokqDataSource):
    """Data source that reads topics until it is told to die."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return DyingStreamReader(
            ReadOptions.parse(self.options, streaming=True), schema, 2, self.options
        )


class DyingStreamReader(LimitedStreamReader):
    """Stream reader that reads until it is told to die."""

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        max_tasks: int,
        given: MutableMapping[str, str],
    ) -> None:
        super().__init__(options, schema, max_tasks)
        self._die: dict[str, Any] = json.loads(given.get("_die", "{}"))
        self._hold = given.get("_hold")
        self._begun = given.get("_begun")

    def latestOffset(self, start: Offset, limit: ReadLimit) -> OffsetMap:
        if self._begun is not None:
            Path(self._begun).touch()
        while self._hold is not None and not Path(self._hold).exists():
            time.sleep(0.01)
        end = super().latestOffset(start, limit)
        if end != start:
            self._at("latestOffset", sum(SourceOffset.parse(start).positions.values()))
        return end

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        tasks = super().partitions(start, end)
        self._at("partitions", sum(SourceOffset.parse(start).positions.values()))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TaskRanges)
        for batch in super().read(partition):
            # Only after some rows were returned, which must not count.
            yield batch
            self._at("read", max(part.start for part in partition.ranges))

    def _at(self, point: str, offset: int) -> None:
        if self._die.get("at") != point or offset < self._die["from"]:
            return
        try:
            os.close(os.open(self._die["once"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        match self._die["how"]:
            case "raise":
                raise RuntimeError("injected")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "killgroup":
                kill_driver()
