"""Unmodified clients as group members on `aiokq broker`, and Kafka's own tools on its groups."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import queue
import re
import signal
import threading
import time

import pytest

from tests.peers.apache_kafka import run_tool, why_absent
from tests.peers.broker_process import BrokerProcess, broker_process
from tests.peers.ports import free_ports

# kafka-python itself reads its schemas with a deprecated function, and leaves sockets open after
# failed connection attempts.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

REASON = why_absent()
java = pytest.mark.skipif(REASON is not None, reason=str(REASON))

PARTITIONS = 4
RECORDS = 200
SECONDS = 30.0
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def collected():
    """Collect objects that other clients left open here, and not in another test."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(tmp_path_factory.mktemp("broker"), "--profile", "dev") as running:
        yield running


@pytest.fixture
def topic(broker):
    """A topic with records 0 to RECORDS - 1 over its partitions."""
    name = f"groups-{next(_numbers)}"
    create(broker, name)
    produce(broker, name, range(RECORDS))
    return name


def create(broker: BrokerProcess, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(10)


def produce(broker: BrokerProcess, topic: str, numbers) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(20) == 0


# Members of each client: poll() returns the numbers received.


class ConfluentMember:
    def __init__(self, servers: str, topic: str, group: str, **settings: object) -> None:
        from confluent_kafka import Consumer

        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **({} if "group.protocol" in settings else {"heartbeat.interval.ms": 200}),
                **settings,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[int]:
        messages = self._consumer.consume(500, timeout=0.1)
        return [int(message.value()) for message in messages if not message.error()]

    def owned(self) -> int:
        return len(self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class ConsumerProtocolMember(ConfluentMember):
    """KIP-848: one heartbeat API replaces join, sync and heartbeat."""

    def __init__(self, servers: str, topic: str, group: str) -> None:
        super().__init__(servers, topic, group, **{"group.protocol": "consumer"})


class KafkaPythonMember:
    def __init__(self, servers: str, topic: str, group: str) -> None:
        from kafka import KafkaConsumer

        self._consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
        )
        self._consumer.subscribe([topic])
        # Load the metadata first. A kafka-python leader that does not know the topic assigns
        # nothing and never corrects that; Kafka's initial rebalance delay of three seconds hides
        # this. If it learns of the topic after assigning, it rejoins at the end of some fetch, and
        # if the poll that started the join ends before the response, it never reads the response
        # (3.0.12).
        self._consumer.topics()

    def poll(self) -> list[int]:
        chunks = self._consumer.poll(timeout_ms=100)
        return [int(record.value) for records in chunks.values() for record in records]

    def owned(self) -> int:
        return len(self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class AiokafkaMember:
    def __init__(self, servers: str, topic: str, group: str) -> None:
        from aiokafka import AIOKafkaConsumer

        self._loop = asyncio.new_event_loop()

        async def make() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=servers,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=200,
            )
            await consumer.start()
            return consumer

        self._consumer = self._loop.run_until_complete(make())

    def poll(self) -> list[int]:
        chunks = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=100))
        return [int(record.value) for records in chunks.values() for record in records]

    def owned(self) -> int:
        return len(self._consumer.assignment())

    def commit(self) -> None:
        self._loop.run_until_complete(self._consumer.commit())

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


CLASSIC = {
    "confluent-kafka": ConfluentMember,
    "aiokafka": AiokafkaMember,
    "kafka-python": KafkaPythonMember,
}
MEMBERS = {**CLASSIC, "confluent-kafka by the consumer protocol": ConsumerProtocolMember}


class Member:
    """A member that polls in its own thread, because an idle member delays rebalances."""

    def __init__(self, make, servers: str, topic: str, group: str, **settings: object) -> None:
        self.received: list[int] = []
        self.owned = 0
        self._arguments = (make, servers, topic, group, settings)
        self._asked: queue.Queue[tuple[str, queue.Queue[BaseException | None]]] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        make, servers, topic, group, settings = self._arguments
        member = make(servers, topic, group, **settings)
        done = ""
        while done != "close":
            self.received += member.poll()
            self.owned = member.owned()
            with contextlib.suppress(queue.Empty):
                done, answer = self._asked.get_nowait()
                try:
                    getattr(member, done)()
                except BaseException as error:
                    answer.put(error)
                else:
                    answer.put(None)

    def _ask(self, what: str) -> None:
        answer: queue.Queue[BaseException | None] = queue.Queue()
        self._asked.put((what, answer))
        error = answer.get(timeout=SECONDS)
        if error is not None:
            raise error

    def commit(self) -> None:
        self._ask("commit")

    def close(self) -> None:
        self._ask("close")
        self._thread.join(SECONDS)


def wait_until(satisfied, *members: Member) -> None:
    deadline = time.monotonic() + SECONDS
    while not satisfied():
        state = [(one.owned, len(one.received)) for one in members]
        assert time.monotonic() < deadline, f"partitions and records of each: {state}"
        time.sleep(0.02)


@pytest.mark.parametrize("make", MEMBERS.values(), ids=MEMBERS)
def test_a_member_commits_and_another_one_goes_on_from_there(broker, topic, make):
    """Join, sync, heartbeat, commit, leave; then a new member reads only what follows."""
    group = f"group-of-{topic}"
    member = Member(make, broker.bootstrap_servers, topic, group)
    wait_until(lambda: len(member.received) >= RECORDS, member)
    assert sorted(member.received) == list(range(RECORDS))
    assert member.owned == PARTITIONS
    member.commit()
    member.close()
    produce(broker, topic, range(RECORDS, RECORDS + 20))
    member = Member(make, broker.bootstrap_servers, topic, group)
    wait_until(lambda: len(member.received) >= 20, member)
    time.sleep(0.3)
    member.close()
    assert sorted(member.received) == list(range(RECORDS, RECORDS + 20))


@pytest.mark.parametrize("make", MEMBERS.values(), ids=MEMBERS)
def test_two_members_share_the_partitions_and_one_takes_over(broker, topic, make):
    """The group rebalances when the second member joins and when it leaves."""
    group = f"group-of-{topic}"
    first = Member(make, broker.bootstrap_servers, topic, group)
    wait_until(lambda: first.owned == PARTITIONS, first)
    second = Member(make, broker.bootstrap_servers, topic, group)
    wait_until(lambda: first.owned == second.owned == PARTITIONS // 2, first, second)
    second.close()
    wait_until(lambda: first.owned == PARTITIONS, first)
    first.close()


def test_members_of_three_makes_are_one_group(broker, topic):
    """They agree on an assignor that all of them support; each record goes to one of them."""
    group = f"group-of-{topic}"
    members = [Member(make, broker.bootstrap_servers, topic, group) for make in CLASSIC.values()]
    wait_until(lambda: sorted(one.owned for one in members) == [1, 1, 2], *members)
    produce(broker, topic, range(RECORDS, RECORDS + 100))

    def new() -> list[int]:
        return sorted(n for one in members for n in one.received if n >= RECORDS)

    wait_until(lambda: len(new()) >= 100, *members)
    assert new() == list(range(RECORDS, RECORDS + 100))
    for member in members:
        member.close()


def test_a_static_member_comes_back_without_a_rebalance(broker, topic):
    """KIP-345: librdkafka closes it without leaving; the other member sees no rebalance."""
    group = f"group-of-{topic}"

    def make(instance: str) -> Member:
        settings = {"group.instance.id": instance, "session.timeout.ms": 20000}
        return Member(ConfluentMember, broker.bootstrap_servers, topic, group, **settings)

    first, other = make("one"), make("two")
    wait_until(lambda: first.owned == other.owned == PARTITIONS // 2, first, other)
    first.close()
    began = time.monotonic()
    again = make("one")
    wait_until(lambda: again.owned == PARTITIONS // 2, again)
    assert time.monotonic() - began < 10
    assert other.owned == PARTITIONS // 2
    again.close()
    other.close()


def test_a_consumer_that_assigns_itself_commits_without_being_a_member(broker, topic):
    """Its generation is -1; librdkafka closes at once after its last commit."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": f"simple-{topic}"}
    consumer = Consumer(settings)  # commits automatically by default
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert len(consumer.consume(10, timeout=10)) == 10
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < 5
    consumer = Consumer(settings)
    [committed] = consumer.committed([TopicPartition(topic, 0)], timeout=10)
    assert committed.offset == 10
    consumer.close()


@pytest.mark.parametrize("make", MEMBERS.values(), ids=MEMBERS)
def test_offsets_and_members_survive_a_kill(tmp_path, make):
    """After SIGKILL and a restart on the same port the member continues and reads nothing twice."""
    [port] = free_ports(1)
    broker = BrokerProcess(tmp_path, "--profile", "dev", port=port)
    broker.start()
    try:
        create(broker, "t")
        produce(broker, "t", range(RECORDS))
        member = Member(make, broker.bootstrap_servers, "t", "g")
        wait_until(lambda: len(member.received) >= RECORDS, member)
        member.commit()
        broker.stop(signal.SIGKILL)
        broker.start()
        produce(broker, "t", range(RECORDS, RECORDS + 20))
        wait_until(lambda: set(member.received) >= set(range(RECORDS + 20)), member)
        member.commit()
        member.close()
        broker.stop(signal.SIGKILL)
        broker.start()
        member = Member(make, broker.bootstrap_servers, "t", "g")
        wait_until(lambda: member.owned == PARTITIONS, member)
        time.sleep(0.3)
        member.close()
        assert member.received == []
    finally:
        broker.stop()


# Kafka's own tools


def tool(broker: BrokerProcess, name: str, *arguments: str, ok: bool = True) -> str:
    done = run_tool(name, "--bootstrap-server", broker.bootstrap_servers, *arguments)
    assert not ok or done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def groups(broker: BrokerProcess, *arguments: str) -> str:
    return tool(broker, "consumer.group.ConsumerGroupCommand", *arguments)


@java
@pytest.mark.kafka
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_is_a_member(broker, topic, protocol):
    """Java's consumer in either protocol; it commits when it closes."""
    group = f"group-of-{topic}"
    options = (
        "--topic", topic, "--group", group, "--from-beginning",
        "--command-property", f"group.protocol={protocol}",
    )  # fmt: skip
    consumed = tool(
        broker, "consumer.ConsoleConsumer", *options, "--max-messages", str(RECORDS),
        "--timeout-ms", "20000",
    )  # fmt: skip
    assert sorted(map(int, consumed.split())) == list(range(RECORDS))
    again = tool(broker, "consumer.ConsoleConsumer", *options, "--timeout-ms", "3000", ok=False)
    assert again.split() == []


@java
@pytest.mark.kafka
def test_the_groups_command_lists_describes_resets_and_deletes(broker, topic):
    """Java's tools for listing, describing, resetting and deleting offsets and groups."""
    group = f"group-of-{topic}"
    settings = {"client.id": "me", "session.timeout.ms": 20000}
    member = Member(ConfluentMember, broker.bootstrap_servers, topic, group, **settings)
    wait_until(lambda: len(member.received) >= RECORDS, member)
    member.commit()
    listed = groups(broker, "--list", "--state", "Stable")
    assert re.search(rf"^{group}\s+Stable", listed, re.MULTILINE)
    described = groups(broker, "--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if line.startswith(group)]
    each = RECORDS // PARTITIONS
    assert sorted(row[2:6] for row in rows) == [
        [str(p), str(each), str(each), "0"] for p in range(PARTITIONS)
    ]
    assert all(row[-1] == "me" and row[-2] == "/127.0.0.1" for row in rows)
    members = groups(broker, "--describe", "--group", group, "--members", "--verbose")
    assert f"{topic}:0,1,2,3" in members.replace(f"{topic}(0,1,2,3)", f"{topic}:0,1,2,3")
    refused = groups(broker, "--delete", "--group", group)
    assert "GroupNotEmptyException" in refused
    member.close()
    reset = groups(
        broker, "--reset-offsets", "--group", group, "--topic", f"{topic}:1", "--to-offset", "7",
        "--execute",
    )  # fmt: skip
    assert re.search(rf"{group}\s+{topic}\s+1\s+7", reset)
    described = groups(broker, "--describe", "--group", group)
    assert re.search(rf"{topic}\s+1\s+7\s+{each}\s+{each - 7}", described)
    deleted = groups(broker, "--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    assert "successful" in deleted.lower() or "Successful" in deleted
    deleted = groups(broker, "--delete", "--group", group)
    assert "successful" in deleted
    assert group not in groups(broker, "--list").split()


@java
@pytest.mark.kafka
def test_kafkas_own_formatters_read_the_offsets_topic(broker, topic):
    """The records use Kafka's own schemas: its tools print exactly what was committed."""
    group = f"group-of-{topic}"
    member = Member(ConfluentMember, broker.bootstrap_servers, topic, group)
    wait_until(lambda: len(member.received) >= RECORDS, member)
    member.commit()
    member.close()

    def read(formatter: str) -> list[dict]:
        printed = tool(
            broker, "consumer.ConsoleConsumer", "--topic", "__consumer_offsets", "--partition", "0",
            "--offset", "earliest", "--timeout-ms", "3000",
            "--formatter", f"org.apache.kafka.tools.consumer.{formatter}", ok=False,
        )  # fmt: skip
        decoder, records, position = json.JSONDecoder(), [], 0
        printed = printed.strip()
        while position < len(printed):  # records are printed one after the other without separators
            record, position = decoder.raw_decode(printed, position)
            records.append(record)
        return records

    offsets = {
        record["key"]["data"]["partition"]: record["value"]["data"]["offset"]
        for record in read("OffsetsMessageFormatter")
        if record["key"]["data"]["group"] == group
    }
    assert offsets == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
    states = [
        record["value"]["data"]
        for record in read("GroupMetadataMessageFormatter")
        if record["key"]["data"]["group"] == group
    ]
    assert [(state["generation"], len(state["members"])) for state in states] == [
        (0, 0),
        (1, 1),
        (2, 0),
    ]
    assert states[1]["protocolType"] == "consumer"
