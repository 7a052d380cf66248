"""State machines of the idempotent producer: producer id, epoch and sequence numbers.

They send nothing and hold no batches: producer_id.py obtains the id, and each PartitionQueue
numbers its batches.

Source: KIP-98, KIP-360; Kafka `TransactionManager.java`, `TxnPartitionEntry.java`.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aiokq.core.named_tuple import NamedTuple

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
"""The last epoch of a producer id; after it a new id is needed."""

MAX_SEQUENCE: Final = 2**31 - 1
"""The last sequence number; 0 follows it."""

_new_tuple: Final = tuple.__new__


class ProducerId(NamedTuple):
    """A producer id that a broker issued, with its current epoch."""

    producer_id: int
    epoch: int


class Stamp(NamedTuple):
    """The producer id, epoch and first sequence number of a batch.

    A broker appends the batch with a given stamp at most once.
    """

    producer_id: int
    epoch: int
    base_sequence: int


class IllegalMove(RuntimeError):
    """A transition that its state machine does not allow: a bug in aiokq."""


class IdState(Enum):
    """The states of the producer id."""

    ABSENT = "no producer id: batches cannot be numbered"
    REQUESTED = "InitProducerId was sent"
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

    An idempotent producer without transactions bumps its epoch by itself (KIP-360), because no
    other producer uses its id. Brokers keep an epoch per partition. Therefore a partition whose
    sequences are intact keeps its epoch when another partition causes a bump.

    Attributes:
        current: the id with its newest epoch; None if no id was issued, or if it was discarded.
            Only the methods of this class change it.
        state: whether there is an id.
    """

    __slots__ = ("current", "state")

    def __init__(self) -> None:
        self.state = IdState.ABSENT
        self.current: ProducerId | None = None

    def requested(self) -> None:
        """Enter the state REQUESTED, because InitProducerId was sent."""
        self._move(IdState.REQUESTED)

    def issued(self, producer_id: int, epoch: int) -> None:
        """Store the id and epoch of a successful InitProducerId response."""
        self._move(IdState.HELD)
        self.current = ProducerId(producer_id, epoch)

    def refused(self) -> None:
        """Enter the state ABSENT, because InitProducerId failed; it may be sent again."""
        self._move(IdState.ABSENT)

    def bump(self) -> bool:
        """Begin a new epoch of the id.

        Returns:
            False if there is no id, or if it has no epoch left and was discarded.
        """
        current = self.current
        if current is None:
            return False
        if current.epoch >= MAX_EPOCH:
            self.discard(current.producer_id)
            return False
        self.current = ProducerId(current.producer_id, current.epoch + 1)
        return True

    def discard(self, producer_id: int) -> None:
        """Discard an id that was fenced or has no epoch left, if it is still the current id."""
        if self.current is not None and self.current.producer_id == producer_id:
            self.current = None
            self._move(IdState.ABSENT)

    def replace(self, producer_id: int, epoch: int) -> None:
        """Use, from now on, the id and epoch that a transaction coordinator returned.

        Source: KIP-360, KIP-890.
        """
        self.current = ProducerId(producer_id, epoch)
        self.state = IdState.HELD

    def _move(self, to: IdState) -> None:
        if to not in ID_MOVES[self.state]:
            raise IllegalMove(f"producer id: {self.state.name} to {to.name}")
        self.state = to


class Numbering(Enum):
    """The states of a partition's sequence numbers."""

    FRESH = "the broker has not confirmed this epoch: one batch is in flight at a time"
    RUNNING = "several batches may be in flight, in sequence"
    BROKEN = (
        "a sequence is missing or disputed: no batch is numbered until all attempts are answered"
    )


NUMBERING_MOVES: Final[Mapping[Numbering, frozenset[Numbering]]] = MappingProxyType(
    {
        Numbering.FRESH: frozenset({Numbering.RUNNING, Numbering.BROKEN}),
        Numbering.RUNNING: frozenset({Numbering.BROKEN}),
        Numbering.BROKEN: frozenset({Numbering.FRESH, Numbering.RUNNING}),
    }
)


class Sequences:
    """The sequence numbers of one partition.

    A batch keeps its stamp while it may have been written. The numbering is *broken* when a number
    may be missing from the broker's log, for example after a numbered batch has failed. A broker
    accepts no number after a missing number. Therefore no batch is numbered while the numbering is
    broken and an attempt is not answered. When all attempts are answered, numbering continues if no
    number is missing (`mend`). Otherwise the remaining batches start at sequence 0, in a new epoch
    or with a new producer id (`renumber`). In a transaction, the numbers continue in either case
    (`resume`).

    A FRESH partition has one batch in flight, because a broker that does not know the producer id
    accepts any first number. With two batches in flight, the broker could refuse the first batch
    and append the second.
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
        """Whether no batch can be numbered until `mend`, `renumber`, `resume` or `restart`."""
        return self.state is Numbering.BROKEN

    @property
    def fresh(self) -> bool:
        """Whether only one batch may be in flight."""
        return self.state is Numbering.FRESH

    @property
    def identified(self) -> bool:
        """Whether there is a producer id to number batches with."""
        return self._id is not None or self._identity.current is not None

    def stamp(self, count: int) -> Stamp:
        """Assign the next `count` sequence numbers to a batch of `count` records; return its stamp.

        Raises:
            IllegalMove: the numbering is broken, or there is no producer id.
        """
        if self.state is Numbering.BROKEN:
            raise IllegalMove("sequences: cannot number a batch in the state BROKEN")
        used = self._id
        if used is None:
            used = self._id = self._identity.current
            if used is None:
                raise IllegalMove("sequences: cannot number a batch without a producer id")
        # This method runs once per batch. To save time, it does not call `advance` or the
        # constructor of Stamp.
        first = self._next
        self._next = (first + count) & MAX_SEQUENCE
        return _new_tuple(Stamp, (*used, first))

    def acknowledged(self, stamp: Stamp, count: int) -> None:
        """Record that the broker acknowledged the batch with this stamp."""
        if self._id is None or stamp[:2] != self._id:
            return  # the stamp has an earlier epoch or another producer id
        self._expected = (stamp[2] + count) & MAX_SEQUENCE
        if self.state is Numbering.FRESH:  # a valid transition; not checked, because it is frequent
            self.state = Numbering.RUNNING

    def is_next(self, stamp: Stamp) -> bool:
        """Return whether the broker expects the batch with this stamp next, as far as is known."""
        return stamp[:2] == self._id and stamp.base_sequence == self._expected

    def is_current(self, stamp: Stamp) -> bool:
        """Return whether a stamp has the id and epoch that new stamps of this partition get."""
        return stamp[:2] == self._id

    def break_off(self, *, fenced: bool = False) -> None:
        """Stop numbering, because a sequence may be missing from the broker's log.

        Args:
            fenced: whether the producer id itself is unusable.
        """
        self._fenced = self._fenced or fenced
        if self.state is not Numbering.BROKEN:
            self._move(Numbering.BROKEN)

    def mend(self) -> bool:
        """Continue in the same epoch if no sequence is missing.

        Called when no batch has a stamp.

        Returns:
            True if numbering continues. False if a sequence number that was assigned is not
            acknowledged, or if the id is fenced; the numbering stays broken.
        """
        if self._fenced or self._expected != self._next:
            return False
        self._move(Numbering.RUNNING if self._id is not None else Numbering.FRESH)
        return True

    def renumber(self) -> None:
        """Restart at sequence 0, with a bumped epoch or with a new id.

        A new id is needed if the id was fenced or has no epoch left.

        Called when every attempt is answered and the broker has written none of the batches that
        the caller still has. The caller clears the stamps of these batches.
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

    def resume(self) -> None:
        """Continue with the next sequence number in the same epoch.

        Called for transactional producers, whose epoch only the coordinator changes. Until the next
        acknowledgement, only one batch may be in flight.
        """
        self._move(Numbering.FRESH)

    def restart(self) -> None:
        """Restart at sequence 0, because the producer has a new id or epoch.

        Called when each batch with a stamp has an outcome.
        """
        self._id = None
        self._next = self._expected = 0
        self._fenced = False
        self.state = Numbering.FRESH

    def _move(self, to: Numbering) -> None:
        if to not in NUMBERING_MOVES[self.state]:
            raise IllegalMove(f"sequences: {self.state.name} to {to.name}")
        self.state = to


def advance(sequence: int, count: int) -> int:
    """Return the sequence after `count` records: 2**31 - 1 is followed by 0."""
    return (sequence + count) & MAX_SEQUENCE
