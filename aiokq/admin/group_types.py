"""Result values of calls about groups: states and types, groups, members, offsets, lag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from aiokq.admin.kafka_names import KafkaName
from aiokq.cluster.metadata import BrokerInfo, frozen_map
from aiokq.core.errors import KafkaError
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


class GroupState(KafkaName):
    """The state of a group; groups of the classic protocol have only the first five."""

    EMPTY = "Empty"
    """The group has no members, but may have committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    """Members are moving to their target assignment; not a state of the classic protocol."""
    NOT_READY = "NotReady"
    UNKNOWN = "Unknown"


class GroupType(KafkaName):
    """The type of a group, by the protocol of its members."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"
    UNKNOWN = "Unknown"


@frozen
class GroupListing:
    """A group in a listing.

    Attributes:
        protocol_type: "consumer" for consumers, "connect" for Kafka Connect; "" for a group that
            only commits offsets.
        state: state of the group; None if the broker is older than 2.6.
        type: type of the group; None if the broker is older than 3.8.
        coordinator: node id of the broker that listed the group.
    """

    group_id: str
    protocol_type: str
    state: GroupState | None
    type: GroupType | None
    coordinator: int

    @property
    def is_simple(self) -> bool:
        """Whether the group has no protocol and only commits offsets."""
        return not self.protocol_type


@frozen
class MemberDescription:
    """A member of a group.

    Attributes:
        group_instance_id: instance id of a static member.
        host: client address that the broker reports.
        assignment: partitions that the member owns.
        target_assignment: partitions that the member will own; consumer protocol only.
        subscription: subscribed topics.
        subscription_regex: subscribed pattern; consumer protocol only.
        member_epoch: epoch of the member; None with the classic protocol.
        speaks: the member's protocol, which may differ from the group's protocol during a
            migration; None if the broker does not return it.
        metadata: raw metadata with which the member joined; empty with the consumer protocol.
        assignment_data: raw assignment of the member; empty with the consumer protocol.
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
    """A group with its members, which are sorted by client id and member id.

    Attributes:
        assignor: name of the assignment strategy; "" if none was chosen yet.
        group_epoch: epoch of the group; None with the classic protocol.
        assignment_epoch: epoch of the target assignment; None with the classic protocol.
        authorized_operations: Kafka's names of the operations that this client may perform; None if
            not requested.
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
        """The owner of each assigned partition."""
        return {tp: member for member in self.members for tp in member.assignment}


@frozen
class GroupDeleted:
    """The result of deleting one group."""

    group_id: str
    error: KafkaError | None = None


@frozen
class MemberRemoved:
    """The result of removing one member.

    ``member_id`` is "" if the group has no member with the given instance id.
    """

    member_id: str = ""
    group_instance_id: str | None = None
    error: KafkaError | None = None


@frozen
class GroupOffsets:
    """The committed offsets of a group.

    Attributes:
        offsets: committed offsets by partition, sorted; None for a requested partition without a
            committed offset.
        errors: errors of single partitions, such as UnstableOffsetCommit.
    """

    group_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None] = field(default_factory=frozen_map)
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=frozen_map)
    error: KafkaError | None = None


@frozen
class GroupOffsetAltered:
    """The result of committing one partition's offset."""

    topic_partition: TopicPartition
    error: KafkaError | None = None


@frozen
class GroupOffsetDeleted:
    """The result of deleting one partition's offset."""

    topic_partition: TopicPartition
    error: KafkaError | None = None


@frozen
class GroupOffsetReset:
    """The result of resetting one partition.

    Attributes:
        previous: the offset committed before; None if there was none.
        offset: the new committed offset; with dry_run, the offset that would be committed.
        clipped: whether the requested offset was outside the log and was moved to the log's start
            or end.
    """

    topic_partition: TopicPartition
    previous: int | None = None
    offset: int | None = None
    clipped: bool = False
    error: KafkaError | None = None


@frozen
class PartitionLag:
    """The lag of a group in one partition.

    Attributes:
        committed: next offset to consume; None if the group has committed none for the partition.
        log_end: high watermark, or the last stable offset if "read_committed" was requested.
        lag: number of offsets from `committed` to `log_end`, including offsets without records;
            None if one of the two is unknown.
        member: the owner of the partition; None if there is none.
    """

    topic_partition: TopicPartition
    committed: OffsetAndMetadata | None = None
    log_end: int | None = None
    lag: int | None = None
    member: MemberDescription | None = None
    error: KafkaError | None = None


@frozen
class GroupLag:
    """The lag of a group.

    Attributes:
        group: the description, as returned by `Admin.describe_groups`.
        partitions: partitions with a committed offset or an owner, sorted.
    """

    group_id: str
    group: GroupDescription
    partitions: Mapping[TopicPartition, PartitionLag] = field(default_factory=frozen_map)
    error: KafkaError | None = None

    @property
    def total(self) -> int | None:
        """The sum of the known lags; None if the group has members but no member owns a partition.

        While the members join, a group without committed offsets has no partitions. The sum 0 would
        look as if the group had read everything.
        """
        if self.group.members and not self.group.owners:
            return None
        return sum(each.lag for each in self.partitions.values() if each.lag is not None)
