"""Downgrade of a consumer-protocol group with only classic members to a classic group.

Source: Kafka ``GroupMetadataManager.validateOnlineDowngrade...``,
``ClassicGroup.fromConsumerGroup`` (4.2).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from aiokq.assign.protocol import PROTOCOL_TYPE
from aiokq.broker.coordinator.group.classic.member import ClassicMember
from aiokq.broker.coordinator.group.classic.roster import ClassicRoster
from aiokq.broker.coordinator.group.consumer.classic_assignment import assignment_bytes
from aiokq.broker.coordinator.group.consumer.records import group_tombstones
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.core.errors import ProtocolError
from aiokq.wire.group_records import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from aiokq.assign.server_model import Partitions
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.coordinator.group.classic.group import ClassicGroup
    from aiokq.broker.coordinator.group.consumer.image import GroupImage
    from aiokq.broker.coordinator.group.consumer.member import ConsumerMember
    from aiokq.broker.coordinator.group.topic_view import TopicView
    from aiokq.broker.coordinator.timers import Instant

__all__ = ["OnlineDowngrades"]

logger = logging.getLogger("aiokq.broker.coordinator")

_DOWNGRADE_POLICIES: Final = ("bidirectional", "downgrade")


class OnlineDowngrades:
    """The downgrades of the groups of one shard; implements `consumer.context.Downgrades`.

    Args:
        classic_group: returns the classic group of an id, after the records of its downgrade were
            replayed.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicView,
        classic_group: Callable[[str], ClassicGroup],
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._classic_group = classic_group

    def is_due(self, group_id: str, members: Collection[ConsumerMember]) -> bool:
        """Whether a group is downgraded to a classic group when only these members are left."""
        if not members or any(member.classic is None for member in members):
            return False
        if self._settings.group_consumer_migration_policy not in _DOWNGRADE_POLICIES:
            reason = "online downgrade is disabled"
        elif len(members) > self._settings.group_max_size:
            reason = "the group has more members than group.max.size"
        else:
            return True
        logger.info("consumer group is not downgraded: group=%s reason=%s", group_id, reason)
        return False

    def plan(
        self,
        image: GroupImage,
        members: Collection[ConsumerMember],
        targets: Mapping[str, Partitions],
        timestamp_ms: int,
        replaced: str | None,
    ) -> Downgrade | None:
        """Return the downgrade of a group with these members; None if a subscription is invalid.

        Args:
            members: the members; all use the classic protocol.
            targets: the target assignments by member id.
            replaced: the previous id of a static member that joined again, if there is one. The
                caller writes the tombstones of this id.
        """
        group_id = image.group_id
        roster = _roster(group_id, members)
        protocol = roster.elect_protocol()
        try:
            for member in roster:
                target = targets.get(member.member_id, {})
                member.assignment = assignment_bytes(
                    target, self._topics, member.metadata(protocol)
                )
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
                members=[member.stored(protocol, member.assignment) for member in roster],
            ),
        )
        gone = {*image.members, *roster.members} - {replaced}
        tombstones = group_tombstones(group_id, gone, image.regexes)
        return Downgrade([*tombstones, record], group_id, roster, self._classic_group)


class Downgrade:
    """The downgrade of one group from the consumer protocol to the classic protocol.

    Attributes:
        records: the tombstones of the consumer group, and the record of the classic group.
    """

    def __init__(
        self,
        records: list[CoordinatorRecord],
        group_id: str,
        roster: ClassicRoster,
        classic_group: Callable[[str], ClassicGroup],
    ) -> None:
        self.records = records
        self._group_id = group_id
        self._roster = roster
        self._classic_group = classic_group

    def complete(self, reason: str | None, instant: Instant) -> None:
        """Complete the classic group after its record was replayed.

        The method adds the state that the record lacks, starts the timers, and rebalances if there
        is a `reason`.

        Args:
            reason: why the members have to join again; None if the assignment stays.
        """
        group = self._classic_group(self._group_id)
        logger.info("consumer group becomes a classic group: group=%s", group.group_id)
        for member in self._roster:
            group.roster.update(
                group.roster.members[member.member_id],
                member.protocols,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                None,
            )
        group.loaded(instant)
        if reason is not None:
            # No member has a pending JoinGroup, so `prepare` returns no records.
            group.rebalance.prepare(reason, instant)


def _roster(group_id: str, members: Collection[ConsumerMember]) -> ClassicRoster:
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
    return roster
