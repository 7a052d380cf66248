"""Upgrade of a classic group with members to the consumer protocol.

Source: Kafka ``GroupMetadataManager.validateOnlineUpgrade``, ``ConsumerGroup.fromClassicGroup``
(4.2).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiokq.assign.protocol import PROTOCOL_TYPE, decode_assignment, decode_subscription
from aiokq.broker.coordinator.group.classic.states import ClassicState
from aiokq.broker.coordinator.group.consumer.classic_assignment import partitions_by_id
from aiokq.broker.coordinator.group.consumer.member import ClassicMetadata, ConsumerMember
from aiokq.broker.coordinator.group.consumer.records import (
    assignment_epoch_record,
    current_assignment_record,
    epoch_record,
    member_record,
    target_record,
)
from aiokq.broker.coordinator.group.consumer.subscribed_topics import metadata_hash
from aiokq.core.errors import GroupIdNotFound, ProtocolError

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.coordinator.group.classic.group import ClassicGroup
    from aiokq.broker.coordinator.group.classic.member import ClassicMember
    from aiokq.broker.coordinator.group.topic_view import TopicView
    from aiokq.broker.coordinator.record import CoordinatorRecord

__all__ = ["upgrade"]

logger = logging.getLogger("aiokq.broker.coordinator")

_UPGRADE_POLICIES: Final = ("bidirectional", "upgrade")


def upgrade(
    group: ClassicGroup, settings: BrokerSettings, topics: TopicView
) -> list[CoordinatorRecord]:
    """Return the records that turn a classic group with members into a consumer-protocol group.

    The members keep their ids and their assignments; their member epoch is the group's generation.

    Raises:
        GroupIdNotFound: the settings forbid the upgrade, or the group cannot be converted. The
            message is Kafka's.
    """
    group_id = group.group_id
    if settings.group_consumer_migration_policy not in _UPGRADE_POLICIES:
        raise _no_upgrade(group_id, "online upgrade is disabled.")
    if group.protocol_type_or_none != PROTOCOL_TYPE:
        raise _no_upgrade(group_id, "the group does not use the consumer embedded protocol.")
    if len(group.roster) > settings.group_consumer_max_size:
        raise _no_upgrade(group_id, "the group size exceeds the consumer group maximum size.")
    members = [_upgraded(member, group, topics) for member in group.roster]
    names = frozenset[str]().union(*(member.topic_names for member in members))
    epoch = group.generation
    # A rebalance that was in progress continues: the epoch is incremented even if the member that
    # joins now changes nothing.
    wanted = epoch if group.state is ClassicState.STABLE else epoch + 1
    logger.info("classic group becomes a consumer group: group=%s epoch=%d", group_id, epoch)
    return [
        *group.tombstones(),
        *(member_record(group_id, member) for member in members),
        epoch_record(group_id, wanted, metadata_hash(names, topics)),
        *(target_record(group_id, member.member_id, member.assigned) for member in members),
        assignment_epoch_record(group_id, epoch),
        *(current_assignment_record(group_id, member) for member in members),
    ]


def _upgraded(member: ClassicMember, group: ClassicGroup, topics: TopicView) -> ConsumerMember:
    try:
        assignment = decode_assignment(member.assignment)
        subscription = decode_subscription(_subscription(member, group.protocol_name))
    except ProtocolError as error:
        logger.warning("group cannot be upgraded: group=%s error=%s", group.group_id, error)
        raise _no_upgrade(group.group_id, "the embedded consumer protocol is malformed.") from error
    if assignment.user_data:
        raise _no_upgrade(
            group.group_id,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch "
            "to a default assignor before re-attempting the upgrade.",
        )
    return ConsumerMember(
        member.member_id,
        member_epoch=group.generation,
        previous_member_epoch=group.generation,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack or None,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        assigned=partitions_by_id(assignment.partitions, topics),
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def _subscription(member: ClassicMember, protocol_name: str | None) -> bytes:
    """Return the member's subscription for the elected protocol, or else for its first protocol.

    Before the first election there is no elected protocol. A member that joined after the last
    election may have no subscription for the elected protocol.
    """
    for protocol in member.protocols:
        if protocol.name == protocol_name:
            return protocol.metadata
    return member.protocols[0].metadata


def _no_upgrade(group_id: str, reason: str) -> GroupIdNotFound:
    return GroupIdNotFound(
        f"Cannot upgrade classic group {group_id} to consumer group because {reason}"
    )
