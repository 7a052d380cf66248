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
    """What a batch may read, in Spark's words.

    Attributes:
        everything: all there is, whatever the options say.
        max_rows: about so many.
    """

    everything: bool = False
    max_rows: int | None = None


class MicroBatchPlanner:
    """One streaming query, in the process that Spark keeps for it.

    Args:
        options: of the query.
        now: seconds, for tests.
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

    # -- where it begins

    def initial(self) -> OffsetMap:
        """Where the query begins if it never ran; asked for once.

        Raises:
            ConfigError: an option does not fit the topics as they are.
            KafkaError: the cluster cannot be asked.
        """
        if self._initial is None:
            # Spark asks twice at the start of a query; "latest" would have moved on.
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

    # -- how far it goes

    def freeze(self) -> None:
        """Go to the ends of the logs as they are now, and no further.

        Raises:
            KafkaError: the cluster cannot be asked.
        """
        self._target = self._latest_offsets.ask()

    def next_end(
        self, start: Mapping[str, Mapping[str, int]] | None, wanted: BatchLimit
    ) -> OffsetMap:
        """Where the next batch ends; where it starts if there is nothing to read, or not yet.

        Args:
            start: its start; None if Spark does not tell and none is known.

        Raises:
            KafkaError: the cluster did not answer until the deadline.
        """
        begun = SourceOffset({}) if start is None else SourceOffset.parse(start)
        latest = self._target or self._latest_offsets.latest()
        if latest is None:
            return begun.to_map()
        self._latest = latest
        ends = self._not_before(begun, latest)
        # Where it is not known where the query is, everything moves.
        starts = begun.positions if start is None else latest.starts | begun.positions
        # Said at once, whatever there is to read: records may be lost.
        again = _made_again(begun, latest)
        if not again and not self._moves(begun, starts, ends):
            return begun.to_map()
        if not wanted.everything:
            if not again and self._too_few(starts, ends):
                return begun.to_map()
            if wanted.max_rows is not None:
                ends = prorated(wanted.max_rows, starts, ends)
        self._triggered = self._now()
        # In the end of the first batch, for that is written down before the batch is run: after a
        # crash in it Spark would have the query begin wherever initial() says then.
        initial = begun.initial if begun.unread else None
        return SourceOffset(ends, initial, latest.partitions.topic_ids).to_map()

    def _not_before(self, begun: SourceOffset, latest: OffsetSnapshot) -> PartitionOffsets:
        """The ends, but none before where the query is, unless that lasts.

        A new leader may for a moment know less than the last one; a topic that was made anew
        knows less for good.
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
        """Whether there is anything between; partitions that are new and empty are not."""
        gone = begun.positions.keys() - ends.keys()
        return bool(gone) or any(end != starts.get(tp) for tp, end in ends.items())

    def _too_few(self, starts: PartitionOffsets, ends: PartitionOffsets) -> bool:
        """Whether to wait for more: ``minOffsetsPerTrigger`` and ``maxTriggerDelay``.

        Not with Trigger.AvailableNow: nothing more will come.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None or self._triggered is None:
            return False
        if self._now() - self._triggered >= self._options.max_trigger_delay:
            return False
        return sum(max(end - starts.get(tp, end), 0) for tp, end in ends.items()) < least

    def reported(self) -> OffsetMap | None:
        """The ends of the logs when they were last asked for."""
        return None if self._latest is None else SourceOffset(self._latest.ends).to_map()

    # -- what a batch reads

    def ranges(
        self, start: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
    ) -> list[OffsetRange]:
        """What lies between two offsets of the query.

        Raises:
            DataLoss: some of it is gone, and ``failOnDataLoss`` is true.
            KafkaError: the cluster did not answer until the deadline.
        """
        begun, until = SourceOffset.parse(start), SourceOffset.parse(end)
        if begun.unread:
            # What Spark gives for the first batch is what initial() says now.
            if not until.positions:
                # It began when no topic matched yet; what there is by now is read by the next one.
                return []
            if until.initial is not None:
                begun = SourceOffset(until.initial, topic_ids=until.topic_ids)
            elif starts_at_an_end(self._options.starting):
                # The JVM connector planned it, and keeps where it began in a file of its own.
                self._losses.beginning_unknown(until.positions)
        if begun.positions == until.positions and begun.topic_ids == until.topic_ids:
            return []
        # Spark tries none of this again: an outage that begins here would end the query.
        partitions, ends = self._latest_offsets.answer(
            lambda offset_reader: self._now_there(offset_reader, until)
        )
        return stream_ranges(begun, until, partitions, ends, self._losses)

    async def _now_there(
        self, offset_reader: OffsetReader, until: SourceOffset
    ) -> tuple[Partitions, Ends]:
        partitions = await offset_reader.partitions(missing_ok=True)
        return partitions, await offset_reader.ends(
            until.positions.keys() & partitions.leaders.keys()
        )

    def commit(self, end: Mapping[str, Mapping[str, int]]) -> None:
        """A batch is done: tell the group of ``commitGroup``, for tools that show its lag."""
        if self._group is not None:
            self._group.tell(SourceOffset.parse(end).positions)

    def close(self) -> None:
        """The query ends, if Spark has the time to say so."""
        if self._group is not None:
            self._group.close()


def _made_again(begun: SourceOffset, latest: OffsetSnapshot) -> bool:
    """Whether a topic is another one, which may have come as far as the one before."""
    ids = latest.partitions.topic_ids
    return any(ids.get(topic, id_) != id_ for topic, id_ in begun.topic_ids.items())
