"""A group of the consumer protocol (KIP-848): heartbeats, leaving, fencing, and its timers.

The durable state is in the image, and only `replay` changes it. Requests of members that use the
classic protocol are handled in `classic_members`.

Source: Kafka ``ConsumerGroup.java``, ``GroupMetadataManager.java`` (4.2).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from aiokq.broker.coordinator.group.consumer.describe import describe_group
from aiokq.broker.coordinator.group.consumer.heartbeat import Heartbeat
from aiokq.broker.coordinator.group.consumer.image import GroupImage
from aiokq.broker.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    MemberState,
)
from aiokq.broker.coordinator.group.consumer.member_change import MemberChange
from aiokq.broker.coordinator.group.consumer.member_timers import MemberTimers
from aiokq.broker.coordinator.group.consumer.records import group_tombstones
from aiokq.broker.coordinator.group.consumer.removal import (
    named_member,
    removal_records,
    removed_member,
    temporary_leave_records,
)
from aiokq.broker.coordinator.group.group import Caller, GroupType
from aiokq.broker.coordinator.outcome import Outcome
from aiokq.core.errors import (
    BrokerError,
    GroupNotEmpty,
    IllegalGeneration,
    StaleMemberEpoch,
    UnsupportedVersion,
)
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aiokq.wire.leave_group import LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.assign.server_model import Partitions
    from aiokq.broker.coordinator.group.consumer.context import ConsumerContext
    from aiokq.broker.coordinator.group.consumer.member import ConsumerMember
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.core.errors import KafkaError
    from aiokq.wire.consumer_group_describe import ConsumerGroupDescribedGroup
    from aiokq.wire.leave_group import LeaveGroupRequest

__all__ = ["ConsumerGroup"]

logger = logging.getLogger("aiokq.broker.coordinator")

R = TypeVar("R")

COMMIT_SINCE = 9
"""First version of OffsetCommit that carries a member epoch."""


class ConsumerGroup:
    """A group whose members use the consumer protocol (KIP-848); implements `Group`.

    Attributes:
        image: the durable state; callers must not change it.
        context: the context shared with the other groups of the shard.
        timers: the timers of the members.
    """

    def __init__(self, group_id: str, context: ConsumerContext) -> None:
        self.context = context
        self.image = GroupImage(group_id)
        self.timers = MemberTimers(group_id, context, self._fence)
        self._topics_version = -1
        """The `TopicView.version` for which the group is up to date; -1 if unknown."""

    @property
    def group_id(self) -> str:
        return self.image.group_id

    @property
    def type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def protocol_type(self) -> str:
        """`consumer`, because all members are consumers."""
        return "consumer"

    @property
    def state_name(self) -> str:
        """The state by its name in Kafka: `Empty`, `Assigning`, `Reconciling` or `Stable`."""
        return self.image.state_name

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members; absent static members count as members."""
        return not self.image.members

    @property
    def members_count(self) -> int:
        """The number of members, including absent static members."""
        return len(self.image.members)

    @property
    def is_gone(self) -> bool:
        """Whether the group's tombstone was replayed."""
        return self.image.is_gone

    def describe(self) -> ConsumerGroupDescribedGroup:
        return describe_group(self.image, self.context.topics, self.context.assignors)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.image.topic_names

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, instant: Instant
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        """Handle a request that `check_heartbeat` has accepted: the member joins, stays or leaves.

        Raises:
            BrokerError: UNKNOWN_MEMBER_ID, GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID,
                FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID or INVALID_REGULAR_EXPRESSION.
        """
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(request, instant)
        beat = Heartbeat(
            self.image, self.context, request, caller, self.begin_change(caller, instant)
        )
        response = beat.run()
        self.timers.start_session(beat.change.member, instant)
        return self.take(beat.change, response, instant)

    def begin_change(self, caller: Caller, instant: Instant) -> MemberChange:
        """Begin a change of a member, based on the current topics."""
        version = self.context.topics.version
        return MemberChange(
            self.image,
            self.context,
            instant.timestamp_ms,
            topics_version=version,
            topics_changed=version != self._topics_version,
            describable=caller.describable,
        )

    def take(self, change: MemberChange, response: R, instant: Instant) -> Outcome[R]:
        """Return the outcome of a change; timers are updated when the records are appended."""

        def written(error: KafkaError | None) -> None:
            if error is None:
                self._topics_version = change.topics_version
                self._update_timers(change, instant)

        if not change.records:
            self._topics_version = change.topics_version
            return Outcome(response=response)
        return Outcome(change.records, response, on_written=written)

    def _update_timers(self, change: MemberChange, instant: Instant) -> None:
        member = change.member
        if change.replaced is not None and change.replaced != member.member_id:
            self.timers.cancel(change.replaced)
        if member.classic is not None:
            return  # a classic member revokes partitions when it joins again
        self.timers.cancel(member.member_id, "join", "sync")
        if change.reconciled:
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self._start_revocation(member, instant)
            else:
                self.timers.cancel(member.member_id, "revocation")

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, instant: Instant
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        member = named_member(self.image, request.instance_id, request.member_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            logger.info("static member leaves: group=%s member=%s", self.group_id, member.member_id)
            return Outcome(temporary_leave_records(self.image, member), response)
        logger.info("member leaves: group=%s member=%s", self.group_id, member.member_id)
        return self._remove_members([member], response, instant)

    def remove(self, request: LeaveGroupRequest, instant: Instant) -> Outcome[LeaveGroupResponse]:
        """Handle LeaveGroup of classic members or an admin client: remove the named members."""
        gone: dict[str, ConsumerMember] = {}
        answers = []
        for one in request.members:
            code = 0
            try:
                member = removed_member(self.image, one.group_instance_id, one.member_id)
            except BrokerError as error:
                code = error.code
            else:
                gone[member.member_id] = member
                logger.info(
                    "member removed: group=%s member=%s reason=%r",
                    self.group_id,
                    member.member_id,
                    one.reason or "",
                )
            answers.append(
                MemberResponse(
                    member_id=one.member_id,
                    group_instance_id=one.group_instance_id,
                    error_code=code,
                )
            )
        response = LeaveGroupResponse(members=answers)
        if not gone:
            return Outcome(response=response)
        return self._remove_members(list(gone.values()), response, instant)

    def _remove_members(
        self, members: Sequence[ConsumerMember], response: R | None, instant: Instant
    ) -> Outcome[R]:
        """Remove members, and cancel their timers once the records are written.

        The group becomes a classic group if only members that use the classic protocol are left,
        the settings permit the downgrade, and all subscriptions can be read.
        """
        gone = {member.member_id for member in members}
        left = [one for one in self.image.members.values() if one.member_id not in gone]
        if self.context.downgrades.is_due(self.group_id, left):
            reason = "the last member of the consumer protocol left"
            targets = {one.member_id: self.image.target(one.member_id) for one in left}
            outcome = self.downgrade(left, targets, response, reason, instant)
            if outcome is not None:
                return outcome

        def written(error: KafkaError | None) -> None:
            if error is None:
                for member_id in gone:
                    self.timers.cancel(member_id)

        records = removal_records(self.image, members, self.context.topics)
        return Outcome(records, response, on_written=written)

    def downgrade(
        self,
        members: Sequence[ConsumerMember],
        targets: dict[str, Partitions],
        response: R | None,
        reason: str | None,
        instant: Instant,
        *,
        change: MemberChange | None = None,
    ) -> Outcome[R] | None:
        """Return the outcome that makes this a classic group of `members`; None if not possible.

        Args:
            reason: why the members have to join again; None if the assignment stays.
            change: the change of a member whose join causes the downgrade; its records come first.
        """
        replaced = None if change is None else change.replaced
        planned = self.context.downgrades.plan(
            self.image, members, targets, instant.timestamp_ms, replaced
        )
        if planned is None:
            return None
        timed = [*self.image.members]

        def written(error: KafkaError | None) -> None:
            if error is None:
                for member_id in timed:
                    self.timers.cancel(member_id)
                planned.complete(reason, instant)

        before = [] if change is None else change.records
        return Outcome([*before, *planned.records], response, on_written=written)

    def _start_revocation(self, member: ConsumerMember, instant: Instant) -> None:
        def current() -> int | None:
            found = self.image.members.get(member.member_id)
            return None if found is None else found.member_epoch

        self.timers.start_revocation(member, current, instant)

    def _fence(self, member_id: str, reason: str, instant: Instant) -> Outcome[None] | None:
        member = self.image.members.get(member_id)
        if member is None:
            return None
        logger.info("member fenced: group=%s member=%s reason=%s", self.group_id, member_id, reason)
        return self._remove_members([member], None, instant)

    def loaded(self, instant: Instant) -> None:
        """Start the session and revocation timers with full timeouts; the log has no deadlines."""
        for member in self.image.members.values():
            self.timers.start_session(member, instant)
            if (
                member.state is MemberState.UNREVOKED_PARTITIONS
                and member.classic is None
                and not member.is_away
            ):
                self._start_revocation(member, instant)

    def unloaded(self) -> None:
        for member_id in self.image.members:
            self.timers.cancel(member_id)

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        instant: Instant,
        *,
        transactional: bool = False,
        version: int,
    ) -> None:
        """Permit a commit only from a current member at its epoch.

        There are two exceptions. An empty group accepts a commit without an epoch, which an admin
        client or a consumer with manually assigned partitions sends. Every group accepts a
        transactional commit with neither a member nor an epoch, which old clients send.

        Raises:
            UnknownMemberId: there is no such member.
            StaleMemberEpoch: the member has another epoch.
            IllegalGeneration: a member that uses the classic protocol has another generation.
            UnsupportedVersion: a member of the consumer protocol uses a version without member
                epoch.
        """
        epoch = generation_or_epoch
        if epoch < 0 and self.is_empty:
            return
        if transactional and epoch == -1 and not member_id and group_instance_id is None:
            return
        member = self.image.member(member_id)
        if not transactional and member.classic is None and version < COMMIT_SINCE:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the modern group "
                "protocol"
            )
        _check_member_epoch(epoch, member)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse a fetch that names an unknown member or another epoch.

        Raises:
            UnknownMemberId: there is no such member.
            StaleMemberEpoch: the member has another epoch.
            IllegalGeneration: a member that uses the classic protocol has another generation.
        """
        if member_id is None and member_epoch < 0:
            return
        _check_member_epoch(member_epoch, self.image.member(member_id or ""))

    def offset_expiry_base(self) -> int | None:
        """Return None: offsets in topics without subscribers expire by their commit timestamps."""
        return None

    def validate_offset_delete(self) -> None:
        """Permit OffsetDelete in any state."""

    def validate_delete(self) -> None:
        """Refuse DeleteGroups while there are members.

        Raises:
            GroupNotEmpty: there are members.
        """
        if not self.is_empty:
            raise GroupNotEmpty

    def tombstones(self) -> list[CoordinatorRecord]:
        return group_tombstones(self.group_id, self.image.members, self.image.regexes)

    def replay(self, record: CoordinatorRecord) -> None:
        self.image.replay(record)


def _check_member_epoch(received: int, member: ConsumerMember) -> None:
    if received == member.member_epoch:
        return
    expected = f"does not match the expected member epoch {member.member_epoch}."
    if member.classic is not None:
        raise IllegalGeneration(f"The received generation id {received} {expected}")
    raise StaleMemberEpoch(f"The received member epoch {received} {expected}")
