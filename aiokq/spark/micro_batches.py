"""Offsets of the micro-batches of a streaming query, and the ranges that each batch reads."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiokq.spark.data_loss import Losses
from aiokq.spark.group_progress import GroupProgress
from aiokq.spark.latest_offsets import LatestOffsets, OffsetSnapshot
from aiokq.spark.limits import starts_at_an_end
from aiokq.spark.offset_reader import Ends, OffsetReader, Partitions
from aiokq.spark.offsets import OffsetMap, PartitionOffsets, SourceOffset, prorated
from aiokq.spark.options import ReadOptions
from aiokq.spark.planning import OffsetRange
from aiokq.spark.stream_ranges import beginning, stream_ranges

__all__ = ["MicroBatchPlanner", "BatchLimit"]

logger = logging.getLogger("aiokq.spark")


@dataclass(frozen=True)
class BatchLimit:
    """Limit of the records that a batch may read, as Spark passes it.

    Attributes:
        everything: whether to read all available records, and ignore the limits of the options.
        max_rows: approximate maximum number of rows.
    """

    everything: bool = False
    max_rows: int | None = None


class MicroBatchPlanner:
    """Planner of the micro-batches of one streaming query.

    Args:
        options: options of the query.
        now: clock in seconds, replaced by tests.
    """

    def __init__(
        self,
        options: ReadOptions,
        now: Callable[[], float] = time.monotonic,
        latest_offsets: LatestOffsets | None = None,
    ) -> None:
        self._options = options
        self._losses = Losses(options.fail_on_data_loss)
        self._now = now
        self._latest_offsets = latest_offsets or LatestOffsets(options, now)
        group = options.commit_group
        self._group = (
            None if group is None else GroupProgress(group, lambda: self._latest_offsets.client)
        )
        self._initial: SourceOffset | None = None
        self._target: OffsetSnapshot | None = None
        self._latest: OffsetSnapshot | None = None
        self._triggered: float | None = None
        self._behind: dict[object, float] = {}

    def initial(self) -> OffsetMap:
        """Return the start offset of a new query; only the first call looks it up.

        Raises:
            ConfigError: an option does not match the existing topics, or a start offset is beyond
                the end of its log and ``failOnDataLoss`` is true.
            KafkaError: a request to the cluster failed.
        """
        if self._initial is None:
            # The result is kept, because Spark calls this method twice at the start of a query, and
            # "latest" may resolve to another offset the second time.
            client = self._latest_offsets.client
            self._initial = client.run(self._begin(OffsetReader(client.cluster, self._options)))
            logger.info("initial offsets %s", self._initial.positions)
        return self._initial.to_map()

    async def _begin(self, offset_reader: OffsetReader) -> SourceOffset:
        partitions = await offset_reader.partitions()
        ends = await offset_reader.ends(partitions.leaders)
        positions = await offset_reader.resolve(
            self._options.starting, partitions.leaders, ends, "starting"
        )
        positions = beginning(positions, ends, self._losses)
        return SourceOffset(positions, positions, partitions.topic_ids)

    def freeze(self) -> None:
        """Set the current ends of the logs as the end of the query, for Trigger.AvailableNow.

        Raises:
            KafkaError: a request to the cluster failed.
        """
        self._target = self._latest_offsets.ask()

    def next_end(
        self, start: Mapping[str, Mapping[str, int]] | None, wanted: BatchLimit
    ) -> OffsetMap:
        """Return the end offset of the next batch, or `start` if no batch is to run yet.

        Args:
            start: start of the batch; None if it is not known.
            wanted: limit that Spark passes.

        Raises:
            KafkaError: the cluster refused a request, or did not respond before the deadline.
        """
        begun = SourceOffset({}) if start is None else SourceOffset.parse(start)
        latest = self._target or self._latest_offsets.latest()
        if latest is None:
            return begun.to_map()
        self._latest = latest
        ends = self._not_before(begun, latest)
        # If the start is unknown, every partition counts as changed.
        starts = begun.positions if start is None else latest.starts | begun.positions
        # If a topic was recreated, the batch is planned without a minimum of records, so that a
        # loss of records is reported at once.
        again = _made_again(begun, latest)
        if not again and not self._moves(begun, starts, ends):
            return begun.to_map()
        if not wanted.everything:
            if not again and self._too_few(starts, ends):
                return begun.to_map()
            if wanted.max_rows is not None:
                ends = prorated(wanted.max_rows, starts, ends)
        self._triggered = self._now()
        # The end of the first batch also contains the start of the query: Spark logs only the end
        # before it runs the batch, and after a crash initial() may return another offset.
        initial = begun.initial if begun.unread else None
        return SourceOffset(ends, initial, latest.partitions.topic_ids).to_map()

    def _not_before(self, begun: SourceOffset, latest: OffsetSnapshot) -> PartitionOffsets:
        """Return the log end offsets; an end below the query's position becomes the position.

        A new leader may briefly report a lower end than the previous leader. The following ends are
        returned unchanged: ends that stay lower for ``fetchOffset.numRetries`` retry intervals,
        ends of recreated topics, and all ends with Trigger.AvailableNow.
        """
        ends = dict(latest.ends)
        now = self._now()
        options = self._options
        patience = options.fetch_offset_num_retries * options.fetch_offset_retry_interval_ms / 1000
        for tp, position in begun.positions.items():
            if tp not in ends or ends[tp] >= position:
                self._behind.pop(tp, None)
                continue
            id_ = latest.partitions.topic_ids.get(tp.topic)
            if begun.topic_ids.get(tp.topic, id_) != id_:
                continue
            if now - self._behind.setdefault(tp, now) < patience and self._target is None:
                ends[tp] = position
        return ends

    def _moves(self, begun: SourceOffset, starts: PartitionOffsets, ends: PartitionOffsets) -> bool:
        """Return True if a partition's end differs from its start, or if a partition is gone."""
        gone = begun.positions.keys() - ends.keys()
        return bool(gone) or any(end != starts.get(tp) for tp, end in ends.items())

    def _too_few(self, starts: PartitionOffsets, ends: PartitionOffsets) -> bool:
        """Whether to wait for more records because of ``minOffsetsPerTrigger``.

        The first batch of a run and batches with Trigger.AvailableNow do not wait. The wait ends
        when ``maxTriggerDelay`` has passed since the last batch was planned.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or self._triggered is None:
            return False
        if self._now() - self._triggered >= self._options.max_trigger_delay:
            return False
        return sum(max(end - starts.get(tp, end), 0) for tp, end in ends.items()) < least

    def reported(self) -> OffsetMap | None:
        """Return the log end offsets of the last lookup, for the progress of the query."""
        return None if self._latest is None else SourceOffset(self._latest.ends).to_map()

    def ranges(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> list[OffsetRange]:
        """Return the ranges to read between two offsets of the query.

        Raises:
            DataLoss: some of the records are gone, and ``failOnDataLoss`` is true.
            KafkaError: the cluster refused a request, or did not respond before the deadline.
        """
        begun, until = SourceOffset.parse(start), SourceOffset.parse(end)
        if begun.unread:
            # Spark passes the result of initial() as the start of the first batch. After a restart,
            # initial() may return another offset than the start with which the batch was planned;
            # the planned start is `until.initial`.
            if not until.positions:
                # No topic matched at the start; the next batch reads the topics that match now.
                return []
            if until.initial is not None:
                begun = SourceOffset(until.initial, topic_ids=until.topic_ids)
            elif starts_at_an_end(self._options.starting):
                # The JVM connector planned this batch, and keeps its start in a file of its own.
                self._losses.beginning_unknown(until.positions)
        if begun.positions == until.positions and begun.topic_ids == until.topic_ids:
            return []
        # Spark does not retry this call, so `answer` retries the lookup during an outage. Otherwise
        # the outage would end the query.
        partitions, ends = self._latest_offsets.answer(
            lambda offset_reader: self._current_offsets(offset_reader, until)
        )
        return stream_ranges(begun, until, partitions, ends, self._losses)

    async def _current_offsets(
        self, offset_reader: OffsetReader, until: SourceOffset
    ) -> tuple[Partitions, Ends]:
        partitions = await offset_reader.partitions(missing_ok=True)
        return partitions, await offset_reader.ends(
            until.positions.keys() & partitions.leaders.keys()
        )

    def commit(self, end: Mapping[str, Mapping[str, int]]) -> None:
        """Commit the end of a finished batch for the group of the option ``commitGroup``."""
        if self._group is not None:
            self._group.tell(SourceOffset.parse(end).positions)

    def close(self) -> None:
        """Stop committing offsets at the end of the query."""
        if self._group is not None:
            self._group.close()


def _made_again(begun: SourceOffset, latest: OffsetSnapshot) -> bool:
    """Whether a topic was deleted and created again."""
    ids = latest.partitions.topic_ids
    return any(ids.get(topic, id_) != id_ for topic, id_ in begun.topic_ids.items())
