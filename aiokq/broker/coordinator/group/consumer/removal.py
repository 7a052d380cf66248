"""Lookup of the member that a request names, and records of members that leave or are fenced.

Source: Kafka ``GroupMetadataManager.consumerGroupLeave``, ``consumerGroupFenceMembers``,
``classicGroupLeaveToConsumerGroup`` (4.2).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from aiokq.broker.coordinator.group.consumer.image import GroupImage, subscribed_names
from aiokq.broker.coordinator.group.consumer.member import (
    NO_PARTITIONS,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from aiokq.broker.coordinator.group.consumer.records import (
    current_assignment_record,
    epoch_record,
    member_tombstones,
    regex_tombstone,
)
from aiokq.broker.coordinator.group.consumer.subscribed_topics import metadata_hash
from aiokq.broker.coordinator.group.topic_view import TopicView
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.core.errors import FencedInstanceId, UnknownMemberId

__all__ = [
    "named_member",
    "temporary_leave_records",
    "removal_records",
    "removed_member",
    "static_member_or_fenced",
]


def static_member_or_fenced(image: GroupImage, instance_id: str, member_id: str) -> ConsumerMember:
    """Return the static member with an instance id, if it has this member id.

    Raises:
        UnknownMemberId: no member has the instance id.
        FencedInstanceId: another member has the instance id.
    """
    member = image.static_member(instance_id)
    if member is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}."
        )
    return member


def named_member(image: GroupImage, instance_id: str | None, member_id: str) -> ConsumerMember:
    """Return the member that a request names.

    Raises:
        UnknownMemberId: there is no such member.
        FencedInstanceId: another member has the instance id.
    """
    if instance_id is None:
        return image.member(member_id)
    return static_member_or_fenced(image, instance_id, member_id)


def removed_member(image: GroupImage, instance_id: str | None, member_id: str) -> ConsumerMember:
    """Return the member that a LeaveGroup names; admin clients may name an instance id alone.

    Raises:
        UnknownMemberId: there is no such member.
        FencedInstanceId: another member has the instance id.
    """
    if instance_id is not None and not member_id:
        present = image.static_member(instance_id)
        member_id = "" if present is None else present.member_id
    return named_member(image, instance_id, member_id)


def temporary_leave_records(image: GroupImage, member: ConsumerMember) -> list[CoordinatorRecord]:
    """Return the records of a static member's temporary leave; its assigned partitions stay."""
    away = replace(member, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation=NO_PARTITIONS)
    return [current_assignment_record(image.group_id, away)]


def removal_records(
    image: GroupImage, members: Collection[ConsumerMember], topics: TopicView
) -> list[CoordinatorRecord]:
    """Return the records that remove members, and the record that increments the group epoch.

    Expressions to which no remaining member subscribes are removed, too.
    """
    group_id = image.group_id
    gone = {member.member_id for member in members}
    records: list[CoordinatorRecord] = []
    for member in members:
        records += member_tombstones(group_id, member.member_id)
    others = [other for other in image.members.values() if other.member_id not in gone]
    wanted = {other.topic_regex for other in others}
    regexes = {regex: found for regex, found in image.regexes.items() if regex in wanted}
    records += [regex_tombstone(group_id, regex) for regex in image.regexes if regex not in wanted]
    names = subscribed_names(others, regexes)
    records.append(epoch_record(group_id, image.epoch + 1, metadata_hash(names, topics)))
    return records
