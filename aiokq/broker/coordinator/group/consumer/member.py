"""A member of a consumer-protocol group, as a value. Owns no behaviour but how it is updated.

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
    "ClassicSide",
    "ConsumerMember",
    "MemberState",
    "partitions_of",
]

JOIN_EPOCH: Final = 0
"""The epoch of a request that joins, or joins again after it was fenced."""
LEAVE_EPOCH: Final = -1
"""The epoch of a request that leaves for good."""
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that leaves and means to come back, and of its last record."""

NO_PARTITIONS: Final[Partitions] = {}


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment. Numbers are those of the log."""

    STABLE = 0
    """It is at the epoch of the target assignment that it last saw, and has all of it."""
    UNREVOKED_PARTITIONS = 1
    """It was told to give up partitions, and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """It is at the newest epoch, and waits for partitions that others have not given up yet."""
    UNKNOWN = 127
    """A state of a newer version. Its member has to join again."""

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class _TopicPartitions(Protocol):
    topic_id: uuid.UUID
    partitions: list[int]


def partitions_of(topics: Iterable[_TopicPartitions]) -> Partitions:
    """The partitions that a list of a message or a record names."""
    result: dict[uuid.UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            result[topic.topic_id] = result.get(topic.topic_id, frozenset()).union(topic.partitions)
    return result


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a member said in its JoinGroup: it speaks the classic protocol.

    Attributes:
        protocols: its assignors with its subscription, most wanted first; never empty.
    """

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """What the coordinator knows of a member.

    Attributes:
        member_epoch: what its next heartbeat, commit or fetch must carry;
            `STATIC_LEAVE_EPOCH` while a static member is away.
        previous_member_epoch: what its next heartbeat may carry too, if the answer that gave it
            `member_epoch` was lost.
        topic_names: what it subscribes to by name.
        topic_regex: what it subscribes to by RE2 expression; "" if it does not.
        rebalance_timeout_ms: how long it may take to give up partitions.
        server_assignor: the assignor that it asks for, if any.
        assigned: the partitions it has or was told that it may take.
        pending_revocation: the partitions it was told to give up, and still owns.
        classic: set if it speaks the classic protocol; None if it speaks the consumer protocol.
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
    classic: ClassicSide | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has all of the target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    @property
    def is_away(self) -> bool:
        """Whether it is a static member that left and may come back."""
        return self.member_epoch == STATIC_LEAVE_EPOCH

    def moved_to(
        self,
        epoch: int,
        state: MemberState,
        assigned: Mapping[uuid.UUID, frozenset[int]],
        pending_revocation: Mapping[uuid.UUID, frozenset[int]] = NO_PARTITIONS,
    ) -> ConsumerMember:
        """The member one step further; the epoch it comes from is its previous one, even if equal.

        Equal, because a request of a still older epoch must not pass for a retry: it was made
        before the member knew what it has by now, and would count as giving that up.
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
        """The member with what its record of who it is and what it wants says."""
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
            classic=_classic_side(value.classic_member_metadata),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """The member with what its record of epoch and partitions says."""
        return dataclasses.replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=partitions_of(value.assigned_partitions),
            pending_revocation=partitions_of(value.partitions_pending_revocation),
        )


def _classic_side(stored: ClassicMemberMetadata | None) -> ClassicSide | None:
    if stored is None:
        return None
    return ClassicSide(
        stored.session_timeout_ms,
        tuple(ClassicProtocol(one.name, bytes(one.metadata)) for one in stored.supported_protocols),
    )
