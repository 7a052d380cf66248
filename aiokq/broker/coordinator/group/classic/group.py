"""A classic group: checks of offset requests and DeleteGroups; loading and unloading.

Source: Kafka ``ClassicGroup.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.group.classic.group_state import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroupState,
)
from aiokq.broker.coordinator.group.classic.rebalance import ClassicRebalance
from aiokq.broker.coordinator.group.classic.states import ClassicState
from aiokq.core.counters import CounterBy
from aiokq.core.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupNotEmpty,
    IllegalGeneration,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from aiokq.wire.join_group import JoinGroupResponse
from aiokq.wire.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    import random

    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.coordinator.timers import Instant, Timers

__all__ = ["ClassicGroup"]

OFFSETS_DO_NOT_EXPIRE: Final = -1

_WITH_MEMBERS: Final = (
    ClassicState.STABLE,
    ClassicState.PREPARING_REBALANCE,
    ClassicState.COMPLETING_REBALANCE,
)


class ClassicGroup(ClassicGroupState):
    """One group of the classic protocol; implements `Group`.

    Attributes:
        rebalance: the rebalances of the group.
    """

    def __init__(
        self,
        group_id: str,
        *,
        settings: BrokerSettings,
        timers: Timers,
        rng: random.Random,
        rebalances: CounterBy | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        super().__init__(
            group_id,
            settings=settings,
            rng=rng,
            rebalances=rebalances,
            timestamp_ms=timestamp_ms,
        )
        self.rebalance = ClassicRebalance(self, timers)

    def offset_expiry_base(self) -> int | None:
        """Return the time from which the retention counts; see `Group.offset_expiry_base`."""
        if self.protocol_type_or_none is None:
            return None
        if self.is_empty:
            return self.state_timestamp_ms
        if self.state is ClassicState.STABLE and self._subscribed is not None:
            return None  # the offsets of topics without subscribers expire by commit timestamp
        return OFFSETS_DO_NOT_EXPIRE

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
        """Refuse a commit of an unknown member or another generation; see `Group`.

        Raises:
            CoordinatorNotAvailable: the group is dead.
            UnknownMemberId: there is no such member, or the request names no member.
            FencedInstanceId: another member has the instance id.
            IllegalGeneration: the commit is from another generation.
            RebalanceInProgress: the member does not have its assignment yet.
        """
        if self.state is ClassicState.DEAD:
            raise CoordinatorNotAvailable()
        if generation_or_epoch < 0 and self.is_empty:
            return  # from an admin client, or a consumer with manually assigned partitions
        if generation_or_epoch >= 0 or member_id or group_instance_id is not None:
            member = self.roster.named(member_id, group_instance_id)
            if generation_or_epoch != self.generation:
                raise IllegalGeneration()
        elif transactional:
            return  # old clients name no member in TxnOffsetCommit
        else:
            raise UnknownMemberId()
        if transactional:
            return
        if self.state is ClassicState.COMPLETING_REBALANCE:
            # The member has joined this generation, and may commit once it has its assignment.
            raise RebalanceInProgress()
        self.rebalance.restart_session(member, instant)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Permit every OffsetFetch, unless the group is dead.

        Raises:
            GroupIdNotFound: the group is dead.
        """
        self._check_alive()

    def validate_offset_delete(self) -> None:
        """Refuse OffsetDelete if the group has members that are not consumers.

        Raises:
            GroupIdNotFound: the group is dead.
            GroupNotEmpty: the group has members of another protocol type than "consumer".
        """
        self._check_alive()
        if self.state in _WITH_MEMBERS and self.protocol_type_or_none != CONSUMER_PROTOCOL_TYPE:
            raise GroupNotEmpty()

    def validate_delete(self) -> None:
        """Refuse DeleteGroups while there are members.

        Raises:
            GroupIdNotFound: the group is dead.
            GroupNotEmpty: there are members.
        """
        self._check_alive()
        if self.state in _WITH_MEMBERS:
            raise GroupNotEmpty()

    def _check_alive(self) -> None:
        if self.state is ClassicState.DEAD:
            raise GroupIdNotFound(f"group {self.group_id} is dead")

    def loaded(self, instant: Instant) -> None:
        """Start the session of each member; rebalance if the group has too many members."""
        for member in self.roster:
            self.rebalance.restart_session(member, instant)
        if len(self.roster) > self.settings.group_max_size:
            self.rebalance.prepare("the group has more members than group.max.size", instant)

    def unloaded(self, code: int = NotCoordinator.code) -> None:
        """Cancel all timers, answer all pending requests with an error code, and become dead."""
        self.rebalance.cancel_timers()
        for member in self.roster:
            self.roster.complete_join(
                member,
                JoinGroupResponse(error_code=code, member_id=member.member_id),
            )
            self.roster.complete_sync(member, SyncGroupResponse(error_code=code))
        self.previous_state, self.state = self.state, ClassicState.DEAD
