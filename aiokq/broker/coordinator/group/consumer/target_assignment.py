"""The target assignment of a group: runs the assignor, and builds the records of the changes.

Source: Kafka ``TargetAssignmentBuilder.java``, ``ConsumerGroup.computePreferredServerAssignor``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from aiokq.assign.server_model import GroupSpec, Partitions, ServerAssignor, ServerMember
from aiokq.broker.coordinator.group.consumer.member import ConsumerMember
from aiokq.broker.coordinator.group.consumer.records import assignment_epoch_record, target_record
from aiokq.broker.coordinator.group.consumer.subscribed_topics import Subscriptions
from aiokq.broker.coordinator.record import CoordinatorRecord

__all__ = ["preferred_assignor", "target_assignment"]


def preferred_assignor(members: Iterable[ConsumerMember], assignors: Mapping[str, object]) -> str:
    """Return the assignor that most members request; in a tie, the first in the configuration.

    Assignors that this broker does not have, but that another broker accepted, are not candidates.
    """
    votes = Counter(member.server_assignor for member in members)
    return max(assignors, key=lambda name: votes[name])


def target_assignment(
    group_id: str,
    epoch: int,
    members: Mapping[str, ConsumerMember],
    targets: Mapping[str, Partitions],
    subscriptions: Subscriptions,
    assignor: ServerAssignor,
) -> tuple[dict[str, Partitions], list[CoordinatorRecord]]:
    """Return the new target of each member, and the records of changed targets and of the epoch.

    Args:
        epoch: the group epoch of the assignment.
        members: the members after the change that caused the assignment.
        targets: the previous targets; a member without a previous target always gets a record.
    """
    specs = {
        member_id: ServerMember(
            topics=subscriptions.of(member),
            assigned=targets.get(member_id, {}),
            rack=member.rack_id,
            instance_id=member.instance_id,
        )
        for member_id, member in members.items()
    }
    result: dict[str, Partitions] = dict(assignor.assign(GroupSpec(specs, subscriptions.topics)))
    records = [
        target_record(group_id, member_id, partitions)
        for member_id, partitions in sorted(result.items())
        if targets.get(member_id) != partitions
    ]
    records.append(assignment_epoch_record(group_id, epoch))
    return result, records
