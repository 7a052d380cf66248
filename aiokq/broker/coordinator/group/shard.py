"""All groups and offsets of one partition of `__consumer_offsets`, each request to its machine.

Owns the map of groups, what they are made for and when they go; what happens inside a group is its
machine's matter. Knows no log: the runtime writes what calls give, and replays it here.

Source: Kafka ``GroupCoordinatorShard.java``, ``GroupMetadataManager.java``.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.group import migration, offset_requests
from aiokq.broker.coordinator.group.classic import join as classic_join
from aiokq.broker.coordinator.group.classic import session as classic_session
from aiokq.broker.coordinator.group.classic.group import ClassicGroup
from aiokq.broker.coordinator.group.classic.states import ClassicState
from aiokq.broker.coordinator.group.committed_offsets import OffsetStore
from aiokq.broker.coordinator.group.consumer import classic_members
from aiokq.broker.coordinator.group.consumer.context import ConsumerContext, server_assignors
from aiokq.broker.coordinator.group.consumer.group import ConsumerGroup
from aiokq.broker.coordinator.group.consumer.heartbeat_validation import check_heartbeat
from aiokq.broker.coordinator.outcome import Outcome, after_both
from aiokq.broker.coordinator.shard import NO_PRODUCER
from aiokq.core.counters import CounterBy
from aiokq.core.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from aiokq.wire.consumer_group_describe import ConsumerGroupDescribedGroup
from aiokq.wire.delete_groups import DeletableGroupResult
from aiokq.wire.describe_groups import DescribedGroup
from aiokq.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from aiokq.wire.join_group import JoinGroupResponse
from aiokq.wire.list_groups import ListedGroup

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Sequence

    from aiokq.broker.coordinator.group.consumer.context import GroupTimeouts
    from aiokq.broker.coordinator.group.group import Caller, Group
    from aiokq.broker.coordinator.group.topic_view import TopicView
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant, Timers
    from aiokq.broker.settings import BrokerSettings
    from aiokq.core.types import TopicPartition
    from aiokq.wire.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from aiokq.wire.heartbeat import HeartbeatRequest, HeartbeatResponse
    from aiokq.wire.join_group import JoinGroupRequest
    from aiokq.wire.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from aiokq.wire.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from aiokq.wire.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from aiokq.wire.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
    from aiokq.wire.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["GroupShard"]

logger = logging.getLogger("aiokq.broker.coordinator")

_EXPIRY_KEY: Final = ("expire offsets",)
_EXPIRY_REST_KEY: Final = ("expire more offsets",)
_EXPIRED_PER_TURN: Final = 500
"""Groups looked at, or about as many records written, before others have their turn."""
_OFFSETS_STAY: Final = -1
_FIRST_COMMIT_WITH_GROUP_NOT_FOUND: Final = 9
_FIRST_DESCRIBE_WITH_GROUP_NOT_FOUND: Final = 6
_JOIN_EPOCH: Final = 0


class GroupShard:
    """The groups of one partition.

    Requests give an `Outcome`, or raise the `BrokerError` that answers them. Nothing else may be
    asked of the shard before an outcome's records are replayed, or have failed.

    Args:
        timeouts: those of single groups, where they are not the broker's.
        rebalances: counts them by the protocol's name.

    Attributes:
        groups: by group id, of both protocols.
        offsets: what they have committed.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        timers: Timers,
        topics: TopicView,
        rng: random.Random,
        timeouts: GroupTimeouts | None = None,
        rebalances: CounterBy | None = None,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self._settings = settings
        self._timers = timers
        self._topics = topics
        self._random = rng
        self._rebalances = CounterBy() if rebalances is None else rebalances
        self._consumers = ConsumerContext(
            settings,
            timers,
            topics,
            rng,
            assignors=server_assignors(settings),
            timeouts=timeouts,
            rebalances=self._rebalances,
            classic_group=self._classic,
        )
        self._aside: dict[str, ConsumerGroup] = {}

    def __len__(self) -> int:
        return len(self.groups)

    # the classic protocol

    def join(
        self, request: JoinGroupRequest, caller: Caller, instant: Instant
    ) -> Outcome[JoinGroupResponse]:
        """JoinGroup: the group is made for its first member, and only by one without an id.

        Raises:
            BrokerError: as `classic_members.join`.
        """
        group = self.groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return classic_join.join(group, request, caller, instant)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return classic_members.join(group, request, caller, instant)
        if request.member_id:
            return Outcome(
                response=JoinGroupResponse(
                    error_code=UnknownMemberId.code, member_id=request.member_id
                )
            )
        return self._join_new_group(group, request, caller, instant)

    def _join_new_group(
        self, replaced: Group | None, request: JoinGroupRequest, caller: Caller, instant: Instant
    ) -> Outcome[JoinGroupResponse]:
        """Make a classic group, in the place of an empty consumer group if there is one."""
        group_id = request.group_id
        group = self._new_classic(group_id, instant.timestamp_ms)
        outcome = classic_join.join(group, request, caller, instant)
        records = [] if replaced is None else replaced.tombstones()
        # The group is there from now on, though it has no generation yet: so says the log.
        records += outcome.records or [group.empty_record()]
        self.groups[group_id] = group
        if replaced is not None:
            logger.info("empty consumer group becomes a classic one: group=%s", group_id)

        def written(error: KafkaError | None) -> None:
            if error is not None:
                group.unloaded()
                self.groups.pop(group_id, None)  # it is gone if the shard was unloaded
                if replaced is not None:
                    self.groups[group_id] = replaced
            elif replaced is not None:
                replaced.unloaded()

        outcome.records, outcome.replay = records, False
        outcome.written = after_both(outcome.written, written)
        return outcome

    def sync(self, request: SyncGroupRequest, instant: Instant) -> Outcome[SyncGroupResponse]:
        """SyncGroup.

        Raises:
            BrokerError: as `classic_session.sync` and `classic_members.sync`.
        """
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return classic_members.sync(group, request, instant)
        return classic_session.sync(self._classic(request.group_id), request, instant)

    def heartbeat(self, request: HeartbeatRequest, instant: Instant) -> Outcome[HeartbeatResponse]:
        """Heartbeat.

        Raises:
            BrokerError: as `classic_session.heartbeat` and `classic_members.heartbeat`.
        """
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return classic_members.heartbeat(group, request, instant)
        return classic_session.heartbeat(self._classic(request.group_id), request, instant)

    def leave(self, request: LeaveGroupRequest, instant: Instant) -> Outcome[LeaveGroupResponse]:
        """LeaveGroup, of members or of an admin that removes them.

        Raises:
            UnknownMemberId: there is no such group.
            BrokerError: as `classic_session.leave`.
        """
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group.remove(request, instant)
        return classic_session.leave(self._classic(request.group_id), request, instant)

    def _classic(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise UnknownMemberId()
        return group

    def _new_classic(self, group_id: str, timestamp_ms: int | None) -> ClassicGroup:
        return ClassicGroup(
            group_id,
            settings=self._settings,
            timers=self._timers,
            rng=self._random,
            rebalances=self._rebalances,
            timestamp_ms=timestamp_ms,
        )

    # the consumer protocol

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, instant: Instant
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat: a group is made for who joins, or a classic one is upgraded.

        Raises:
            GroupIdNotFound: there is no such group, or it is a classic one that is not upgraded.
            BrokerError: as `ConsumerGroup.heartbeat` and `check_heartbeat`.
        """
        check_heartbeat(request, caller.version, self._consumers.assignors)
        group_id = request.group_id
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.heartbeat(request, caller, instant)
        if group is None and request.member_epoch != _JOIN_EPOCH:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        if request.member_epoch != _JOIN_EPOCH:
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        created = ConsumerGroup(group_id, self._consumers)
        records: list[CoordinatorRecord] = []
        if isinstance(group, ClassicGroup) and not group.is_empty:
            records = migration.upgrade(group, self._settings, self._topics)
            for record in records:
                created.replay(record)
        elif group is not None:
            logger.info("empty classic group becomes a consumer group: group=%s", group_id)
            records = group.tombstones()
        outcome = created.heartbeat(request, caller, instant)
        outcome.records = records + outcome.records
        self._aside[group_id] = created

        def written(error: KafkaError | None) -> None:
            self._aside.pop(group_id, None)
            if error is not None:
                created.unloaded()
            else:
                created.loaded(instant)  # the sessions of members that it has taken over

        outcome.written = after_both(outcome.written, written)
        return outcome

    # offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, version: int, instant: Instant
    ) -> Outcome[OffsetCommitResponse]:
        """OffsetCommit of a member; without generation, of anybody while the group is empty.

        Raises:
            BrokerError: as `Group.validate_offset_commit`; 22 or, from version 9 on, 69 where there
                is no group.
        """
        group = self.groups.get(request.group_id)
        epoch = request.generation_id_or_member_epoch
        if group is not None:
            group.validate_offset_commit(
                request.member_id, request.group_instance_id, epoch, instant, version=version
            )
        elif epoch >= 0:
            if version >= _FIRST_COMMIT_WITH_GROUP_NOT_FOUND:
                raise GroupIdNotFound(f"Group {request.group_id} not found.")
            raise IllegalGeneration()
        return offset_requests.commit(
            request, metadata_max_bytes=self._settings.offset_metadata_max_bytes, instant=instant
        )

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """OffsetFetch of one group.

        Raises:
            BrokerError: 25 or 113 for a member of the consumer protocol.
        """
        group = self.groups.get(request.group_id)
        exists = group is not None
        if group is not None:
            try:
                group.validate_offset_fetch(request.member_id, request.member_epoch)
            except GroupIdNotFound:
                exists = False
        return offset_requests.fetch(
            self.offsets, self._topics, request, exists=exists, require_stable=require_stable
        )

    def delete_offsets(self, request: OffsetDeleteRequest) -> Outcome[OffsetDeleteResponse]:
        """OffsetDelete.

        Raises:
            BrokerError: 69 where there is no such group, 68 where it may not be.
        """
        return offset_requests.delete(self.offsets, self._existing(request.group_id), request)

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> Outcome[None]:
        """Partitions are gone for good: so are the offsets in them."""
        return Outcome(self.offsets.tombstones_of_partitions(partitions), atomic=False)

    # administration

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """The groups in one of these states and of one of these types; none given means any."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {name.lower() for name in types}
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state_name,
                group_type=group.type.value,
            )
            for group in self.groups.values()
            if (not wanted_states or group.state_name.lower() in wanted_states)
            and (not wanted_types or group.type.value in wanted_types)
        ]

    def describe_group(self, group_id: str, version: int) -> DescribedGroup:
        """DescribeGroups of one classic group; others are dead to it, or 69 from version 6 on."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.describe()
        dead = DescribedGroup(group_id=group_id, group_state=ClassicState.DEAD.value)
        if version >= _FIRST_DESCRIBE_WITH_GROUP_NOT_FOUND:
            dead.error_code = GroupIdNotFound.code
            dead.error_message = (
                f"Group {group_id} not found."
                if group is None
                else f"Group {group_id} is not a classic group."
            )
        return dead

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescribedGroup:
        """ConsumerGroupDescribe of one group.

        Raises:
            GroupIdNotFound: there is none, or it is a classic one.
        """
        group = self._existing(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return group.describe()

    def delete_group(self, group_id: str) -> Outcome[DeletableGroupResult]:
        """DeleteGroups of one group: it goes, and its offsets.

        Raises:
            BrokerError: 69 where there is no such group, 68 where it has members.
        """
        group = self._existing(group_id)
        group.validate_delete()
        logger.info("group is deleted: group=%s", group_id)
        return Outcome(
            self.offsets.tombstones(group_id) + group.tombstones(),
            DeletableGroupResult(group_id=group_id, error_code=0),
            atomic=False,
        )

    def _existing(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return group

    # expiry

    def _expire(self, instant: Instant) -> Outcome[None]:
        """Begin to look for what expires, a few groups at a time."""
        self._schedule_expiry(instant)
        return self._expire_some(list(self.groups), instant)

    def _expire_some(self, left: list[str], instant: Instant) -> Outcome[None]:
        """Remove offsets that nobody has come back for, and groups that have nothing left."""
        records: list[CoordinatorRecord] = []
        retention_ms = self._settings.offsets_retention_minutes * 60_000
        looked_at = 0
        while left and looked_at < _EXPIRED_PER_TURN and len(records) < _EXPIRED_PER_TURN:
            group = self.groups.get(left.pop())
            if group is None:
                continue
            looked_at += 1
            base_ms = group.offset_expiry_base()
            if base_ms == _OFFSETS_STAY:
                continue
            expired, none_left = self.offsets.expired(
                group.group_id, base_ms, retention_ms, instant.timestamp_ms, group.is_subscribed_to
            )
            records += expired
            if none_left and group.is_empty:
                records += group.tombstones()
        if records:
            logger.info("offsets and groups expire: records=%d", len(records))
        if left:
            rest = functools.partial(self._expire_some, left)
            self._timers.schedule(_EXPIRY_REST_KEY, instant.now, rest)
        return Outcome(records, atomic=False)

    def _schedule_expiry(self, instant: Instant) -> None:
        interval = self._settings.offsets_retention_check_interval_ms / 1000
        self._timers.schedule(_EXPIRY_KEY, instant.now + interval, self._expire)

    # the log

    def loaded(self, instant: Instant) -> None:
        """The whole log has been replayed, and this node coordinates these groups from now on."""
        for group in list(self.groups.values()):
            group.loaded(instant)
        self._schedule_expiry(instant)

    def unloaded(self) -> None:
        """This node coordinates these groups no longer."""
        self._timers.cancel(_EXPIRY_KEY)
        self._timers.cancel(_EXPIRY_REST_KEY)
        for group in self.groups.values():
            group.unloaded()
        self.groups.clear()

    def replay(
        self, record: CoordinatorRecord, *, offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        """Take over a record that is in the log.

        Args:
            offset: of the record.
            producer_id: of its transaction.
        """
        key, value = record
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue | LegacyOffsetCommitValue)
            self.offsets.replay(key, value, offset=offset, producer_id=producer_id)
            if value is not None and key.group not in self.groups:
                # Somebody who is no member keeps offsets here: an empty group without a record.
                self.groups[key.group] = self._new_classic(key.group, None)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._replay_classic(key.group, value)
        else:
            self._replay_consumer(record)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The log has the end of a transaction."""
        self.offsets.end_transaction(producer_id, committed=committed)

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        present = self.groups.pop(group_id, None)
        if isinstance(present, ClassicGroup) and group_id in self._aside:
            present.unloaded(RebalanceInProgress.code)  # upgraded: who waits joins the other group
        elif present is not None:
            present.unloaded()
        if value is not None:
            group = self._new_classic(group_id, None)
            group.restore(value)
            self.groups[group_id] = group

    def _replay_consumer(self, record: CoordinatorRecord) -> None:
        group_id: str = record.key.group_id  # type: ignore[attr-defined]  # all of them have it
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            if group is not None:
                group.unloaded()
            group = self._aside.pop(group_id, None) or ConsumerGroup(group_id, self._consumers)
            self.groups[group_id] = group
        group.replay(record)
        if group.is_gone:
            del self.groups[group_id]
            group.unloaded()
