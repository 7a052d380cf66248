"""What the driver knows of a membership, whichever protocol it speaks. Owns no protocol."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from aiokq.core.errors import KafkaError
from aiokq.core.types import GroupMetadata, TopicPartition
from aiokq.group.actions import Action
from aiokq.wire.struct import Response

__all__ = ["JOIN_SLACK", "OUTSIDE", "MemberConfig", "MemberState", "Membership"]

JOIN_SLACK: Final = 5.0
"""Seconds that a join may take beyond the rebalance timeout, as in Java: the coordinator answers
when the rebalance ends, and an answer that comes a little late is still the answer."""

OUTSIDE: Final = -1
"""Generation of who is in no group."""


@dataclass(frozen=True, slots=True)
class MemberConfig:
    """The settings of a member; times in seconds.

    Attributes:
        instance_id: set for static members (KIP-345).
        rack: of the client, for assignment by rack (KIP-881).
        request_timeout: for every request but joins and syncs.
        remote_assignor: of the consumer protocol; None leaves it to the broker.
    """

    group_id: str
    instance_id: str | None
    session_timeout: float
    rebalance_timeout: float
    heartbeat_interval: float
    request_timeout: float
    rack: str | None = None
    remote_assignor: str | None = None


class MemberState(Enum):
    """Where a member stands, the same words for both protocols."""

    OUT = "in no group"
    PREPARING = "partitions are being given up, then it joins"
    JOINING = "asks to be a member"
    ASSIGNING = "leads the group: needs the topics' partitions to assign them"
    SYNCING = "waits for its assignment"
    SETTLING = "a member; partitions are being taken or given up"
    STABLE = "a member with its assignment"
    LEAVING = "says goodbye"
    FAILED = "refused for good"


class Membership(Protocol):
    """A sans-IO membership machine. Nothing in it waits, and nothing but its inputs moves it.

    The driver calls `poll` after each input and when `wake_at` has come, and does what it returns.
    At most one `Ask` and one of `GiveUp`, `Take` and `Lose` are open at a time; while user code
    runs in the latter, heartbeats go on.
    """

    @property
    def state(self) -> MemberState: ...

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that are this member's, until it has given them up."""
        ...

    @property
    def group_metadata(self) -> GroupMetadata:
        """Who commits: generation or epoch, and member id."""
        ...

    @property
    def heartbeat_at(self) -> float | None:
        """When the coordinator last answered, monotonic seconds; None if it never did."""
        ...

    @property
    def busy(self) -> bool:
        """Whether a `GiveUp`, `Take` or `Lose` is under way, or about to be."""
        ...

    @property
    def error(self) -> KafkaError | None:
        """Why the coordinator does not take this member; None since it last did."""
        ...

    def subscribe(self, topics: frozenset[str], now: float) -> None:
        """Read these topics; joins if this is no member yet."""
        ...

    def leave(self, now: float, *, lost: KafkaError | None = None) -> None:
        """Give everything up and go. `lost` says why it is not given up in order."""
        ...

    def received(self, ticket: int, response: Response, now: float) -> None: ...

    def failed(self, ticket: int, error: KafkaError, now: float) -> None:
        """No answer, and none will come."""
        ...

    def handled(self, now: float) -> None:
        """The last `GiveUp`, `Take` or `Lose` is done."""
        ...

    def poll(self, now: float) -> list[Action]:
        """What is to be done now; each action is returned once."""
        ...

    def wake_at(self) -> float | None:
        """When to poll again without an input; None if only an input can change anything."""
        ...
