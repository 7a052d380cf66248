"""The shard of the group coordinator: all groups and offsets of a `__consumer_offsets` partition.

The shard passes each request to its group, and creates and replaces groups. The behaviour of a
group is in `classic` and `consumer`.

Source: Kafka ``GroupCoordinatorShard.java``, ``GroupMetadataManager.java``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.group import offset_requests
from aiokq.broker.coordinator.group.classic import join as classic_join
from aiokq.broker.coordinator.group.classic import member_requests
from aiokq.broker.coordinator.group.classic.group import ClassicGroup
from aiokq.broker.coordinator.group.classic.states import ClassicState
from aiokq.broker.coordinator.group.committed_offsets import OffsetStore
from aiokq.broker.coordinator.group.consumer import classic_members
from aiokq.broker.coordinator.group.consumer.group import ConsumerGroup
from aiokq.broker.coordinator.group.consumer.heartbeat_validation import check_heartbeat
from aiokq.broker.coordinator.group.group_map import GroupMap
from aiokq.broker.coordinator.group.migration.upgrade import upgrade
from aiokq.broker.coordinator.group.offset_expiry import OffsetExpiry
from aiokq.broker.coordinator.group.record_types import decode_record
from aiokq.broker.coordinator.outcome import Outcome, in_sequence
from aiokq.broker.coordinator.shard import NO_PRODUCER
from aiokq.broker.coordinator.shard_load import ReplayingLoad
from aiokq.core.counters import CounterBy
from aiokq.core.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    KafkaError,
    StaleMemberEpoch,
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
    from collections.abc import Callable, Collection, Sequence

    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.coordinator.group.consumer.context import GroupTimeouts
    from aiokq.broker.coordinator.group.group import Caller, Group
    from aiokq.broker.coordinator.group.topic_view import TopicView
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant, Timers
    from aiokq.core.errors import ProtocolError
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
    from aiokq.wire.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

__all__ = ["GroupShard"]

logger = logging.getLogger("aiokq.broker.coordinator")

_FIRST_COMMIT_WITH_GROUP_NOT_FOUND: Final = 9
_FIRST_DESCRIBE_WITH_GROUP_NOT_FOUND: Final = 6
_JOIN_EPOCH: Final = 0


class GroupShard:
    """A `Shard`: the groups of one partition.

    Methods that handle requests return an `Outcome` or, for a read-only request, the response. They
    raise the `BrokerError` that the client gets.

    Args:
        timeouts: timeouts of individual groups; None if all groups have the broker's timeouts.
        rebalances: counts rebalances by the name of the group protocol.

    Attributes:
        groups: the groups of both protocols by group id.
        offsets: the committed offsets of all groups.
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
        self._groups = GroupMap(
            settings=settings,
            timers=timers,
            topics=topics,
            rng=rng,
            timeouts=timeouts,
            rebalances=rebalances,
        )
        self.groups = self._groups.by_id
        self.offsets = OffsetStore()
        self._settings = settings
        self._topics = topics
        self._expiry = OffsetExpiry(settings, timers, self._groups, self.offsets)

    def __len__(self) -> int:
        return len(self.groups)

    def join(
        self, request: JoinGroupRequest, caller: Caller, instant: Instant
    ) -> Outcome[JoinGroupResponse]:
        """Handle JoinGroup; create the group for a first member, which has no member id yet.

        Raises:
            BrokerError: as `classic_members.join`; a classic group returns its errors in the
                response.
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
        """Create a classic group for its first member.

        Args:
            replaced: an empty group of the consumer protocol with the same id, if there is one.
        """
        group_id = request.group_id
        group = self._groups.new_classic(group_id, instant.timestamp_ms)
        outcome = classic_join.join(group, request, caller, instant)
        records = [] if replaced is None else replaced.tombstones()
        # The group exists from now on, so it is written to the log before it has a generation.
        records += outcome.records or [group.empty_record()]
        self._groups.put(group)
        if replaced is not None:
            logger.info("empty consumer group becomes a classic group: group=%s", group_id)

        def written(error: KafkaError | None) -> None:
            if error is not None:
                group.unloaded()
                self._groups.undo_put(group, replaced)
            elif replaced is not None:
                replaced.unloaded()

        outcome.records, outcome.replay = records, False
        outcome.on_written = in_sequence(outcome.on_written, written)
        return outcome

    def sync(self, request: SyncGroupRequest, instant: Instant) -> Outcome[SyncGroupResponse]:
        """Handle SyncGroup.

        Raises:
            BrokerError: as `member_requests.sync` and `classic_members.sync`.
        """
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return classic_members.sync(group, request, instant)
        return member_requests.sync(self._groups.classic(request.group_id), request, instant)

    def heartbeat(self, request: HeartbeatRequest, instant: Instant) -> Outcome[HeartbeatResponse]:
        """Handle Heartbeat.

        Raises:
            BrokerError: as `member_requests.heartbeat` and `classic_members.heartbeat`.
        """
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return classic_members.heartbeat(group, request, instant)
        return member_requests.heartbeat(self._groups.classic(request.group_id), request, instant)

    def leave(self, request: LeaveGroupRequest, instant: Instant) -> Outcome[LeaveGroupResponse]:
        """Handle LeaveGroup of members, or of an admin client that removes members.

        Raises:
            UnknownMemberId: there is no such group.
            CoordinatorNotAvailable: the group is a dead classic group.
        """
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group.remove(request, instant)
        return member_requests.leave(self._groups.classic(request.group_id), request, instant)

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, instant: Instant
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        """Handle ConsumerGroupHeartbeat; a join creates the group, or upgrades a classic group.

        Raises:
            GroupIdNotFound: the request is not a join and there is no such consumer group, or the
                join cannot upgrade the classic group.
            BrokerError: as `ConsumerGroup.heartbeat` and `check_heartbeat`.
        """
        check_heartbeat(request, caller.version, self._groups.assignors)
        group_id = request.group_id
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group.heartbeat(request, caller, instant)
        if group is None and request.member_epoch != _JOIN_EPOCH:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        if request.member_epoch != _JOIN_EPOCH:
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        created = self._groups.new_consumer(group_id)
        records: list[CoordinatorRecord] = []
        if isinstance(group, ClassicGroup) and not group.is_empty:
            records = upgrade(group, self._settings, self._topics)
            for record in records:
                created.replay(record)
        elif group is not None:
            logger.info("empty classic group becomes a consumer group: group=%s", group_id)
            records = group.tombstones()
        outcome = created.heartbeat(request, caller, instant)
        outcome.records = records + outcome.records
        self._groups.begin_upgrade(created)

        def written(error: KafkaError | None) -> None:
            self._groups.end_upgrade(group_id)
            if error is not None:
                created.unloaded()
            else:
                created.loaded(instant)  # starts the sessions of upgraded members

        outcome.on_written = in_sequence(outcome.on_written, written)
        return outcome

    def commit_offsets(
        self, request: OffsetCommitRequest, version: int, instant: Instant
    ) -> Outcome[OffsetCommitResponse]:
        """Handle OffsetCommit.

        A commit without a generation or epoch is accepted if the group is empty or does not exist.

        Raises:
            BrokerError: as `Group.validate_offset_commit`; ILLEGAL_GENERATION (from version 9 on,
                GROUP_ID_NOT_FOUND) if there is no group and the request has a generation or epoch.
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

    def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, version: int, instant: Instant
    ) -> Outcome[TxnOffsetCommitResponse]:
        """Handle TxnOffsetCommit: the offsets are pending until the transaction ends.

        Raises:
            IllegalGeneration: there is no group and the request has a generation, or the group
                raised `StaleMemberEpoch`.
            BrokerError: another error of `Group.validate_offset_commit`.
        """
        group = self.groups.get(request.group_id)
        if group is None and request.generation_id >= 0:
            raise IllegalGeneration()
        if group is not None:
            try:
                group.validate_offset_commit(
                    request.member_id,
                    request.group_instance_id,
                    request.generation_id,
                    instant,
                    transactional=True,
                    version=version,
                )
            except StaleMemberEpoch as error:
                raise IllegalGeneration(error.message) from error
        return offset_requests.commit_transactional(
            request, metadata_max_bytes=self._settings.offset_metadata_max_bytes, instant=instant
        )

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Handle OffsetFetch of one group.

        A group of the consumer protocol validates the member id and epoch, if the request has them.

        Raises:
            UnknownMemberId: the request names a member that does not exist.
            StaleMemberEpoch: the member has another epoch.
            IllegalGeneration: a member that uses the classic protocol has another generation.
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
        """Handle OffsetDelete.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND if there is no such group, or an error of
                `Group.validate_offset_delete`.
        """
        return offset_requests.delete(
            self.offsets, self._groups.existing(request.group_id), request
        )

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> Outcome[None]:
        """Remove the offsets committed for deleted partitions."""
        return Outcome(self.offsets.tombstones_of_partitions(partitions), atomic=False)

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """Return the groups in one of these states and of one of these types.

        An empty collection permits any state or type.
        """
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
        """Handle DescribeGroups of one group.

        A group that does not exist or is not classic is described as dead. From version 6 on, this
        description also has the error GROUP_ID_NOT_FOUND.
        """
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
        """Handle ConsumerGroupDescribe of one group.

        Raises:
            GroupIdNotFound: there is no such group, or it is a classic group.
        """
        group = self._groups.existing(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return group.describe()

    def delete_group(self, group_id: str) -> Outcome[DeletableGroupResult]:
        """Handle DeleteGroups of one group: remove the group and its offsets.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND if there is no such group, NON_EMPTY_GROUP if it has
                members.
        """
        group = self._groups.existing(group_id)
        group.validate_delete()
        logger.info("group is deleted: group=%s", group_id)
        return Outcome(
            self.offsets.tombstones(group_id) + group.tombstones(),
            DeletableGroupResult(group_id=group_id, error_code=0),
            atomic=False,
        )

    def loaded(self, instant: Instant) -> None:
        """Start the timers of all groups, and the expiry of offsets."""
        self._groups.loaded(instant)
        self._expiry.schedule(instant)

    def unloaded(self) -> None:
        """Cancel all timers, and answer pending requests with NOT_COORDINATOR."""
        self._expiry.cancel()
        self._groups.unloaded()

    def load(self, unreadable: Callable[[int, ProtocolError], None]) -> ReplayingLoad:
        """Begin to load the log; see `Shard`."""
        return ReplayingLoad(self, decode_record, unreadable)

    def replay(
        self, record: CoordinatorRecord, *, offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        """Apply a record that is in the log; see `Shard.replay`."""
        key, value = record
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue | LegacyOffsetCommitValue)
            self.offsets.replay(key, value, offset=offset, producer_id=producer_id)
            if value is not None and key.group not in self.groups:
                self._groups.add_simple(key.group)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._groups.replay_classic(key.group, value)
        else:
            self._groups.replay_consumer(record)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Commit or drop the pending offsets of a producer's transaction."""
        self.offsets.end_transaction(producer_id, committed=committed)
