"""The driver between a machine and the consumer that reads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from aiokq.assign.assignor import resolve
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import GroupAuthorization, KafkaError
from aiokq.core.types import TopicPartition
from aiokq.group.actions import Take
from aiokq.group.classic import ClassicMember
from aiokq.group.driver import GroupDriver
from aiokq.group.membership import MemberConfig, MemberState

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
    """Notes what it is told, and takes its time."""

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
    """As much of a cluster as a driver needs that asks nothing."""

    def __init__(self) -> None:
        self.changes = SimpleNamespace(
            subscribe=lambda callback, replay: SimpleNamespace(close=lambda: None)
        )

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def unwatch(self, topics: frozenset[str]) -> None:
        pass


class Scripted(ClassicMember):
    """A machine that asks nobody: the test moves it."""

    def _ask(self, *args: Any) -> None:
        pass


async def test_who_is_refused_while_it_takes_partitions_loses_them_before_it_tries_anew() -> None:
    """Otherwise nobody ever told the reader to stop: two members read the partitions."""
    owner = Owner()
    made: list[Scripted] = []

    def make() -> Scripted:
        made.append(Scripted(CONFIG, resolve(["range"]), Backoff(0.1, 1.0, random.Random(1))))
        return made[-1]

    def spawn(coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(coro)

    never: Callable[[], Any] = lambda: None  # noqa: E731
    driver = GroupDriver(
        Engine(),  # type: ignore[arg-type]
        "g",
        owner,
        protocol="classic",
        make_classic=make,
        make_modern=never,
        spawn=spawn,
    )
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
