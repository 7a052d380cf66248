"""aiokq's transactional producer on Apache Kafka, at each level of `transaction.version`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import confluent_kafka
import pytest

import aiokq
from aiokq import TransactionOutcome, wire
from aiokq.admin.features import FeatureUpdate
from aiokq.connection.connection import Connection
from aiokq.errors import ConnectionLost, ProducerFenced, TransactionAborted
from tests.interop.apache.support import create_topic, eventually
from tests.peers.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

LEVELS = [0, 1, 2]


@pytest.fixture
def cluster(transactional_node: ApacheKafka) -> ApacheKafka:
    return transactional_node


@pytest.fixture(params=LEVELS)
async def apache(cluster: ApacheKafka, request: pytest.FixtureRequest) -> ApacheKafka:
    """The node with one level of `transaction.version`."""
    level: int = request.param
    await set_level(cluster, level)
    return cluster


async def set_level(cluster: ApacheKafka, level: int) -> None:
    async with aiokq.Admin(cluster.bootstrap_servers) as admin:
        found = await admin.describe_features()
        feature = found.finalized_features.get("transaction.version")
        now = 0 if feature is None else feature.max_version_level
        if now != level:
            kind: Any = "upgrade" if level > now else "safe_downgrade"
            update = {"transaction.version": FeatureUpdate(level, kind)}
            await admin.update_features(update, raise_errors=True)

        async def settled() -> None:
            features = (await admin.describe_features()).finalized_features
            feature = features.get("transaction.version")
            assert (0 if feature is None else feature.max_version_level) == level

        await eventually(settled)


@asynccontextmanager
async def producer(apache: ApacheKafka, **settings: Any) -> AsyncIterator[aiokq.Producer]:
    settings = {"max_block_ms": 20_000, **settings}
    async with aiokq.Producer(apache.bootstrap_servers, **settings) as made:
        yield made


def committed_values(apache: ApacheKafka, topic: str, partitions: int = 1) -> list[bytes | None]:
    """Return what librdkafka reads as committed, up to the end of each partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": apache.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[bytes | None] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(partitions)])
        left = partitions
        while left:
            message = consumer.poll(20)
            assert message is not None, "the log has no end"
            error = message.error()
            if error is None:
                found.append(message.value())
            else:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                left -= 1
    finally:
        consumer.close()
    return found


def lose_answers(monkeypatch: pytest.MonkeyPatch, *apis: Any) -> list[Any]:
    """Lose the answer to the next request of each API, with its connection; return the losses."""
    original = Connection.send
    left, lost = list(apis), []

    def send(self: Connection, request: Any, **options: Any) -> Any:
        answer = original(self, request, **options)
        api = next((one for one in left if isinstance(request, one)), None)
        if api is None:
            return answer
        left.remove(api)
        lost.append(api)
        instead = asyncio.get_running_loop().create_future()

        def arrived(done: asyncio.Future[Any]) -> None:
            done.exception()
            loss = ConnectionLost("lost by the test", may_have_been_written=True)
            self.abort(loss)
            if not instead.done():
                instead.set_exception(loss)

        answer.add_done_callback(arrived)
        return instead

    monkeypatch.setattr(Connection, "send", send)
    return lost


async def test_committed_and_aborted_transactions(apache, topic):
    """Kafka and librdkafka agree with the producer on what is committed."""
    await create_topic(apache, topic, 2)
    async with producer(apache, transactional_id=f"id-{topic}") as p:
        expected = []
        for n in range(12):
            values = [b"%d.%d" % (n, i) for i in range(5)]
            if n % 3 == 1:
                with pytest.raises(ZeroDivisionError):
                    async with p.transaction() as txn:
                        for value in values:
                            await p.send(topic, value)
                        raise ZeroDivisionError
                assert await txn.outcome() is TransactionOutcome.ABORTED
            else:
                async with p.transaction() as txn:
                    await p.send_many(topic, [(value, value) for value in values])
                assert await txn.outcome() is TransactionOutcome.COMMITTED
                expected += values
        async with p.transaction():
            pass
    found = await asyncio.to_thread(committed_values, apache, topic, 2)
    assert sorted(map(bytes, found)) == sorted(expected)


async def test_lost_answers_of_each_request(apache, topic, monkeypatch):
    """Each request is carried out by Kafka and its answer lost; nothing is lost or doubled."""
    await create_topic(apache, topic)
    lost = lose_answers(
        monkeypatch,
        wire.InitProducerIdRequest,
        wire.AddPartitionsToTxnRequest,
        wire.ProduceRequest,
        wire.AddOffsetsToTxnRequest,
        wire.TxnOffsetCommitRequest,
        wire.EndTxnRequest,
        wire.EndTxnRequest,
    )
    async with producer(apache, transactional_id=f"id-{topic}") as p:
        for n in range(4):
            async with p.transaction() as txn:
                await p.send(topic, b"%d" % n)
                await txn.send_offsets({(topic, 0): n}, f"group-{topic}")
            await p.begin_transaction()
            await p.send(topic, b"aborted")
            await p.abort_transaction()
    assert len(lost) >= 5
    found = await asyncio.to_thread(committed_values, apache, topic)
    assert found == [b"0", b"1", b"2", b"3"]
    async with aiokq.Admin(apache.bootstrap_servers) as admin:
        offsets = await admin.list_group_offsets(f"group-{topic}", raise_errors=True)
    assert offsets[f"group-{topic}"].offsets[aiokq.TopicPartition(topic, 0)].offset == 3


async def test_a_newer_producer_fences_the_older_one(apache, topic):
    """Of the older producer nothing becomes visible, whatever it had open."""
    await create_topic(apache, topic)
    async with producer(apache, transactional_id=f"id-{topic}") as old:
        with pytest.raises(ProducerFenced):
            async with old.transaction() as txn:
                await old.send(topic, b"old")
                newer = producer(apache, transactional_id=f"id-{topic}")
                async with newer as new, new.transaction():
                    await new.send(topic, b"new")
        assert await txn.outcome() is TransactionOutcome.ABORTED
        with pytest.raises(ProducerFenced):
            await old.begin_transaction()
    assert await asyncio.to_thread(committed_values, apache, topic) == [b"new"]


async def test_a_transaction_that_takes_too_long_is_aborted_by_kafka(apache, topic):
    """The producer is told, and a new one goes on."""
    await create_topic(apache, topic)
    settings: Any = {"transactional_id": f"id-{topic}", "transaction_timeout_ms": 1000}
    async with producer(apache, **settings) as p:
        with pytest.raises((ProducerFenced, TransactionAborted, aiokq.KafkaError)):
            async with p.transaction():
                await p.send(topic, b"late")
                await asyncio.sleep(4)
    async with producer(apache, **settings) as p, p.transaction():
        await p.send(topic, b"next")
    assert await asyncio.to_thread(committed_values, apache, topic) == [b"next"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_consume_and_produce_with_both_group_protocols(apache, topic, protocol):
    """Offsets of the input and records of the output are committed together."""
    source, target, group = f"{topic}-in", f"{topic}-out", f"{topic}-group"
    await create_topic(apache, source)
    await create_topic(apache, target)
    async with producer(apache) as plain:
        await (await plain.send_many(source, [(None, b"%d" % n) for n in range(40)]))
    async with aiokq.Cluster(apache.bootstrap_servers) as cluster:
        consumer = cluster.consumer(
            source,
            group_id=group,
            group_protocol=protocol,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        async with consumer, cluster.producer(transactional_id=f"id-{topic}") as p:
            done = 0
            for aborts in (False, True, False, False):
                txn = await p.begin_transaction()
                for _ in range(10):
                    record = await consumer.getone()
                    await p.enqueue(target, record.value)
                await txn.send_offsets(consumer)
                if aborts:
                    await p.abort_transaction()
                    await consumer.seek_to_committed()
                else:
                    await p.commit_transaction()
                    done += 10
                assert await consumer.committed((source, 0)) == done
    found = await asyncio.to_thread(committed_values, apache, target)
    assert found == [b"%d" % n for n in range(30)]


@pytest.mark.parametrize("cluster_dies", ["before the commit", "during the commit"])
async def test_a_broker_that_is_killed_in_a_transaction(cluster, topic, cluster_dies):
    """SIGKILL and a new start: the transaction commits, and the next one works."""
    await set_level(cluster, 2)
    await create_topic(cluster, topic)
    async with producer(cluster, transactional_id=f"id-{topic}", max_block_ms=120_000) as p:
        txn = await p.begin_transaction()
        await p.send(topic, b"a")
        if cluster_dies == "before the commit":
            cluster.stop_node(1, signal.SIGKILL)
            commit = asyncio.create_task(p.commit_transaction())
        else:
            commit = asyncio.create_task(p.commit_transaction())
            await asyncio.sleep(0.001)
            cluster.stop_node(1, signal.SIGKILL)
        await asyncio.to_thread(cluster.start_node, 1)
        await commit
        assert await txn.outcome() is TransactionOutcome.COMMITTED
        async with p.transaction():
            await p.send(topic, b"b")
    assert await asyncio.to_thread(committed_values, cluster, topic) == [b"a", b"b"]


@pytest.mark.parametrize("idle_ms", [400, 540_000], ids=["reconnects", "connected"])
async def test_a_level_that_changes_while_the_producer_runs(cluster, topic, idle_ms):
    """Up and down again: every transaction commits, by the version it began with.

    A producer learns of the level when it connects. While it stays connected, it goes on with the
    version that it knows, as Java's does.

    Not down to 0: Kafka 4.2 cannot write the transaction's version into a record of that level.
    """
    await set_level(cluster, 1)
    await create_topic(cluster, topic)
    settings = {"transactional_id": f"id-{topic}", "connections_max_idle_ms": idle_ms}
    async with producer(cluster, **settings) as p:
        for n, level in enumerate((1, 2, 1, 2)):
            async with p.transaction():
                await p.send(topic, b"%d" % n)
                await set_level(cluster, level)
                await p.send(topic, b"%d" % n)
            await asyncio.sleep(1.2)  # so that connections are made again, which tell the level
    found = await asyncio.to_thread(committed_values, cluster, topic)
    assert found == [b"%d" % n for n in range(4) for _ in range(2)]
