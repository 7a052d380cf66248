"""The driver between a member's state machine and its consumer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from aiokq.assign.assignor import resolve
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import (
    AuthenticationFailed,
    GroupAuthorization,
    KafkaError,
    UnsupportedVersion,
)
from aiokq.core.types import TopicPartition
from aiokq.group.actions import Ask, NeedTopics, Take
from aiokq.group.classic_member import ClassicMember
from aiokq.group.consumer_member import ConsumerMember
from aiokq.group.group_leader import GroupLeader
from aiokq.group.member_driver import MemberDriver
from aiokq.group.member_state import MemberConfig, MemberState
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

T0 = TopicPartition("t", 0)
CONFIG = MemberConfig(
    group_id="g",
    instance_id=None,
    session_timeout=45.0,
    rebalance_timeout=60.0,
    heartbeat_interval=3.0,
    request_timeout=30.0,
)


class Owner:
    """Records its calls, and blocks while handling partitions."""

    def __init__(self) -> None:
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.free = asyncio.Event()

    async def take(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("take", partitions))
        await self.free.wait()

    async def give_up(self, partitions: frozenset[TopicPartition]) -> None:
        self.told.append(("give up", partitions))
        await self.free.wait()

    async def lose(self, partitions: frozenset[TopicPartition], error: KafkaError) -> None:
        self.told.append(("lose", partitions))

    def refused(self, error: KafkaError) -> None:
        self.told.append(("refused", frozenset()))


class Engine:
    """The part of a cluster that a driver needs if it sends no requests."""

    def __init__(self) -> None:
        self.outages = SimpleNamespace(ended=lambda *key: None)
        self.changes = SimpleNamespace(
            subscribe=lambda callback, replay: SimpleNamespace(close=lambda: None)
        )

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def unwatch(self, topics: frozenset[str]) -> None:
        pass


class Unauthorized(Engine):
    """A cluster whose brokers no longer accept the client's credentials."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = SimpleNamespace(topics={})

    def watch(self, topics: frozenset[str]) -> None:
        pass

    def new_backoff(self) -> Backoff:
        return Backoff(0.1, 1.0, random.Random(1))

    async def refresh(self, topics: frozenset[str]) -> None:
        raise AuthenticationFailed("the password was changed")


class Scripted(ClassicMember):
    """A state machine that sends no requests; the test changes its state."""

    def _ask(self, *args: Any) -> None:
        pass


def spawn(coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(coro)


def driven(owner: Owner, made: list[Scripted], engine: Engine) -> MemberDriver:
    """Return a driver whose new state machines are appended to `made`."""

    def make() -> Scripted:
        made.append(Scripted(CONFIG, resolve(["range"]), Backoff(0.1, 1.0, random.Random(1))))
        return made[-1]

    never: Callable[[], Any] = lambda: None  # noqa: E731
    return MemberDriver(
        engine,  # type: ignore[arg-type]
        "g",
        owner,
        protocol="classic",
        make_classic=make,
        make_consumer=never,
        spawn=spawn,
    )


async def test_a_member_that_fails_while_taking_partitions_loses_them_before_a_retry() -> None:
    """Otherwise the reader would not stop, and two members would read the partitions."""
    owner = Owner()
    made: list[Scripted] = []
    driver = driven(owner, made, Engine())
    running = spawn(driver.run(), "group")
    try:
        driver.subscribe(frozenset({"t"}))
        await asyncio.sleep(0)
        member = made[0]
        member.state = MemberState.SETTLING
        member._handle(Take(frozenset({T0})))
        driver._wake.set()
        await asyncio.sleep(0.01)
        member._refuse(GroupAuthorization())
        driver._wake.set()
        await asyncio.sleep(0.01)
        driver.subscribe(frozenset({"t"}))
        await asyncio.sleep(0.01)
        assert owner.told == [("take", {T0}), ("refused", frozenset())]
        owner.free.set()
        await asyncio.sleep(0.01)
        assert owner.told[2:] == [("lose", {T0})]
        assert driver.state is MemberState.JOINING
        assert driver.owned == frozenset()
        assert len(made) == 2
    finally:
        running.cancel()


async def test_a_failed_member_is_out_only_after_on_lost_has_returned() -> None:
    """close() did not wait, and on_lost was cancelled in the middle of its cleanup."""
    owner = Owner()
    made: list[Scripted] = []
    driver = driven(owner, made, Engine())
    running = spawn(driver.run(), "group")
    try:
        driver.subscribe(frozenset({"t"}))
        await asyncio.sleep(0)
        member = made[0]
        member.state = MemberState.SETTLING
        member._handle(Take(frozenset({T0})))
        driver._wake.set()
        await asyncio.sleep(0.01)
        member._refuse(GroupAuthorization())
        driver.leave()
        leaving = spawn(driver.left(), "left")
        await asyncio.sleep(0.01)
        assert not leaving.done()
        owner.free.set()
        await asyncio.wait_for(leaving, 1)
        assert owner.told[-1] == ("lose", {T0})
    finally:
        running.cancel()


async def test_a_leader_that_cannot_fetch_metadata_fails_with_the_reason() -> None:
    """Only the reader got the error; the member stayed leader, and the group waited for ever."""
    owner = Owner()
    made: list[Scripted] = []
    driver = driven(owner, made, Unauthorized())
    running = spawn(driver.run(), "group")
    try:
        driver.subscribe(frozenset({"t"}))
        await asyncio.sleep(0)
        member = made[0]
        member.state = MemberState.ASSIGNING
        member._group_leader = GroupLeader([])
        member._actions.append(NeedTopics(frozenset({"t"})))
        driver._wake.set()
        await asyncio.sleep(0.01)
        assert driver.state is MemberState.FAILED
        assert isinstance(driver.error, AuthenticationFailed)
        assert owner.told == [("refused", frozenset())]
    finally:
        running.cancel()


class Ungrouped(ConsumerMember):
    """A state machine that sends no requests; the test changes its state."""

    def _ask(self, *args: Any) -> None:
        pass


async def test_a_member_that_leaves_as_it_fails_does_not_fall_back_to_the_other_protocol() -> None:
    """close() ran into its timeout, and a member without a consumer stayed in the group."""
    owner = Owner()
    classic: list[Scripted] = []

    def make_classic() -> Scripted:
        classic.append(Scripted(CONFIG, resolve(["range"]), Backoff(0.1, 1.0, random.Random(1))))
        return classic[-1]

    modern: list[Ungrouped] = []

    def make_consumer() -> Ungrouped:
        modern.append(Ungrouped(CONFIG, "m", Backoff(0.1, 1.0, random.Random(1))))
        return modern[-1]

    driver = MemberDriver(
        Engine(),  # type: ignore[arg-type]
        "g",
        owner,
        protocol="auto",
        make_classic=make_classic,
        make_consumer=make_consumer,
        spawn=spawn,
    )
    running = spawn(driver.run(), "group")
    try:
        driver.subscribe(frozenset({"t"}))
        await asyncio.sleep(0)
        modern[0]._refuse(UnsupportedVersion())
        driver.leave()
        await asyncio.wait_for(driver.left(), 1)
        assert classic == []
        driver.subscribe(frozenset({"t"}))
        assert driver.state is MemberState.JOINING
    finally:
        running.cancel()


class SlowLink:
    """A connection that delays a join, as repeated coordinator lookups do."""

    def __init__(self) -> None:
        self.joining = asyncio.Event()
        self.delay = asyncio.Event()  # set: the delay has ended
        self.sent: list[int] = []

    async def ask(self, ask: Ask) -> ConsumerGroupHeartbeatResponse:
        request = ask.make(1)
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        if request.member_epoch == 0:
            self.joining.set()
            await self.delay.wait()
        self.sent.append(request.member_epoch)
        return ConsumerGroupHeartbeatResponse(member_id="m", member_epoch=request.member_epoch)


async def test_a_delayed_join_is_not_sent_after_the_last_heartbeat() -> None:
    """Such a join left a member without a consumer, which owned partitions until it expired."""
    driver = MemberDriver(
        Engine(),  # type: ignore[arg-type]
        "g",
        Owner(),
        protocol="consumer",
        make_classic=lambda: None,  # type: ignore[arg-type, return-value]
        make_consumer=lambda: ConsumerMember(CONFIG, "m", Backoff(0.1, 1.0, random.Random(1))),
        spawn=spawn,
    )
    link = driver._coordinator = SlowLink()  # type: ignore[assignment]
    running = spawn(driver.run(), "group")
    try:
        driver.subscribe(frozenset({"t"}))
        await asyncio.wait_for(link.joining.wait(), 20)
        driver.leave()
        await asyncio.wait_for(driver.left(), 20)
        link.delay.set()
        await asyncio.sleep(0.1)
        assert link.sent == [-1]
    finally:
        running.cancel()
