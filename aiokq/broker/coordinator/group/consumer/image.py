"""The durable state of a group of the consumer protocol: the result of replaying its records.

It consists of members, epochs, target assignments, resolved expressions, and the owner of each
partition. Only `replay` changes it.

Source: Kafka ``ConsumerGroup.java``, ``ModernGroup.java``, and the ``replay`` methods of
``GroupMetadataManager.java`` (4.2). For each partition, Kafka keeps the member epoch of its owner.
This module keeps the owner itself, so that the order of two members' records does not matter.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from aiokq.assign.server_model import Partitions
from aiokq.broker.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    NO_PARTITIONS,
    ConsumerMember,
    partitions_of,
)
from aiokq.broker.coordinator.group.consumer.regex import ResolvedRegex
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.core.errors import UnknownMemberId
from aiokq.wire.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

__all__ = ["GroupImage", "subscribed_names"]


def subscribed_names(
    members: Iterable[ConsumerMember], regexes: Mapping[str, ResolvedRegex]
) -> frozenset[str]:
    """Return all topics that these members subscribe to, by name or by a resolved expression."""
    names: set[str] = set()
    names.update(*{member.topic_names for member in members})
    names.update(*(resolved.topics for resolved in regexes.values()))
    return frozenset(names)


class GroupImage:
    """The durable state of one consumer group, which is the replay of its records in the log.

    Attributes:
        epoch: the group epoch, which is incremented when the target assignment has to be
            recomputed; 0 in a new group.
        assignment_epoch: the group epoch for which `targets` was computed.
        metadata_hash: the hash of the subscribed topics when the epoch was last incremented.
        targets: the target assignment of each member.
        regexes: the resolved expressions that members subscribe to.
        static_members: member ids by instance id.
        has_partition_metadata: whether the log has a partition metadata record, which only brokers
            before 4.1 write. `MemberChange` removes the record.
        is_gone: whether the group's tombstone was replayed.
    """

    __slots__ = (
        "_names",
        "_owners",
        "assignment_epoch",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "is_gone",
        "members",
        "metadata_hash",
        "regexes",
        "static_members",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.assignment_epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.static_members: dict[str, str] = {}
        self.has_partition_metadata = False
        self.is_gone = False
        self._owners: dict[uuid.UUID, dict[int, str]] = {}
        self._names: frozenset[str] | None = None

    def member(self, member_id: str) -> ConsumerMember:
        """Return the member of this id.

        Raises:
            UnknownMemberId: there is no such member.
        """
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the static member with this instance id, also if it has left temporarily.

        Returns:
            The member; None if no member of the group has this instance id.
        """
        if instance_id is None:
            return None
        return self.members.get(self.static_members.get(instance_id, ""))

    def owner_of(self, topic_id: uuid.UUID, partition: int) -> str | None:
        """Return the member that owns or still has to revoke the partition; None if it is free."""
        owners = self._owners.get(topic_id)
        return None if owners is None else owners.get(partition)

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    @property
    def topic_names(self) -> frozenset[str]:
        """All topics that members subscribe to."""
        if self._names is None:
            self._names = subscribed_names(self.members.values(), self.regexes)
        return self._names

    @property
    def state_name(self) -> str:
        """Kafka's name of the group's state."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        members = list(
            self.members.values()
        )  # an atomic copy: other threads read this property, too
        if all(member.is_reconciled_to(self.assignment_epoch) for member in members):
            return "Stable"
        return "Reconciling"

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply one record; ignore unknown records, and tombstones of entries that do not exist."""
        key, value = record
        match key:
            case ConsumerGroupCurrentMemberAssignmentKey():
                assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                self._replay_assignment(key.member_id, value)
            case ConsumerGroupTargetAssignmentMemberKey():
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                if value is None:
                    self.targets.pop(key.member_id, None)
                else:
                    self.targets[key.member_id] = partitions_of(value.topic_partitions)
            case ConsumerGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(
                    value, ConsumerGroupTargetAssignmentMetadataValue
                )
                self.assignment_epoch = -1 if value is None else value.assignment_epoch
            case ConsumerGroupMemberMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
                self._replay_member(key.member_id, value)
            case ConsumerGroupMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupMetadataValue)
                if value is None:
                    self.is_gone = True
                else:
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupRegularExpressionKey():
                assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
                self._replay_regex(key.regular_expression, value)
            case ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None
            case _:
                pass

    def _replay_member(
        self, member_id: str, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        old = self.members.get(member_id)
        self._names = None
        if value is None:
            if old is not None:
                self._release(old)
                self._forget_instance(old)
                del self.members[member_id]
            return
        member = (old or ConsumerMember(member_id)).with_metadata(value)
        if old is not None and old.instance_id != member.instance_id:
            self._forget_instance(old)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id
        self.members[member_id] = member

    def _replay_assignment(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        old = self.members.get(member_id)
        if value is None:
            # The tombstone of the member itself follows. The member owns no partitions any more.
            if old is not None:
                self._release(old)
                self.members[member_id] = replace(
                    old,
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned=NO_PARTITIONS,
                    pending_revocation=NO_PARTITIONS,
                )
            return
        member = (old or ConsumerMember(member_id)).with_assignment(value)
        if old is not None:
            self._release(old)
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, numbers in partitions.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, member_id))
        self.members[member_id] = member

    def _replay_regex(self, regex: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        self._names = None
        if value is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = ResolvedRegex(frozenset(value.topics), value.timestamp)

    def _release(self, member: ConsumerMember) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, numbers in partitions.items():
                owners = self._owners.get(topic_id, {})
                for number in numbers:
                    # Another member may already own the partition, if compaction removed the record
                    # by which this member released it.
                    if owners.get(number) == member.member_id:
                        del owners[number]
                if not owners:
                    self._owners.pop(topic_id, None)

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]
