"""Ordinary Produce requests: both code paths respond and store the same, byte for byte.

All files are compared, because some contain producer state, timestamps and epochs.
"""

from __future__ import annotations

import asyncio
import random
import struct

import pytest

from aiokq import wire
from aiokq.broker.handlers.h00_ordinary import OrdinaryProduce
from aiokq.connection.request_context import CloseConnection
from aiokq.core.errors import KafkaStorage, ProtocolError
from aiokq.fastpath import crc32c
from aiokq.fastpath.broker import read_produced
from tests.unit.broker.harness import NOW_MS, batch
from tests.unit.broker.transactional_client import TRANSACTIONAL, TransactionalClient, world

TOPICS = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "small": {"max_message_bytes": 120},
    "gzip": {"compression_type": "gzip"},
    "flushed": {"flush_messages": 2},
    "rolled": {"segment_ms": 1000},
}
"""Topics with two partitions each."""

USUAL = ["plain"] * 4 + ["rolled"] * 2

IDS = ["one", "two"]
"""The transactional ids."""

ATTRIBUTES = 22
"""The position of the low byte of a batch's attributes."""


def changed(data: bytes, position: int, value: int, mended: bool) -> bytes:
    position %= len(data)
    data = data[:position] + bytes([value]) + data[position + 1 :]
    if mended and len(data) > 21:
        data = data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]
    return data


class Commands:
    """Requests, most of them ordinary, and other events that affect their topics.

    They are drawn with weights, because nearly all requests drawn by a strategy would be invalid.
    """

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.sent = {}  # epoch, first sequence and count, by topic, partition, producer

    def __iter__(self):
        return (self.event() if self.rng.random() < 0.15 else self.request() for _ in range(60))

    def seldom(self, usual, *others):
        return usual if self.rng.random() < 0.97 else self.rng.choice(others)

    def event(self):
        topic = self.rng.choice(USUAL)
        what = self.rng.choice(["time", "time", "delete", "epoch", "alter", "alter", "add", "end"])
        if what in ("add", "end"):
            name = self.rng.choice(IDS)
            if what == "add":
                return what, name, topic, self.rng.randrange(2)
            return what, name, self.rng.random() < 0.5
        if what == "time":
            return what, self.rng.randrange(1, 2000)
        if what == "alter":
            return what, topic, self.rng.choice([*[{}] * 4, *TOPICS.values()])
        return self.seldom(what, "offline"), topic

    def request(self):
        acks = self.seldom(self.rng.choice([-1, 0, 1]), 2, -2)
        name = self.rng.choice([None, *IDS])
        version = self.rng.choice(range(3, 14) if name is None else [7, 11, 12, 12, 13, 13])
        version = self.seldom(version, 0, 2)
        counts = [0, 1, 1, 2, 2, 5] if name is None else [1, 1, 2]
        parts = [self.part(name) for _ in range(self.rng.choice(counts))]
        change = self.seldom(None, (self.rng.randrange(300), self.rng.randrange(256)))
        transactional_id = self.seldom(name, "t", "", None)
        client_id = self.seldom("c", None, "", "ä", "__admin_client")
        return version, acks, parts, change, transactional_id, client_id

    def part(self, name):
        if name is not None and self.rng.random() < 0.9:
            return self.transactional(name)
        topic = self.seldom(self.rng.choice(USUAL), *TOPICS, "absent", "__consumer_offsets")
        partition = self.seldom(self.rng.randrange(2), 2, -1)
        records = self.seldom(self.sound(), self.idempotent(topic, partition))
        if self.rng.random() < 0.5:
            records = self.idempotent(topic, partition)
        damaged = changed(
            records, self.rng.randrange(200), self.rng.randrange(256), self.rng.random() < 0.7
        )
        # codecs, LogAppendTime, transactional, control, and an unknown bit
        special = changed(records, ATTRIBUTES, self.rng.choice([1, 5, 8, 16, 32, 64]), True)
        others = [None, b"", records + records, records[:61], damaged, damaged, special, special]
        return topic, partition, self.seldom(records, *others)

    def sound(self):
        far = NOW_MS + 3_600_000
        return batch(
            self.rng.randrange(1, 4),
            key=self.rng.choice([None, b"k"]),
            timestamp_ms=self.seldom(
                self.rng.choice([-1, 0, NOW_MS, NOW_MS + 1500]), far, far + 1, far + 2000
            ),
            codec=self.seldom(self.rng.choice([0, 1, 2, 3]), 4),
        )

    def idempotent(self, topic, partition):
        producer = topic, partition, self.rng.randrange(2)
        epoch, first, count = self.sent.get(producer, (0, 0, 0))
        first += self.seldom(count, 0, 0, 0, -count, 9)  # next, retry, or invalid
        if self.rng.random() < 0.05:
            epoch, first = epoch + self.rng.choice([1, 1, -1]), self.rng.choice([0, 0, 3])
        count = self.rng.randrange(1, 3)
        self.sent[producer] = epoch, first, count
        return batch(
            count, producer_id=producer[2], producer_epoch=max(epoch, 0), base_sequence=first
        )

    def transactional(self, name):
        """Return a part whose producer and sequence are known only when it is sent."""
        topic = self.seldom(self.rng.choice(USUAL), *TOPICS)
        gap, later = self.seldom(0, -1, 9), self.seldom(0, 1, -1)
        attributes = self.seldom(TRANSACTIONAL, 0)
        records = name, self.rng.randrange(1, 3), gap, later, attributes
        return topic, self.rng.randrange(2), records


async def happen(broker, what, *arguments):
    """Apply an event between requests."""
    if what == "time":
        broker.clock.now_ms += arguments[0]
        return
    if what == "add":
        name, topic, partition = arguments
        await broker.producers[name].add(topic, partition)
        return
    if what == "end":
        name, committed = arguments
        await broker.producers[name].end(committed)
        return
    topic = broker.node.topics.get(arguments[0])
    if what == "alter":
        configs = {
            name.replace("_", "."): str(value)
            for name, value in (TOPICS[arguments[0]] | arguments[1]).items()
        }
        await broker.node.metadata.alter_topic_configs(topic, lambda _: configs)
        return
    partition = topic.partitions[0]
    if not partition.is_online:
        return
    if what == "delete":
        partition.log.delete_records(partition.log.high_watermark)  # compacted topics, too
    elif what == "epoch":
        partition.leader_epoch += 1
    else:
        partition.take_offline(KafkaStorage("its directory failed"))


def stored(files, directory):
    """Return the contents of all files below a directory, by path."""
    found = {}
    for name in files.listdir(directory):
        path = f"{directory}/{name}"
        if files.is_dir(path):
            found.update(stored(files, path))
        else:
            found[path] = files.read_bytes(path)
    return found


def in_transaction(broker, topic, partition, name, count, gap, later, attributes):
    """Return a batch that follows the producer's last one in a partition."""
    producer = broker.producers[name]
    found = broker.node.topics.partition(topic, partition)
    before = found.log.producers.get(producer.producer_id) if found.is_online else None
    follows = before is not None and before.producer_epoch == producer.epoch
    return batch(
        count,
        attributes=attributes,
        producer_id=producer.producer_id,
        producer_epoch=max(producer.epoch + later, 0),
        base_sequence=max((before.last_sequence + 1 if follows else 0) + gap, 0),
    )


def encoded(broker, version, acks, parts, change, transactional_id, client_id):
    topics: dict[str, list[wire.PartitionProduceData]] = {}
    for topic, partition, records in parts:
        if isinstance(records, tuple):
            records = in_transaction(broker, topic, partition, *records)
        data = wire.PartitionProduceData(index=partition, records=records)
        topics.setdefault(topic, []).append(data)
    request = wire.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        transactional_id=transactional_id if version >= 3 else None,
        topic_data=[
            wire.TopicProduceData(
                partition_data=data,
                **({"topic_id": broker.ids[topic]} if version >= 13 else {"name": topic}),
            )
            for topic, data in topics.items()
            if version < 13 or topic in broker.ids
        ],
    )
    fragments = wire.encode_request(request, version=version, correlation_id=3, client_id=client_id)
    frame = bytearray(b"".join(map(bytes, fragments))[4:])
    if change is not None:
        position, value = change
        frame[4 + position % (len(frame) - 4)] = value
    return bytes(frame)


async def answers(commands, ordinary):
    """Return the responses to the requests, the counters and the files."""
    async with world() as broker:
        node = broker.node
        node.dispatcher._ordinary = ordinary(
            node.topics,
            node.transaction_coordinator,
            broker.clock,
            node.gate,
            node.counters,
        )
        broker.ids = {}
        for topic, configs in TOPICS.items():
            broker.ids[topic] = await broker.create(topic, 2, **configs)
        broker.producers = {name: TransactionalClient(broker, name) for name in IDS}
        for producer in broker.producers.values():
            assert await producer.initialize() == 0
        found = []
        for command in commands:
            if isinstance(command[0], str):
                await happen(broker, *command)
                continue
            frame = encoded(broker, *command)
            try:
                found.append(await broker.frame(frame))
            except (CloseConnection, ProtocolError) as error:
                found.append(type(error))
        counters = broker.node.counters
        found.append((counters.batches_appended, counters.records_appended))
        found.append((counters.record_bytes_appended, dict(counters.errors)))
        for topic in TOPICS:
            for partition in broker.node.topics.get(topic).partitions:
                if partition.is_online:
                    log = partition.log
                    producers = [
                        [getattr(entry, name) for name in entry.__slots__]
                        for entry in log.producers
                    ]
                    found.append((log.log_end_offset, log.high_watermark, producers))
    return found, stored(broker.files, "/data")


@pytest.mark.parametrize("seed", range(25))
def test_both_code_paths_respond_and_store_the_same(seed):
    """If only one of them has a rule, it refuses requests that the other one accepts."""
    answered, of_transactions = [], []

    class Noting(OrdinaryProduce):
        def answer(self, *request):
            answer = super().answer(*request)
            answered.append(answer is not None)
            if answer is not None and read_produced(request[1])[2] in IDS and self.appended:
                of_transactions.append(request)
            return answer

    class Never(OrdinaryProduce):
        def answer(self, *request):
            return None

    ordinary = asyncio.run(answers(Commands(seed), Noting))
    general = asyncio.run(answers(Commands(seed), Never))
    for one, other in zip(ordinary, general, strict=True):
        assert one == other
    assert answered.count(True) > 5
    assert answered.count(False) > 3
    assert len(of_transactions) > 1
