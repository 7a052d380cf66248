"""Builders of the records of a group of the consumer protocol.

Topics and partitions are sorted, so that the records of equal groups have equal bytes.

Source: Kafka ``GroupCoordinatorRecordHelpers.java`` (4.2).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

from aiokq.assign.server_model import Partitions
from aiokq.broker.coordinator.group.consumer.member import ClassicMetadata, ConsumerMember
from aiokq.broker.coordinator.group.consumer.regex import ResolvedRegex
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.wire.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberTopicPartition,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

__all__ = [
    "assignment_epoch_record",
    "current_assignment_record",
    "epoch_record",
    "group_tombstones",
    "member_record",
    "member_tombstones",
    "partition_metadata_tombstone",
    "regex_record",
    "regex_tombstone",
    "sorted_partitions",
    "target_record",
]


def sorted_partitions(partitions: Partitions) -> Iterator[tuple[uuid.UUID, list[int]]]:
    """Yield topics and partitions in ascending order, without topics that have no partitions."""
    for topic_id in sorted(partitions):
        if numbers := partitions[topic_id]:
            yield topic_id, sorted(numbers)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of the group epoch and the hash of the subscribed topics."""
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of the identity and subscription of a member."""
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=None if member.classic is None else _classic(member.classic),
        ),
    )


def _classic(metadata: ClassicMetadata) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=metadata.session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=one.name, metadata=one.metadata) for one in metadata.protocols
        ],
    )


def current_assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of the epoch and partitions of a member."""
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned_partitions=_current(member.assigned),
            partitions_pending_revocation=_current(member.pending_revocation),
        ),
    )


def _current(
    partitions: Partitions,
) -> list[ConsumerGroupCurrentMemberAssignmentTopicPartitions]:
    return [
        ConsumerGroupCurrentMemberAssignmentTopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in sorted_partitions(partitions)
    ]


def target_record(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    """Return the record of the target assignment of a member."""
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                ConsumerGroupTargetAssignmentMemberTopicPartition(
                    topic_id=topic_id, partitions=numbers
                )
                for topic_id, numbers in sorted_partitions(partitions)
            ]
        ),
    )


def assignment_epoch_record(group_id: str, epoch: int) -> CoordinatorRecord:
    """Return the record of the group epoch for which the target assignments were computed."""
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    """Return the record of the topics that an expression matched."""
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=0, timestamp=resolved.timestamp_ms
        ),
    )


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    """Return the record that removes an expression to which no member subscribes any more."""
    return CoordinatorRecord(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None
    )


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the record that removes the partition metadata that a broker before 4.1 wrote.

    Since 4.1, the epoch record has a metadata hash instead.
    """
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of a member's current assignment, its target and its metadata."""
    return [
        CoordinatorRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
        ),
        CoordinatorRecord(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
        ),
        CoordinatorRecord(
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None
        ),
    ]


def group_tombstones(
    group_id: str, member_ids: Iterable[str], regexes: Iterable[str]
) -> list[CoordinatorRecord]:
    """Return the records that remove a group with all its records, the epoch record last."""
    members = sorted(member_ids)
    records = [
        CoordinatorRecord(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
        )
        for member_id in members
    ]
    records += [
        CoordinatorRecord(
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
        )
        for member_id in members
    ]
    records.append(
        CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)
    )
    records += [
        CoordinatorRecord(
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None
        )
        for member_id in members
    ]
    records += [regex_tombstone(group_id, regex) for regex in sorted(regexes)]
    records.append(partition_metadata_tombstone(group_id))
    records.append(CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None))
    return records
