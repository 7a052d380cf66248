"""The idempotent producer's numbers, sans-IO: producer id, epochs, sequences per partition.

It decides; it sends nothing and holds no batches. Who obtains the id is producer_id.py, whose
batches are numbered is partition_queue.py.

Source: KIP-98, KIP-360; Kafka `TransactionManager.java`, `TxnPartitionEntry.java`.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "MAX_EPOCH",
    "MAX_SEQUENCE",
    "IdState",
    "IllegalMove",
    "Numbering",
    "ProducerId",
    "ProducerIdentity",
    "Sequences",
    "Stamp",
]

MAX_EPOCH: Final = 2**15 - 1
"""Epochs end here: after it a new producer id is needed."""

MAX_SEQUENCE: Final = 2**31 - 1
"""After it comes 0."""


class ProducerId(NamedTuple):
    """What a broker issued, and how often it was bumped since."""

    producer_id: int
    epoch: int


class Stamp(NamedTuple):
    """The numbers of one batch: the broker appends each of them at most once."""

    producer_id: int
    epoch: int
    base_sequence: int


class IllegalMove(RuntimeError):
    """A state machine was told something that cannot happen in its state: a bug of ours."""


class IdState(Enum):
    """Of the producer id."""

    ABSENT = "none: it must be asked for before anything is numbered"
    REQUESTED = "InitProducerId is on its way"
    HELD = "batches can be numbered"


ID_MOVES: Final[Mapping[IdState, frozenset[IdState]]] = MappingProxyType(
    {
        IdState.ABSENT: frozenset({IdState.REQUESTED}),
        IdState.REQUESTED: frozenset({IdState.HELD, IdState.ABSENT}),
        IdState.HELD: frozenset({IdState.ABSENT}),
    }
)


class ProducerIdentity:
    """The producer id in use and its newest epoch.

    An idempotent producer without transactions bumps its epoch by itself (KIP-360): nobody else
    uses its id. The broker keeps epochs per partition, so a partition whose numbers are in order
    stays in its older epoch.
    """

    __slots__ = ("_current", "state")

    def __init__(self) -> None:
        self.state = IdState.ABSENT
        self._current: ProducerId | None = None

    @property
    def current(self) -> ProducerId | None:
        """Id and newest epoch; None until a broker has issued one."""
        return self._current

    def requested(self) -> None:
        """InitProducerId was sent."""
        self._move(IdState.REQUESTED)

    def issued(self, producer_id: int, epoch: int) -> None:
        """A broker answered it."""
        self._move(IdState.HELD)
        self._current = ProducerId(producer_id, epoch)

    def refused(self) -> None:
        """It failed; it may be asked for again."""
        self._move(IdState.ABSENT)

    def bump(self) -> bool:
        """Begins a new epoch. False if epochs are used up: then the id is given up."""
        current = self._current
        if current is None:
            return False
        if current.epoch >= MAX_EPOCH:
            self.discard(current.producer_id)
            return False
        self._current = ProducerId(current.producer_id, current.epoch + 1)
        return True

    def discard(self, producer_id: int) -> None:
        """Gives an id up, if it is still the one in use: a broker fenced it."""
        if self._current is not None and self._current.producer_id == producer_id:
            self._current = None
            self._move(IdState.ABSENT)

    def _move(self, to: IdState) -> None:
        if to not in ID_MOVES[self.state]:
            raise IllegalMove(f"producer id: {self.state.name} to {to.name}")
        self.state = to


class Numbering(Enum):
    """Of one partition's sequences."""

    FRESH = "the broker has not confirmed this epoch: one batch at a time"
    RUNNING = "several batches may be in flight, in sequence"
    BROKEN = "a sequence is missing or disputed: nothing is numbered until all is resolved"


NUMBERING_MOVES: Final[Mapping[Numbering, frozenset[Numbering]]] = MappingProxyType(
    {
        Numbering.FRESH: frozenset({Numbering.RUNNING, Numbering.BROKEN}),
        Numbering.RUNNING: frozenset({Numbering.BROKEN}),
        Numbering.BROKEN: frozenset({Numbering.FRESH, Numbering.RUNNING}),
    }
)


class Sequences:
    """The sequence numbers of one partition.

    Rules: a batch keeps its stamp for as long as it may have been written. When a numbered batch
    is given up, or the broker disputes a sequence, the numbers are *broken*: those behind it can
    never be accepted. They stay as they are until every attempt is answered; then the epoch is
    bumped and what was definitively not written starts at sequence 0.

    A FRESH partition has one batch in flight: a broker that knows nothing of a producer id takes
    any first sequence, so the second batch could be appended though the first was refused.
    """

    __slots__ = ("_expected", "_fenced", "_id", "_identity", "_next", "state")

    def __init__(self, identity: ProducerIdentity) -> None:
        self._identity = identity
        self._id: ProducerId | None = None
        self._next = 0
        self._expected = 0
        self._fenced = False
        self.state = Numbering.FRESH

    @property
    def broken(self) -> bool:
        """Nothing can be numbered until `renumber` or `mend`."""
        return self.state is Numbering.BROKEN

    @property
    def fresh(self) -> bool:
        """Only one batch may be in flight."""
        return self.state is Numbering.FRESH

    @property
    def identified(self) -> bool:
        """There is a producer id to number with."""
        return self._id is not None or self._identity.current is not None

    def stamp(self, count: int) -> Stamp:
        """Numbers for a batch of `count` records, which is sent now."""
        if self.state is Numbering.BROKEN:
            raise IllegalMove("sequences: numbering while broken")
        used = self._id
        if used is None:
            used = self._id = self._identity.current
            if used is None:
                raise IllegalMove("sequences: numbering without a producer id")
        stamp = Stamp(used.producer_id, used.epoch, self._next)
        self._next = advance(self._next, count)
        return stamp

    def acknowledged(self, stamp: Stamp, count: int) -> None:
        """The broker has the batch with this stamp."""
        if self._id is None or stamp[:2] != self._id:
            return  # of an epoch that is over
        self._expected = advance(stamp.base_sequence, count)
        if self.state is Numbering.FRESH:
            self._move(Numbering.RUNNING)

    def is_next(self, stamp: Stamp) -> bool:
        """Whether the broker, as far as we know, expects exactly this batch."""
        return stamp[:2] == self._id and stamp.base_sequence == self._expected

    def break_off(self, *, fenced: bool = False) -> None:
        """A numbered batch was given up, or the broker disputes a number.

        Args:
            fenced: the producer id itself is of no use any more.
        """
        self._fenced = self._fenced or fenced
        if self.state is not Numbering.BROKEN:
            self._move(Numbering.BROKEN)

    def mend(self) -> bool:
        """Nothing numbered is left: were the missing sequences written after all?

        True if the last acknowledged one is the last given out: then no epoch is spent.
        """
        if self._fenced or self._expected != self._next:
            return False
        self._move(Numbering.RUNNING if self._id is not None else Numbering.FRESH)
        return True

    def renumber(self) -> None:
        """Everything is resolved: a new epoch begins, with sequence 0.

        The caller clears the stamps of the batches it still holds; none of them may have been
        written.
        """
        used = self._id
        if used is not None:
            if self._fenced:
                self._identity.discard(used.producer_id)
            else:
                current = self._identity.current
                if current is not None and current.producer_id == used.producer_id:
                    self._identity.bump()
        self._id = None
        self._next = self._expected = 0
        self._fenced = False
        self._move(Numbering.FRESH)

    def _move(self, to: Numbering) -> None:
        if to not in NUMBERING_MOVES[self.state]:
            raise IllegalMove(f"sequences: {self.state.name} to {to.name}")
        self.state = to


def advance(sequence: int, count: int) -> int:
    """The sequence after `count` records: 2**31 - 1 is followed by 0."""
    return (sequence + count) & MAX_SEQUENCE
