"""The rebalances of a classic group: which members the group waits for, and for how long.

This module also has the timers of the group: sessions, joins and syncs.

Source: Kafka ``GroupMetadataManager.java`` (prepareRebalance, completeClassicGroupJoin ...).
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.group.classic.states import ClassicState
from aiokq.broker.coordinator.outcome import Outcome
from aiokq.core.errors import RebalanceInProgress, UnknownMemberId
from aiokq.wire.join_group import JoinGroupResponse
from aiokq.wire.sync_group import SyncGroupResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokq.broker.coordinator.group.classic.group_state import ClassicGroupState
    from aiokq.broker.coordinator.group.classic.member import ClassicMember
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant, Timers
    from aiokq.core.errors import KafkaError

__all__ = ["ClassicRebalance"]

logger = logging.getLogger("aiokq.broker.coordinator")

NEW_MEMBER_JOIN_TIMEOUT: Final = 300.0
"""Seconds that the first JoinGroup of a member may be pending, as in Kafka.

Until the response the member cannot send heartbeats, so only this timeout removes a member whose
client has disconnected.
"""


MIN_RECHECK_SECONDS: Final = 1.0
"""The minimum number of seconds until a rebalance that no member has joined is checked again."""


class ClassicRebalance:
    """The rebalances of one group.

    Methods that may complete a rebalance return an Outcome, because the completion writes a record
    to the log if the group has become empty.

    Attributes:
        member_added: whether a member has joined since the initial rebalance was last delayed.
    """

    def __init__(self, group: ClassicGroupState, timers: Timers) -> None:
        self.member_added = False
        self._group = group
        self._timers = timers
        self._join_key = (group.group_id, "classic join")
        self._sync_key = (group.group_id, "classic sync")

    def prepare_or_complete(self, reason: str, instant: Instant) -> Outcome[None]:
        """Begin a rebalance, or complete the current preparation if all members have joined."""
        if self._group.state is ClassicState.PREPARING_REBALANCE:
            return self.complete_if_joined(instant)
        return self.prepare(reason, instant)

    def prepare(self, reason: str, instant: Instant) -> Outcome[None]:
        """Begin a rebalance: pending syncs and later heartbeats get REBALANCE_IN_PROGRESS.

        If all members have joined already, or no members are left, the rebalance is completed at
        once. If the group was empty before, it waits for more members first.
        """
        group = self._group
        if group.state is ClassicState.COMPLETING_REBALANCE:
            self.propagate({}, RebalanceInProgress.code, instant)
        self._forget_syncs()
        initial = group.is_empty
        group.transition_to(ClassicState.PREPARING_REBALANCE, instant.timestamp_ms)
        logger.info(
            "rebalance: group=%s generation=%d members=%d reason=%r",
            group.group_id,
            group.generation,
            len(group.roster),
            reason,
        )
        if initial:
            # Other members usually join soon after the first one, so the group waits for them.
            delay = group.settings.group_initial_rebalance_delay_ms / 1000
            remaining = max(group.roster.rebalance_timeout - delay, 0.0)
            self._schedule_initial(delay, remaining, instant)
            return Outcome()
        if group.roster.all_have_joined:
            return self.complete(instant)
        self._schedule_completion(instant)
        return Outcome()

    def complete_if_joined(self, instant: Instant) -> Outcome[None]:
        """Complete the preparation if all members have joined, except during the initial delay."""
        group = self._group
        if (
            group.state is not ClassicState.PREPARING_REBALANCE
            or group.previous_state is ClassicState.EMPTY
            or not group.roster.all_have_joined
        ):
            return Outcome()
        return self.complete(instant)

    def complete(self, instant: Instant) -> Outcome[None]:
        """Remove the dynamic members that have not joined, and begin the next generation.

        Absent static members stay until their sessions expire. If only absent static members are
        left, the next generation begins later.
        """
        group, roster = self._group, self._group.roster
        self._timers.cancel(self._join_key)
        if group.state is ClassicState.DEAD:
            return Outcome()
        for member in roster:
            if member.joining is None and not member.is_static:
                logger.info(
                    "member did not join in time: group=%s member=%s",
                    group.group_id,
                    member.member_id,
                )
                self._drop(member)
        if not roster.elect_leader() and len(roster):
            # Check for absent static members at most once a second, even if their rebalance
            # timeouts are shorter.
            self._schedule_completion(instant, at_least=MIN_RECHECK_SECONDS)
            return Outcome()
        group.begin_generation(instant.timestamp_ms)
        if group.is_empty:
            logger.info("group is empty: group=%s generation=%d", group.group_id, group.generation)
            record = group.record({})
            written = functools.partial(self._empty_written, record)
            return Outcome([record], replay=False, on_written=written)
        logger.info(
            "new generation: group=%s generation=%d members=%d protocol=%s leader=%s",
            group.group_id,
            group.generation,
            len(roster),
            group.protocol_name,
            roster.leader_id,
        )
        for member in roster:
            roster.complete_join(member, group.joined(member.member_id))
            self.restart_session(member, instant)
            member.is_new = False
            roster.pending_syncs[member.member_id] = None
        self._timers.schedule(
            self._sync_key,
            instant.now + roster.rebalance_timeout,
            functools.partial(self._syncs_end, group.generation),
        )
        return Outcome()

    def _empty_written(self, record: CoordinatorRecord, error: KafkaError | None) -> None:
        if error is None:
            self._group.logged(record)
        else:
            # A warning is enough: the newest record in the log may still have members, but a broker
            # that loads the record removes them when their sessions expire.
            logger.warning(
                "record of an empty group was not written: group=%s error=%s",
                self._group.group_id,
                error,
            )

    def propagate(self, assignment: Mapping[str, bytes], error_code: int, instant: Instant) -> None:
        """Set the assignment of each member, and answer the pending SyncGroup requests."""
        group = self._group
        failed = error_code != 0
        for member in group.roster:
            member.assignment = assignment.get(member.member_id, b"")
            response = SyncGroupResponse(
                error_code=error_code,
                protocol_type=None if failed else group.protocol_type_or_none,
                protocol_name=None if failed else group.protocol_name,
                assignment=member.assignment,
            )
            if group.roster.complete_sync(member, response):
                # The session timer may have expired without effect while the member waited for the
                # leader.
                self.restart_session(member, instant)

    def synced(self, member_id: str) -> None:
        """Record that a member has sent SyncGroup; cancel the sync timer after the last member."""
        pending = self._group.roster.pending_syncs
        pending.pop(member_id, None)
        if not pending:
            self._timers.cancel(self._sync_key)

    def remove(self, member: ClassicMember, reason: str, instant: Instant) -> Outcome[None]:
        """Remove a member, and let the other members rebalance."""
        group = self._group
        self._drop(member)
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            return self.prepare(reason, instant)
        return self._complete_without(instant)

    def remove_pending(self, member_id: str, instant: Instant) -> Outcome[None]:
        """Remove a pending member id: its client did not join."""
        self._group.roster.remove(member_id)
        self.end_session(member_id)
        return self._complete_without(instant)

    def _complete_without(self, instant: Instant) -> Outcome[None]:
        group = self._group
        if group.state is ClassicState.PREPARING_REBALANCE and group.roster.all_have_joined:
            return self.complete(instant)
        return Outcome()

    def leave(self, member: ClassicMember) -> None:
        """Remove a member that leaves; the caller rebalances."""
        self._drop(member)

    def _drop(self, member: ClassicMember) -> None:
        """Remove a member, and answer its pending requests with UNKNOWN_MEMBER_ID."""
        roster = self._group.roster
        unknown = UnknownMemberId.code
        roster.complete_join(member, JoinGroupResponse(error_code=unknown))
        roster.complete_sync(member, SyncGroupResponse(error_code=unknown))
        roster.remove(member.member_id)
        self.end_session(member.member_id)

    def restart_session(self, member: ClassicMember, instant: Instant) -> None:
        self._start_session(member.member_id, member.session_timeout_ms / 1000, instant)

    def await_first_join(self, member: ClassicMember, instant: Instant) -> None:
        """Start the session of a new member, which cannot send heartbeats yet."""
        self._start_session(member.member_id, NEW_MEMBER_JOIN_TIMEOUT, instant)

    def await_pending(self, member_id: str, session_timeout_ms: int, instant: Instant) -> None:
        """Add a pending member id, and start its session; the client has to join with this id."""
        self._group.roster.pending_joins[member_id] = None
        self._start_session(member_id, session_timeout_ms / 1000, instant)

    def _start_session(self, member_id: str, timeout: float, instant: Instant) -> None:
        self._timers.schedule(
            self._session_key(member_id),
            instant.now + timeout,
            functools.partial(self._session_ends, member_id),
        )

    def end_session(self, member_id: str) -> None:
        self._timers.cancel(self._session_key(member_id))

    def _session_key(self, member_id: str) -> tuple[str, str, str]:
        return (self._group.group_id, "classic session", member_id)

    def _session_ends(self, member_id: str, instant: Instant) -> Outcome[None]:
        group = self._group
        if member_id in group.roster.pending_joins:
            logger.info(
                "pending member did not join: group=%s member=%s", group.group_id, member_id
            )
            return self.remove_pending(member_id, instant)
        member = group.roster.members.get(member_id)
        if member is None or member.needs_no_heartbeat:
            return Outcome()
        logger.info("session expired: group=%s member=%s", group.group_id, member_id)
        return self.remove(member, f"the session of {member_id} expired", instant)

    def _schedule_initial(self, delay: float, remaining: float, instant: Instant) -> None:
        self._timers.schedule(
            self._join_key,
            instant.now + delay,
            functools.partial(self._initial_delay_ends, delay, remaining),
        )

    def _initial_delay_ends(
        self, delay: float, remaining: float, instant: Instant
    ) -> Outcome[None]:
        """Complete the initial rebalance, or delay it again if members joined during the delay.

        The total delay exceeds the rebalance timeout only if the first delay does.
        """
        if self.member_added and remaining > 0:
            self.member_added = False
            again = min(self._group.settings.group_initial_rebalance_delay_ms / 1000, remaining)
            self._schedule_initial(again, max(remaining - delay, 0.0), instant)
            return Outcome()
        return self.complete(instant)

    def _schedule_completion(self, instant: Instant, at_least: float = 0.0) -> None:
        timeout = max(self._group.roster.rebalance_timeout, at_least)
        self._timers.schedule(self._join_key, instant.now + timeout, self.complete)

    def _syncs_end(self, generation: int, instant: Instant) -> Outcome[None]:
        """Remove members that joined but sent no SyncGroup in time, and begin a rebalance."""
        group = self._group
        if generation != group.generation or not group.roster.pending_syncs:
            return Outcome()
        silent = [group.roster.members[member_id] for member_id in group.roster.pending_syncs]
        for member in silent:
            self._drop(member)
        names = ", ".join(member.member_id for member in silent)
        return self.prepare(f"{names} did not send SyncGroup in time", instant)

    def _forget_syncs(self) -> None:
        self._group.roster.pending_syncs.clear()
        self._timers.cancel(self._sync_key)

    def cancel_timers(self) -> None:
        self._timers.cancel(self._join_key)
        self._timers.cancel(self._sync_key)
        roster = self._group.roster
        for member_id in [*roster.members, *roster.pending_joins]:
            self.end_session(member_id)
