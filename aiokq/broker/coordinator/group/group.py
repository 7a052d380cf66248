"""What the shard asks of any group, whatever its protocol: an interface, and the values it takes.

Owns nothing; `classic_group` and `consumer_group` have it.

Source: Kafka ``Group.java``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant

__all__ = ["Caller", "Group", "GroupType"]


class GroupType(Enum):
    """The protocol that a group's members speak, by the name ListGroups has for it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Caller(NamedTuple):
    """Who sent a request, and in which version."""

    client_id: str
    client_host: str
    """As Kafka writes it: "/" and the address."""
    version: int


class Group(Protocol):
    """One group. Errors are raised as `BrokerError` of the code that the client gets."""

    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> GroupType: ...

    @property
    def protocol_type(self) -> str:
        """`consumer` for consumers; "" for a simple group."""
        ...

    @property
    def state_name(self) -> str:
        """The state by the name that ListGroups has for it (`Stable`, `PreparingRebalance` ...)."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members (pending ones do not count)."""
        ...

    @property
    def members_count(self) -> int:
        """How many members it has."""
        ...

    def loaded(self, instant: Instant) -> None:
        """The log has been replayed, and this node coordinates from now on: start its timers."""
        ...

    def unloaded(self) -> None:
        """This node coordinates no longer: cancel its timers, answer who waits with 16."""
        ...

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        instant: Instant,
        *,
        transactional: bool = False,
        version: int,
    ) -> None:
        """Refuse a commit of somebody who is no member now, or not of this generation or epoch.

        A commit of a classic member counts as its heartbeat.

        Raises:
            BrokerError: 25, 22, 82, 113, 27 or 16... as `Group.validateOffsetCommit`.
        """
        ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse a fetch of offsets by somebody who says a wrong epoch.

        Raises:
            BrokerError: 25 or 113.
        """
        ...

    def validate_delete(self) -> None:
        """Refuse to be deleted.

        Raises:
            BrokerError: 68 where it has members.
        """
        ...

    def validate_offset_delete(self) -> None:
        """Refuse that offsets are deleted while it is in a state where that may not be.

        Raises:
            BrokerError: 68 or 69.
        """
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member wants this topic, so that its offsets must stay."""
        ...

    def offset_expiry_base(self) -> int | None:
        """What offsets expire by: None, their own commit timestamp; -1, nothing, they stay.

        Otherwise the time in milliseconds since the epoch from which retention counts.
        """
        ...

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that remove the group from the log; not its offsets."""
        ...
