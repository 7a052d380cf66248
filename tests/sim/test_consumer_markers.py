"""Positions and commits where a log ends in markers and aborted records: the lag is 0 at rest.

A marker has an offset and is never delivered. The consumer, the producers and the broker are real.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import aiokq
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.core.types import TopicPartition
from tests.sim.harness.simulation import Simulation, run

T0 = TopicPartition("t", 0)


class Topic:
    """The topic `t` with one partition, on a broker of its own, and a transactional producer."""

    def __init__(self, world: Simulation, kafka: EmbeddedCluster, producer: aiokq.Producer) -> None:
        self.world = world
        self.servers = kafka.bootstrap_servers
        self.producer = producer

    async def commit(self, *values: bytes) -> None:
        async with self.producer.transaction():
            for value in values:
                await self.producer.send("t", value)
        await asyncio.sleep(1)  # for the marker

    async def abort(self, *values: bytes) -> None:
        await self.producer.begin_transaction()
        for value in values:
            await self.producer.send("t", value)
        await self.producer.abort_transaction()
        await asyncio.sleep(1)

    def consumer(self, **overrides: Any) -> aiokq.Consumer:
        return aiokq.Consumer(
            "t",
            bootstrap_servers=self.servers,
            _environment=self.world.environment(),
            **{
                "group_id": "g",
                "auto_offset_reset": "earliest",
                "isolation_level": "read_committed",
                "enable_auto_commit": False,
                **overrides,
            },
        )

    async def lag(self) -> int | None:
        """The lag of the group by its committed offsets, as `aiokq groups describe` shows it."""
        async with aiokq.Admin(self.servers, _environment=self.world.environment()) as admin:
            found = (await admin.group_lag("g", raise_errors=True))["g"]
            return found.partitions[T0].lag if T0 in found.partitions else None


@asynccontextmanager
async def topic_of(world: Simulation) -> AsyncIterator[Topic]:
    async with EmbeddedCluster(environment=world.environment()) as kafka:
        await kafka.create_topic("t", 1)
        async with aiokq.Producer(
            kafka.bootstrap_servers, transactional_id="x", _environment=world.environment()
        ) as producer:
            yield Topic(world, kafka, producer)


def simulate(body: Callable[[Topic], Awaitable[None]]) -> None:
    async def main(world: Simulation) -> None:
        async with topic_of(world) as topic:
            await body(topic)

    run(1, main)


# -- ways to read three records and to stop


async def by_iteration(consumer: aiokq.Consumer) -> list[bytes]:
    found = []
    async for record in consumer:
        found.append(record.value)
        if len(found) == 3:
            return found
    raise AssertionError


async def by_one(consumer: aiokq.Consumer) -> list[bytes]:
    return [(await consumer.getone()).value for _ in range(3)]


async def by_many(consumer: aiokq.Consumer) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < 3:
        for records in (await consumer.getmany(timeout=10, max_records=3)).values():
            found += [record.value for record in records]
    return found


async def by_batches(consumer: aiokq.Consumer) -> list[bytes]:
    found: list[bytes] = []
    async for batch in consumer.batches():
        found += [record.value for record in batch]
        if len(found) == 3:
            return found
    raise AssertionError


async def by_columns(consumer: aiokq.Consumer) -> list[bytes]:
    found: list[bytes] = []
    async for batch in consumer.batches():
        found += batch.to_arrow().column("value").to_pylist()
        if len(found) == 3:
            return found
    raise AssertionError


async def by_stream(consumer: aiokq.Consumer) -> list[bytes]:
    (stream,) = consumer.streams(1)
    found = []
    async for record in stream:
        found.append(record.value)
        if len(found) == 3:
            return found
    raise AssertionError


async def by_acknowledgement(consumer: aiokq.Consumer) -> list[bytes]:
    found = []
    async for record in consumer:
        found.append(record.value)
        consumer.ack(record)
        if len(found) == 3:
            return found
    raise AssertionError


READ = pytest.mark.parametrize(
    "read", [by_iteration, by_one, by_many, by_batches, by_columns, by_stream, by_acknowledgement]
)
LEVEL = pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])


def mode(read: Any) -> dict[str, str]:
    return {"ack_mode": "explicit"} if read is by_acknowledgement else {}


@READ
@LEVEL
def test_a_commit_after_the_last_record_passes_the_marker(read: Any, level: str) -> None:
    """The lag of every reader of a transactional topic would be 1 at rest."""

    async def body(topic: Topic) -> None:
        await topic.commit(b"0", b"1", b"2")
        async with topic.consumer(isolation_level=level, **mode(read)) as consumer:
            assert await read(consumer) == [b"0", b"1", b"2"]
            await consumer.commit()
            assert await topic.lag() == 0
            assert await consumer.position(T0) == 4

    simulate(body)


@READ
def test_a_commit_after_the_last_record_passes_aborted_records(read: Any) -> None:
    """Readers of committed records never get them."""

    async def body(topic: Topic) -> None:
        await topic.commit(b"0", b"1", b"2")
        await topic.abort(b"not", b"this")
        await topic.abort(b"nor that")
        async with topic.consumer(**mode(read)) as consumer:
            assert await read(consumer) == [b"0", b"1", b"2"]
            await consumer.commit()
            assert await topic.lag() == 0

    simulate(body)


@READ
def test_a_commit_passes_aborted_records_that_were_fetched_after_the_last_record(
    read: Any,
) -> None:
    """The reader does not ask for more; the consumer fetches ahead."""

    async def body(topic: Topic) -> None:
        await topic.commit(b"0", b"1", b"2")
        async with topic.consumer(**mode(read)) as consumer:
            assert await read(consumer) == [b"0", b"1", b"2"]
            await topic.abort(b"not", b"this")
            await topic.abort(b"nor that")
            await consumer.commit()
            assert await topic.lag() == 0
            assert await consumer.position(T0) == 9

    simulate(body)


@READ
def test_closing_commits_past_markers_and_aborted_records(read: Any) -> None:
    """Automatic commits include that of `close`."""

    async def body(topic: Topic) -> None:
        await topic.commit(b"0", b"1", b"2")
        async with topic.consumer(enable_auto_commit=True, **mode(read)) as consumer:
            assert await read(consumer) == [b"0", b"1", b"2"]
            await topic.abort(b"not", b"this")
        assert await topic.lag() == 0

    simulate(body)


@pytest.mark.parametrize("read", [by_iteration, by_batches, by_stream])
def test_a_reader_that_waits_commits_past_what_it_never_gets(read: Any) -> None:
    """The automatic commit advances although no record arrives."""

    async def body(topic: Topic) -> None:
        async with topic.consumer(enable_auto_commit=True) as consumer:
            reading = asyncio.create_task(read(consumer))
            await topic.abort(b"not", b"this")
            await asyncio.sleep(10)
            assert await topic.lag() == 0
            await topic.commit(b"0", b"1", b"2")
            assert await reading == [b"0", b"1", b"2"]

    simulate(body)


def test_an_unfinished_record_is_not_passed() -> None:
    """The record in hand is finished when the next one is asked for, whatever comes after it."""

    async def body(topic: Topic) -> None:
        await topic.commit(b"0", b"1", b"2")
        async with topic.consumer(enable_auto_commit=True, auto_commit_interval_ms=1000) as c:
            read = 0
            async for _ in c:
                read += 1
                if read == 3:
                    await asyncio.sleep(10)
                    assert await c.committed(T0) == 2
                    break
        assert await topic.lag() == 0

    simulate(body)


def test_a_record_after_the_markers_is_delivered_after_a_restart() -> None:
    """A position that passes too much would lose it."""

    async def body(topic: Topic) -> None:
        await topic.commit(b"0", b"1", b"2")
        await topic.abort(b"not")
        async with topic.consumer() as consumer:
            assert await by_iteration(consumer) == [b"0", b"1", b"2"]
            await topic.commit(b"3", b"4", b"5")
            await consumer.commit()
            committed = await consumer.committed(T0)
            assert committed is not None
            assert 3 <= committed <= 6
        async with topic.consumer() as consumer:
            assert await by_iteration(consumer) == [b"3", b"4", b"5"]

    simulate(body)


def test_offsets_in_a_transaction_pass_markers() -> None:
    """A copier at rest has no lag, because its offsets are those of `commit`."""

    async def body(topic: Topic) -> None:
        await topic.commit(b"0", b"1", b"2")
        await topic.abort(b"not")
        async with topic.consumer() as consumer:
            await by_iteration(consumer)
            async with topic.producer.transaction() as txn:
                await txn.send_offsets(consumer)
            await asyncio.sleep(1)
            assert await topic.lag() == 0

    simulate(body)


@LEVEL
def test_columns_of_a_range_end_at_its_end(level: Any) -> None:
    """`Cluster.read`, by which Spark's ranges are read, reaches an end that is behind a marker."""

    async def body(topic: Topic) -> None:
        await topic.commit(b"0", b"1", b"2")
        await topic.abort(b"not", b"this")
        environment = topic.world.environment()
        async with aiokq.Cluster(topic.servers, _environment=environment) as cluster:
            at, found = 0, 0
            async for part in cluster.read(T0, 0, 7, isolation_level=level):
                at = part.next_offset
                found += sum(1 for _ in part)
            assert at == 7
            assert found == (3 if level == "read_committed" else 5)

    simulate(body)
