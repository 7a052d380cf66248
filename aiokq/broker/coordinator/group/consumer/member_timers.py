"""The timers of a group's members: sessions, and deadlines for revoking, joining and syncing.

Source: Kafka ``GroupMetadataManager.scheduleConsumerGroup...Timeout`` (4.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from aiokq.broker.coordinator.group.consumer.context import ConsumerContext
    from aiokq.broker.coordinator.group.consumer.member import ConsumerMember
    from aiokq.broker.coordinator.outcome import Outcome
    from aiokq.broker.coordinator.timers import Instant

__all__ = ["MemberTimers"]

Kind: TypeAlias = Literal["session", "revocation", "join", "sync"]
_KINDS: Final[tuple[Kind, ...]] = ("session", "revocation", "join", "sync")

Fence: TypeAlias = Callable[[str, str, "Instant"], "Outcome[None] | None"]
"""Removes a member, given its id and the reason; does nothing if there is no such member."""


class MemberTimers:
    """The timers of one group."""

    def __init__(self, group_id: str, context: ConsumerContext, fence: Fence) -> None:
        self._group_id = group_id
        self._context = context
        self._fence = fence

    def start_session(self, member: ConsumerMember, instant: Instant) -> None:
        """Restart the session of a member."""
        timeout = (
            self._context.session_timeout(self._group_id)
            if member.classic is None
            else member.classic.session_timeout_ms / 1000
        )
        self._start("session", member.member_id, timeout, "session expired", instant)

    def start_revocation(
        self, member: ConsumerMember, current: Callable[[], int | None], instant: Instant
    ) -> None:
        """Fence a member that does not revoke its partitions within its rebalance timeout.

        A member whose epoch has changed is not fenced.

        Args:
            current: returns the epoch of the member; None if it has left.
        """
        member_id, epoch = member.member_id, member.member_epoch

        def expire(now: Instant) -> Outcome[None] | None:
            if current() != epoch:
                return None
            return self._fence(
                member_id, f"did not revoke the partitions of epoch {epoch} in time", now
            )

        self._context.timers.schedule(
            self._key("revocation", member_id),
            instant.now + member.rebalance_timeout_ms / 1000,
            expire,
        )

    def start_join(self, member: ConsumerMember, instant: Instant) -> None:
        """Fence a classic member unless it joins again within its rebalance timeout.

        While the member's join timer runs, further calls change nothing.
        """
        if self._key("join", member.member_id) not in self._context.timers:
            self._start_rebalance("join", member, "did not rejoin in time", instant)

    def start_sync(self, member: ConsumerMember, instant: Instant) -> None:
        """Fence a classic member unless it sends SyncGroup within its rebalance timeout."""
        self._start_rebalance("sync", member, "did not send SyncGroup in time", instant)

    def _start_rebalance(
        self, kind: Kind, member: ConsumerMember, reason: str, instant: Instant
    ) -> None:
        timeout = member.rebalance_timeout_ms / 1000
        self._start(kind, member.member_id, timeout, reason, instant)

    def _start(
        self, kind: Kind, member_id: str, timeout: float, reason: str, instant: Instant
    ) -> None:
        def expire(now: Instant) -> Outcome[None] | None:
            return self._fence(member_id, reason, now)

        self._context.timers.schedule(self._key(kind, member_id), instant.now + timeout, expire)

    def cancel(self, member_id: str, *kinds: Kind) -> None:
        """Cancel a member's timers of the given kinds, or all its timers if no kind is given."""
        for kind in kinds or _KINDS:
            self._context.timers.cancel(self._key(kind, member_id))

    def _key(self, kind: Kind, member_id: str) -> tuple[str, str, str]:
        return kind, self._group_id, member_id
