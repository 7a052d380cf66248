"""Ordinary Produce requests: both ways to handle one answer and store the same, byte for byte."""

from __future__ import annotations

import asyncio
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from aiokq import wire
from aiokq.connection.context import CloseConnection
from aiokq.core.errors import ProtocolError
from aiokq.fastpath import crc32c
from tests.unit.broker.harness import NOW_MS, Broker, batch

TOPICS = {
    "plain": {},
    "compacted": {"cleanup_policy": "compact"},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "small": {"max_message_bytes": 120},
    "gzip": {"compression_type": "gzip"},
    "flushed": {"flush_messages": 2},
}
"""Two partitions each."""


def changed(data: bytes, position: int, value: int, mended: bool) -> bytes:
    position %= len(data)
    data = data[:position] + bytes([value]) + data[position + 1 :]
    if mended and len(data) > 21:
        data = data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]
    return data


sound = st.builds(
    batch,
    st.integers(1, 3),
    key=st.sampled_from([None, b"k"]),
    timestamp_ms=st.sampled_from([-1, 0, NOW_MS, NOW_MS + 3_599_999, NOW_MS + 3_600_001]),
    codec=st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
)
idempotent = st.builds(
    lambda count, producer, epoch, sequence: batch(
        count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
    ),
    st.integers(1, 2),
    st.integers(0, 1),
    st.integers(0, 1),
    st.integers(0, 5),
)
damaged = st.builds(
    changed, sound | idempotent, st.integers(0, 200), st.integers(0, 255), st.booleans()
)
part = st.tuples(
    st.sampled_from(["plain"] * 6 + [*TOPICS, "absent", "__consumer_offsets"]),
    st.sampled_from([0, 0, 1, 1, 2, -1]),
    st.one_of(sound, sound, idempotent, idempotent, damaged, st.sampled_from([None, b""])),
)
requests = st.lists(
    st.tuples(
        st.integers(0, 13),
        st.sampled_from([-1, -1, 1, 0, 2]),
        st.lists(part, max_size=4),
        st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 300), st.integers(0, 255))),
    ),
    max_size=8,
)


def encoded(broker, version, acks, parts, change):
    topics: dict[str, list[wire.PartitionProduceData]] = {}
    for topic, partition, records in parts:
        data = wire.PartitionProduceData(index=partition, records=records)
        topics.setdefault(topic, []).append(data)
    request = wire.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            wire.TopicProduceData(
                partition_data=data,
                **({"topic_id": broker.ids[topic]} if version >= 13 else {"name": topic}),
            )
            for topic, data in topics.items()
            if version < 13 or topic in broker.ids
        ],
    )
    fragments = wire.encode_request(request, version=version, correlation_id=3, client_id="c")
    frame = bytearray(b"".join(map(bytes, fragments))[4:])
    if change is not None:
        position, value = change
        frame[4 + position % (len(frame) - 4)] = value
    return bytes(frame)


async def answers(commands, *, ordinary):
    """What becomes of requests: the answers, and then the logs."""
    async with Broker(**{"log.flush.interval.messages": 2**62}) as broker:
        if not ordinary:
            broker.node.dispatcher._ordinary = lambda node, frame: None
        broker.ids = {}
        for topic, configs in TOPICS.items():
            broker.ids[topic] = await broker.create(topic, 2, **configs)
        found = []
        for command in commands:
            frame = encoded(broker, *command)
            try:
                found.append(await broker.frame(frame))
            except (CloseConnection, ProtocolError) as error:
                found.append(type(error))
        for topic in TOPICS:
            for partition in broker.node.topics.get(topic).partitions:
                log = partition.log
                read = log.read(0, 1 << 20)
                found.append((log.log_end_offset, b"".join(f.read() for f in read.fragments)))
        found.append(dict(broker.node.counters.errors))
        counters = broker.node.counters
        found.append((counters.records_appended, counters.record_bytes_appended))
        return found


@given(requests)
@settings(max_examples=60, deadline=None)
def test_both_ways_answer_and_store_the_same(commands):
    """A rule that only one of them knows lets in what the other refuses."""
    one = asyncio.run(answers(commands, ordinary=True))
    assert one == asyncio.run(answers(commands, ordinary=False))
