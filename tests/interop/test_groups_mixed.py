"""One group with members of every client, each in a process of its own, on both brokers.

aiokq, Java (VerifiableConsumer), librdkafka, aiokafka and kafka-python share a topic with each
assignor that they have in common. The member that joins first leads and assigns for the others
until it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest

import aiokq
from tests.peers.apache_kafka import apache_kafka, why_absent
from tests.peers.broker_process import broker_process
from tests.peers.member_process import MemberProcess

REASON = why_absent()
pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(REASON is not None, reason=f"JAVA'S MEMBERS ARE NOT TESTED: {REASON}"),
]

PARTITIONS = 6
SECONDS = 40.0
SESSION_MS = {"aiokq": 2_000, "Apache Kafka": 6_000}
"""Milliseconds until a killed member is removed; Apache Kafka's default minimum."""

EVERY_MAKE = ("aiokq", "java", "confluent-kafka", "aiokafka", "kafka-python")
MAKES = {
    "range": EVERY_MAKE,
    "roundrobin": EVERY_MAKE,
    "sticky": ("aiokq", "java", "aiokafka", "kafka-python"),
    "cooperative-sticky": ("aiokq", "java", "confluent-kafka", "kafka-python"),
    "uniform": ("aiokq", "java", "confluent-kafka"),
    "server-range": ("aiokq", "java", "confluent-kafka"),
}
"""The clients that support each assignor; the last two assignors are the broker's (KIP-848)."""

MATRIX = [
    *(("range", leader) for leader in EVERY_MAKE),
    *(("roundrobin", leader) for leader in ("aiokq", "java")),
    *(("sticky", leader) for leader in MAKES["sticky"]),
    *(("cooperative-sticky", leader) for leader in MAKES["cooperative-sticky"]),
    ("uniform", "aiokq"),
    ("server-range", "java"),
]
"""Pairs of assignor and leader."""


def sessions(broker: str) -> dict[str, str]:
    """Return settings of the broker for the sessions of the consumer protocol."""
    return {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": str(SESSION_MS[broker]),
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "300",
    }


_numbers = itertools.count()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """aiokq's broker: its address and session timeout."""
    settings = [f"--set={name}={value}" for name, value in sessions("aiokq").items()]
    directory = tmp_path_factory.mktemp("broker")
    with broker_process(directory, "--profile", "dev", *settings) as broker:
        yield broker.bootstrap_servers, SESSION_MS["aiokq"]


@pytest.fixture(scope="module")
def theirs() -> Iterator[tuple[str, int]]:
    properties = {name.replace(".", "_"): value for name, value in sessions("Apache Kafka").items()}
    with apache_kafka(1, **properties) as cluster:
        yield cluster.bootstrap_servers, SESSION_MS["Apache Kafka"]


@pytest.fixture(params=["aiokq", "Apache Kafka"])
def broker(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Address and session timeout of each broker, one after the other."""
    chosen: tuple[str, int] = request.getfixturevalue(
        "ours" if request.param == "aiokq" else "theirs"
    )
    return chosen


class Group:
    """A topic with a group, and the members that the test started."""

    def __init__(self, broker: tuple[str, int], assignor: str) -> None:
        self._servers, self._session_ms = broker
        self._assignor = assignor
        self._topic = f"mixed-{next(_numbers)}"
        self._produced = 0
        self._gone: list[int] = []
        self.members: list[MemberProcess] = []

    async def prepare(self) -> None:
        async with aiokq.Admin(self._servers) as admin:
            await admin.create_topics(self._topic, num_partitions=PARTITIONS, raise_errors=True)

    async def produce_and_see(self, count: int = 60) -> None:
        """Produce to all partitions, and wait until some member has received each record."""
        new = range(self._produced, self._produced + count)
        async with aiokq.Producer(self._servers) as producer:
            for number in new:
                await producer.enqueue(self._topic, b"%d" % number, partition=number % PARTITIONS)
        self._produced = new.stop
        self.until(lambda: self._seen() >= set(range(self._produced)))

    def _seen(self) -> set[int]:
        return {*self._gone, *itertools.chain.from_iterable(m.received for m in self.members)}

    def start(self, *makes: str, assignor: str | None = None) -> None:
        group, assignor = f"g-{self._topic}", assignor or self._assignor
        self.members += [
            MemberProcess(make, self._servers, self._topic, group, assignor, self._session_ms)
            for make in makes
        ]

    def kill(self, member: MemberProcess) -> None:
        self.members.remove(member)
        member.kill()
        self._gone += member.received

    def leave(self, member: MemberProcess) -> None:
        self.members.remove(member)
        member.leave()
        self._gone += member.received

    def until(self, satisfied: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not satisfied():
            lost = [m for m in self.members if m.process.poll() is not None]
            assert not lost, lost
            assert time.monotonic() < deadline, self.members
            time.sleep(0.02)

    def settle(self) -> None:
        """Wait until each partition has one owner, and shares differ by one at most."""
        self.until(lambda: _shared([m.owned for m in self.members]))
        time.sleep(0.3)
        self.until(lambda: _shared([m.owned for m in self.members]))

    async def rewind(self, to: int) -> None:
        """Rewind all partitions, and wait until each record after `to` was received again."""
        while await self.offsets() != [self.committed()] * PARTITIONS:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        async with aiokq.Admin(self._servers) as admin:
            wanted = {aiokq.TopicPartition(self._topic, p): to for p in range(PARTITIONS)}
            results = await admin.rewind_group(f"g-{self._topic}", wanted, raise_errors=True)
        assert {result.offset for result in results.values()} == {to}
        again = set(range(to * PARTITIONS, self._produced))
        self.until(lambda: self._seen_twice() >= again)

    def _seen_twice(self) -> set[int]:
        received = itertools.chain(self._gone, *(m.received for m in self.members))
        return {number for number, times in Counter(received).items() if times > 1}

    async def type(self) -> str:
        """Return the type of the group, which is its protocol."""
        async with aiokq.Admin(self._servers) as admin:
            described = await admin.describe_groups(f"g-{self._topic}", raise_errors=True)
        return described[f"g-{self._topic}"].type.value

    def committed(self) -> int:
        return self._produced // PARTITIONS

    async def offsets(self) -> list[int | None]:
        """Return the committed offsets by partition."""
        async with aiokq.Consumer(
            bootstrap_servers=self._servers, group_id=f"g-{self._topic}", enable_auto_commit=False
        ) as outside:
            return [await outside.committed((self._topic, p)) for p in range(PARTITIONS)]


def _shared(owned: Iterable[set[int]]) -> bool:
    sets = list(owned)
    sizes = [len(each) for each in sets]
    everything = set().union(*sets)
    return (
        everything == set(range(PARTITIONS))
        and sum(sizes) == PARTITIONS
        and max(sizes) - min(sizes) <= 1
    )


async def life(broker: tuple[str, int], assignor: str, leader: str, makes: Iterable[str]) -> None:
    """Run a leader alone, then all members; kill the leader, replace it; all members leave."""
    group = Group(broker, assignor)
    await group.prepare()
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [member.kill() for member in group.members])
        group.start(leader)
        group.settle()
        await group.produce_and_see()
        group.start(*(make for make in makes if make != leader))
        group.settle()
        await group.produce_and_see()
        group.kill(group.members[0])
        group.settle()
        await group.produce_and_see()
        group.start(leader)
        group.settle()
        await group.produce_and_see()
        while len(group.members) > 1:
            group.leave(group.members[0])
        group.settle()
        await group.produce_and_see()
        group.leave(group.members[0])
    assert await group.offsets() == [group.committed()] * PARTITIONS


async def test_every_make_in_one_group_on_our_broker(ours: tuple[str, int]) -> None:
    """aiokq leads: the other four clients must understand its assignment."""
    await life(ours, "roundrobin", "aiokq", EVERY_MAKE)


async def test_java_leads_ours_by_cooperative_rebalances(ours: tuple[str, int]) -> None:
    """KIP-429: aiokq's member must revoke what Java's leader takes, and rejoin."""
    await life(ours, "cooperative-sticky", "java", ("aiokq", "java", "confluent-kafka"))


async def test_ours_and_librdkafka_and_java_by_the_consumer_protocol(ours: tuple[str, int]) -> None:
    """In KIP-848 aiokq's broker tells the members what to revoke."""
    await life(ours, "uniform", "confluent-kafka", MAKES["uniform"])


async def rolled(broker: tuple[str, int], assignor: str, *makes: str) -> None:
    """Replace each member by one of the consumer protocol, and then by a classic one again.

    The first make leads. librdkafka must not: it copies the subscription's user data of Java's
    cooperative member into an assignment, and no broker can upgrade such a group.
    """
    group = Group(broker, assignor)
    await group.prepare()
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [member.kill() for member in group.members])
        group.start(makes[0])
        group.settle()
        group.start(*makes[1:])
        group.settle()
        await group.produce_and_see()
        assert await group.type() == "Classic"
        for there, type_ in (("uniform", "Consumer"), (assignor, "Classic")):
            for make in makes:
                group.start(make, assignor=there)
                group.settle()
                group.leave(group.members[0])
                group.settle()
                await group.produce_and_see()
            assert await group.type() == type_
        while group.members:
            group.leave(group.members[0])
    assert await group.offsets() == [group.committed()] * PARTITIONS


async def test_a_live_group_changes_its_protocol_both_ways(ours: tuple[str, int]) -> None:
    """Members are replaced one by one, with eager rebalances."""
    await rolled(ours, "range", "aiokq", "confluent-kafka")


async def test_java_changes_the_protocol_of_a_live_group(ours: tuple[str, int]) -> None:
    """The group changes with cooperative rebalances, and back."""
    await rolled(ours, "cooperative-sticky", "java")


@pytest.mark.full
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_every_make_changes_the_protocol(broker: tuple[str, int], assignor: str) -> None:
    """The same on both brokers."""
    await rolled(broker, assignor, *MAKES["uniform"])


async def rewound(broker: tuple[str, int], assignor: str, *makes: str) -> None:
    """Rewind a live group: members are removed and rejoin, and no commit undoes the rewind."""
    group = Group(broker, assignor)
    await group.prepare()
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [member.kill() for member in group.members])
        group.start(*makes)
        group.settle()
        await group.produce_and_see()
        await group.rewind(4)
        group.settle()
        await group.rewind(0)
        await group.produce_and_see()
        while group.members:
            group.leave(group.members[0])
    assert await group.offsets() == [group.committed()] * PARTITIONS


async def test_a_rewind_is_not_undone_by_who_commits_from_outside(ours: tuple[str, int]) -> None:
    """aiokafka, once removed, commits automatically from outside the group."""
    await rewound(ours, "range", "aiokafka", "aiokafka")


@pytest.mark.full
@pytest.mark.parametrize("make", EVERY_MAKE)
async def test_a_group_of_any_make_is_rewound(broker: tuple[str, int], make: str) -> None:
    """Each client alone, so that commits or late joins of others cannot hide what it does."""
    await rewound(broker, "range", make, make)


@pytest.mark.full
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_a_group_of_every_make_is_rewound(broker: tuple[str, int], assignor: str) -> None:
    """Eager members revoke everything to join; cooperative members keep what they can."""
    await rewound(broker, assignor, *MAKES[assignor])


@pytest.mark.full
@pytest.mark.parametrize(("assignor", "leader"), MATRIX, ids=map(" led by ".join, MATRIX))
async def test_members_of_every_make(broker: tuple[str, int], assignor: str, leader: str) -> None:
    """Each assignor that they share, led by each client, on both brokers."""
    await life(broker, assignor, leader, MAKES[assignor])
