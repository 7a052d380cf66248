"""What the clients of a round were told: each record's outcome, what groups got and committed.

Nothing here judges: `checker.py` does. Times are seconds of the monotonic clock.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum

Partition = tuple[str, int]
"""Topic and number."""


class State(Enum):
    """How far a record came, as its producer was told."""

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
        limit: seconds from acceptance within which it must have an outcome.
        idempotent: its producer promises to write it once.
        ordered: it was given to its producer after all earlier ordered ones had been accepted.
        partition, offset: as acknowledged.
        may_be_written: what a failed delivery says; None if its client does not say.
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
    """An offset that the broker was seen to have for a group, and when the answer came."""

    group: str
    partition: Partition
    offset: int
    seen_at: float


@dataclass(slots=True)
class GroupHistory:
    """What the members of a group were handed, all of them together.

    Attributes:
        handed: by partition and offset, the value.
        finished: by partition and offset, when the member was first done with it as far as its
            way to commit is concerned.
    """

    handed: dict[Partition, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    finished: dict[Partition, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))

    def hand(self, partition: Partition, offset: int, value: bytes) -> str | None:
        """A member was handed a record; what is wrong if it has another value than before."""
        handed = self.handed[partition]
        before = handed.setdefault(offset, value)
        if before != value:
            return f"{partition} offset {offset} was handed over as {before!r} and as {value!r}"
        return None

    def finish(self, partition: Partition, offset: int, now: float) -> None:
        """From now on a commit may cover it."""
        self.finished[partition].setdefault(offset, now)


@dataclass(repr=False)
class History:
    """All of a round."""

    sent: dict[bytes, Sent] = field(default_factory=dict)
    groups: dict[str, GroupHistory] = field(default_factory=lambda: defaultdict(GroupHistory))
    commits: list[Commit] = field(default_factory=list)
    complaints: list[tuple[str, str]] = field(default_factory=list)
    """Invariant and what was seen, of what is judged where it happens."""
    delays: list[tuple[float, float]] = field(default_factory=list)
    """When the clients' event loop was held up by the machine, and for how long."""
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
        """A record with a value of its own is about to be given to a producer."""
        value = b"%s%s:%d:%s" % (prefix, producer.encode(), next(self._numbers), padding)
        sent = Sent(value, producer, topic, limit, idempotent, ordered, now)
        self.sent[value] = sent
        return sent

    def complain(self, invariant: str, what: str) -> None:
        """An invariant was seen to be broken."""
        self.complaints.append((invariant, what))

    def held_up(self, start: float, end: float) -> float:
        """How long the event loop did not run between two moments: no client's fault."""
        return sum(lost for at, lost in self.delays if start <= at and at - lost <= end)
