"""A world for tests of process(): a real broker, and programs that copy records on machines.

When the body of a test has ended, its topics are read to their ends, and the checker of
aiokq.testing may condemn nothing; see `World.judge`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from aiokq.admin.client import Admin
from aiokq.admin.features import FeatureUpdate
from aiokq.client.cluster import Cluster
from aiokq.client.process.options import ProcessReport
from aiokq.consumer.consumer import Consumer
from aiokq.fastpath.produce import Outgoing
from aiokq.testing import Copy, Operation
from tests.sim.group_world import FAST, World, repeats, simulate_with
from tests.sim.harness.simulation import Outcome
from tests.sim.test_whole_system import SERVERS


def copy(record: Any) -> Outgoing:
    """Copy a record to the topic "out", to the same partition."""
    return Outgoing("out", record.value, record.key, partition=record.partition)


class Program:
    """A call of process() on a machine of its own."""

    def __init__(
        self, world: ProcessWorld, host: str, handler: Any, topics: Any, options: Any
    ) -> None:
        self.world = world
        self.host = host
        self.stop = asyncio.Event()
        self.cluster = Cluster(SERVERS, _environment=world.world.environment(host))
        self.task = asyncio.get_running_loop().create_task(self._run(handler, topics, options))

    async def _run(self, handler: Any, topics: Any, options: dict[str, Any]) -> ProcessReport:
        async with self.cluster:
            return await self.cluster.process(topics, handler, stop=self.stop, **options)

    async def end(self) -> ProcessReport:
        """Stop the call; return its report."""
        self.stop.set()
        return await self.task

    def kill(self) -> None:
        """Kill the machine: no goodbye to the group, no abort."""
        self.world.world.kill(self.host)
        self.task.cancel()
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())


class ProcessWorld(World):
    """The world of group tests, with programs that call process()."""

    def __init__(self, world: Any, broker: Any) -> None:
        super().__init__(world, broker)
        self._programs = 0
        self._copies_only = True
        """Whether all programs copy "in" to "out" exactly once."""

    def program(
        self,
        handler: Any = copy,
        topics: Any = ("in",),
        *,
        protocol: str = "classic",
        consumer: dict[str, Any] | None = None,
        **options: Any,
    ) -> Program:
        """Start a call of process()."""
        self._programs += 1
        exact = options.get("guarantee", "exactly_once") == "exactly_once"
        plain = (handler, topics, options.get("group_id", "g")) == (copy, ("in",), "g")
        self._copies_only &= exact and plain and "output" not in options
        self._copies_only &= "isolation_level" not in (consumer or {})
        settings = {"group_protocol": protocol} | (FAST if protocol == "classic" else {})
        options.setdefault("group_id", "g")
        options["consumer_settings"] = settings | (consumer or {})
        return Program(self, f"10.0.3.{self._programs}", handler, topics, options)

    def reader(self, topic: str, **settings: Any) -> Consumer:
        """Return a consumer of all records of a topic."""
        settings = {"isolation_level": "read_committed", "group_id": None} | settings
        return self.member(topic, host=f"10.0.4.{len(self.hosts)}", **settings)

    async def values(self, topic: str = "out", **settings: Any) -> list[Any]:
        """Return the committed records of a topic, up to its end."""
        found: list[Any] = []
        async with self.reader(topic, **settings) as reader:
            while records := await reader.getmany(timeout=15.0, max_records=100_000):
                found += [record for taken in records.values() for record in taken]
        return found

    async def copies(self, topic: str = "out", **settings: Any) -> list[int]:
        """Return the committed numbers of a topic, sorted."""
        return sorted(int(record.value) for record in await self.values(topic, **settings))

    async def _added(self, found: dict[str, list[str]]) -> list[Operation]:
        return [Copy("in", "out")] if self._copies(found) and await self._finished() else []

    def _judged(self, found: dict[str, list[str]]) -> set[str]:
        """Also topics that handlers fill, unless a value is there twice that is not a copy."""
        judged = {topic for topic, values in found.items() if not repeats(values)}
        if self._copies(found):
            judged.add("out")
        return judged - {topic for topic, sent in self._sent_to().items() if repeats(sent)}

    def _copies(self, found: dict[str, list[str]]) -> bool:
        return self._copies_only and not repeats(found.get("in", []))

    async def _finished(self) -> bool:
        """Whether the programs committed all records of "in"."""
        if "in" not in self._partitions:
            return False
        committed = await self.committed("in", self._partitions["in"])
        environment = self.world.environment("10.0.0.8")
        async with Cluster(SERVERS, _environment=environment) as cluster:
            ends = [
                await cluster.offsets(("in", n), "latest") for n in range(self._partitions["in"])
            ]
        return all(c == end.offset for c, end in zip(committed, ends, strict=True) if end)

    async def topics(self, partitions: int, *names: str) -> None:
        """Create "in", "out" and others."""
        for name in ("in", "out", *names):
            await self.topic(name, partitions)

    async def level(self, number: int) -> None:
        """Set the level of `transaction.version`; connections that are made later learn of it."""
        environment = self.world.environment("10.0.0.8")
        async with Admin(SERVERS, _environment=environment) as admin:
            update = FeatureUpdate(number, "upgrade" if number == 2 else "safe_downgrade")
            await admin.update_features({"transaction.version": update}, raise_errors=True)

    async def broker_config(self, topic: str, name: str, value: str) -> None:
        """Set a config of a topic."""
        environment = self.world.environment("10.0.0.8")
        async with Admin(SERVERS, _environment=environment) as admin:
            await admin.alter_configs({topic: {name: value}}, raise_errors=True)


def simulate(
    body: Callable[[ProcessWorld], Coroutine[Any, Any, Any]],
    *,
    seed: int = 1,
    settings: dict[str, str] | None = None,
) -> Outcome[Any]:
    """Run `body(world)` in virtual time, with a running broker."""

    return simulate_with(ProcessWorld, body, seed=seed, settings=settings)


async def settled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Wait for tasks that were killed."""
    await asyncio.gather(*tasks, return_exceptions=True)
