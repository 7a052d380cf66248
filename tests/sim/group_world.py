"""A world for group tests: a real broker on a machine that can crash, and members on others.

What the members do is recorded. When the body of a test has ended, its topics are read to their
ends, and the checker of `aiokq.testing` may condemn nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from aiokq.admin.client import Admin
from aiokq.client.cluster import Cluster
from aiokq.consumer.consumer import Consumer
from aiokq.producer.producer import Producer
from aiokq.testing import ObservedOffsets, Offset, Offsets, Operation, Poll, Recorder, Send, check
from aiokq.testing import Outcome as Known
from tests.peers.checked_topics import read_to_end
from tests.sim.harness.simulation import Outcome, Simulation, run
from tests.sim.recorded_member import RecordedMember
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


SETTLED_SECONDS = 90
"""Open transactions of killed programs time out within this time."""

W = TypeVar("W", bound="World")


class World:
    """One broker, and the machines of the members that a test creates.

    Attributes:
        all_read: whether members of groups have read every record when the test ends. If so, the
            checker condemns a record that none of them read.
        all_commits: whether only the members that `member` makes commit offsets. If so, the checker
            condemns any other committed offset.
    """

    def __init__(self, world: Simulation, broker: Broker) -> None:
        self.world = world
        self.random = world.random
        self.network = world.network
        self.broker = broker
        self.hosts: dict[Consumer, str] = {}
        self.all_read = False
        self.all_commits = False
        self.recorder = Recorder(clock=world.loop.time)
        self._sent: list[tuple[str, str, str, Any]] = []
        """Process, topic, value and delivery of each record that `produce` sent."""
        self._calls = 0
        self._partitions: dict[str, int] = {}
        """The topics that the checker can judge, with their numbers of partitions."""

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
        consumer = RecordedMember(
            self.recorder,
            f"member {len(self.hosts)} on {host}",
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
        self._partitions[name] = partitions

    async def grow(self, name: str, partitions: int) -> None:
        """Increase the number of partitions to `partitions`."""
        environment = self.world.environment("10.0.0.8")
        async with Admin(SERVERS, _environment=environment) as admin:
            await admin.create_partitions({name: partitions}, raise_errors=True)
        if name in self._partitions:
            self._partitions[name] = partitions

    async def recreate(self, name: str, partitions: int, *, gap: float = 0.0) -> None:
        """Delete a topic and recreate it `gap` seconds later."""
        self._partitions.pop(name, None)  # its offsets begin anew, which the checker cannot know
        environment = self.world.environment("10.0.0.8")
        async with Admin(SERVERS, _environment=environment) as admin:
            await admin.delete_topics(name, raise_errors=True)
            await asyncio.sleep(gap)
            await admin.create_topics(name, num_partitions=partitions, raise_errors=True)

    async def produce(self, topic: str, numbers: Iterable[int], partitions: int) -> None:
        """Produce numbers to the partitions in turn."""
        self._calls += 1
        process = f"producer {self._calls}"
        environment = self.world.environment("10.0.0.9")
        async with Producer(SERVERS, _environment=environment) as producer:
            for n in numbers:
                value = b"%d" % n
                delivery = await producer.enqueue(topic, value, partition=n % partitions)
                self._sent.append((process, topic, value.decode(), delivery))

    async def committed(self, topic: str, partitions: int, group_id: str = "g") -> list[int | None]:
        """Return the group's committed offsets, as a consumer outside the group sees them."""
        host = f"10.0.2.{len(self.hosts)}"
        async with self.member(group_id=group_id, host=host, enable_auto_commit=False) as outside:
            start = self.recorder.clock()
            found = [await outside.committed((topic, p)) for p in range(partitions)]
            offsets = tuple(Offset(topic, p, -1 if o is None else o) for p, o in enumerate(found))
            now = self.recorder.clock()
            self.recorder.add(ObservedOffsets(group_id, offsets, start, now, self.all_commits))
            return found

    async def judge(self) -> None:
        """Read the topics to their ends; fail if the checker condemns anything.

        The checker tells records apart by their values. A topic to which a value was sent twice is
        only checked for transactions that hang, and so is one that the test filled by other means
        than `produce`. A topic that was deleted, or created by other means, is not checked.
        """
        recorder = Recorder(clock=self.world.loop.time)
        environment = self.world.environment("10.0.0.8")
        found: dict[str, list[str]] = {}
        async with Cluster(SERVERS, _environment=environment) as cluster:
            for topic, partitions in self._partitions.items():
                await self._until_stable(cluster, topic, partitions)
                found[topic] = await read_to_end(cluster, recorder, topic, partitions=partitions)
        added, judged = await self._added(found), self._judged(found)
        last = [each for each in recorder.history if not (self.all_read and isinstance(each, Poll))]
        history = [*self._sends(), *self.recorder.history, *last, *added]
        report = check(each for each in map(about(judged), history) if each is not None)
        assert report.ok, str(report)

    async def _added(self, found: dict[str, list[str]]) -> list[Operation]:
        """Return further operations; `found` has the committed values of each topic."""
        return []

    def _judged(self, found: dict[str, list[str]]) -> set[str]:
        """Return the topics whose records can be told apart; `found` has what they contain."""
        sent = self._sent_to()
        return {topic for topic in found if topic in sent and not repeats(sent[topic])}

    def _sent_to(self) -> dict[str, list[str]]:
        """Return the values that `produce` sent, by topic."""
        sent: dict[str, list[str]] = {}
        for _, topic, value, _ in self._sent:
            sent.setdefault(topic, []).append(value)
        return sent

    def _sends(self) -> Iterator[Send]:
        """Yield the records that `produce` sent."""
        for process, topic, value, delivery in self._sent:
            if delivery.done() and not delivery.exception():
                meta = delivery.result()
                yield Send(process, topic, value, Known.OK, meta.partition, meta.offset)
            else:
                yield Send(process, topic, value, Known.UNKNOWN)

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


def repeats(values: list[str]) -> bool:
    """Whether a value is there twice."""
    return len(values) != len(set(values))


def about(topics: Iterable[str]) -> Callable[[Operation], Operation | None]:
    """Return a function that leaves other topics out of an operation; None if nothing is left."""
    wanted = frozenset(topics)

    def part(each: Operation) -> Operation | None:
        match each:
            case Send():
                return each if each.topic in wanted else None
            case Poll():
                records = tuple(r for r in each.records if r.topic in wanted)
                return each._replace(records=records) if records else None
            case Offsets() | ObservedOffsets():
                offsets = tuple(o for o in each.offsets if o.topic in wanted)
                return each._replace(offsets=offsets) if offsets else None
        return each

    return part


def simulate(
    body: Callable[[World], Coroutine[Any, Any, Any]],
    *,
    seed: int = 1,
    limit: float = 3600.0,
    settings: dict[str, str] | None = None,
) -> Outcome[Any]:
    """Run `body(world)` in virtual time, with a running broker; then judge what happened."""
    return simulate_with(World, body, seed=seed, limit=limit, settings=settings)


def simulate_with(
    kind: Callable[[Simulation, Broker], W],
    body: Callable[[W], Coroutine[Any, Any, Any]],
    *,
    seed: int = 1,
    limit: float = 3600.0,
    settings: dict[str, str] | None = None,
) -> Outcome[Any]:
    """Run `body` in a world of another kind; see `simulate`."""

    async def main(world: Simulation) -> Any:
        broker = Broker(world, SETTINGS | (settings or {}))
        await broker.start()
        try:
            w = kind(world, broker)
            value = await body(w)
            if broker.node is not None:
                await w.judge()
            return value
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
