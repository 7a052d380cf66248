"""What the clients of a round observed: outcomes of records, records handed to groups, commits.

Nothing here judges; `checker.py` and `checked.py` do. Times are seconds of the monotonic clock.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from aiokq.testing import Assign, Isolation, Poll, Polled

Partition = tuple[str, int]
"""Topic and partition number."""


class State(Enum):
    """The state of a record as its producer reported it."""

    OFFERED = "the call that takes it has not returned"
    REFUSED = "the call raised: it was never accepted"
    UNKNOWN = "a cancelled send(): accepted or not"
    ACCEPTED = "accepted, no outcome yet"
    ACKNOWLEDGED = "delivered"
    FAILED = "its delivery failed"


@dataclass(slots=True)
class Sent:
    """One record that was given to a producer.

    Attributes:
        limit: seconds from acceptance within which the record must have an outcome.
        idempotent: whether the record's producer is idempotent and so must write it only once.
        ordered: whether the record was given to its producer after all earlier ordered records of
            that producer had been accepted.
        partition, offset: as acknowledged.
        may_be_written: what the error of a failed delivery says; None if the client does not say.
    """

    value: bytes
    producer: str
    topic: str
    limit: float
    idempotent: bool
    ordered: bool
    offered_at: float
    state: State = State.OFFERED
    accepted_at: float = 0.0
    outcome_at: float = 0.0
    partition: int = -1
    offset: int = -1
    error: str = ""
    may_be_written: bool | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset that the broker returned for a group, and when the response came."""

    group: str
    partition: Partition
    offset: int
    seen_at: float


@dataclass(slots=True)
class GroupHistory:
    """What the members of a group were handed, all members together.

    Attributes:
        handed: by partition and offset, the value.
        finished: by partition and offset, when the group first was allowed to commit the record.
    """

    handed: dict[Partition, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    finished: dict[Partition, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def hand(self, partition: Partition, offset: int, value: bytes) -> str | None:
        """Note a record handed to a member; return a complaint if its value differs from before."""
        handed = self.handed[partition]
        before = handed.setdefault(offset, value)
        if before != value:
            return f"{partition} offset {offset} was handed over as {before!r} and as {value!r}"
        return None

    def finish(self, partition: Partition, offset: int, now: float) -> None:
        """Note that a commit may cover the record from now on."""
        self.finished[partition].setdefault(offset, now)


def named(value: bytes) -> str:
    """Return a short text for a value: the value without its padding, and its length."""
    return f"{value.rstrip(bytes(1)).decode()}{len(value)}"


@dataclass(repr=False)
class History:
    """Everything observed in a round.

    Attributes:
        read: the polls and assignments of consumers, each consumer's in their order.
    """

    sent: dict[bytes, Sent] = field(default_factory=dict)
    read: list[Poll | Assign] = field(default_factory=list)
    groups: dict[str, GroupHistory] = field(default_factory=lambda: defaultdict(GroupHistory))
    commits: list[Commit] = field(default_factory=list)
    complaints: list[tuple[str, str]] = field(default_factory=list)
    """Violations that were noticed outside the checker, as pairs of invariant and observation."""
    delays: list[tuple[float, float]] = field(default_factory=list)
    """When the machine held up the clients' event loop, and for how long."""
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def offer(
        self,
        producer: str,
        topic: str,
        now: float,
        *,
        limit: float,
        idempotent: bool,
        ordered: bool,
        prefix: bytes = b"",
        padding: bytes = b"",
    ) -> Sent:
        """Note a record, with a unique value, before it is given to a producer."""
        value = b"%s%s:%d:%s" % (prefix, producer.encode(), next(self._numbers), padding)
        sent = Sent(value, producer, topic, limit, idempotent, ordered, now)
        self.sent[value] = sent
        return sent

    def handed(
        self,
        consumer: str,
        group: str,
        records: Iterable[tuple[Partition, int, bytes]],
        now: float,
        isolation: Isolation,
    ) -> None:
        """Note records that a consumer was handed by one call."""
        polled = [Polled(*place, offset, named(value)) for place, offset, value in records]
        if polled:
            self.read.append(Poll(consumer, polled, isolation, group, None, now, now))

    def assigned(self, consumer: str, partitions: Iterable[Partition], now: float) -> None:
        """Note partitions that a consumer got in a rebalance."""
        got = [(topic, number) for topic, number in partitions]
        if got:
            self.read.append(Assign(consumer, got, now, now))

    def complain(self, invariant: str, what: str) -> None:
        """Note that an invariant was seen to be broken."""
        self.complaints.append((invariant, what))

    def held_up(self, start: float, end: float) -> float:
        """Seconds between two moments in which the machine did not run the event loop."""
        return sum(lost for at, lost in self.delays if start <= at and at - lost <= end)
