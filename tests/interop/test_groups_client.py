"""aiokq's members beside other clients in one group, on aiokq's broker and on Apache Kafka."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any

import pytest

import aiokq
from tests.interop.test_groups_broker import CLASSIC, PARTITIONS, ConsumerProtocolMember, Member
from tests.peers.broker_process import broker_process

# kafka-python itself reads its schemas with a deprecated function.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_numbers = itertools.count()


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("broker"), "--profile", "dev") as running:
        yield running.bootstrap_servers


@pytest.fixture(params=["aiokq", "Apache Kafka"])
def servers(request) -> str:
    """The addresses of both brokers, one after the other."""
    if request.param == "aiokq":
        return request.getfixturevalue("ours")
    return request.getfixturevalue("apache").bootstrap_servers


class Ours:
    """A member of aiokq that its own task reads."""

    def __init__(self, servers: str, topic: str, group: str, **settings: Any) -> None:
        self.received: list[int] = []
        if settings.get("group_protocol") != "consumer":
            settings = {
                "heartbeat_interval_ms": 200,
                "partition_assignment_strategy": ["range", "roundrobin", "cooperative-sticky"],
            } | settings
        self.consumer = aiokq.Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            **settings,
        )
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        async with self.consumer:
            async for record in self.consumer:
                self.received.append(int(record.value))

    @property
    def owned(self) -> int:
        return len(self.consumer.assignment())

    async def close(self) -> None:
        await self.consumer.close()
        await self._task


async def until(condition: Any, seconds: float = 40.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  peers have no event for this
            await asyncio.sleep(0.05)


async def prepared(servers: str) -> str:
    """Create a topic and return its name."""
    topic = f"client-groups-{next(_numbers)}"
    async with aiokq.Admin(servers) as admin:
        await admin.create_topics(topic, num_partitions=PARTITIONS, raise_errors=True)
    return topic


async def produce(servers: str, topic: str, numbers: Iterable[int]) -> None:
    async with aiokq.Producer(servers) as producer:
        for number in numbers:
            await producer.enqueue(topic, b"%d" % number, partition=number % PARTITIONS)


async def together(servers: str, make: Any, **settings: Any) -> None:
    """Three members, two of them aiokq's; then one of aiokq's leaves, then the other client."""
    topic = await prepared(servers)
    await produce(servers, topic, range(100))
    group = f"g-{topic}"
    first = Ours(servers, topic, group, **settings)
    other = Member(make, servers, topic, group)
    second = Ours(servers, topic, group, **settings)
    members = [first, other, second]
    received = set()

    def all_received(count: int) -> bool:
        for member in members:
            received.update(member.received)
        return len(received) == count

    def shared(*among: Any) -> bool:
        return sum(m.owned for m in among) == PARTITIONS and all(m.owned for m in among)

    await until(lambda: shared(*members))
    await produce(servers, topic, range(100, 200))
    await until(lambda: all_received(200))
    await first.close()
    await until(lambda: shared(other, second))
    await produce(servers, topic, range(200, 300))
    await until(lambda: all_received(300))
    await asyncio.to_thread(other.commit)
    await asyncio.to_thread(other.close)
    await until(lambda: second.owned == PARTITIONS)
    await produce(servers, topic, range(300, 400))
    await until(lambda: all_received(400))
    await second.close()
    async with aiokq.Consumer(bootstrap_servers=servers, group_id=group) as outside:
        committed = [await outside.committed((topic, p)) for p in range(PARTITIONS)]
    assert committed == [400 // PARTITIONS] * PARTITIONS


@pytest.mark.parametrize("peer", CLASSIC)
async def test_a_classic_group_with_another_client(servers: str, peer: str) -> None:
    """Whoever leads assigns for both clients; each decodes what the other encoded."""
    await together(servers, CLASSIC[peer])


async def test_a_group_of_the_consumer_protocol_with_librdkafka(servers: str) -> None:
    """KIP-848: the broker assigns."""
    await together(servers, ConsumerProtocolMember, group_protocol="consumer")


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_members_of_ours_by_each_strategy(servers: str, strategy: str) -> None:
    """No member dies, so nothing is read twice."""
    topic = await prepared(servers)
    settings: dict[str, Any] = {"partition_assignment_strategy": strategy}
    members = [Ours(servers, topic, f"g-{topic}", **settings) for _ in range(3)]
    await until(lambda: sum(m.owned for m in members) == 4 and all(m.owned for m in members))
    await produce(servers, topic, range(200))
    await until(lambda: sum(len(m.received) for m in members) >= 200)
    await members.pop().close()
    await until(lambda: [m.owned for m in members] == [2, 2])
    received = [n for m in members for n in m.received]
    assert len(received) == len(set(received))
    for member in members:
        await member.close()


async def test_auto_takes_the_consumer_protocol(servers: str) -> None:
    """Both brokers support it."""
    topic = await prepared(servers)
    member = Ours(servers, topic, f"g-{topic}", group_protocol="auto")
    await until(lambda: member.owned == PARTITIONS)
    health = member.consumer.health().group
    assert health is not None
    assert health.member_id.startswith("aiokq-")
    await member.close()
