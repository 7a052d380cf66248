"""Streaming reads: the process that Spark keeps for a query plans its batches; tasks read them.

What is here of Spark's versions is in this module alone: limits on what a batch reads, and
Trigger.AvailableNow, came with PySpark 4.2.
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
    """The reader that this version of Spark knows how to use.

    Raises:
        ConfigError: an option needs a newer one.
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
    """What all versions have in common.

    An object is made in the planner, and sent to the workers for `read`; another one lives in the
    query's own process, and only that one asks the cluster.
    """

    def __init__(self, options: ReadOptions, schema: StructType, max_tasks: int) -> None:
        self._options = options
        self._projection = Projection(schema)
        self._max_tasks = max_tasks
        self._planner = MicroBatchPlanner(options)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_planner": None}

    def initialOffset(self) -> OffsetMap:
        """Where a new query begins; the same, however often Spark asks."""
        return self._planner.initial()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks of a batch.

        Raises:
            DataLoss: records of it are gone, and ``failOnDataLoss`` is true.
            KafkaError: the cluster cannot be asked.
        """
        tasks = plan(
            self._planner.ranges(start, end),
            max_tasks=self._options.max_tasks or self._max_tasks,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        return [TaskRanges(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in a worker."""
        assert isinstance(partition, TaskRanges)
        return read_ranges(partition.ranges, self._options, self._projection)

    def commit(self, end: Offset) -> None:
        """The batch up to here is done; Spark says so when it plans the next one."""
        self._planner.commit(end)

    def stop(self) -> None:
        """The query has ended. Spark says so only where it has failed, or its driver died."""
        self._planner.close()

    def reportLatestOffset(self) -> OffsetMap | None:
        """The ends of the logs, for the query's progress."""
        return self._planner.reported()


if HAS_LIMITS:

    class LimitedStreamReader(_StreamReader, SupportsTriggerAvailableNow):
        """For PySpark from 4.2 on."""

        def getDefaultReadLimit(self) -> ReadLimit:
            """The larger of the limits in the options; the smaller is looked after here."""
            options = self._options
            if options.max_offsets_per_trigger is not None:
                return ReadMaxRows(options.max_offsets_per_trigger)
            if options.min_offsets_per_trigger is not None:
                return ReadMinRows(options.min_offsets_per_trigger)
            return ReadAllAvailable()

        def latestOffset(self, start: Offset, limit: ReadLimit) -> OffsetMap:
            """The end of the next batch; its start if there is to be none."""
            return self._planner.next_end(
                start,
                BatchLimit(
                    everything=isinstance(limit, ReadAllAvailable),
                    max_rows=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
                ),
            )

        def prepareForTriggerAvailableNow(self) -> None:
            """Read what is there now, and no more."""
            self._planner.freeze()


class UnlimitedStreamReader(_StreamReader):
    """For PySpark 4.1, which does not say where a batch starts when it asks for its end."""

    _last: OffsetMap | None = None
    _begun: OffsetMap | None = None

    def initialOffset(self) -> OffsetMap:
        """Where a new query begins; the same, however often Spark asks."""
        self._begun = super().initialOffset()
        self._last = self._last or self._begun
        return self._begun

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks of a batch; after a restart the first that is known of where it was."""
        self._last = {topic: dict(offsets) for topic, offsets in end.items()}
        if start != self._begun:
            # The end of a first batch without rows looks like a beginning, but is where it is: by
            # the end of the next one it must not be moved to where it would begin now.
            start = {topic: at for topic, at in start.items() if not topic.startswith(INITIAL)}
        return super().partitions(start, end)

    def latestOffset(self) -> OffsetMap:  # type: ignore[override]
        """The end of the next batch.

        Raises:
            KafkaError: where the query is, is not known, and the cluster cannot be asked.
        """
        if self._last is None:
            self._last = self._beginning()
        self._last = self._planner.next_end(self._last, BatchLimit(everything=True))
        return self._last

    def _beginning(self) -> OffsetMap | None:
        """Where a new query begins, noted in the end of its first batch.

        Spark asks a new one for its end first, and for its beginning when that end is logged:
        "latest" has moved on by then. One that goes on is asked the same. To that one it means
        nothing but a batch without rows.
        """
        try:
            return self.initialOffset()
        except ConfigError as error:
            # A new query is told so when Spark asks for its beginning. One that goes on has no
            # need of options that no longer fit.
            logger.debug("the beginning is not known: %s", error)
            return None
