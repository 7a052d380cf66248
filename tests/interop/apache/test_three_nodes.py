"""aiokq's clients on three nodes of Apache Kafka while leaders die, hang, restart and move."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

import aiokq
from aiokq import errors
from aiokq.cluster.events import (
    BrokerDown,
    BrokerUp,
    LeaderChanged,
    PartitionFailed,
    PartitionRecovered,
)
from tests.interop.apache.support import create_topic, eventually, logged_batches
from tests.interop.apache.workload import workload
from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent

pytestmark = [
    pytest.mark.kafka,
    # kafka-python itself reads its schemas with a deprecated function.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

REPLICAS = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
"""Partition n is led by node n + 1 in the normal state."""


@pytest.fixture(scope="module")
def cluster():
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    # A dead node must be noticed within 3 s.
    properties = {
        "broker_session_timeout_ms": "3000",
        "broker_heartbeat_interval_ms": "500",
        "min_insync_replicas": "2",
        "leader_imbalance_check_interval_seconds": "3600",
    }
    with apache_kafka(3, **properties) as running:
        yield running


@pytest.fixture
async def kafka(cluster):
    """Three nodes that are all in service, whatever the previous test did."""
    for node in cluster.ports:
        if node not in cluster.processes:
            await asyncio.to_thread(cluster.start_node, node)
    await all_in_service(cluster)
    yield cluster
    for node in cluster.processes:
        cluster.resume_node(node)


async def all_in_service(kafka: ApacheKafka) -> None:
    async with aiokq.Admin(kafka.bootstrap_servers) as admin:

        async def registered() -> None:
            described = await admin.describe_cluster()
            assert len(described.brokers) == len(kafka.ports)

        await eventually(registered, 30)


async def in_sync(kafka: ApacheKafka, topic: str, replicas: int = 3) -> None:
    """Wait until every partition has `replicas` replicas in sync."""
    async with aiokq.Admin(kafka.bootstrap_servers) as admin:

        async def whole() -> None:
            described = (await admin.describe_topics(topic, raise_errors=True))[topic]
            assert {len(p.isr) for p in described.partitions} == {replicas}

        await eventually(whole, 40)


async def leader(kafka: ApacheKafka, topic: str, partition: int = 0) -> int:
    async with aiokq.Admin(kafka.bootstrap_servers) as admin:
        described = (await admin.describe_topics(topic, raise_errors=True))[topic]
        return described.partitions[partition].leader


async def test_a_killed_leader_loses_and_doubles_nothing(kafka, topic):
    """SIGKILL during a stream: with acks=all and idempotence each acknowledged record exists once.

    kafka4net's cases 2, 4, 5 and 7.
    """
    await create_topic(kafka, topic, assignments=REPLICAS)
    async with workload(kafka, topic, 3) as work:
        await work.until_received(300)
        await asyncio.to_thread(kafka.stop_node, 1, signal.SIGKILL)
        await work.until_received(1500)
    assert any(e.topic_partition == (topic, 0) for e in work.of(PartitionFailed))
    assert any(
        e.topic_partition == (topic, 0) and e.previous_leader == 1 and e.leader in (2, 3)
        for e in work.of(LeaderChanged)
    )
    assert any(
        e.topic_partition == (topic, 0) and e.leader in (2, 3) for e in work.of(PartitionRecovered)
    )
    assert any(e.node_id == 1 for e in work.of(BrokerDown))
    assert not any(e.topic_partition == (topic, 1) for e in work.of(PartitionFailed))


async def test_a_leader_that_hangs_is_left_and_cannot_add_what_it_wakes_up_with(kafka, topic):
    """SIGSTOP beyond its session: another node leads; the old one must not append late requests."""
    await create_topic(kafka, topic, assignments=REPLICAS)
    async with workload(kafka, topic, 3, request_timeout_ms=4000) as work:
        await work.until_received(200)
        kafka.pause_node(2)
        await asyncio.sleep(1)  # requests pile up in the stopped node's socket buffer
        before = work.received_count
        await work.until_received(1000)
        assert work.received_count - before >= 1000
        kafka.resume_node(2)
        await work.until_received(500)
    assert any(e.topic_partition == (topic, 1) for e in work.of(LeaderChanged))


async def test_a_consumer_reads_from_the_replica_in_its_rack(kafka, topic):
    """KIP-392: the leader names the replica in the client's rack; the leader replaces it."""
    await create_topic(kafka, topic, assignments={0: [1, 2, 3]})
    async with workload(kafka, topic, 1, client_rack="rack-3") as work:
        await work.until_received(50)

        async def from_the_follower() -> None:
            [health] = work.consumer.health().partitions.values()
            assert health.node == 3

        await eventually(from_the_follower)
        await work.until_received(200)
        await from_the_follower()
        await asyncio.to_thread(kafka.stop_node, 3, signal.SIGKILL)
        await work.until_received(300)
        [health] = work.consumer.health().partitions.values()
        assert health.node != 3


async def test_partitions_that_move_take_both_clients_along(kafka, topic):
    """Reassignment to other replicas, then election of the preferred leader, under load.

    kafka4net's cases 9 and 29.
    """
    from kafka import KafkaAdminClient, TopicPartition

    await create_topic(kafka, topic, assignments={0: [1, 2], 1: [2, 1]})
    admin = await asyncio.to_thread(KafkaAdminClient, bootstrap_servers=kafka.bootstrap_servers)
    try:
        async with workload(kafka, topic, 2) as work:
            await work.until_received(200)
            moves = {TopicPartition(topic, 0): [3, 2], TopicPartition(topic, 1): [3, 1]}
            refused = await asyncio.to_thread(admin.alter_partition_reassignments, moves)
            assert set(refused.values()) == {None}

            async def moved() -> None:
                assert [await leader(kafka, topic, n) for n in (0, 1)] == [3, 3]

            await eventually(moved, 30)
            await work.until_received(300)
            back = {TopicPartition(topic, 0): [2, 3], TopicPartition(topic, 1): [1, 3]}
            await asyncio.to_thread(admin.alter_partition_reassignments, back)

            async def reassigned() -> None:
                ongoing = await asyncio.to_thread(admin.list_partition_reassignments)
                assert not ongoing

            await eventually(reassigned, 30)
            await asyncio.to_thread(admin.elect_leaders, 0, {topic: [0, 1]}, raise_errors=False)

            async def elected() -> None:
                assert [await leader(kafka, topic, n) for n in (0, 1)] == [2, 1]

            await eventually(elected, 30)
            await work.until_received(300)
    finally:
        await asyncio.to_thread(admin.close)
    assert {(e.partition, e.leader) for e in work.of(LeaderChanged)} >= {(0, 3), (1, 3)}


@pytest.mark.full
async def test_a_rolling_restart_goes_unnoticed(kafka, topic):
    """Every node in turn is shut down cleanly and started again."""
    await create_topic(kafka, topic, assignments=REPLICAS)
    async with workload(kafka, topic, 3) as work:
        for node in (1, 2, 3):
            await work.until_received(100)
            await asyncio.to_thread(kafka.stop_node, node, signal.SIGTERM)
            await asyncio.to_thread(kafka.start_node, node)
            await in_sync(kafka, topic)
        await work.until_received(300)
    assert {e.node_id for e in work.of(BrokerDown)} == {1, 2, 3}
    assert {e.node_id for e in work.of(BrokerUp)} == {1, 2, 3}


@pytest.mark.full
async def test_a_start_with_a_node_down_that_comes_back_and_leads(kafka, topic):
    """The clients start while the leader is down; it returns and another node dies.

    kafka4net's cases 6 and 28.
    """
    await create_topic(kafka, topic, assignments={0: [1, 2, 3]})
    await asyncio.to_thread(kafka.stop_node, 1, signal.SIGKILL)
    async with workload(kafka, topic, 1) as work:
        offset = await work.cluster.offsets((topic, 0), "latest", timeout=20)
        assert offset is not None
        await work.until_received(200)
        await asyncio.to_thread(kafka.start_node, 1)
        await in_sync(kafka, topic)
        await asyncio.to_thread(kafka.stop_node, await leader(kafka, topic), signal.SIGKILL)
        await work.until_received(300)
    assert len(work.of(PartitionRecovered)) >= 1


@pytest.mark.full
async def test_without_enough_replicas_nothing_is_acknowledged(kafka, topic):
    """NOT_ENOUGH_REPLICAS is retried until the replica returns or the send expires."""
    await create_topic(kafka, topic, assignments={0: [1, 2]})
    await asyncio.to_thread(kafka.stop_node, 2, signal.SIGTERM)
    settings = {"delivery_timeout_ms": 2500, "request_timeout_ms": 2000}
    async with (
        aiokq.Producer(kafka.bootstrap_servers) as patient,
        aiokq.Producer(kafka.bootstrap_servers, **settings) as hasty,
    ):
        waiting = patient.send_nowait(topic, b"patient")
        started = time.monotonic()
        with pytest.raises(errors.KafkaError) as failure:
            await hasty.send(topic, b"hasty")
        assert 2 < time.monotonic() - started < 5
        chain = [failure.value, failure.value.__cause__]
        assert any(isinstance(error, errors.NotEnoughReplicas) for error in chain), chain
        assert not waiting.done()
        await asyncio.to_thread(kafka.start_node, 2)
        assert (await asyncio.wait_for(waiting, 40)).offset == 0


@pytest.mark.full
@pytest.mark.parametrize("policy", ["none", "earliest"])
async def test_records_lost_by_an_unclean_election_are_told(kafka, topic, policy):
    """KIP-320: the log was truncated below the position.

    The consumer raises, or resets to where both logs agree.
    """
    await create_topic(
        kafka,
        topic,
        assignments={0: [1, 2]},
        min_insync_replicas=1,
        unclean_leader_election_enable=True,
    )
    settings = {"bootstrap_servers": kafka.bootstrap_servers, "request_timeout_ms": 4000}
    async with (
        aiokq.Cluster(**settings) as client,
        client.producer(acks=1) as producer,
        client.consumer(auto_offset_reset=policy) as consumer,
    ):
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 0)

        async def read(count: int) -> list[bytes]:
            async with asyncio.timeout(40):
                return [(await consumer.getone()).value for _ in range(count)]

        async with aiokq.Producer(**settings, acks="all") as careful:
            await in_sync(kafka, topic, 2)
            await (await careful.send_many(topic, [(None, b"kept %d" % n) for n in range(10)]))
        await asyncio.to_thread(kafka.stop_node, 2, signal.SIGTERM)
        for n in range(10):
            await producer.send(topic, b"lost %d" % n)
        assert len(await read(20)) == 20
        await asyncio.to_thread(kafka.stop_node, 1, signal.SIGKILL)
        await asyncio.to_thread(kafka.start_node, 2)
        metas = [await producer.send(topic, b"new %d" % n) for n in range(3)]
        assert [meta.offset for meta in metas] == [10, 11, 12]
        if policy == "none":
            with pytest.raises(errors.LogTruncated) as truncated:
                await read(1)
            assert truncated.value.position == 20
            assert truncated.value.divergent_offset == 10
            consumer.seek((topic, 0), truncated.value.divergent_offset)
        assert await read(3) == [b"new 0", b"new 1", b"new 2"]


@pytest.mark.full
async def test_an_idempotent_producer_goes_on_after_an_unclean_election(kafka, topic):
    """The log lost acknowledged records and the producer's sequences (KIP-360).

    Records that the new leader never had are lost, as the setting accepts. Later records are
    neither lost nor out of order, and are written once.
    """
    await create_topic(
        kafka,
        topic,
        assignments={0: [1, 2]},
        min_insync_replicas=1,
        unclean_leader_election_enable=True,
    )
    settings = {"bootstrap_servers": kafka.bootstrap_servers, "request_timeout_ms": 4000}
    async with (
        asyncio.timeout(90),
        aiokq.Producer(**settings, linger_ms=1) as producer,
        aiokq.Consumer(
            topic, **settings, auto_offset_reset="earliest", fetch_max_wait_ms=200
        ) as consumer,
    ):
        assert producer.settings.enable_idempotence
        await in_sync(kafka, topic, 2)
        for n in range(10):
            await producer.send(topic, b"kept %d" % n)
        await asyncio.to_thread(kafka.stop_node, 2, signal.SIGTERM)
        for n in range(10):
            await producer.send(topic, b"lost %d" % n)
        assert len([await consumer.getone() for _ in range(20)]) == 20
        await asyncio.to_thread(kafka.stop_node, 1, signal.SIGKILL)
        await asyncio.to_thread(kafka.start_node, 2)
        deliveries = [await producer.enqueue(topic, b"new %d" % n) for n in range(100)]
        offsets = [(await delivery).offset for delivery in deliveries]
        assert offsets == list(range(10, 110))
        # The consumer had read past the truncation; it resumes in order where both logs agree.
        read = [(await consumer.getone()).value for _ in range(100)]
        assert read == [b"new %d" % n for n in range(100)]
    epochs = {batch.producer_epoch for batch in logged_batches(kafka, topic, node=2)}
    assert len(epochs) <= 2, "the epoch is bumped once, if at all"


@pytest.mark.full
@pytest.mark.timeout(240)
async def test_every_leader_killed_in_turn(kafka, topic):
    """SIGKILL of one node after the other under load; each returns before the next one dies."""
    await create_topic(kafka, topic, assignments=REPLICAS)
    async with workload(kafka, topic, 3) as work:
        for _ in range(3):
            await work.until_received(200)
            await asyncio.to_thread(kafka.stop_node, await leader(kafka, topic), signal.SIGKILL)
            await work.until_received(200)
            for each in (1, 2, 3):
                if each not in kafka.processes:
                    await asyncio.to_thread(kafka.start_node, each)
            await in_sync(kafka, topic)
        await work.until_received(300)
    assert len(work.of(LeaderChanged)) >= 3


@pytest.mark.full
async def test_all_nodes_gone_and_back(kafka, topic):
    """No node responds; when all are back, waiting records are delivered."""
    await create_topic(kafka, topic, assignments=REPLICAS)
    async with workload(kafka, topic, 3, interval=0.02) as work:
        await work.until_received(100)
        for node in (1, 2, 3):
            await asyncio.to_thread(kafka.stop_node, node, signal.SIGKILL)
        await asyncio.sleep(1)
        for node in (1, 2, 3):
            kafka.start_node(node, wait=False)
        await work.until_received(300)
    assert {e.node_id for e in work.of(BrokerDown)} == {1, 2, 3}


@pytest.mark.full
async def test_a_stopped_broker_is_unregistered_and_registers_itself_again(kafka):
    """The quorum tells who leads and who lags; a new start of the node needs no other step."""
    async with aiokq.Admin(kafka.bootstrap_servers) as admin:
        quorum = await admin.describe_metadata_quorum()
        assert [voter.replica_id for voter in quorum.voters] == [1, 2, 3]
        assert sorted(quorum.nodes) == [1, 2, 3]
        stopped = next(node for node in (3, 2) if node != quorum.leader_id)
        await asyncio.to_thread(kafka.stop_node, stopped)

        async def registered() -> dict[int, bool]:
            described = await admin.describe_cluster(include_fenced_brokers=True)
            return {broker.node_id: broker.fenced for broker in described.brokers}

        async def is_fenced() -> None:
            assert (await registered())[stopped]

        await eventually(is_fenced, 30)
        await admin.unregister_broker(stopped)

        async def is_gone() -> None:
            assert stopped not in await registered()

        await eventually(is_gone)
        with pytest.raises(errors.BrokerIdNotRegistered):
            await admin.unregister_broker(stopped)
        await asyncio.to_thread(kafka.start_node, stopped)
    await all_in_service(kafka)
