"""How a group with members changes its protocol: the records of it, and when it may.

Owns the translation between the two kinds of group. A change is records alone: the tombstones of
the one group and the records of the other, in one batch, so that no coordinator sees half of it.

Source: Kafka ``GroupMetadataManager.validateOnlineUpgrade``, ``validateOnlineDowngrade...``,
``ConsumerGroup.fromClassicGroup``, ``ClassicGroup.fromConsumerGroup`` (4.2).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.assign.model import Assignment
from aiokq.assign.protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)
from aiokq.broker.coordinator.group.classic.member import ClassicMember
from aiokq.broker.coordinator.group.classic.roster import ClassicRoster
from aiokq.broker.coordinator.group.classic.states import ClassicState
from aiokq.broker.coordinator.group.consumer.member import ClassicSide, ConsumerMember
from aiokq.broker.coordinator.group.consumer.records import (
    assignment_epoch_record,
    current_assignment_record,
    epoch_record,
    group_tombstones,
    member_record,
    sorted_partitions,
    target_record,
)
from aiokq.broker.coordinator.group.consumer.subscribed_topics import metadata_hash
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.core.errors import GroupIdNotFound, ProtocolError
from aiokq.core.types import TopicPartition
from aiokq.wire.group_records import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from aiokq.assign.server_model import Partitions
    from aiokq.broker.coordinator.group.classic.group import ClassicGroup
    from aiokq.broker.coordinator.group.consumer.image import GroupImage
    from aiokq.broker.coordinator.group.topic_view import TopicView
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.broker.settings import BrokerSettings

__all__ = [
    "Downgrade",
    "assigned_bytes",
    "downgrade",
    "may_downgrade",
    "resume",
    "topic_ids",
    "upgrade",
]

logger = logging.getLogger("aiokq.broker.coordinator")

_UPGRADES: Final = ("bidirectional", "upgrade")
_DOWNGRADES: Final = ("bidirectional", "downgrade")


# Both ways


def topic_ids(partitions: Iterable[TopicPartition], topics: TopicView) -> Partitions:
    """Partitions by the ids of their topics; those of topics that are gone are left out."""
    found: dict[uuid.UUID, frozenset[int]] = {}
    for name, number in partitions:
        topic = topics.topic(name)
        if topic is not None:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | {number}
    return found


def assigned_bytes(partitions: Partitions, topics: TopicView, subscription: bytes) -> bytes:
    """An assignment for a classic member, in the version that its subscription has.

    Raises:
        ProtocolError: the bytes are no subscription.
    """
    named = []
    for topic_id, numbers in sorted_partitions(partitions):
        topic = topics.by_id(topic_id)
        if topic is not None:
            named += [TopicPartition(topic.name, number) for number in numbers]
    return encode_assignment(Assignment(tuple(named)), version_of(subscription))


# Upgrade


def upgrade(
    group: ClassicGroup, settings: BrokerSettings, topics: TopicView
) -> list[CoordinatorRecord]:
    """The records by which a classic group with members becomes one of the consumer protocol.

    Its members keep their ids, what they were assigned last, and the generation as their epoch.

    Raises:
        GroupIdNotFound: it may not, or cannot: in Kafka's words.
    """
    group_id = group.group_id
    if settings.group_consumer_migration_policy not in _UPGRADES:
        raise _no_upgrade(group_id, "online upgrade is disabled.")
    if group.protocol_type_or_none != PROTOCOL_TYPE:
        raise _no_upgrade(group_id, "the group does not use the consumer embedded protocol.")
    if len(group.roster) > settings.group_consumer_max_size:
        raise _no_upgrade(group_id, "the group size exceeds the consumer group maximum size.")
    members = [_upgraded(member, group, topics) for member in group.roster]
    names = frozenset[str]().union(*(member.topic_names for member in members))
    epoch = group.generation
    # A rebalance that was under way goes on, also where who joins now wants nothing new.
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
        assigned=topic_ids(assignment.partitions, topics),
        classic=ClassicSide(member.session_timeout_ms, member.protocols),
    )


def _subscription(member: ClassicMember, protocol_name: str | None) -> bytes:
    """What it said to the elected protocol; to its first one if that is not among its own.

    Which happens to members that joined since, or before the first generation.
    """
    for protocol in member.protocols:
        if protocol.name == protocol_name:
            return protocol.metadata
    return member.protocols[0].metadata


def _no_upgrade(group_id: str, reason: str) -> GroupIdNotFound:
    return GroupIdNotFound(
        f"Cannot upgrade classic group {group_id} to consumer group because {reason}"
    )


# Downgrade


class Downgrade(NamedTuple):
    """The records by which a group becomes a classic one, and its members with all they said."""

    records: list[CoordinatorRecord]
    roster: ClassicRoster


def may_downgrade(
    group_id: str, members: Collection[ConsumerMember], settings: BrokerSettings
) -> bool:
    """Whether a group that has these members left becomes a classic one."""
    if not members or any(member.classic is None for member in members):
        return False
    if settings.group_consumer_migration_policy not in _DOWNGRADES:
        reason = "the online downgrade is disabled"
    elif len(members) > settings.group_max_size:
        reason = "its group size is greater than classic group max size"
    else:
        return True
    logger.info("consumer group stays one: group=%s reason=%s", group_id, reason)
    return False


def downgrade(
    image: GroupImage,
    members: Iterable[ConsumerMember],
    targets: dict[str, Partitions],
    topics: TopicView,
    timestamp_ms: int,
    replaced: str | None = None,
) -> Downgrade | None:
    """The group as a classic one with these members; None if a subscription cannot be read.

    Args:
        members: all of the classic protocol.
        targets: what each of them is assigned.
        replaced: a member id whose tombstones come before these records.
    """
    group_id = image.group_id
    roster = ClassicRoster(group_id)
    for member in members:
        assert member.classic is not None
        roster.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                PROTOCOL_TYPE,
                member.classic.protocols,
            ),
            None,
        )
    protocol = roster.elect_protocol()
    try:
        for one in roster:
            target = targets.get(one.member_id, {})
            one.assignment = assigned_bytes(target, topics, one.metadata(protocol))
    except ProtocolError as error:
        logger.warning("group cannot be downgraded: group=%s error=%s", group_id, error)
        return None
    record = CoordinatorRecord(
        GroupMetadataKey(group=group_id),
        GroupMetadataValue(
            protocol_type=PROTOCOL_TYPE,
            generation=image.epoch,
            protocol=protocol,
            leader=roster.leader_id,
            current_state_timestamp=timestamp_ms,
            members=[one.stored(protocol, one.assignment) for one in roster],
        ),
    )
    gone = {*image.members, *roster.members} - {replaced}
    tombstones = group_tombstones(group_id, gone, image.regexes)
    return Downgrade([*tombstones, record], roster)


def resume(
    group: ClassicGroup, roster: ClassicRoster, reason: str | None, instant: Instant
) -> None:
    """Let the classic group go on whose record has just been replayed.

    Args:
        roster: its members, with the protocols that the record leaves out.
        reason: why they have to join again; None if all stays as it is.
    """
    logger.info("consumer group becomes a classic one: group=%s", group.group_id)
    for member in roster:
        group.roster.update(
            group.roster.members[member.member_id],
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            None,
        )
    group.loaded(instant)
    if reason is not None:
        # Nobody has joined yet, so that this writes nothing.
        group.rebalance.prepare(reason, instant)
