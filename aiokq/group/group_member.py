"""What both membership machines have in common: one question and one handing-over at a time.

Owns the way of partitions (given up, taken, lost), of leaving, and of what goes wrong. What is said
to the coordinator is the protocol's: `classic` and `modern`.
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
"""Another node coordinates this group, or will."""


class GroupMember(ABC):
    """A sans-IO membership machine. Nothing in it waits, and nothing but its inputs moves it.

    The driver calls `poll` after each input and when `wake_at` has come, and does what it returns.
    At most one `Ask` and one of `GiveUp`, `Take` and `Lose` are open at a time; while user code
    runs in the latter, heartbeats go on.

    Args:
        backoff: between attempts that failed.

    Attributes:
        owned: the partitions that are this member's, until it has given them up.
        heartbeat_at: when the coordinator last answered, monotonic seconds; None if it never did.
        error: why the coordinator does not take this member; None since it last did.
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
        """Who commits: generation or epoch, and member id."""

    @property
    def busy(self) -> bool:
        """Whether a `GiveUp`, `Take` or `Lose` is under way, or about to be."""
        return self._handling is not None

    # -- inputs

    def leave(self, now: float, *, lost: KafkaError | None = None) -> None:
        """Give everything up and go. `lost` says why it is not given up in order."""
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
        """The answer to the `Ask` of that ticket."""

    def failed(self, ticket: int, error: KafkaError, now: float) -> None:
        """No answer, and none will come."""
        if not self._answers(ticket):
            return
        if self.state is MemberState.LEAVING:
            self._left(now)  # the session timeout will do it
        elif error.retriable:
            self._unanswered(error, now)
        else:
            self._refuse(error)

    def handled(self, now: float) -> None:
        """The last `GiveUp`, `Take` or `Lose` is done."""
        done, self._handling = self._handling, None
        if done is None:
            return
        if isinstance(done, Take):
            self.owned |= done.partitions
        else:
            self.owned -= done.partitions
        self._go_on(now)

    def poll(self, now: float) -> list[Action]:
        """What is to be done now; each action is returned once."""
        if not self._asking and now >= self._not_before:
            self._ask_next(now)
        actions, self._actions = self._actions, []
        return actions

    @abstractmethod
    def wake_at(self) -> float | None:
        """When to poll again without an input; None if only an input can change anything."""

    # -- what the protocols differ in

    @abstractmethod
    def _ask_next(self, now: float) -> None:
        """Nothing is in flight: ask what is due, if anything is."""

    @abstractmethod
    def _unanswered(self, error: KafkaError, now: float) -> None:
        """The answer was lost; another attempt may work."""

    @abstractmethod
    def _stay(self, now: float) -> None:
        """Nobody is busy with partitions, and it wants to be a member: what is next?"""

    @abstractmethod
    def _say_goodbye(self, now: float) -> None:
        """It has nothing any more, and wants out."""

    @abstractmethod
    def _left(self, now: float) -> None:
        """It is out."""

    @abstractmethod
    def _forget(self, error: KafkaError) -> None:
        """The coordinator does not have this member, as it was, any more."""

    def _begin_to_leave(self, now: float) -> None:
        if self._handling is None:
            self._go_on(now)

    # -- the ways of partitions

    def _go_on(self, now: float) -> None:
        """Nobody is busy with partitions."""
        if self.state is MemberState.FAILED:
            if not self._lose() and self._wants_out and self._left_behind:
                self._left_behind = False
                self._say_goodbye(now)
        elif self._lose():
            self.state = MemberState.PREPARING  # to join anew, if it does not go after all
        elif not self._wants_out:
            self._stay(now)
        elif self.owned:
            self.state = MemberState.PREPARING
            self._handle(GiveUp(self.owned))
        else:
            self._say_goodbye(now)

    def _lose(self) -> bool:
        """Report what was lost, if there is something to report; true if so."""
        error, self._lost = self._lost, None
        if error is None or not self.owned:
            return False
        self._handle(Lose(self.owned, error))
        return True

    def _handle(self, action: GiveUp | Take | Lose) -> None:
        self._handling = action
        self._actions.append(action)

    # -- asking

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
        """Whether this is about the request in flight, which it is no more then."""
        if not self._asking or ticket != self._ticket:
            return False
        self._asking = False
        return True

    def _disregard(self) -> None:
        """Whatever the request in flight brings does not count."""
        self._asking = False
        self._ticket += 1

    # -- what goes wrong

    def _expelled(self, error: KafkaError, now: float) -> None:
        """The group goes on without this member: what it had may be another's already."""
        member = self.group_metadata
        logger.warning(
            "expelled: group=%s member=%s generation=%d error=%s",
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
        """It does not become a member, or is none any more, and another attempt is in vain."""
        self._disregard()  # a heartbeat that is answered yet would bring it back
        # The coordinator takes it for a member, and a group whose leader failed waits for it.
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
