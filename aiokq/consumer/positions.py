"""Owns the state of each assigned partition: position, what is buffered, and why it is not fetched.

Who fetches, resets and validates acts on these states; nothing here does I/O.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING

from aiokq.cluster.metadata import NO_LEADER, ZERO_ID
from aiokq.consumer.subscription import Partition, checked_partition
from aiokq.core.errors import ConfigError, copy_error
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from aiokq.connection.backoff import Backoff
    from aiokq.consumer.batch_progress import TakenChunk
    from aiokq.consumer.buffers import Chunk
    from aiokq.consumer.record_source import RecordSource
    from aiokq.core.errors import KafkaError

__all__ = ["PartitionState", "Positions", "Stage", "Start"]


class Stage(Enum):
    """What a partition is waiting for."""

    RESETTING = "no position yet: its offset is being looked up"
    VALIDATING = "a new leader was elected: it is asked whether the position exists there"
    FETCHING = "the position is good"
    PARKED = "an error was raised for it; seek() ends that, some errors are tried again"


class Start(Enum):
    """Where a position is to be reset to."""

    POLICY = "auto_offset_reset"
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "what the group committed, else auto_offset_reset"
    COMMITTED_NEW = "what the group committed, else the beginning"


class PartitionState:
    """One assigned partition.

    Attributes:
        generation: grows with every jump of the position; what was asked in an older one is void.
        topic_id: of the topic that the position and all that was handed over belong to; zeros while
            it is not known.
        incarnation: grows when another topic takes the partition's name; what was read in an older
            one must not be committed any more.
        fetch_offset: of the next record to fetch; -1 while there is no position.
        fetch_epoch: leader epoch of the record before it, -1 if unknown.
        leader_epoch: the newest that metadata named; requests carry it.
        node: whose fetch loop has this partition, -1 if none.
        preferred: replica to read from instead of the leader, -1 if none (KIP-392).
        chunks: fetched and not handed over, oldest first; the first may be in a reader's hand.
        paused: by the user; nothing is handed over or fetched.
        withheld: by the group, likewise: it is being taken or given up.
        queued_bytes: of the chunks, without the one in hand.
        held: offset of the first record that was handed over and is not finished; None if the
            source knows it, or there is none.
        batch: what was handed over as a whole, while it is not finished.
        retry_at: loop time before which nothing is asked of a broker.
        error: why it is parked or was last refused.
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
        """Offset of the next record to hand over; -1 while it is not known."""
        batch = self.batch
        if batch is not None and (position := batch.progress.position) < batch.next_offset:
            return position  # reading it stopped at an error
        return self.chunks[0].cursor.position if self.chunks else self.fetch_offset

    @property
    def readable(self) -> bool:
        """Whether there is something to hand over, and it may be."""
        return bool(self.chunks) and not self.paused and not self.withheld

    def is_of_another(self, topic_id: UUID) -> bool:
        """Whether its position belongs to another topic than this one, as far as that is known."""
        return topic_id != self.topic_id and ZERO_ID not in (topic_id, self.topic_id)

    def lag(self, *, committed_only: bool) -> int | None:
        """Records between the position and the end that readers see; None if not known yet."""
        end = self.last_stable_offset if committed_only else self.high_watermark
        position = self.position
        return max(0, end - position) if end >= 0 and position >= 0 else None

    # -- moves; who calls them drops the chunks where they are void

    def jump(self, offset: int, epoch: int = -1) -> None:
        """The position is this one now, whatever it was."""
        self.generation += 1
        self.fetch_offset = offset
        self.fetch_epoch = epoch
        self.stage = Stage.FETCHING
        self._try_now()
        self._settled()

    def reset(self, start: Start) -> None:
        """The position is to be looked up."""
        self.generation += 1
        self.fetch_offset = -1
        self.fetch_epoch = -1
        self.stage = Stage.RESETTING
        self.reset_to = start
        self._try_now()

    def park(self, error: KafkaError) -> None:
        """The error is being raised; until seek() there is nothing to do."""
        self.generation += 1
        self.stage = Stage.PARKED
        self.error = error
        self._settled()

    def replace_topic(self, start: Start) -> None:
        """Another topic has taken the name: nothing that is known of the old one holds for it.

        What the user and the group decided about the partition stays: `paused`, `withheld`.
        """
        self.incarnation += 1
        self.topic_id = ZERO_ID
        self.leader_epoch = self.high_watermark = self.last_stable_offset = -1
        self.log_start_offset = self.preferred = -1
        self.reset(start)

    def validate(self) -> None:
        """A new leader may have a shorter log: ask it before anything else."""
        if self.stage is Stage.FETCHING and self.fetch_epoch >= 0:
            self.stage = Stage.VALIDATING
            self.retry_at = 0.0

    def validated(self) -> None:
        """The new leader has what was read."""
        if self.stage is Stage.VALIDATING:
            self.stage = Stage.FETCHING
            self._try_now()

    def later(self, now: float, error: KafkaError | None) -> float:
        """A request about it was refused: pause. Returns the loop time when to try again."""
        self.error = error
        self.retry_at = now + self.backoff.next()
        return self.retry_at

    def refused(self, error: KafkaError) -> None:
        """A lookup failed for good, for now: whoever waits for the position is told."""
        waiting, self._ready = self._ready, []
        for future in waiting:
            if not future.done():
                future.set_exception(copy_error(error))

    def answered(self) -> None:
        """A request about it succeeded."""
        if self.error is not None or self.retry_at:
            self._try_now()

    def _try_now(self) -> None:
        self.error = None
        self.retry_at = 0.0
        self.backoff.reset()

    # -- waiting for a position

    async def has_position(self) -> None:
        """Until there is a position, or an error in place of one; raised by who looks."""
        while self.fetch_offset < 0 and self.stage is not Stage.PARKED:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            # Waits that timed out or were cancelled are in the way no longer than this.
            self._ready = [waiting for waiting in self._ready if not waiting.done()]
            self._ready.append(future)
            await future

    def _settled(self) -> None:
        waiting, self._ready = self._ready, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def gone(self) -> None:
        """It is not assigned any more: what is in flight for it is void, nobody waits."""
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
        """The state, or None if the partition is not assigned."""
        return self._states.get(tp)

    def named(self, partitions: Iterable[Partition]) -> list[PartitionState]:
        """The states of the partitions that a user names.

        Raises:
            ConfigError: one of them is not assigned.
            TypeError: what is no partition.
        """
        states = []
        for partition in partitions:
            tp = checked_partition(partition)
            state = self._states.get(tp)
            if state is None:
                assigned = ", ".join(map(str, sorted(self._states)[:10])) or "nothing"
                raise ConfigError(
                    f"{tp} is not assigned to this consumer ({assigned} is): assign() it, or "
                    "subscribe to its topic and wait until assignment() has it"
                )
            states.append(state)
        return states

    def add(self, state: PartitionState) -> None:
        """It is assigned from now on."""
        self._states[state.tp] = state

    def remove(self, tp: TopicPartition) -> PartitionState | None:
        """It is assigned no more."""
        state = self._states.pop(tp, None)
        if state is not None:
            state.gone()
        return state

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """What is assigned."""
        return frozenset(self._states)
