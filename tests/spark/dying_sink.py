"""A sink whose driver, worker or broker dies, or whose task fails, at a chosen point of a batch.

The option ``_die`` of format "dyingsink" is JSON: ``at`` ("first record", "commit", "commit log",
"between tasks", "slow"), ``how`` ("raise", "worker", "driver", "broker"), ``batch``: the number of
the batch, ``home``: a directory for the files by which processes know of each other. It happens
once. "broker" makes the file ``kill`` and waits until the test has made ``killed``.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from aiokq.spark import AiokqDataSource
from aiokq.spark.exactly_once import TaskId
from aiokq.spark.sink import KafkaStreamWriter, Target, Written
from tests.spark.dying import DRIVER
from tests.spark.streams import wait_for

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["DyingSink"]

HEAD_START = 3.0
"""Seconds by which the second attempt of a slow task is ahead of the first."""


class DyingSink(AiokqDataSource):
    """Data source that writes topics until it is told to die."""

    @classmethod
    def name(cls) -> str:
        return "dyingsink"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        order = json.loads(self.options["_die"])
        return DyingWriter(Target.of(self.options, schema, streaming=True), order)


class DyingWriter(KafkaStreamWriter):
    """Stream writer that writes until it is told to die."""

    def __init__(self, target: Target, order: dict[str, Any]) -> None:
        super().__init__(target)
        self._order = order
        self._home = Path(order["home"])

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        id_ = TaskId.current()
        if id_.batch != self._order["batch"]:
            return super().write(iterator)
        self._is_first(f"attempt-{id_.batch}-{id_.task}") or self._is_first(
            f"attempt-{id_.batch}-{id_.task}-again"
        )
        done = self._home / f"batch {id_.batch} done"
        if self._order["at"] == "between tasks" and id_.task:
            # Task 0 has committed, this one has not begun.
            wait_for(done.exists, 60)
            self._die("between tasks")
        written = super().write(self._dying(iterator))
        if id_.task == 0:
            done.touch()
        if self._order["how"] == "worker":
            self._die("commit log")
        return written

    def _dying(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._die("first record")
        yield from batches
        if self._order["at"] == "slow" and self._is_first("slow"):
            id_ = TaskId.current()
            wait_for((self._home / f"attempt-{id_.batch}-{id_.task}-again").exists, 120)
            time.sleep(HEAD_START)
        # Some time for the records to arrive, which linger only briefly.
        if self._order["at"] == "commit":
            time.sleep(0.2)
        self._die("commit")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        super().commit(messages, batchId)
        if batchId == self._order["batch"] and self._order["how"] != "worker":
            self._die("commit log")

    def _is_first(self, what: str) -> bool:
        try:
            os.close(os.open(self._home / what, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _die(self, point: str) -> None:
        if self._order["at"] != point or not self._is_first("died"):
            return
        match self._order["how"]:
            case "raise":
                raise RuntimeError("injected")
            case "worker":
                os.kill(os.getpid(), signal.SIGKILL)
            case "driver":
                driver = int(os.environ[DRIVER])
                children = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
                for pid in (*map(int, children), driver, os.getpid()):
                    os.kill(pid, signal.SIGKILL)
            case "broker":
                (self._home / "kill").touch()
                wait_for((self._home / "killed").exists, 60)
