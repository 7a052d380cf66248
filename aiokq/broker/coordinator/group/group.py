"""The interface that groups of both protocols implement, and the types of its arguments.

Source: Kafka ``Group.java``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant

__all__ = ["Caller", "Group", "GroupType"]


class GroupType(Enum):
    """The protocol of a group, by its name in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Caller(NamedTuple):
    """The sender of a request, and the request's version."""

    client_id: str
    client_host: str
    """The client's address as Kafka formats it: "/" and the address."""
    version: int
    describable: Callable[[frozenset[str]], Collection[str]]
    """Selects the topics that the sender may describe.

    A subscription by regular expression matches only these topics.
    """


class Group(Protocol):
    """One group of either protocol."""

    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> GroupType: ...

    @property
    def protocol_type(self) -> str:
        """The protocol type of the members, such as `consumer`; "" for a simple group."""
        ...

    @property
    def state_name(self) -> str:
        """The state by its name in ListGroups (`Stable`, `PreparingRebalance` ...)."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members; member ids that have not joined yet do not count."""
        ...

    @property
    def members_count(self) -> int: ...

    def loaded(self, instant: Instant) -> None:
        """Start the timers of the members, after the records of the group were replayed."""
        ...

    def unloaded(self) -> None:
        """Cancel timers, and answer pending requests with an error.

        Called when the leadership has ended, and when the group was removed, was replaced or could
        not be written.
        """
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
        """Permit a commit only from a current member with the current generation or epoch.

        There are two exceptions. An empty group accepts commits without a generation or epoch.
        Every group that is not dead accepts a transactional commit with neither a member nor a
        generation, which old clients send. In a classic group, a commit outside a transaction also
        restarts the session of the member, as a heartbeat does.

        Raises:
            BrokerError: COORDINATOR_NOT_AVAILABLE, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
                REBALANCE_IN_PROGRESS, UNSUPPORTED_VERSION, FENCED_INSTANCE_ID or
                STALE_MEMBER_EPOCH, as from Kafka's `Group.validateOffsetCommit`.
        """
        ...

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse a fetch of offsets that carries a wrong member id or epoch.

        Raises:
            BrokerError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION, or
                GROUP_ID_NOT_FOUND if the group is dead.
        """
        ...

    def validate_delete(self) -> None:
        """Refuse DeleteGroups while the group has members.

        Raises:
            BrokerError: NON_EMPTY_GROUP if the group has members, GROUP_ID_NOT_FOUND if it is dead.
        """
        ...

    def validate_offset_delete(self) -> None:
        """Refuse OffsetDelete if the group has members that are not consumers.

        Raises:
            BrokerError: NON_EMPTY_GROUP if a classic group has members of another protocol type
                than "consumer", GROUP_ID_NOT_FOUND if the group is dead.
        """
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes, or may subscribe, to the topic.

        The offsets of such a topic do not expire, and OffsetDelete is refused.
        """
        ...

    def offset_expiry_base(self) -> int | None:
        """Return the time from which the retention of offsets counts, in ms since the Unix epoch.

        None if it counts from each offset's commit timestamp; -1 if offsets do not expire now.
        """
        ...

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that remove the group, but not its offsets."""
        ...
