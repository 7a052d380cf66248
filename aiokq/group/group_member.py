"""GroupMember: the part of a group member that both group protocols share.

It covers taking, revoking and losing partitions, leaving, and errors. The requests are specific to
each protocol: see `classic_member` and `consumer_member`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from aiokq.core.errors import (
    BrokerError,
    CoordinatorNotAvailable,
    KafkaError,
    NotCoordinator,
    RequestTimeout,
)
from aiokq.core.types import GroupMetadata, TopicPartition
from aiokq.group.actions import Action, Ask, Fail, GiveUp, Lose, Relocate, Take
from aiokq.group.member_state import OUTSIDE, MemberConfig, MemberState
from aiokq.wire.struct import Request, Response

if TYPE_CHECKING:
    from aiokq.connection.backoff import Backoff

__all__ = ["GroupMember"]

logger = logging.getLogger("aiokq.group")

MOVED: Final = frozenset((CoordinatorNotAvailable.code, NotCoordinator.code, RequestTimeout.code))
"""Error codes: the coordinator moved, or may have moved."""


class GroupMember(ABC):
    """A group member as a sans-IO state machine, which never waits and changes only by its inputs.

    The driver calls `poll` after each input and at `wake_at`, and carries out the returned actions.
    At most one `Ask`, and at most one of `GiveUp`, `Take` and `Lose`, are open at a time.
    Heartbeats continue while `GiveUp`, `Take` or `Lose` runs user code.

    Args:
        backoff: the backoff between failed attempts.

    Attributes:
        owned: the partitions of this member, until they are revoked or lost.
        heartbeat_at: the time of the coordinator's last successful response, in monotonic seconds;
            None before the first and after leaving the group.
        error: the reason why the last request failed or the membership ended; None after a success.
    """

    def __init__(self, config: MemberConfig, backoff: Backoff) -> None:
        self.state = MemberState.OUT
        self.owned: frozenset[TopicPartition] = frozenset()
        self.heartbeat_at: float | None = None
        self.error: KafkaError | None = None
        self._config = config
        self._backoff = backoff
        self._topics: frozenset[str] = frozenset()
        self._ticket = 0
        self._asking = False
        self._handling: GiveUp | Take | Lose | None = None
        self._lost: KafkaError | None = None
        self._wants_out = False
        self._left_behind = False
        self._not_before = 0.0
        self._next_heartbeat = 0.0
        self._actions: list[Action] = []

    @property
    @abstractmethod
    def group_metadata(self) -> GroupMetadata:
        """The identity for commits: generation or epoch, and member id."""

    @property
    def busy(self) -> bool:
        """Whether a `GiveUp`, `Take` or `Lose` is not handled yet."""
        return self._handling is not None

    def leave(self, now: float, *, lost: KafkaError | None = None) -> None:
        """Revoke or lose all partitions, and leave the group.

        Args:
            lost: the reason, if the partitions are lost; None to revoke them normally.
        """
        if self.state in (MemberState.OUT, MemberState.LEAVING):
            return
        if self.state is MemberState.FAILED and not self._left_behind:
            return
        self._wants_out = True
        self._lost = lost or self._lost
        self._not_before = now
        self._begin_to_leave(now)

    @abstractmethod
    def received(self, ticket: int, response: Response, now: float) -> None:
        """Handle the response to the `Ask` with this ticket."""

    def failed(self, ticket: int, error: KafkaError, now: float) -> None:
        """Handle the failure of the `Ask` with this ticket."""
        if not self._answers(ticket):
            return
        if self.state is MemberState.LEAVING:
            self._left(now)  # the coordinator removes the member when its session expires
        elif error.retriable:
            self._unanswered(error, now)
        else:
            self._refuse(error)

    def handled(self, now: float) -> None:
        """Handle the end of the last `GiveUp`, `Take` or `Lose`."""
        done, self._handling = self._handling, None
        if done is None:
            return
        if isinstance(done, Take):
            self.owned |= done.partitions
        else:
            self.owned -= done.partitions
        self._go_on(now)

    def poll(self, now: float) -> list[Action]:
        """Return the actions to carry out now; each action is returned once."""
        if not self._asking and now >= self._not_before:
            self._ask_next(now)
        actions, self._actions = self._actions, []
        return actions

    @abstractmethod
    def wake_at(self) -> float | None:
        """Return the time at which `poll` is due without an input; None to wait for an input."""

    @abstractmethod
    def _ask_next(self, now: float) -> None:
        """Add the `Ask` that is due, if any; called only when no request is in flight."""

    @abstractmethod
    def _unanswered(self, error: KafkaError, now: float) -> None:
        """Handle a failed request that may succeed if it is retried."""

    @abstractmethod
    def _stay(self, now: float) -> None:
        """Continue as a member. Called while no `GiveUp`, `Take` or `Lose` is in progress."""

    @abstractmethod
    def _send_leave(self, now: float) -> None:
        """Leave the group. Called when the member owns no partitions."""

    @abstractmethod
    def _left(self, now: float) -> None:
        """Reset the member after it left the group; join again if it subscribed meanwhile.

        Also called if the request to leave the group failed.
        """

    @abstractmethod
    def _forget(self, error: KafkaError) -> None:
        """Forget the member's generation or epoch, because the membership ended with `error`."""

    def _begin_to_leave(self, now: float) -> None:
        if self._handling is None:
            self._go_on(now)

    def _go_on(self, now: float) -> None:
        """Start the next transition. Called while no `GiveUp`, `Take` or `Lose` is in progress."""
        if self.state is MemberState.FAILED:
            if not self._lose() and self._wants_out and self._left_behind:
                self._left_behind = False
                self._send_leave(now)
        elif self._lose():
            self.state = MemberState.PREPARING  # afterwards the member rejoins or leaves
        elif not self._wants_out:
            self._stay(now)
        elif self.owned:
            self.state = MemberState.PREPARING
            self._handle(GiveUp(self.owned))
        else:
            self._send_leave(now)

    def _lose(self) -> bool:
        """Report lost partitions; return whether there are any."""
        error, self._lost = self._lost, None
        if error is None or not self.owned:
            return False
        self._handle(Lose(self.owned, error))
        return True

    def _handle(self, action: GiveUp | Take | Lose) -> None:
        self._handling = action
        self._actions.append(action)

    def _ask(
        self,
        request_class: type[Request[Any]],
        make: Callable[[int], Request[Any]],
        timeout: float,
    ) -> None:
        self._ticket += 1
        self._asking = True
        self._actions.append(Ask(request_class, make, timeout, self._ticket))

    def _answers(self, ticket: int) -> bool:
        """Finish the request in flight if `ticket` belongs to it; return whether it does."""
        if not self._asking or ticket != self._ticket:
            return False
        self._asking = False
        return True

    def _disregard(self) -> None:
        """Ignore the response to the request in flight."""
        self._asking = False
        self._ticket += 1

    def _expelled(self, error: KafkaError, now: float) -> None:
        """Handle the removal of the member from the group: its partitions are lost."""
        member = self.group_metadata
        logger.warning(
            "member removed from the group: group=%s member=%s generation=%d error=%s",
            member.group_id,
            member.member_id,
            member.generation,
            error,
        )
        self._forget(error)
        self._lost = error
        self.state = MemberState.PREPARING
        self._pause(now, error)
        if self._handling is None:
            self._go_on(now)

    def _refuse(self, error: KafkaError) -> None:
        """End the membership with an error that a retry does not resolve."""
        self._disregard()  # the response to a heartbeat would revive the member
        # If this member has a generation, it is still in the coordinator's group. If it is the
        # leader, the group waits for its assignment. `leave` must therefore send the request to
        # leave.
        self._left_behind = self.group_metadata.generation != OUTSIDE
        self._forget(error)
        self.error = self._lost = error
        self.state = MemberState.FAILED
        self._actions.append(Fail(error))
        if self._handling is None:
            self._lose()

    def _pause(self, now: float, error: KafkaError) -> None:
        self.error = error
        if not isinstance(error, BrokerError) or error.code in MOVED:
            self._actions.append(Relocate())
        self._not_before = now + self._backoff.next()
