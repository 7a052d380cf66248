"""The state of each assigned partition: position, buffered chunks, and errors of its fetches.

This module does no I/O: the fetcher and the position resolver act on these states.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING

from aiokq.cluster.metadata import NO_LEADER, ZERO_ID
from aiokq.cluster.partition_arguments import checked_partition
from aiokq.consumer.subscription import Partition
from aiokq.core.errors import ConfigError, KafkaError, copy_error
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from aiokq.connection.backoff import Backoff
    from aiokq.consumer.batch_progress import TakenChunk
    from aiokq.consumer.buffers import Chunk
    from aiokq.consumer.record_source import RecordSource

__all__ = ["PartitionState", "Positions", "Stage", "Start"]


class Stage(Enum):
    """The state of a partition's position."""

    RESETTING = "no position yet; the offset is being looked up"
    VALIDATING = "a new leader was elected and is asked whether the position exists in its log"
    FETCHING = "the position is valid"
    PARKED = (
        "an error was reported to the reader, or the assignment ended; nothing is fetched until "
        "the position is set or reset"
    )


class Start(Enum):
    """The target of a position reset."""

    POLICY = "auto_offset_reset"
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "the committed offset of the group, or auto_offset_reset if there is none"
    COMMITTED_NEW = "the committed offset of the group, or the beginning if there is none"


class PartitionState:
    """One assigned partition.

    Attributes:
        generation: incremented when the position is set or discarded, or the partition is parked or
            removed, but not when records are delivered; responses to requests of an older
            generation are ignored.
        topic_id: id of the topic to which the position and the delivered records belong; zeros
            while unknown.
        incarnation: incremented when the partition's topic was deleted and created again; offsets
            of an older incarnation must not be committed.
        fetch_offset: offset of the next record to fetch; -1 without a position.
        fetch_epoch: leader epoch of the record before `fetch_offset`; -1 if unknown.
        leader_epoch: the latest leader epoch in metadata, sent with requests.
        node: the node id of the broker whose fetch loop has this partition; -1 if none.
        preferred: the node id of the replica to read from instead of the leader; -1 if none
            (KIP-392).
        chunks: chunks that are fetched and not delivered, oldest first; a reader may be reading the
            first.
        paused: whether the user has paused the partition, which is then neither delivered nor
            fetched.
        withheld: whether delivery and fetching are stopped because the group is assigning or
            revoking the partition, or because the member is leaving the group.
        queued_bytes: size in bytes of the chunks, without the chunk that the stream is reading.
        held: offset of the first delivered record that is not finished; None if all are finished,
            or if only the last record of the stream is not finished.
        batch: the chunk that was delivered as a batch and is not finished; None if there is none.
        retry_at: loop time before which no request is sent for the partition.
        error: why the partition is parked, or why its last request was refused; None otherwise.
    """

    __slots__ = (
        "_ready",
        "backoff",
        "batch",
        "chunks",
        "error",
        "fetch_epoch",
        "fetch_offset",
        "fetched_at_ms",
        "generation",
        "held",
        "high_watermark",
        "in_hand",
        "incarnation",
        "last_stable_offset",
        "leader",
        "leader_epoch",
        "listed",
        "log_start_offset",
        "looking_up",
        "node",
        "paused",
        "preferred",
        "preferred_until",
        "queued_bytes",
        "reset_to",
        "retry_at",
        "source",
        "stage",
        "topic_id",
        "tp",
        "withheld",
    )

    def __init__(
        self, tp: TopicPartition, start: Start, source: RecordSource, backoff: Backoff
    ) -> None:
        self.tp = tp
        self.source = source
        self.backoff = backoff
        self.stage = Stage.RESETTING
        self.reset_to = start
        self.generation = 0
        self.incarnation = 0
        self.fetch_offset = -1
        self.fetch_epoch = -1
        self.leader: int = NO_LEADER
        self.leader_epoch = -1
        self.topic_id: UUID = ZERO_ID
        self.node = -1
        self.preferred = -1
        self.preferred_until = 0.0
        self.paused = False
        self.withheld = False
        self.chunks: deque[Chunk] = deque()
        self.in_hand = False
        self.listed = False
        self.queued_bytes = 0
        self.held: int | None = None
        self.batch: TakenChunk | None = None
        self.looking_up = -1
        self.retry_at = 0.0
        self.error: KafkaError | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.fetched_at_ms: int | None = None
        self._ready: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return f"<{self.tp} {self.stage.name.lower()} position={self.position}>"

    @property
    def position(self) -> int:
        """Offset of the next record to deliver; -1 while unknown."""
        batch = self.batch
        if batch is not None and (position := batch.progress.position) < batch.next_offset:
            return position  # reading the batch stopped at an error
        return self.chunks[0].cursor.position if self.chunks else self.fetch_offset

    @property
    def settled_position(self) -> int:
        """The position; if the buffered data has no record to deliver, the end of that data.

        -1 while unknown. `position` moves past transaction markers and aborted records only when
        the next record is requested. Until then a lag computed from `position` would stay above 0.
        """
        position = self.position
        if not self.chunks or position < self.chunks[0].cursor.position:
            return position
        for chunk in self.chunks:
            try:
                if chunk.cursor.fork().more():
                    return position
            except KafkaError:  # raised to the reader when it reaches the data
                return position
        return self.fetch_offset

    @property
    def readable(self) -> bool:
        """Whether data is buffered and may be delivered."""
        return bool(self.chunks) and not self.paused and not self.withheld

    def is_of_another(self, topic_id: UUID) -> bool:
        """Whether the position belongs to a topic with another id; False if either is unknown."""
        return topic_id != self.topic_id and ZERO_ID not in (topic_id, self.topic_id)

    def lag(self, *, committed_only: bool) -> int | None:
        """Return the number of offsets from the position to the end; None if unknown.

        The end is the last stable offset with `committed_only`, otherwise the high watermark.
        """
        end = self.last_stable_offset if committed_only else self.high_watermark
        position = self.settled_position
        return max(0, end - position) if end >= 0 and position >= 0 else None

    def jump(self, offset: int, epoch: int = -1) -> None:
        """Set the position; the partition must have no chunks."""
        self.generation += 1
        self.fetch_offset = offset
        self.fetch_epoch = epoch
        self.stage = Stage.FETCHING
        self._try_now()
        self._settled()

    def reset(self, start: Start) -> None:
        """Discard the position; the partition must have no chunks."""
        self.generation += 1
        self.fetch_offset = -1
        self.fetch_epoch = -1
        self.stage = Stage.RESETTING
        self.reset_to = start
        self._try_now()

    def park(self, error: KafkaError) -> None:
        """Stop fetching until the position is set or reset; the caller reports `error`."""
        self.generation += 1
        self.stage = Stage.PARKED
        self.error = error
        self._settled()

    def replace_topic(self, start: Start) -> None:
        """Discard the state that belongs to a topic which was deleted and created again.

        `paused` and `withheld` stay as they are.
        """
        self.incarnation += 1
        self.topic_id = ZERO_ID
        self.leader_epoch = self.high_watermark = self.last_stable_offset = -1
        self.log_start_offset = self.preferred = -1
        self.reset(start)

    def validate(self) -> None:
        """Require a check that a new leader's log contains the position and was not truncated.

        Without the leader epoch of the last record, no check is possible, and fetching continues.
        """
        if self.stage is Stage.FETCHING and self.fetch_epoch >= 0:
            self.stage = Stage.VALIDATING
            self.retry_at = 0.0

    def validated(self) -> None:
        """End the validation and continue fetching."""
        if self.stage is Stage.VALIDATING:
            self.stage = Stage.FETCHING
            self._try_now()

    def later(self, now: float, error: KafkaError | None) -> float:
        """Back off after a refused request; return the loop time of the next attempt."""
        self.error = error
        self.retry_at = now + self.backoff.next()
        return self.retry_at

    def refused(self, error: KafkaError) -> None:
        """Raise `error` to all waiters for the position."""
        waiting, self._ready = self._ready, []
        for future in waiting:
            if not future.done():
                future.set_exception(copy_error(error))

    def answered(self) -> None:
        """End the backoff after a successful request."""
        if self.error is not None or self.retry_at:
            self._try_now()

    def _try_now(self) -> None:
        self.error = None
        self.retry_at = 0.0
        self.backoff.reset()

    async def has_position(self) -> None:
        """Wait until the partition has a position, or is parked.

        Raises:
            KafkaError: `refused` was called with this error during the wait.
        """
        while self.fetch_offset < 0 and self.stage is not Stage.PARKED:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # Remove the futures of cancelled waits, so that the list does not grow.
            self._ready = [waiting for waiting in self._ready if not waiting.done()]
            self._ready.append(future)
            await future

    def _settled(self) -> None:
        waiting, self._ready = self._ready, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def gone(self) -> None:
        """Handle the end of the assignment: ignore responses in flight, and wake waiters."""
        self.generation += 1
        self.stage = Stage.PARKED
        self._settled()


class Positions:
    """All assigned partitions, by topic and partition."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._states

    def get(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state of a partition; None if it is not assigned."""
        return self._states.get(tp)

    def named(self, partitions: Iterable[Partition]) -> list[PartitionState]:
        """Return the states of partitions that a user names.

        Raises:
            ConfigError: a partition is not assigned.
            TypeError: a value is not a partition.
            ValueError, InvalidTopic: a partition number or a topic name is not valid.
        """
        states = []
        for partition in partitions:
            tp = checked_partition(partition)
            state = self._states.get(tp)
            if state is None:
                assigned = ", ".join(map(str, sorted(self._states)[:10])) or "nothing"
                raise ConfigError(
                    f"{tp} is not assigned to this consumer (which has {assigned}): assign() it, "
                    "or subscribe to its topic and wait until assignment() has it"
                )
            states.append(state)
        return states

    def add(self, state: PartitionState) -> None:
        self._states[state.tp] = state

    def remove(self, tp: TopicPartition) -> PartitionState | None:
        """Remove a partition; return its state, if it was assigned."""
        state = self._states.pop(tp, None)
        if state is not None:
            state.gone()
        return state

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)
