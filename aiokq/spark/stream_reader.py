"""Streaming reader: Spark's process for the query plans its batches, and tasks read them.

Python sources support limits of a batch and Trigger.AvailableNow since PySpark 4.2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from aiokq.errors import ConfigError
from aiokq.spark.batch_reader import TaskRanges
from aiokq.spark.micro_batches import BatchLimit, MicroBatchPlanner
from aiokq.spark.offsets import INITIAL, OffsetMap
from aiokq.spark.options import ReadOptions
from aiokq.spark.planning import plan
from aiokq.spark.range_reader import read_ranges
from aiokq.spark.schema import Projection

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.1
    HAS_LIMITS = False
else:
    HAS_LIMITS = True

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["stream_reader"]

logger = logging.getLogger("aiokq.spark")

Offset = Mapping[str, Mapping[str, int]]


def stream_reader(
    options: ReadOptions, schema: StructType, max_tasks: int
) -> DataSourceStreamReader:
    """Return the reader for this version of Spark.

    Raises:
        ConfigError: an option needs a newer version of PySpark.
    """
    if HAS_LIMITS:
        return LimitedStreamReader(options, schema, max_tasks)
    for name, value in (
        ("maxOffsetsPerTrigger", options.max_offsets_per_trigger),
        ("minOffsetsPerTrigger", options.min_offsets_per_trigger),
    ):
        if value is not None:
            raise ConfigError(
                f"option {name} needs PySpark 4.2 or newer, this is {pyspark.__version__}"
            )
    return UnlimitedStreamReader(options, schema, max_tasks)


class _StreamReader(DataSourceStreamReader):
    """Base class of the readers for all versions of Spark.

    Spark's planner creates an instance, which is pickled to the workers for `read`. Spark creates
    another instance in the query's own process; only that instance plans batches.
    """

    def __init__(self, options: ReadOptions, schema: StructType, max_tasks: int) -> None:
        self._options = options
        self._projection = Projection(schema)
        self._max_tasks = max_tasks
        self._planner = MicroBatchPlanner(options)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_planner": None}

    def initialOffset(self) -> OffsetMap:
        """Return the start offset of a new query."""
        return self._planner.initial()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a batch.

        Raises:
            DataLoss: records of the batch are gone, and ``failOnDataLoss`` is true.
            KafkaError: a request to the cluster failed.
        """
        tasks = plan(
            self._planner.ranges(start, end),
            max_tasks=self._options.max_tasks or self._max_tasks,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        return [TaskRanges(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; called in a worker."""
        assert isinstance(partition, TaskRanges)
        return read_ranges(partition.ranges, self._options, self._projection)

    def commit(self, end: Offset) -> None:
        """Commit the end of a finished batch; Spark calls this when it plans the next batch."""
        self._planner.commit(end)

    def stop(self) -> None:
        """Stop committing offsets."""
        self._planner.close()

    def reportLatestOffset(self) -> OffsetMap | None:
        """Return the log end offsets, for the query's progress."""
        return self._planner.reported()


if HAS_LIMITS:

    class LimitedStreamReader(_StreamReader, SupportsTriggerAvailableNow):
        """Reader for PySpark 4.2 and newer."""

        def getDefaultReadLimit(self) -> ReadLimit:
            """Return the limit of ``maxOffsetsPerTrigger`` or ``minOffsetsPerTrigger``, if any.

            If both options are set, the planner also applies ``minOffsetsPerTrigger``.
            """
            options = self._options
            if options.max_offsets_per_trigger is not None:
                return ReadMaxRows(options.max_offsets_per_trigger)
            if options.min_offsets_per_trigger is not None:
                return ReadMinRows(options.min_offsets_per_trigger)
            return ReadAllAvailable()

        def latestOffset(self, start: Offset, limit: ReadLimit) -> OffsetMap:
            """Return the end of the next batch, or `start` if no batch is to run yet."""
            return self._planner.next_end(
                start,
                BatchLimit(
                    everything=isinstance(limit, ReadAllAvailable),
                    max_rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
                ),
            )

        def prepareForTriggerAvailableNow(self) -> None:
            """Set the current ends of the logs as the end of the query."""
            self._planner.freeze()


class UnlimitedStreamReader(_StreamReader):
    """Reader for PySpark 4.1, which requests the end of a batch without passing its start."""

    _last: OffsetMap | None = None
    _begun: OffsetMap | None = None

    def initialOffset(self) -> OffsetMap:
        """Return the start offset of a new query."""
        self._begun = super().initialOffset()
        self._last = self._last or self._begun
        return self._begun

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of a batch, and keep the end of the batch as the query's position."""
        self._last = {topic: dict(offsets) for topic, offsets in end.items()}
        if start != self._begun:
            # The end of the first batch also contains the start of the query, in entries that begin
            # with INITIAL. If that batch had no rows, the planner would mistake its end for the
            # start of the query. Therefore the entries are removed for later batches.
            start = {topic: at for topic, at in start.items() if not topic.startswith(INITIAL)}
        return super().partitions(start, end)

    def latestOffset(self) -> OffsetMap:  # type: ignore[override]
        """Return the end of the next batch.

        Raises:
            KafkaError: a request to the cluster failed. If the position of the query is known,
                retriable errors are raised only after the retry deadline.
        """
        if self._last is None:
            self._last = self._beginning()
        self._last = self._planner.next_end(self._last, BatchLimit(everything=True))
        return self._last

    def _beginning(self) -> OffsetMap | None:
        """Return the start offset of a new query; None if the start is not known.

        Spark requests the end of the first batch before it requests the start of the query. The
        start is looked up now, because "latest" may be another offset later.
        """
        try:
            return self.initialOffset()
        except ConfigError as error:
            # Do not raise the error. For a new query, Spark shows it when it requests the start. A
            # resumed query does not need the starting options, which may no longer match the
            # topics.
            logger.debug("the start of the query is not known: %s", error)
            return None
