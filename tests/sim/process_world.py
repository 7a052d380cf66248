"""A world for tests of process(): a real broker, and programs that copy records on machines.

When the body of a test has ended, its topics are read to their ends, and the checker of
aiokq.testing may condemn nothing in what the test sent and a consumer reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from aiokq.admin.client import Admin
from aiokq.admin.features import FeatureUpdate
from aiokq.client.cluster import Cluster
from aiokq.client.process.options import ProcessReport
from aiokq.consumer.consumer import Consumer
from aiokq.fastpath.produce import Outgoing
from aiokq.testing import Copy, Poll, Recorder, Send, check
from aiokq.testing import Outcome as Known
from tests.peers.checked_topics import read_to_end
from tests.sim.group_world import FAST, World
from tests.sim.group_world import simulate as simulate_group
from tests.sim.harness.simulation import Outcome
from tests.sim.test_whole_system import SERVERS

SETTLED_SECONDS = 90
"""Open transactions of killed programs time out within this time."""


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
        self._sent: list[tuple[str, str, Any]] = []
        """Topic, value and delivery of each record that `produce` sent."""
        self._programs = 0
        self._partitions: dict[str, int] = {}
        """The topics that the checker can judge."""
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

    async def topic(self, name: str, partitions: int) -> None:
        await super().topic(name, partitions)
        self._partitions[name] = partitions

    async def grow(self, name: str, partitions: int) -> None:
        await super().grow(name, partitions)
        self._partitions[name] = partitions

    async def recreate(self, name: str, partitions: int, *, gap: float = 0.0) -> None:
        self._partitions.pop(name)  # its offsets begin anew
        await super().recreate(name, partitions, gap=gap)

    def sent(self, topic: str, value: bytes, delivery: Any) -> None:
        self._sent.append((topic, value.decode(), delivery))

    def _sends(self) -> Iterator[Send]:
        """Yield the records that `produce` sent, as a history."""
        for topic, value, delivery in self._sent:
            if delivery.done() and not delivery.exception():
                meta = delivery.result()
                yield Send("source", topic, value, Known.OK, meta.partition, meta.offset)
            else:
                yield Send("source", topic, value, Known.UNKNOWN)

    async def judge(self) -> None:
        """Read the topics to their ends; fail if the checker condemns anything.

        The checker tells records apart by their values. A topic in which a value is repeated, by
        the test or by a handler, is only checked for transactions that hang.
        """
        recorder = Recorder(clock=self.world.loop.time)
        environment = self.world.environment("10.0.0.8")
        found: dict[str, list[str]] = {}
        async with Cluster(SERVERS, _environment=environment) as cluster:
            for topic, partitions in self._partitions.items():
                await self._until_stable(cluster, topic, partitions)
                found[topic] = await read_to_end(cluster, recorder, topic, partitions=partitions)
        copies = self._copies_only and not repeats(found.get("in", []))
        repeated = {
            topic
            for topic, values in found.items()
            if repeats(values) and not (copies and topic == "out")
        }
        history = [
            each
            for each in (*self._sends(), *recorder.history)
            if not (isinstance(each, Send) and each.topic in repeated)
            and not (isinstance(each, Poll) and each.records[0].topic in repeated)
        ]
        if copies and await self._finished():
            history.append(Copy("in", "out"))
        report = check(history)
        assert report.ok, str(report)

    async def _until_stable(self, cluster: Cluster, topic: str, partitions: int) -> None:
        """Wait until the transactions of killed programs have timed out."""
        for _ in range(SETTLED_SECONDS):
            found = [
                await cluster.offsets((topic, n), "latest", isolation_level=isolation)
                for n in range(partitions)
                for isolation in ("read_committed", "read_uncommitted")
            ]
            if found[::2] == found[1::2]:
                return
            await asyncio.sleep(1)

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

    async def main(world: World) -> Any:
        processes = ProcessWorld(world.world, world.broker)
        value = await body(processes)
        if world.broker.node is not None:
            await processes.judge()
        return value

    return simulate_group(main, seed=seed, settings=settings)


def repeats(values: list[str]) -> bool:
    """Whether a value is there twice."""
    return len(values) != len(set(values))


async def settled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Wait for tasks that were killed."""
    await asyncio.gather(*tasks, return_exceptions=True)
