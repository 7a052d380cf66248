"""aiokq's clients while librdkafka's mock cluster injects faults: errors, silence, moves.

The mock brokers are not aiokq's, so the effects of an error (record written or not, connection open
or closed) are an independent implementation's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

import aiokq
from aiokq import errors
from aiokq.wire import (
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
)
from tests.peers.mock_cluster import MockCluster, mock_cluster

PRODUCE, FETCH = ProduceRequest.API_KEY, FetchRequest.API_KEY
METADATA, LIST_OFFSETS = MetadataRequest.API_KEY, ListOffsetsRequest.API_KEY
INIT_PRODUCER_ID = InitProducerIdRequest.API_KEY

LEADER_NOT_AVAILABLE = 5
NOT_LEADER = 6
REQUEST_TIMED_OUT = 7
COORDINATOR_LOADING = 14
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
TOPIC_AUTHORIZATION_FAILED = 29
KAFKA_STORAGE_ERROR = 56
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
CLOSE = MockCluster.TRANSPORT

RETRIED = {
    "not the leader": NOT_LEADER,
    "timed out": REQUEST_TIMED_OUT,
    "not enough replicas": NOT_ENOUGH_REPLICAS,
    "closed": CLOSE,
    "storage": KAFKA_STORAGE_ERROR,
}
SECONDS = 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with mock_cluster(brokers=3) as running:
        yield running


@pytest.fixture
def kafka(cluster: MockCluster, topic: str) -> Iterator[MockCluster]:
    """The mock cluster, with an empty `topic` of one partition that broker 1 leads."""
    cluster.create_topic(topic, 1, 3)
    cluster.set_leader(topic, 0, 1)
    yield cluster
    for api_key in (PRODUCE, FETCH, METADATA, LIST_OFFSETS, INIT_PRODUCER_ID):
        cluster.clear_errors(api_key)
    for node_id in (1, 2, 3):
        cluster.set_up(node_id)
        cluster.set_rtt(node_id, 0)


async def read(kafka: MockCluster, topic: str, count: int) -> list[bytes | None]:
    async with (
        asyncio.timeout(SECONDS),
        aiokq.Consumer(
            topic, bootstrap_servers=kafka, auto_offset_reset="earliest", fetch_max_wait_ms=100
        ) as consumer,
    ):
        records = [await consumer.getone() for _ in range(count)]
        assert [record.offset for record in records] == list(range(count))
        [end] = (await consumer.end_offsets(consumer.assignment())).values()
        assert end == count
        return [record.value for record in records]


@pytest.mark.parametrize(
    ("code", "in_flight"),
    [(code, 1) for code in RETRIED.values()] + [(c, 5) for c in RETRIED.values() if c != CLOSE],
    ids=[*(f"{name}, one in flight" for name in RETRIED), *(n for n in RETRIED if n != "closed")],
)
async def test_a_produce_error_that_passes_is_retried(
    kafka: MockCluster, topic: str, code: int, in_flight: int
) -> None:
    """Three requests fail with others in flight: nothing is lost, nothing is written twice.

    The mock cluster does not check sequences. It accepts a batch that follows a failed one, and
    accepts again a batch whose response was lost; Kafka would reject both. So order, and
    connections that close, are tested with one request in flight only.
    """
    sent = [b"%d" % n for n in range(500)]
    async with (
        asyncio.timeout(SECONDS),
        aiokq.Producer(
            kafka,
            batch_size=512,
            linger_ms=1,
            max_in_flight_requests_per_connection=in_flight,
        ) as producer,
    ):
        await producer.send(topic, sent[0])
        kafka.push_errors(PRODUCE, 0, code, 0, 0, code, code)
        metas = await (await producer.send_many(topic, [(None, v) for v in sent[1:]]))
    logged = await read(kafka, topic, 500)
    assert [logged[meta.offset] for meta in metas] == sent[1:]
    assert sorted(logged) == sorted(sent)
    if in_flight == 1:
        assert logged == sent


async def test_an_error_that_does_not_pass_reaches_who_waits_at_once(
    kafka: MockCluster, topic: str
) -> None:
    """A missing permission is no reason to wait for delivery_timeout_ms."""
    async with asyncio.timeout(SECONDS), aiokq.Producer(kafka) as producer:
        await producer.send(topic, b"first")
        kafka.push_errors(PRODUCE, TOPIC_AUTHORIZATION_FAILED)
        began = time.monotonic()
        with pytest.raises(errors.TopicAuthorization):
            await producer.send(topic, b"refused")
        assert time.monotonic() - began < 2
        await producer.send(topic, b"second")
    assert await read(kafka, topic, 2) == [b"first", b"second"]


async def test_a_leader_that_moves_takes_both_clients_along(kafka: MockCluster, topic: str) -> None:
    """Requests follow the metadata, records stay in order, nothing is read twice."""
    received: list[int] = []
    async with (
        asyncio.timeout(SECONDS),
        aiokq.Producer(kafka, linger_ms=1) as producer,
        aiokq.Consumer(
            topic, bootstrap_servers=kafka, auto_offset_reset="earliest", fetch_max_wait_ms=100
        ) as consumer,
        asyncio.TaskGroup() as tasks,
    ):

        async def consume() -> None:
            async for record in consumer:
                received.append(int(record.value))
                if received[-1] == 599:
                    break

        tasks.create_task(consume())
        for n in range(600):
            if n % 150 == 75:
                kafka.set_leader(topic, 0, n // 150 % 3 + 1)
            assert (await producer.send(topic, b"%d" % n)).offset == n
    assert received == list(range(600))


async def test_a_broker_that_goes_down_and_comes_back(kafka: MockCluster, topic: str) -> None:
    """Accepted records wait for the broker and are delivered when it is back."""
    async with asyncio.timeout(SECONDS), aiokq.Producer(kafka, linger_ms=1) as producer:
        await producer.send(topic, b"0")
        kafka.set_down(1)
        deliveries = [await producer.enqueue(topic, b"%d" % n) for n in range(1, 50)]
        await asyncio.sleep(0.5)
        assert not any(delivery.done() for delivery in deliveries)
        kafka.set_up(1)
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 50))
    assert await read(kafka, topic, 50) == [b"%d" % n for n in range(50)]


@pytest.mark.parametrize(
    "code",
    [NOT_LEADER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR, CLOSE],
    ids=["not the leader", "fenced epoch", "unknown epoch", "storage", "closed"],
)
async def test_a_fetch_error_that_passes_loses_and_doubles_nothing(
    kafka: MockCluster, topic: str, code: int
) -> None:
    """Half of the fetches fail while the log is read in small pieces."""
    sent = [b"%d" % n for n in range(300)]
    async with aiokq.Producer(kafka, batch_size=512, linger_ms=1) as producer:
        await (await producer.send_many(topic, [(None, value) for value in sent]))
    kafka.push_errors(FETCH, *[0, code] * 4)
    async with (
        asyncio.timeout(SECONDS),
        aiokq.Consumer(
            topic,
            bootstrap_servers=kafka,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=1024,
            fetch_max_wait_ms=100,
        ) as consumer,
    ):
        records = [await consumer.getone() for _ in sent]
    assert [(r.offset, r.value) for r in records] == list(enumerate(sent))


@pytest.mark.parametrize("code", [NOT_LEADER, LEADER_NOT_AVAILABLE, REQUEST_TIMED_OUT, CLOSE])
async def test_offsets_are_asked_for_again(kafka: MockCluster, topic: str, code: int) -> None:
    """A consumer cannot start without ListOffsets."""
    async with aiokq.Producer(kafka) as producer:
        await producer.send(topic, b"v")
    kafka.push_errors(LIST_OFFSETS, code, code)
    assert await read(kafka, topic, 1) == [b"v"]


@pytest.mark.parametrize("code", [COORDINATOR_LOADING, CLOSE])
async def test_a_producer_id_is_asked_for_again(kafka: MockCluster, topic: str, code: int) -> None:
    """The transaction coordinator, which assigns producer ids, is still loading."""
    kafka.push_errors(INIT_PRODUCER_ID, code, code)
    async with asyncio.timeout(SECONDS), aiokq.Producer(kafka) as producer:
        assert (await producer.send(topic, b"v")).offset == 0


async def test_a_topic_without_permission_says_so_and_stalls_no_other(
    kafka: MockCluster, topic: str
) -> None:
    """Metadata has an error for one topic: its records fail with it, others are delivered."""
    kafka.create_topic(f"{topic}-secret", 1, 1)
    kafka.topic_error(f"{topic}-secret", TOPIC_AUTHORIZATION_FAILED)
    async with asyncio.timeout(SECONDS), aiokq.Producer(kafka) as producer:
        refused = await producer.enqueue(f"{topic}-secret", b"v")
        assert (await producer.send(topic, b"v")).offset == 0
        with pytest.raises(errors.TopicAuthorization):
            await refused


async def test_slow_brokers_are_waited_for_and_slower_ones_given_up(
    kafka: MockCluster, topic: str
) -> None:
    """A delay below request_timeout_ms is tolerated; above it the request fails in time."""
    settings = {"request_timeout_ms": 1000, "delivery_timeout_ms": 2500, "linger_ms": 0}
    async with asyncio.timeout(SECONDS), aiokq.Producer(kafka, **settings) as producer:
        assert (await producer.send(topic, b"0")).offset == 0
        kafka.set_rtt(1, 400)
        assert (await producer.send(topic, b"1")).offset == 1
        kafka.set_rtt(1, 5000)
        began = time.monotonic()
        with pytest.raises(errors.KafkaError, match=r"within|in time"):
            await producer.send(topic, b"2")
        assert time.monotonic() - began < 5


async def test_reading_goes_on_at_the_replica_that_the_leader_names(
    kafka: MockCluster, topic: str
) -> None:
    """KIP-392: the consumer reads from broker 2 as directed, and from the leader when 2 is gone."""
    async with aiokq.Producer(kafka) as producer:
        for n in range(10):
            await producer.send(topic, b"%d" % n)
        kafka.set_follower(topic, 0, 2)
        async with (
            asyncio.timeout(SECONDS),
            aiokq.Consumer(
                topic,
                bootstrap_servers=kafka,
                auto_offset_reset="earliest",
                client_rack="near-2",
                fetch_max_wait_ms=100,
            ) as consumer,
        ):
            records = [await consumer.getone() for _ in range(10)]
            [health] = consumer.health().partitions.values()
            assert health.node == 2
            kafka.set_follower(topic, 0, -1)
            kafka.set_down(2)
            await producer.send(topic, b"10")
            records.append(await consumer.getone())
            [health] = consumer.health().partitions.values()
            assert health.node != 2
    assert [int(record.value) for record in records] == list(range(11))
