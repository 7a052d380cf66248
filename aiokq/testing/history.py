"""The operations of a history, as values. It does not read files and judges nothing.

A history says what clients saw: what they sent, polled and committed, with the outcome. Values
identify records, so each value is sent to a topic once, and again only after an attempt that was
aborted, failed or has an unknown outcome. `start` and `end` are times on one clock, in any unit:
the call was made at `start` and its outcome was known at `end`.
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
    """What a client knows of its operation."""

    OK = "ok"
    """Acknowledged."""
    FAILED = "failed"
    """It certainly had no effect and will have none."""
    UNKNOWN = "unknown"
    """Nobody answered; it may have an effect, now or later."""


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
    """A record that was sent; `partition` and `offset` where they are known."""

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
    """A commit or an abort; OK means that the transaction ended as `commit` says.

    FAILED means that a commit was refused and the transaction is aborted. A transaction without
    this operation has an unknown outcome.
    """

    process: str
    txn: str
    commit: bool
    outcome: Outcome
    start: float = 0
    end: float = 0


class Poll(NamedTuple):
    """Records that a consumer got, in their order; `txn` if it is the input of a transaction."""

    process: str
    records: Sequence[Polled]
    isolation: Isolation = Isolation.READ_COMMITTED
    group: str | None = None
    txn: str | None = None
    start: float = 0
    end: float = 0


class Assign(NamedTuple):
    """A consumer got partitions, and may continue there at other positions.

    Partitions that are not listed continue as before; without a list, all begin anew.
    """

    process: str
    partitions: Sequence[tuple[str, int]] = ()
    start: float = 0
    end: float = 0


class Seek(NamedTuple):
    """A consumer changed its position in one partition, to `offset` if that is known.

    With an offset it also tells where a consumer begins, so that what it then passes over counts.
    """

    process: str
    topic: str
    partition: int
    offset: int | None = None
    start: float = 0
    end: float = 0


class Offsets(NamedTuple):
    """A commit of a group's offsets, as part of `txn` if there is one."""

    process: str
    group: str
    offsets: Sequence[Offset]
    outcome: Outcome
    txn: str | None = None
    start: float = 0
    end: float = 0


class ObservedOffsets(NamedTuple):
    """The committed offsets of a group, as OffsetFetch with `require_stable` returned them.

    With `all_commits` the history has each commit of the group: nobody else commits for it, and no
    recorder was killed.
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
    """Each record of `input` is to have exactly one copy in `output`, with the same value."""

    input: str
    output: str
    start: float = 0
    end: float = 0


class Final(NamedTuple):
    """The state of a partition at the end, after a consumer had read it to `end_offset`."""

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
