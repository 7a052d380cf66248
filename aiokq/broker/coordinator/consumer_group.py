"""A group whose members speak the consumer protocol (KIP-848), as the shard sees it.

Owns the group's timers, and ties its image to the steps of heartbeats, leaves and fencing. Durable
state is the image's, and changes by `replay` alone.

Source: Kafka ``ConsumerGroup.java``, ``GroupMetadataManager.java`` (4.2).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from aiokq.broker.coordinator.consumer_describe import describe_group
from aiokq.broker.coordinator.consumer_heartbeat import Beat, Heartbeat
from aiokq.broker.coordinator.consumer_image import GroupImage
from aiokq.broker.coordinator.consumer_leave import (
    leaving_member,
    records_of_leaving,
    records_of_removal,
    removed_member,
)
from aiokq.broker.coordinator.consumer_member import (
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    MemberState,
)
from aiokq.broker.coordinator.consumer_records import group_tombstones
from aiokq.broker.coordinator.group import Caller, GroupType
from aiokq.broker.coordinator.outcome import Outcome
from aiokq.core.errors import BrokerError, GroupNotEmpty, StaleMemberEpoch, UnsupportedVersion
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aiokq.wire.leave_group import LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.broker.coordinator.consumer_context import ConsumerContext
    from aiokq.broker.coordinator.consumer_member import ConsumerMember
    from aiokq.broker.coordinator.records import CoordinatorRecord
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
    """One group; implements `Group`.

    Attributes:
        image: the durable state, to be read only.
    """

    def __init__(self, group_id: str, context: ConsumerContext) -> None:
        self._context = context
        self.image = GroupImage(group_id)
        self._seen = -1
        """The version of the topics that the group's state, as it is in the log, accounts for."""

    # What it is

    @property
    def group_id(self) -> str:
        """The group's name."""
        return self.image.group_id

    @property
    def type(self) -> GroupType:
        """The consumer protocol."""
        return GroupType.CONSUMER

    @property
    def protocol_type(self) -> str:
        """All members are consumers."""
        return "consumer"

    @property
    def state_name(self) -> str:
        """`Empty`, `Assigning`, `Reconciling` or `Stable`."""
        return self.image.state_name

    @property
    def is_empty(self) -> bool:
        """Whether it has no members; static members that are away are members."""
        return not self.image.members

    @property
    def members_count(self) -> int:
        """How many members it has, static ones that are away too."""
        return len(self.image.members)

    @property
    def is_gone(self) -> bool:
        """Whether its tombstone was replayed."""
        return self.image.is_gone

    def describe(self) -> ConsumerGroupDescribedGroup:
        """The group as ConsumerGroupDescribe shows it."""
        return describe_group(self.image, self._context.topics, self._context.assignors)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member wants this topic."""
        return topic in self.image.topic_names

    # Members

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, instant: Instant
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        """Take a heartbeat that `check_heartbeat` let through: a join, a sign of life or a leave.

        Raises:
            BrokerError: 25, 81, 82, 110, 111, 128; the member has to act on it.
        """
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(request)
        version = self._context.topics.version
        beat = Heartbeat(
            self.image,
            self._context,
            request,
            caller,
            instant.timestamp_ms,
            topics_changed=version != self._seen,
        ).run()
        self._start_session(beat.member.member_id, instant)
        if not beat.records:
            self._seen = version
            return Outcome(response=beat.response)

        def written(error: KafkaError | None) -> None:
            if error is None:
                self._seen = version
                self._moved(beat, instant)

        return Outcome(beat.records, beat.response, written=written)

    def _moved(self, beat: Beat, instant: Instant) -> None:
        """Set the timers that follow from the member's new state, which is in the log."""
        member = beat.member
        if beat.replaced is not None and beat.replaced != member.member_id:
            self._stop_timers(beat.replaced)
        if beat.reconciled:
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self._start_revocation(member, instant)
            else:
                self._context.timers.cancel(self._timer("revocation", member.member_id))

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest
    ) -> Outcome[ConsumerGroupHeartbeatResponse]:
        member = leaving_member(self.image, request.instance_id, request.member_id)
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            logger.info("static member leaves: group=%s member=%s", self.group_id, member.member_id)
            return Outcome(records_of_leaving(self.image, member), response)
        logger.info("member leaves: group=%s member=%s", self.group_id, member.member_id)
        return self._without([member], response)

    def remove(self, request: LeaveGroupRequest) -> Outcome[LeaveGroupResponse]:
        """Let members go that a LeaveGroup names: an admin's, as members leave by heartbeat."""
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
        return self._without(list(gone.values()), response) if gone else Outcome(response=response)

    def _without(self, members: Sequence[ConsumerMember], response: R | None) -> Outcome[R]:
        """Members are removed. Their timers go with them: not before, for the log may refuse."""

        def written(error: KafkaError | None) -> None:
            if error is None:
                for member in members:
                    self._stop_timers(member.member_id)

        records = records_of_removal(self.image, members, self._context.topics)
        return Outcome(records, response, written=written)

    # Timers

    def _timer(self, kind: str, member_id: str) -> tuple[str, str, str]:
        return kind, self.group_id, member_id

    def _start_session(self, member_id: str, instant: Instant) -> None:
        def expire(_: Instant) -> Outcome[None] | None:
            return self._fence(member_id, "its session expired")

        self._context.timers.schedule(
            self._timer("session", member_id),
            instant.now + self._context.session_timeout(self.group_id),
            expire,
        )

    def _start_revocation(self, member: ConsumerMember, instant: Instant) -> None:
        member_id, epoch = member.member_id, member.member_epoch

        def expire(_: Instant) -> Outcome[None] | None:
            current = self.image.members.get(member_id)
            if current is None or current.member_epoch != epoch:
                return None
            return self._fence(member_id, f"it did not leave epoch {epoch} in time")

        self._context.timers.schedule(
            self._timer("revocation", member_id),
            instant.now + member.rebalance_timeout_ms / 1000,
            expire,
        )

    def _fence(self, member_id: str, reason: str) -> Outcome[None] | None:
        member = self.image.members.get(member_id)
        if member is None:
            return None
        logger.info("member fenced: group=%s member=%s reason=%s", self.group_id, member_id, reason)
        return self._without([member], None)

    def _stop_timers(self, member_id: str) -> None:
        for kind in ("session", "revocation"):
            self._context.timers.cancel(self._timer(kind, member_id))

    def loaded(self, instant: Instant) -> None:
        """Start the sessions of all members: what was left of them is not in the log."""
        for member in self.image.members.values():
            self._start_session(member.member_id, instant)
            if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_away:
                self._start_revocation(member, instant)

    def unloaded(self) -> None:
        """Stop all timers."""
        for member_id in self.image.members:
            self._stop_timers(member_id)

    # Offsets

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
        """Refuse a commit of somebody who is no member, or at another epoch.

        Without an epoch an empty group takes it: it comes from an admin client, or from a
        consumer that has its partitions by hand.

        Raises:
            UnknownMemberId: there is no such member.
            StaleMemberEpoch: the member has another epoch.
            UnsupportedVersion: the version has no member epoch.
        """
        epoch = generation_or_epoch
        if epoch < 0 and self.is_empty:
            return
        if transactional and epoch == -1 and not member_id and group_instance_id is None:
            return
        member = self.image.member(member_id)
        if not transactional and version < COMMIT_SINCE:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the modern group "
                "protocol"
            )
        _check_member_epoch(epoch, member.member_epoch)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse a fetch of somebody who says to be a member and is not, or at another epoch.

        Raises:
            UnknownMemberId: there is no such member.
            StaleMemberEpoch: the member has another epoch.
        """
        if member_id is None and member_epoch < 0:
            return
        _check_member_epoch(member_epoch, self.image.member(member_id or "").member_epoch)

    def offset_expiry_base(self) -> int | None:
        """Offsets expire by their own commit timestamps, once no member wants the topic."""
        return None

    def validate_offset_delete(self) -> None:
        """Offsets of topics that nobody subscribes to may be deleted at any time."""

    # The end of the group

    def validate_delete(self) -> None:
        """Refuse while there are members.

        Raises:
            GroupNotEmpty: there are.
        """
        if not self.is_empty:
            raise GroupNotEmpty

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that remove the group."""
        return group_tombstones(self.group_id, self.image.members, self.image.regexes)

    def replay(self, record: CoordinatorRecord) -> None:
        """Take over one of the group's records, in the order of the log."""
        self.image.replay(record)


def _check_member_epoch(received: int, expected: int) -> None:
    if received != expected:
        raise StaleMemberEpoch(
            f"The received member epoch {received} does not match the expected member epoch "
            f"{expected}."
        )
