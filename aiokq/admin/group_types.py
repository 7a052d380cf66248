"""The values that calls about groups give: states and types, groups, members, offsets, lag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Self

from aiokq.cluster.metadata import BrokerInfo, frozen_map
from aiokq.core.errors import ConfigError, KafkaError
from aiokq.core.frozen import frozen
from aiokq.core.types import OffsetAndMetadata, TopicPartition

__all__ = [
    "GroupDeleted",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "GroupOffsetAltered",
    "GroupOffsetDeleted",
    "GroupOffsetReset",
    "GroupOffsets",
    "GroupState",
    "GroupType",
    "MemberDescription",
    "MemberRemoved",
    "PartitionLag",
]


class _Name(StrEnum):
    """Kafka's names, told apart by their letters only: people write `stable`."""

    @classmethod
    def of(cls, text: str) -> Self:
        """The member of that name; UNKNOWN for what a newer broker says."""
        by_name = {member.value.lower(): member for member in cls}
        return by_name.get(text.lower()) or cls("Unknown")

    @classmethod
    def wanted(cls, text: str) -> Self:
        """The member of that name, for a filter.

        Raises:
            ConfigError: there is none.
        """
        found = cls.of(text)
        if found.value == "Unknown":
            known = ", ".join(member.value for member in cls if member.value != "Unknown")
            raise ConfigError(f"{text!r} is none of {known}")
        return found


class GroupState(_Name):
    """The state of a group; the first five are the classic protocol's."""

    EMPTY = "Empty"
    """No members, but offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    """Of the consumer protocol, as is ASSIGNING: members are on their way to their assignments."""
    NOT_READY = "NotReady"
    UNKNOWN = "Unknown"


class GroupType(_Name):
    """The protocol that the members of a group speak."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"
    UNKNOWN = "Unknown"


@frozen
class GroupListing:
    """One group of a listing.

    Attributes:
        protocol_type: "consumer" for consumers, "connect" for Kafka Connect; "" for a group that
            only commits offsets.
        state: None where the broker is older than 2.6.
        type: None where the broker is older than 3.7.
        coordinator: node id of the broker that listed it.
    """

    group_id: str
    protocol_type: str
    state: GroupState | None
    type: GroupType | None
    coordinator: int

    @property
    def is_simple(self) -> bool:
        """Whether it has no protocol: it only commits offsets."""
        return not self.protocol_type


@frozen
class MemberDescription:
    """One member of a group.

    Attributes:
        group_instance_id: of a static member.
        host: where it connects from, as the broker sees it.
        assignment: what it owns.
        target_assignment: what it is to own; the consumer protocol's only.
        subscription: the topics it wants.
        subscription_regex: the pattern it wants topics by; the consumer protocol's only.
        member_epoch: the consumer protocol's only.
        speaks: the protocol of the member: during a migration it may be another than the group's.
            None where the broker does not tell.
        metadata: what it sent with its join, and `assignment_data` what it was given: raw, for
            protocol types other than "consumer". Of the classic protocol only.
    """

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None = None
    assignment: tuple[TopicPartition, ...] = ()
    target_assignment: tuple[TopicPartition, ...] | None = None
    subscription: tuple[str, ...] = ()
    subscription_regex: str | None = None
    rack: str | None = None
    member_epoch: int | None = None
    speaks: GroupType | None = None
    metadata: bytes = field(default=b"", repr=False)
    assignment_data: bytes = field(default=b"", repr=False)


@frozen
class GroupDescription:
    """One group with its members, sorted by client and member id.

    Attributes:
        assignor: by the name that the members or the broker have for it; "" if none was chosen yet.
        group_epoch: the consumer protocol's only.
        assignment_epoch: for which epoch the target assignment is; the consumer protocol's only.
        authorized_operations: by Kafka's names; None if they were not asked for.
    """

    group_id: str
    type: GroupType = GroupType.UNKNOWN
    protocol_type: str = ""
    state: GroupState = GroupState.UNKNOWN
    assignor: str = ""
    coordinator: BrokerInfo | None = None
    members: tuple[MemberDescription, ...] = ()
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    authorized_operations: frozenset[str] | None = None
    error: KafkaError | None = None

    @property
    def owners(self) -> dict[TopicPartition, MemberDescription]:
        """Which member owns each partition that is assigned."""
        return {tp: member for member in self.members for tp in member.assignment}


@frozen
class GroupDeleted:
    """Outcome of deleting one group."""

    group_id: str
    error: KafkaError | None = None


@frozen
class MemberRemoved:
    """Outcome of removing one member, given by its id or by its instance id."""

    member_id: str = ""
    group_instance_id: str | None = None
    error: KafkaError | None = None


@frozen
class GroupOffsets:
    """What one group has committed.

    Attributes:
        offsets: by partition, sorted; None for one that was asked for and has none.
        errors: of single partitions, UnstableOffsetCommit for one.
    """

    group_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None] = field(default_factory=frozen_map)
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=frozen_map)
    error: KafkaError | None = None


@frozen
class GroupOffsetAltered:
    """Outcome of committing one partition's offset."""

    topic_partition: TopicPartition
    error: KafkaError | None = None


@frozen
class GroupOffsetDeleted:
    """Outcome of deleting one partition's offset."""

    topic_partition: TopicPartition
    error: KafkaError | None = None


@frozen
class GroupOffsetReset:
    """Outcome of resetting one partition.

    Attributes:
        previous: what was committed before; None if nothing.
        offset: what is committed now, or would be.
        clipped: the offset asked for was outside the log, this is the end nearest to it.
    """

    topic_partition: TopicPartition
    previous: int | None = None
    offset: int | None = None
    clipped: bool = False
    error: KafkaError | None = None


@frozen
class PartitionLag:
    """How far a group is behind in one partition.

    Attributes:
        committed: the offset it goes on from; None if it never committed.
        log_end: the end of the log, by the isolation level asked for.
        lag: records between the two, offsets without records included; None if one is not known.
        member: who owns the partition; None if nobody does.
    """

    topic_partition: TopicPartition
    committed: OffsetAndMetadata | None = None
    log_end: int | None = None
    lag: int | None = None
    member: MemberDescription | None = None
    error: KafkaError | None = None


@frozen
class GroupLag:
    """How far a group is behind.

    Attributes:
        group: as `Admin.describe_groups` gives it.
        partitions: those with a committed offset, and those that a member owns; sorted.
    """

    group_id: str
    group: GroupDescription
    partitions: Mapping[TopicPartition, PartitionLag] = field(default_factory=frozen_map)
    error: KafkaError | None = None

    @property
    def total(self) -> int | None:
        """The sum over partitions whose lag is known; None while the members have no assignment.

        A group that is joining would look as if it had read everything. One without members has
        the lag of what it committed.
        """
        if self.group.members and not self.group.owners:
            return None
        return sum(each.lag for each in self.partitions.values() if each.lag is not None)
