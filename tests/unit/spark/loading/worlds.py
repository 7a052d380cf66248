"""Loads without Spark and without a broker, with batches of records that a test makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from aiokq import TopicPartition
from aiokq.spark.loading.batches import Batches
from aiokq.spark.loading.checkpoint import BatchOffsets
from aiokq.spark.loading.manifest import Manifest
from aiokq.spark.loading.options import LoadOptions
from aiokq.spark.loading.table_factory import table_of
from aiokq.spark.loading.target import Target
from aiokq.spark.loading.task_files import TaskReport, TaskSpec, schema, write
from aiokq.spark.loading.value_schema import ValueSchema

DAY_MS = 86_400_000


class Crash(Exception):
    """Simulates the death of the process."""


def records(topic: str, partition: int, first: int, until: int) -> pa.RecordBatch:
    """Records as of format("aiokq"), ten per day, of which every third value is not JSON."""
    numbers = range(first, until)
    values = [b"bad" if n % 3 == 2 else b'{"id": %d}' % n for n in numbers]
    return pa.record_batch(
        {
            "key": pa.array([b"k%d" % n for n in numbers], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array([topic] * len(numbers), pa.string()),
            "partition": pa.array([partition] * len(numbers), pa.int32()),
            "offset": pa.array(numbers, pa.int64()),
            "timestamp": pa.array([n // 10 * DAY_MS for n in numbers], pa.timestamp("ms")).cast(
                pa.timestamp("us", tz="UTC")
            ),
            "timestampType": pa.array([0] * len(numbers), pa.int32()),
        }
    )


class World:
    """A target and its loads; each `opened` is another process."""

    def __init__(self, options: LoadOptions) -> None:
        self.options = options
        self.target = Target.of(options)
        self.decoder = ValueSchema(options).decoder()
        self.runs = 0

    def batches(self) -> Batches:
        """Return the batches as a new process has them."""
        self.target = Target.of(self.options)
        spec = TaskSpec(
            partition_by=self.options.partition_by
            if self.options.target_format == "parquet"
            else (),
            rows_per_file=self.options.rows_per_file,
            decoder=self.decoder,
        )
        return Batches(self.target, table_of(self.options, schema(spec)), spec, self._run)

    def _run(self, frame: list[pa.RecordBatch], spec: TaskSpec) -> TaskReport:
        self.runs += 1
        return write(spec, iter(frame))

    def load(self, number: int, size: int = 30) -> Manifest:
        """Load batch `number`, of two partitions of a topic, in a process of its own."""
        first, until = number * size, (number + 1) * size
        offsets = BatchOffsets(
            {TopicPartition("t", p): first for p in range(2)},
            {TopicPartition("t", p): until for p in range(2)},
        )
        frame = [records("t", p, first, until) for p in range(2)]
        batches = self.batches()
        identity = {
            "topics": ["t"],
            "format": self.options.target_format,
            "read_committed": False,
            "dead_letter": str(self.options.dead_letter_root),
        }
        with self.target.opened(identity):
            # Spark writes it when the query starts.
            checkpoint = self.target.checkpoint.directory
            checkpoint.mkdir(exist_ok=True)
            (checkpoint / "metadata").write_text('{"id": "query"}')
            batches.recover()
            return batches.store(number, "query", offsets, frame)


def crashing(call: Callable[..., object], *, before: bool) -> Callable[..., object]:
    """Return a function that simulates the death of the process before or after the call."""

    def die(*given: object, **named: object) -> object:
        if not before:
            call(*given, **named)
        raise Crash

    return die


def options(to: Path | str, **changes: object) -> LoadOptions:
    """Return options of a load of JSON values."""
    given: dict[str, object] = {
        "to": to,
        "topics": ("t",),
        "value_format": "json",
        "value_schema": '{"type": "object", "properties": {"id": {"type": "integer"}}}',
    }
    return LoadOptions(**(given | changes))  # type: ignore[arg-type]
