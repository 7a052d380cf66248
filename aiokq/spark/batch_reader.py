"""KafkaBatchReader: the reader of batch queries."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from aiokq.errors import ConfigError
from aiokq.spark.data_loss import Losses
from aiokq.spark.offset_reader import OffsetReader
from aiokq.spark.options import ReadOptions
from aiokq.spark.planning import OffsetRange, plan
from aiokq.spark.range_reader import read_ranges
from aiokq.spark.schema import Projection
from aiokq.spark.worker import worker_client

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["KafkaBatchReader", "TaskRanges"]

logger = logging.getLogger("aiokq.spark")


class TaskRanges(InputPartition):
    """The offset ranges that one task reads."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        self.ranges = tuple(ranges)


class KafkaBatchReader(DataSourceReader):
    """Reader of a batch query. The offsets to read are fixed when the query is planned.

    Args:
        options: the checked options of the query.
        schema: schema of the frame.
        max_tasks: maximum number of tasks if the option ``maxTasks`` is not set.
    """

    _since_ms: int | None = None
    """Lower bound of the timestamps to read, in milliseconds since 1970; None for no bound."""

    def __init__(self, options: ReadOptions, schema: StructType, max_tasks: int) -> None:
        self._options = options
        self._projection = Projection(schema)
        self._max_tasks = max_tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks of the query.

        Raises:
            ConfigError: an option does not match the existing topics, or the start offset of a
                partition is greater than its end offset.
            DataLoss: requested offsets are before the start or after the end of the log, and
                ``failOnDataLoss`` is true.
            KafkaError: a request to the cluster failed, or a topic does not exist.
        """
        client = worker_client(self._options.kafka)
        offset_reader = OffsetReader(client.cluster, self._options)
        ranges = self._narrowed(client.run(_ranges(offset_reader, self._options, self._since_ms)))
        tasks = plan(
            ranges,
            max_tasks=self._options.max_tasks or self._max_tasks,
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        # If the list were empty, Spark would call `read` with a plain `InputPartition`, which has
        # no ranges.
        return [TaskRanges(task) for task in tasks] or [TaskRanges(())]

    def _narrowed(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """Return the parts of the ranges that the filters select. This class has no filters."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; called in a worker."""
        assert isinstance(partition, TaskRanges)
        return read_ranges(partition.ranges, self._options, self._projection)


async def _ranges(
    offset_reader: OffsetReader, options: ReadOptions, since_ms: int | None
) -> list[OffsetRange]:
    partitions = await offset_reader.partitions()
    ends = await offset_reader.ends(partitions.leaders)
    starts = await offset_reader.resolve(options.starting, partitions.leaders, ends, "starting")
    stops = await offset_reader.resolve(options.ending, partitions.leaders, ends, "ending")
    since = (
        None if since_ms is None else await offset_reader.first_since(partitions.leaders, since_ms)
    )
    losses = Losses(options.fail_on_data_loss)
    ranges = []
    for tp in partitions.leaders:
        start, stop = starts[tp], stops[tp]
        if start > stop:
            raise ConfigError(_REVERSED.format(start=start, stop=stop, tp=tp))
        if stop > ends.ends[tp]:
            losses.unreadable(tp, ends.ends[tp], stop)
            stop = max(ends.ends[tp], start)
        if start < ends.starts[tp]:
            losses.start_reset(tp, start, ends.starts[tp])
            start = min(ends.starts[tp], stop)
        if since is not None:
            # `since` was looked up after `ends`, so a partition that is missing in `since` has no
            # record before `stop` with a timestamp of `since_ms` or later.
            start = min(max(start, since.get(tp, stop)), stop)
        topic_id = partitions.topic_ids.get(tp.topic)
        ranges.append(OffsetRange(*tp, start, stop, topic_id, partitions.leaders[tp]))
    return ranges


_REVERSED: Final = """\
The resolved start offset {start} is greater than the resolved end offset {stop} for topic \
{tp.topic} partition {tp.partition}.
Please investigate in this order:
1. Check whether start offset is set beyond the end offset or the latest available offset after \
resolution. Possible inputs are:
  (a) Start offset is set to a timestamp, and the end offset is set to an index of offset.
  (b) Start offset is set to an index of offset, and the end offset is set to a timestamp.
  (c) Start offset is set, and the end offset is set to latest.
2. Check whether the Kafka topic-partition is deleted and re-created."""
