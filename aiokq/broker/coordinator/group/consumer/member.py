"""A member of a group of the consumer protocol, as an immutable value.

Source: Kafka ``ConsumerGroupMember.java``, ``MemberState.java`` (KIP-848).
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol

from aiokq.assign.server_model import Partitions
from aiokq.broker.coordinator.group.classic.member import Protocol as ClassicProtocol
from aiokq.wire.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)

__all__ = [
    "JOIN_EPOCH",
    "LEAVE_EPOCH",
    "NO_PARTITIONS",
    "STATIC_LEAVE_EPOCH",
    "ClassicMetadata",
    "ConsumerMember",
    "MemberState",
    "partitions_of",
]

JOIN_EPOCH: Final = 0
"""The member epoch in a request to join, or to join again after the member was fenced."""
LEAVE_EPOCH: Final = -1
"""The member epoch of a member that leaves permanently."""
STATIC_LEAVE_EPOCH: Final = -2
"""The member epoch of a static member that leaves temporarily, in its request and record."""

NO_PARTITIONS: Final[Partitions] = {}


class MemberState(IntEnum):
    """The progress of a member towards its target assignment, numbered as in the log."""

    STABLE = 0
    """The member has all partitions of the target assignment of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """The member was asked to revoke partitions, and has not confirmed the revocation yet."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for other members to revoke partitions of its target assignment."""
    UNKNOWN = 127
    """A state written by a newer version; the member has to join again."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class _TopicPartitions(Protocol):
    topic_id: uuid.UUID
    partitions: list[int]


def partitions_of(topics: Iterable[_TopicPartitions]) -> Partitions:
    """Return the partitions that a message or record lists, by topic id."""
    result: dict[uuid.UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            result[topic.topic_id] = result.get(topic.topic_id, frozenset()).union(topic.partitions)
    return result


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """The JoinGroup fields of a member that uses the classic protocol.

    Attributes:
        protocols: the assignors, each with the member's subscription for it, in order of
            preference; never empty.
    """

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member of a group of the consumer protocol.

    Attributes:
        member_epoch: the epoch required in the member's next heartbeat, OffsetCommit or
            OffsetFetch; `STATIC_LEAVE_EPOCH` while a static member is absent.
        previous_member_epoch: an epoch that is also accepted in the next heartbeat, because the
            response with `member_epoch` may have been lost.
        topic_names: the topics that the member subscribes to by name.
        topic_regex: the RE2 expression that the member subscribes by; "" without one.
        rebalance_timeout_ms: the time within which the member must revoke partitions, or, with the
            classic protocol, join again and send SyncGroup.
        server_assignor: the assignor that the member requests; None for any.
        assigned: the partitions that the member owns or was assigned.
        pending_revocation: the partitions that the member was asked to revoke, and still owns.
        classic: the JoinGroup fields; None for a member that uses the consumer protocol.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    assigned: Partitions = field(default_factory=dict)
    pending_revocation: Partitions = field(default_factory=dict)
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has all partitions of the target assignment of an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    @property
    def is_away(self) -> bool:
        """Whether this is an absent static member, which may join again."""
        return self.member_epoch == STATIC_LEAVE_EPOCH

    def reconciled_to(
        self,
        epoch: int,
        state: MemberState,
        assigned: Mapping[uuid.UUID, frozenset[int]],
        pending_revocation: Mapping[uuid.UUID, frozenset[int]] = NO_PARTITIONS,
    ) -> ConsumerMember:
        """Return the member after a step of `reconcile`; its epoch becomes the previous epoch.

        The previous epoch is replaced even if the epoch does not change. Otherwise a delayed
        request with an older epoch would be accepted as a retry, and partitions that were assigned
        later would count as revoked.
        """
        return dataclasses.replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """Return the member updated from its metadata record."""
        return dataclasses.replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=_classic_metadata(value.classic_member_metadata),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """Return the member updated from its current assignment record."""
        return dataclasses.replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=partitions_of(value.assigned_partitions),
            pending_revocation=partitions_of(value.partitions_pending_revocation),
        )


def _classic_metadata(stored: ClassicMemberMetadata | None) -> ClassicMetadata | None:
    if stored is None:
        return None
    return ClassicMetadata(
        stored.session_timeout_ms,
        tuple(ClassicProtocol(one.name, bytes(one.metadata)) for one in stored.supported_protocols),
    )
