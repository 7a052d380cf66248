"""After a power cut a log is a prefix of its former content, with all flushed records."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from aiokq.records.header import iter_headers
from aiokq.records.record import iter_records
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker, batch

NEVER = 2**63 - 1
VALUE = 400_000
"""Two values fill a segment, so logs roll; closed segments are flushed in the background."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("produce"), st.integers(1, 2)),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.just("turns"), st.integers(1, 40)),
        st.tuples(st.just("flush every"), st.sampled_from([1, 2, 5, NEVER])),
    ),
    min_size=1,
    max_size=8,
)


async def until_online(broker: Broker) -> None:
    for _ in range(1000):
        if broker.node.topics.partition("t", 0).is_online:
            return
        await asyncio.sleep(0)
    raise AssertionError("the log is still not there")


async def read(broker: Broker) -> dict[int, bytes]:
    """Return the records of the partition by offset."""
    values: dict[int, bytes] = {}
    offset = 0
    end = broker.node.topics.partition("t", 0).log.high_watermark
    while offset < end:
        answer = await broker.fetch_one("t", 0, offset, max_bytes=100_000_000)
        assert answer.error_code == 0
        found = contents(answer.records)
        values |= found
        offset = max(found, default=offset) + 1
    return values


def contents(data: bytes) -> dict[int, bytes]:
    view = memoryview(data)
    values = {}
    position = 0
    for header in iter_headers(view):
        for record in iter_records(view[position : position + header.size], header):
            values[record.offset] = bytes(record.value or b"")
        position += header.size
    return values


@settings(max_examples=40, deadline=None)
@given(lives=st.lists(st.tuples(STEPS, st.integers(0, 2**32)), min_size=1, max_size=3))
def test_after_a_power_cut_a_log_is_a_prefix_with_all_flushed_records(lives) -> None:
    """With flush.messages=1 the prefix has every acknowledged record."""
    asyncio.run(play(lives))


async def play(lives: list[tuple[list[tuple[str, int]], int]]) -> None:
    files = MemoryFiles()
    acknowledged: dict[int, bytes] = {}
    every = NEVER
    for number, (steps, seed) in enumerate(lives):
        broker = Broker(files)
        await broker.node.open()
        if broker.node.topics.get("t") is None:
            await broker.create("t", segment_bytes=1048576)
        await until_online(broker)
        topic = broker.node.topics.get("t")
        log = topic.partitions[0].log

        async def produce(
            count: int, value: bytes, log=log, broker=broker, known=acknowledged
        ) -> None:
            end = log.log_end_offset
            answer = await broker.produce("t", batch(count, value=value))
            assert (answer.error_code, answer.base_offset) == (0, end)
            known.update(dict.fromkeys(range(end, end + count), value))

        for step, (kind, argument) in enumerate(steps):
            if kind == "produce":
                await produce(argument, b"%d.%d." % (number, step) + b"x" * VALUE)
                assert log.log_end_offset - log.recovery_point < every
            elif kind == "checkpoint":
                await broker.node.storage.save_recovery_points()
            elif kind == "turns":
                for _ in range(argument):
                    await asyncio.sleep(0)
            else:
                every = argument
                configs = {"segment.bytes": "1048576", "flush.messages": str(every)}
                await broker.node.metadata.alter_topic_configs(topic, lambda _, new=configs: new)
                await produce(1, b"%d.%d" % (number, step))
        flushed = log.recovery_point
        assert log.high_watermark == log.log_end_offset
        files.power_cut(random.Random(seed))
        await abandon(broker)
        again = Broker(files)
        await again.node.open()
        await until_online(again)
        found = await read(again)
        assert list(found) == list(range(len(found)))
        assert found.items() <= acknowledged.items()
        assert len(found) >= flushed
        if every == 1:
            assert found == acknowledged
        acknowledged = found
        await again.node.close()


async def abandon(broker: Broker) -> None:
    """Stop the tasks of a broker whose machine is gone, so that they no longer reach the disk."""
    try:
        await broker.node._supervisor.close()
        if broker.node._group_coordinator is not None:
            await broker.node._group_coordinator.close()
    finally:
        broker.node._storage = None
