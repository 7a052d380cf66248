"""MemberDriver: passes time and responses to a group member, and carries out its actions.

The member decides which requests to send to the coordinator. The owner adds and removes the
partitions. Heartbeats continue while a rebalance handler runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from uuid import UUID

from aiokq.cluster.denials import name_denial
from aiokq.core.errors import (
    GroupIdNotFound,
    InconsistentGroupProtocol,
    KafkaError,
    UnsupportedVersion,
)
from aiokq.core.types import GroupMetadata, TopicPartition
from aiokq.group.actions import (
    Abandon,
    Action,
    Ask,
    Fail,
    GiveUp,
    Lose,
    NeedNames,
    NeedTopics,
    Relocate,
    Take,
)
from aiokq.group.classic_member import ClassicMember
from aiokq.group.consumer_member import ConsumerMember
from aiokq.group.coordinator_connection import CoordinatorConnection
from aiokq.group.error_advice import with_advice
from aiokq.group.member_state import MemberState
from aiokq.group.topic_watch import TopicWatch

if TYPE_CHECKING:
    from aiokq.assign.model import Topology
    from aiokq.cluster.engine import ClusterEngine

__all__ = ["MemberDriver", "Owner", "Protocols"]

logger = logging.getLogger("aiokq.group")

TROUBLE: Final = "group request failed"

Protocols = Literal["classic", "consumer", "auto"]
"""The values of `group_protocol`; "auto" tries the consumer protocol, then the classic protocol."""


class Owner(Protocol):
    """The consumer, which reads the partitions.

    The three coroutines may run user code. They raise nothing: the owner reports errors of user
    code.
    """

    async def take(self, partitions: frozenset[TopicPartition]) -> None:
        """Call on_assigned, and then read these partitions."""
        ...

    async def give_up(self, partitions: frozenset[TopicPartition]) -> None:
        """Stop reading these partitions; their offsets can be committed until the call returns."""
        ...

    async def lose(self, partitions: frozenset[TopicPartition], error: KafkaError) -> None:
        """Stop reading these partitions immediately, because another member may read them."""
        ...

    def refused(self, error: KafkaError) -> None:
        """Handle the error that ended the membership; a retry does not resolve it."""
        ...


class MemberDriver:
    """Keeps one consumer a member of its group.

    Args:
        protocol: the setting `group_protocol`.
        make_classic, make_consumer: functions that return a new member of the named protocol.
        spawn: starts a task of the consumer.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        group_id: str,
        owner: Owner,
        *,
        protocol: Protocols,
        make_classic: Callable[[], ClassicMember],
        make_consumer: Callable[[], ConsumerMember],
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._engine = engine
        self._group_id = group_id
        self._owner = owner
        self._make_classic = make_classic
        self._make_consumer = make_consumer
        self._spawn = spawn
        self._coordinator = CoordinatorConnection(engine, group_id)
        self._topic_watch = TopicWatch(
            engine,
            changed=self._topics_changed,
            replaced=self._topic_replaced,
            named=self._topics_named,
        )
        self._auto = protocol == "auto"
        self._may_change = self._auto
        """Whether the other protocol may be tried. False after a switch, until the next `Take`.

        Without this limit, switching would never end if the group refused both protocols.
        """
        self._member: ClassicMember | ConsumerMember
        self._member = make_classic() if protocol == "classic" else make_consumer()
        self._topics: frozenset[str] = frozenset()
        self._regex: str | None = None
        self._wanted = False
        self._again = False
        self._closed = False
        self._asking: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._out = asyncio.Event()
        self._out.set()

    @property
    def state(self) -> MemberState:
        return self._member.state

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._member.owned

    @property
    def group_metadata(self) -> GroupMetadata:
        return self._member.group_metadata

    @property
    def heartbeat_at(self) -> float | None:
        """The loop time of the coordinator's last successful response; None if there is none."""
        return self._member.heartbeat_at

    @property
    def error(self) -> KafkaError | None:
        """Why the last request failed or the member was rejected; None after a success."""
        return self._member.error

    def subscribe(self, topics: frozenset[str], *, regex: str | None = None) -> None:
        """Subscribe to these topics; join the group if the consumer is not a member yet.

        Args:
            regex: a pattern evaluated by the broker; only with the consumer protocol.
        """
        self._topics, self._regex = topics, regex
        self._wanted = True
        self._out.clear()
        self._again = self._member.state is MemberState.FAILED
        if self._again:
            self._begin_again()
        else:
            self._subscribe_member()
        self._wake.set()

    def leave(self, *, lost: KafkaError | None = None) -> None:
        """Begin to leave the group; `left` waits until the member has left."""
        self._wanted = self._again = False
        self._member.leave(self._engine.now(), lost=lost)
        self._wake.set()

    async def left(self) -> None:
        """Wait until the consumer is not a member any more."""
        await self._out.wait()

    async def run(self) -> None:
        """Drive the member until `close`."""
        while not self._closed:
            self._wake.clear()
            for action in self._member.poll(self._engine.now()):
                self._do(action)
            if self._is_out:
                self._out.set()
            await self._sleep()

    @property
    def _is_out(self) -> bool:
        member = self._member
        gone = member.state in (MemberState.OUT, MemberState.FAILED)
        return gone and not member.busy and not self._again

    async def close(self) -> None:
        """End `run`, stop watching topics and close the connection, without leaving the group."""
        self._closed = True
        self._wake.set()
        self._topic_watch.close()
        await self._coordinator.close()

    async def _sleep(self) -> None:
        """Wait for an input, or until the member's next `poll` (`wake_at`)."""
        when = self._member.wake_at()
        if when is None:
            await self._wake.wait()
            return
        try:
            async with asyncio.timeout_at(when):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _do(self, action: Action) -> None:
        match action:
            case Ask():
                if self._asking is not None:
                    # The previous request may not have been sent yet. If a join were sent after the
                    # leave request, the coordinator would add a member that this consumer does not
                    # use any more.
                    self._asking.cancel()
                self._asking = self._spawn(self._ask(action), action.request_class.NAME)
            case Abandon():
                if self._asking is not None:
                    self._asking.cancel()
                self._spawn(self._coordinator.drop(), "drop the coordinator's connection")
            case Relocate():
                self._coordinator.relocate()
            case GiveUp() | Take() | Lose():
                self._spawn(self._hand_over(action), type(action).__name__)
            case NeedTopics(topics):
                if self._learning is not None:
                    self._learning.cancel()
                self._learning = self._spawn(self._learn(topics), "partitions to assign")
            case NeedNames(topic_ids):
                self._topic_watch.name(topic_ids)
            case Fail(error):
                self._failed(error)

    async def _ask(self, ask: Ask) -> None:
        member = self._member
        try:
            response = await self._coordinator.ask(ask)
        except KafkaError as error:
            if self._closed:
                return
            member.failed(ask.ticket, error, self._engine.now())
            self._report(member, error)
        else:
            member.received(ask.ticket, response, self._engine.now())
            self._report(member, member.error)
        self._wake.set()

    def _report(self, member: ClassicMember | ConsumerMember, error: KafkaError | None) -> None:
        """Log lasting failures of requests; the end of a membership is logged elsewhere."""
        outages, group_id = self._engine.outages, self._group_id
        if error is None:
            outages.ended(TROUBLE, group_id)
        elif error.retriable and member.state is not MemberState.LEAVING:
            where = {"group": group_id, "state": member.state.name.lower()}
            outages.failed(TROUBLE, group_id, error, where=where)

    async def _hand_over(self, action: GiveUp | Take | Lose) -> None:
        member = self._member
        match action:
            case GiveUp(partitions):
                await self._owner.give_up(partitions)
            case Take(partitions):
                self._may_change = self._auto
                await self._owner.take(partitions)
            case Lose(partitions, error):
                await self._owner.lose(partitions, error)
        member.handled(self._engine.now())
        if self._again:
            self._begin_again()
        self._wake.set()

    async def _learn(self, topics: frozenset[str]) -> None:
        try:
            topology = await self._topic_watch.learn(topics)
        except KafkaError as error:
            member = self._member
            if isinstance(member, ClassicMember) and not self._closed:
                member.unknown(error, self._engine.now())
                self._wake.set()
            return
        self._topics_changed(topology)

    def _failed(self, error: KafkaError) -> None:
        """Switch to the other protocol if the error permits a switch, else report the error."""
        name_denial(self._engine, error, self._group_id)
        if self._may_change and self._speaks_the_other(error):
            if not self._wanted:
                return  # leaving has begun; a new subscription tries both protocols again
            self._may_change = False
            classic = isinstance(self._member, ClassicMember)
            logger.info(
                "switching to the %s protocol: group=%s error=%s",
                "consumer" if classic else "classic",
                self._group_id,
                error,
            )
            self._member = self._make_consumer() if classic else self._make_classic()
            self._subscribe_member()
            self._wake.set()
        else:
            error = with_advice(
                error, self._group_id, auto=self._auto, by_regex=self._regex is not None
            )
            logger.error("group membership ended: group=%s error=%s", self._group_id, error)
            self._owner.refused(error)

    def _speaks_the_other(self, error: KafkaError) -> bool:
        member = self._member
        if member.owned or member.busy or self._regex is not None:
            return False
        if isinstance(member, ClassicMember):
            return isinstance(error, InconsistentGroupProtocol)
        return isinstance(error, GroupIdNotFound | UnsupportedVersion)

    def _begin_again(self) -> None:
        """Try again as a new member, because the reason for the refusal may be gone.

        The old member has to lose its partitions first, and is kept until then.
        """
        if self._member.busy:
            return
        self._again = False
        classic = isinstance(self._member, ClassicMember)
        self._member = self._make_classic() if classic else self._make_consumer()
        self._subscribe_member()

    def _subscribe_member(self) -> None:
        now = self._engine.now()
        if isinstance(self._member, ConsumerMember):
            self._member.subscribe(self._topics, now, regex=self._regex)
        else:
            self._member.subscribe(self._topics, now)

    def _topics_changed(self, topology: Topology) -> None:
        if isinstance(self._member, ClassicMember):
            self._member.topology(topology, self._engine.now())
            self._wake.set()

    def _topic_replaced(self, topic: str) -> None:
        if isinstance(self._member, ClassicMember):
            self._member.replaced(topic)
            self._wake.set()

    def _topics_named(self, names: Mapping[UUID, str]) -> None:
        if isinstance(self._member, ConsumerMember):
            self._member.named(names, self._engine.now())
            self._wake.set()
