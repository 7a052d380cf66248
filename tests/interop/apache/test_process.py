"""`process()` on Apache Kafka, at each level of `transaction.version`."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

import aiokq
from tests.interop.apache.support import create_topic
from tests.interop.apache.test_transactions import committed_values, set_level

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(400)]

RECORDS = 200


class Copier:
    """A call of `process()` that copies a topic, in a task, with a cluster of its own."""

    def __init__(self, servers: str, topic: str, handler: Any = None, **options: Any) -> None:
        self.stop = asyncio.Event()
        self.topic = topic
        self.task = asyncio.create_task(
            aiokq.process(
                servers,
                [f"{topic}-in"],
                handler or self.copy,
                group_id=f"{topic}-group",
                stop=self.stop,
                **options,
            )
        )

    async def copy(self, record: aiokq.Record) -> aiokq.Outgoing:
        await asyncio.sleep(0.001)
        return aiokq.Outgoing(f"{self.topic}-out", record.value, partition=record.partition)

    async def end(self) -> aiokq.ProcessReport:
        self.stop.set()
        return await self.task


async def prepared(servers: Any, topic: str, *, records: int = RECORDS) -> None:
    """Create the topics, and write numbers into the first."""
    await create_topic(servers, f"{topic}-in", 2)
    await create_topic(servers, f"{topic}-out", 2)
    async with aiokq.Producer(servers.bootstrap_servers) as plain:
        numbers = [(b"%d" % (n % 7), b"%d" % n) for n in range(records)]
        await (await plain.send_many(f"{topic}-in", numbers))


async def until_committed(servers: str, topic: str, records: int = RECORDS) -> None:
    """Wait until the group has committed all records of its input."""
    async with aiokq.Admin(servers) as admin, asyncio.timeout(60):
        while True:
            found = (await admin.list_group_offsets(f"{topic}-group"))[f"{topic}-group"]
            done = sum(offset.offset for offset in found.offsets.values() if offset is not None)
            if done >= records:
                return
            await asyncio.sleep(0.2)


async def copies(servers: Any, topic: str) -> list[int]:
    """Return the committed numbers of the output, sorted, as librdkafka reads them."""
    found = await asyncio.to_thread(committed_values, servers, f"{topic}-out", 2)
    return sorted(int(value or b"-1") for value in found)


@pytest.mark.parametrize(
    ("level", "protocol"), [(0, "classic"), (1, "consumer"), (2, "classic"), (2, "consumer")]
)
async def test_each_record_is_copied_once_while_a_second_member_joins(
    transactional_node, topic, level, protocol
):
    """The first member commits before it hands a partition over."""
    node = transactional_node
    await set_level(node, level)
    await prepared(node, topic)
    options: Any = {
        "consumer_settings": {"group_protocol": protocol},
        "max_records": 20,
    }
    first = Copier(node.bootstrap_servers, topic, **options)
    await asyncio.sleep(0.5)
    second = Copier(node.bootstrap_servers, topic, concurrency=4, order_by="key", **options)
    await until_committed(node.bootstrap_servers, topic)
    reports = [await first.end(), await second.end()]
    assert sum(report.records for report in reports) == RECORDS
    assert sum(report.outputs for report in reports) == RECORDS
    assert await copies(node, topic) == list(range(RECORDS))


@pytest.mark.parametrize("level", [1, 2])
async def test_failed_records_are_retried_and_written_to_the_dead_letter_topic(
    transactional_node, topic, level
):
    """In the transactions that commit their offsets."""
    node = transactional_node
    await set_level(node, level)
    await prepared(node, topic, records=40)
    await create_topic(node, f"{topic}-dead")
    calls: dict[bytes, int] = {}

    def fails(record: aiokq.Record) -> aiokq.Outgoing:
        value = record.value or b""
        calls[value] = calls.get(value, 0) + 1
        if value == b"7" or (value == b"8" and calls[value] == 1):
            raise ValueError(f"attempt {calls[value]}")
        return aiokq.Outgoing(f"{topic}-out", value)

    copier = Copier(
        node.bootstrap_servers,
        topic,
        fails,
        retries=2,
        retry_backoff_ms=10,
        dead_letter_topic=f"{topic}-dead",
    )
    await until_committed(node.bootstrap_servers, topic, 40)
    report = await copier.end()
    assert (report.records, report.dead_letters) == (40, 1)
    assert (calls[b"7"], calls[b"8"]) == (3, 2)
    assert await copies(node, topic) == [n for n in range(40) if n != 7]
    assert await asyncio.to_thread(committed_values, node, f"{topic}-dead") == [b"7"]


@pytest.mark.full
@pytest.mark.parametrize("level", [1, 2])
async def test_each_record_is_copied_once_although_the_broker_is_killed(
    transactional_node, topic, level
):
    """SIGKILL in the middle, and a new start: whatever was not committed is done again."""
    node = transactional_node
    await set_level(node, level)
    await prepared(node, topic, records=2_000)
    copier = Copier(node.bootstrap_servers, topic, max_records=50)
    for _ in range(2):
        await asyncio.sleep(1.0)
        node.stop_node(1, signal.SIGKILL)
        await asyncio.to_thread(node.start_node, 1)
    await until_committed(node.bootstrap_servers, topic, 2_000)
    report = await copier.end()
    assert report.records == 2_000
    assert await copies(node, topic) == list(range(2_000))
