"""A world for group tests: a real broker on a machine that can crash, and members on others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from aiokq.admin.client import Admin
from aiokq.consumer.consumer import Consumer
from aiokq.producer.producer import Producer
from tests.sim.harness.simulation import Outcome, Simulation, run
from tests.sim.test_whole_system import SERVERS, Broker

PROTOCOLS = ("classic", "consumer")
FAST = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
"""For classic members; with the consumer protocol the broker's settings below apply."""
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
}


class World:
    """One broker, and the machines of the members that a test creates."""

    def __init__(self, world: Simulation, broker: Broker) -> None:
        self.world = world
        self.random = world.random
        self.network = world.network
        self.broker = broker
        self.hosts: dict[Consumer, str] = {}

    def member(
        self, *topics: Any, protocol: str = "classic", host: str | None = None, **overrides: Any
    ) -> Consumer:
        """Return a consumer on its own machine, not started."""
        host = host or f"10.0.1.{len(self.hosts) + 1}"
        overrides.setdefault("auto_offset_reset", "earliest")
        overrides.setdefault("group_id", "g")
        if overrides["group_id"] is not None:
            overrides["group_protocol"] = protocol
            if protocol == "classic":
                overrides = FAST | overrides
        consumer = Consumer(
            *topics,
            bootstrap_servers=SERVERS,
            _environment=self.world.environment(host),
            **overrides,
        )
        self.hosts[consumer] = host
        return consumer

    async def topic(self, name: str, partitions: int) -> None:
        """Create a topic."""
        environment = self.world.environment("10.0.0.8")
        async with Admin(SERVERS, _environment=environment) as admin:
            await admin.create_topics(name, num_partitions=partitions, raise_errors=True)

    async def grow(self, name: str, partitions: int) -> None:
        """Increase the number of partitions to `partitions`."""
        environment = self.world.environment("10.0.0.8")
        async with Admin(SERVERS, _environment=environment) as admin:
            await admin.create_partitions({name: partitions}, raise_errors=True)

    async def recreate(self, name: str, partitions: int, *, gap: float = 0.0) -> None:
        """Delete a topic and recreate it `gap` seconds later."""
        environment = self.world.environment("10.0.0.8")
        async with Admin(SERVERS, _environment=environment) as admin:
            await admin.delete_topics(name, raise_errors=True)
            await asyncio.sleep(gap)
            await admin.create_topics(name, num_partitions=partitions, raise_errors=True)

    def sent(self, topic: str, value: bytes, delivery: Any) -> None:
        """Called for each record that `produce` sends."""

    async def produce(self, topic: str, numbers: Iterable[int], partitions: int) -> None:
        """Produce numbers to the partitions in turn."""
        environment = self.world.environment("10.0.0.9")
        async with Producer(SERVERS, _environment=environment) as producer:
            for n in numbers:
                value = b"%d" % n
                delivery = await producer.enqueue(topic, value, partition=n % partitions)
                self.sent(topic, value, delivery)

    async def committed(self, topic: str, partitions: int, group_id: str = "g") -> list[int | None]:
        """Return the group's committed offsets, as a consumer outside the group sees them."""
        host = f"10.0.2.{len(self.hosts)}"
        async with self.member(group_id=group_id, host=host, enable_auto_commit=False) as outside:
            return [await outside.committed((topic, p)) for p in range(partitions)]


def simulate(
    body: Callable[[World], Coroutine[Any, Any, Any]],
    *,
    seed: int = 1,
    limit: float = 3600.0,
    settings: dict[str, str] | None = None,
) -> Outcome[Any]:
    """Run `body(world)` in virtual time, with a running broker."""

    async def main(world: Simulation) -> Any:
        broker = Broker(world, SETTINGS | (settings or {}))
        await broker.start()
        try:
            return await body(World(world, broker))
        finally:
            await broker.end()

    return run(seed, main, limit=limit)


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait in virtual time until `condition()` is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def read(source: Any, count: int, seconds: float = 60.0) -> list[Any]:
    """Read `count` records of a consumer or stream."""
    found: list[Any] = []
    async with asyncio.timeout(seconds):
        async for record in source:
            found.append(record)
            if len(found) == count:
                break
    return found


def numbers(records: Iterable[Any]) -> list[int]:
    """Return the produced numbers, sorted."""
    return sorted(int(record.value) for record in records)
