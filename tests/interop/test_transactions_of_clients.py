"""Transactions of confluent-kafka and aiokafka on our broker, at each `transaction.version`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

import aiokq
from aiokq.testing import (
    Assign,
    EndTransaction,
    Isolation,
    Outcome,
    Poll,
    Polled,
    Recorder,
    Send,
    confluent_delivery,
    confluent_end,
    confluent_poll,
)
from tests.interop.apache.test_transactions import set_level
from tests.peers.checked_topics import checked_copy, create_topics, fill

pytestmark = pytest.mark.timeout(200)

RECORDS = 600
PARTITIONS = 2
CHUNK = 50


@pytest.fixture(scope="module")
def cluster() -> Iterator[aiokq.EmbeddedCluster]:
    with aiokq.EmbeddedCluster() as running:
        yield running


@pytest.fixture(params=[pytest.param(0, marks=pytest.mark.full), 1, 2])
async def servers(cluster: aiokq.EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """The address of the broker, which has one level of `transaction.version`."""
    await set_level(cluster, request.param)  # type: ignore[arg-type]
    return cluster.bootstrap_servers


class ConfluentCopier:
    """A consume-transform-produce loop with librdkafka that aborts some of its transactions."""

    def __init__(self, servers: str, recorder: Recorder, topic: str) -> None:
        self.servers = servers
        self.recorder = recorder
        self.topic = topic

    def run(self) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        source, target, group = f"{self.topic}-in", f"{self.topic}-out", f"{self.topic}-group"
        chance = random.Random(1)
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
            }
        )
        producer = Producer(
            {"bootstrap.servers": self.servers, "transactional.id": f"{self.topic}-id"}
        )
        try:
            consumer.subscribe([source])
            producer.init_transactions(30)
            done, number = 0, 0
            while done < RECORDS:
                start = time.monotonic_ns()
                messages = consumer.consume(CHUNK, 5)
                assert messages, f"{done} of {RECORDS} records came"
                number += 1
                txn = f"confluent/{number}"
                self.recorder.add(
                    confluent_poll(
                        messages,
                        process="confluent",
                        group=group,
                        txn=txn,
                        start=start,
                        end=time.monotonic_ns(),
                    )
                )
                producer.begin_transaction()
                for message in messages:
                    assert message.error() is None, message.error()
                    producer.produce(
                        target, message.value(), message.key(), on_delivery=self.delivered(txn)
                    )
                aborts = chance.random() < 0.3
                start = time.monotonic_ns()
                if aborts:
                    producer.abort_transaction(30)
                    committed = consumer.committed(consumer.assignment(), 30)
                    for each in committed:
                        beginning = TopicPartition(each.topic, each.partition, 0)
                        consumer.seek(each if each.offset >= 0 else beginning)
                    now = time.monotonic_ns()
                    self.recorder.add(Assign("confluent", (), now, now))
                else:
                    producer.send_offsets_to_transaction(
                        consumer.position(consumer.assignment()),
                        consumer.consumer_group_metadata(),
                        30,
                    )
                    producer.commit_transaction(30)
                    done += len(messages)
                self.recorder.add(
                    confluent_end(
                        None,
                        process="confluent",
                        txn=txn,
                        commit=not aborts,
                        start=start,
                        end=time.monotonic_ns(),
                    )
                )
        finally:
            consumer.close()

    def delivered(self, txn: str) -> Any:
        start = time.monotonic_ns()

        def callback(error: object, message: Any) -> None:
            self.recorder.add(
                confluent_delivery(
                    error,
                    message,
                    process="confluent",
                    txn=txn,
                    start=start,
                    end=time.monotonic_ns(),
                )
            )

        return callback


async def test_confluent_kafka_copies_each_record_once(servers: str, topic: str) -> None:
    """librdkafka's transactions, a third of them aborted, with offsets of its group."""
    recorder = Recorder()
    source, target = f"{topic}-in", f"{topic}-out"
    await create_topics(servers, source, target, partitions=PARTITIONS)
    values = [f"{n}" for n in range(RECORDS)]
    await fill(servers, recorder, source, values, partitions=PARTITIONS)
    await asyncio.to_thread(ConfluentCopier(servers, recorder, topic).run)
    ends = [each for each in recorder.history if isinstance(each, EndTransaction)]
    assert {each.commit for each in ends} == {True, False}
    await checked_copy(servers, recorder, source, target, values, partitions=PARTITIONS)


async def test_aiokafka_copies_each_record_once(servers: str, topic: str) -> None:
    """aiokafka speaks the first version of transactions only, with the group's id alone."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    recorder = Recorder()
    source, target, group = f"{topic}-in", f"{topic}-out", f"{topic}-group"
    await create_topics(servers, source, target, partitions=PARTITIONS)
    values = [f"{n}" for n in range(RECORDS)]
    await fill(servers, recorder, source, values, partitions=PARTITIONS)
    chance = random.Random(1)
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=group,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"{topic}-id")
    await consumer.start()
    await producer.start()
    clock = time.monotonic_ns
    commits: set[bool] = set()
    try:
        done, number = 0, 0
        while done < RECORDS:
            start = clock()
            found = await consumer.getmany(timeout_ms=5000, max_records=CHUNK)
            records = [record for each in found.values() for record in each]
            assert records, f"{done} of {RECORDS} records came"
            number += 1
            txn = f"aiokafka/{number}"
            polled = [Polled(r.topic, r.partition, r.offset, r.value.decode()) for r in records]
            recorder.add(
                Poll("aiokafka", polled, Isolation.READ_COMMITTED, group, txn, start, clock())
            )
            await producer.begin_transaction()
            start = clock()
            sent = [(r, await producer.send(target, r.value, r.key)) for r in records]
            for record, future in sent:
                at = await future
                recorder.add(
                    Send(
                        "aiokafka", target, record.value.decode(), Outcome.OK,
                        at.partition, at.offset, txn, start, clock(),
                    )
                )  # fmt: skip
            commit = chance.random() > 0.3
            start = clock()
            if commit:
                offsets = {tp: got[-1].offset + 1 for tp, got in found.items()}
                await producer.send_offsets_to_transaction(offsets, group)
                await producer.commit_transaction()
                done += len(records)
            else:
                await producer.abort_transaction()
                for tp in consumer.assignment():
                    consumer.seek(tp, await consumer.committed(tp) or 0)
                recorder.add(Assign("aiokafka", (), clock(), clock()))
            commits.add(commit)
            recorder.add(EndTransaction("aiokafka", txn, commit, Outcome.OK, start, clock()))
    finally:
        await producer.stop()
        await consumer.stop()
    assert commits == {True, False}
    await checked_copy(servers, recorder, source, target, values, partitions=PARTITIONS)


async def test_our_process_copies_each_record_once(servers: str, topic: str) -> None:
    """`process()` with a handler that sometimes fails, and is called again."""
    recorder = Recorder()
    source, target = f"{topic}-in", f"{topic}-out"
    await create_topics(servers, source, target, partitions=PARTITIONS)
    values = [f"{n}" for n in range(RECORDS)]
    await fill(servers, recorder, source, values, partitions=PARTITIONS)
    failing = {b"%d" % n for n in range(10, RECORDS, 100)}

    def copy(record: aiokq.Record) -> aiokq.Outgoing:
        if record.value in failing:
            failing.discard(record.value)
            raise ValueError("fails once")
        return aiokq.Outgoing(target, record.value, record.key)

    stop = asyncio.Event()
    async with (
        aiokq.Cluster(servers) as cluster,
        cluster.consumer(
            target, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as reader,
    ):
        copying = asyncio.create_task(
            cluster.process(
                source,
                copy,
                group_id=f"{topic}-group",
                retries=3,
                max_records=CHUNK,
                stop=stop,
                consumer_settings={"auto_offset_reset": "earliest"},
            )
        )
        async with asyncio.timeout(60):
            for _ in range(RECORDS):
                await reader.getone()
        stop.set()
        report = await copying
    assert report.records == report.outputs == RECORDS
    assert not failing
    await checked_copy(servers, recorder, source, target, values, partitions=PARTITIONS)
