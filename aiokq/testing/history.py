"""The operations of a history, as named tuples.

A history contains what clients sent, polled and committed, with the outcomes. Values identify
records: a value may be sent to a topic again only after an attempt that was aborted, failed or has
an unknown outcome. `start` is the time of a call, and `end` is the time at which its outcome was
known. All processes use one clock, in any unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

__all__ = [
    "Assign",
    "Copy",
    "EndTransaction",
    "Final",
    "Isolation",
    "LastStable",
    "ObservedOffsets",
    "Offset",
    "Offsets",
    "Operation",
    "Outcome",
    "Poll",
    "Polled",
    "Seek",
    "Send",
]


class Outcome(StrEnum):
    """The outcome of an operation, as far as its client knows it."""

    OK = "ok"
    """The operation was acknowledged."""
    FAILED = "failed"
    """The operation certainly has no effect, now or later."""
    UNKNOWN = "unknown"
    """The operation may have an effect, now or later."""


class Isolation(StrEnum):
    """`isolation.level` of a consumer."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Polled(NamedTuple):
    """A record that a poll returned."""

    topic: str
    partition: int
    offset: int
    value: str


class Offset(NamedTuple):
    """An offset of a partition."""

    topic: str
    partition: int
    offset: int


class Send(NamedTuple):
    """A record that was sent.

    `partition` and `offset` are None if they are not known. `txn` is None outside of a transaction.
    """

    process: str
    topic: str
    value: str
    outcome: Outcome
    partition: int | None = None
    offset: int | None = None
    txn: str | None = None
    start: float = 0
    end: float = 0


class EndTransaction(NamedTuple):
    """A call that commits a transaction (if `commit` is True) or aborts it.

    OK means that the transaction was committed or aborted, as requested. FAILED means that a commit
    was refused, and that the transaction is aborted. A transaction without this operation has an
    unknown outcome.
    """

    process: str
    txn: str
    commit: bool
    outcome: Outcome
    start: float = 0
    end: float = 0


class Poll(NamedTuple):
    """Records that a consumer got, in order; `txn` names the transaction that consumes them."""

    process: str
    records: Sequence[Polled]
    isolation: Isolation = Isolation.READ_COMMITTED
    group: str | None = None
    txn: str | None = None
    start: float = 0
    end: float = 0


class Assign(NamedTuple):
    """A consumer got partitions, and may read them from other positions than before.

    Partitions that are not listed are unaffected. An empty list means all partitions of the
    consumer.
    """

    process: str
    partitions: Sequence[tuple[str, int]] = ()
    start: float = 0
    end: float = 0


class Seek(NamedTuple):
    """A consumer changed its position in one partition; `offset` is the new position, if known.

    If `offset` is known, `check` also finds records that the consumer skips after the seek.
    """

    process: str
    topic: str
    partition: int
    offset: int | None = None
    start: float = 0
    end: float = 0


class Offsets(NamedTuple):
    """A commit of a group's offsets; `txn` names the transaction of the commit, if any."""

    process: str
    group: str
    offsets: Sequence[Offset]
    outcome: Outcome
    txn: str | None = None
    start: float = 0
    end: float = 0


class ObservedOffsets(NamedTuple):
    """The committed offsets of a group, as OffsetFetch with `require_stable` returned them.

    `all_commits` is True if the history has all commits of the group.
    """

    group: str
    offsets: Sequence[Offset]
    start: float = 0
    end: float = 0
    all_commits: bool = False


class LastStable(NamedTuple):
    """The last stable offset of a partition, as ListOffsets returned it."""

    topic: str
    partition: int
    offset: int
    start: float = 0
    end: float = 0


class Copy(NamedTuple):
    """A copier: `output` must have exactly one copy of each committed record of `input`."""

    input: str
    output: str
    start: float = 0
    end: float = 0


class Final(NamedTuple):
    """The final offsets of a partition, after a read_committed consumer has read it to its end."""

    topic: str
    partition: int
    log_start_offset: int
    last_stable_offset: int
    end_offset: int
    start: float = 0
    end: float = 0


Operation: TypeAlias = (
    Send
    | EndTransaction
    | Poll
    | Assign
    | Seek
    | Offsets
    | ObservedOffsets
    | LastStable
    | Copy
    | Final
)
