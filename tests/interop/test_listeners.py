"""Other clients on each of two listeners of `aiokq broker`."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.peers.broker_process import BrokerProcess, broker_process
from tests.peers.other_clients import CLIENTS, Content

# kafka-python itself reads its schemas with a deprecated function.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_numbers = itertools.count()
NAMES = ("PLAINTEXT", "INNER")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with broker_process(
        tmp_path_factory.mktemp("broker"),
        *("--profile", "dev", "--set", "log.retention.ms=-1"),  # the records are old
        *("--set", "listeners=PLAINTEXT://127.0.0.1:0,INNER://127.0.0.1:0"),
        *("--set", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT"),
    ) as running:
        yield running


def addresses(broker: BrokerProcess) -> dict[str, str]:
    found = broker.info["listeners"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("make", ["confluent-kafka", "aiokafka", "kafka-python"])
@pytest.mark.parametrize(("writes", "reads"), [NAMES, NAMES[::-1]])
def test_what_is_written_by_one_listener_is_read_by_the_other(broker, make, writes, reads):
    """Both listeners serve the same log."""
    topic = f"listeners-{next(_numbers)}"
    write, read = CLIENTS[make]
    records = [Content(b"k%d" % n, b"v%d" % n, (), 1_700_000_000_000 + n) for n in range(50)]
    servers = addresses(broker)
    write(servers[writes], {topic: "none"}, records)
    assert read(servers[reads], [topic], len(records))[topic] == records


@pytest.mark.parametrize("name", NAMES)
def test_confluent_kafka_learns_of_the_listener_that_it_asked(broker, name):
    """librdkafka connects to the addresses in the Metadata response."""
    from confluent_kafka.admin import AdminClient

    server = addresses(broker)[name]
    found = AdminClient({"bootstrap.servers": server}).list_topics(timeout=20)
    assert [f"{one.host}:{one.port}" for one in found.brokers.values()] == [server]


@pytest.mark.parametrize("name", NAMES)
def test_kafka_python_learns_of_the_listener_that_it_asked(broker, name):
    """By its own Metadata request, and by DescribeCluster."""
    from kafka import KafkaAdminClient

    server = addresses(broker)[name]
    admin = KafkaAdminClient(bootstrap_servers=server)
    try:
        cluster = admin.describe_cluster()
    finally:
        admin.close()
    assert [f"{one['host']}:{one['port']}" for one in cluster["brokers"]] == [server]


@pytest.mark.parametrize("name", NAMES)
def test_a_group_of_aiokafka_finds_its_coordinator_by_the_listener_that_it_asked(broker, name):
    """FindCoordinator names the listener, and all group requests use that connection."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition

    topic, server = f"listeners-{next(_numbers)}", addresses(broker)[name]
    write, _ = CLIENTS["aiokafka"]
    write(server, {topic: "none"}, [Content(None, b"v", (), 1_700_000_000_000)])

    async def main() -> tuple[bytes | None, int | None]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=server, group_id=f"g-{topic}", auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            record = await consumer.getone()
            await consumer.commit()
            committed = await consumer.committed(TopicPartition(topic, 0))
        finally:
            await consumer.stop()
        return record.value, committed

    assert asyncio.run(main()) == (b"v", 1)
