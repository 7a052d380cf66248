"""Records that wait for room or metadata when a transaction ends: none gets into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokq.core.errors import ConfigError, KafkaError, TransactionAborted
from tests.sim.transaction_world import TransactionalKafka, producer, simulate

BIG = b"x" * 900

TIGHT = {"buffer_memory": 2000, "batch_size": 1000, "max_request_size": 1000, "linger_ms": 5}


def batch_of(p: Any, value: bytes) -> Any:
    builder = p.create_batch()
    builder.append(value)
    return builder


WAYS: dict[str, Callable[[Any, str, bytes], Any]] = {
    "send": lambda p, topic, value: p.send(topic, value),
    "enqueue": lambda p, topic, value: p.enqueue(topic, value),
    "send_many": lambda p, topic, value: p.send_many(topic, [(None, value)]),
    "send_batch": lambda p, topic, value: p.send_batch(batch_of(p, value), topic, partition=0),
}


@pytest.mark.parametrize("ends", ["commit", "abort"])
@pytest.mark.parametrize("hooks", [False, True], ids=["plain", "with hooks"])
@pytest.mark.parametrize("way", WAYS)
def test_a_record_that_waits_for_room_is_refused_when_the_transaction_ends(
    way: str, hooks: bool, ends: str
) -> None:
    """It would be accepted when the first records are delivered: into the next transaction."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        kafka.delays[1] = 0.5
        settings: Any = {"value_serializer": lambda value: value} if hooks else {}
        async with producer(world, kafka, **TIGHT, **settings) as p:
            await p.begin_transaction()
            filled = [await p.enqueue("orders", BIG) for _ in range(2)]
            waits = [asyncio.create_task(WAYS[way](p, "orders", b"y" * 900)) for _ in range(3)]
            await asyncio.sleep(0.01)
            assert not any(task.done() for task in waits)
            if ends == "commit":
                await p.commit_transaction()
                assert [delivery.offset for delivery in filled] == [0, 1]
            else:
                await p.abort_transaction()
            refused = await asyncio.gather(*waits, return_exceptions=True)
            assert all(isinstance(error, ConfigError) for error in refused), refused
            async with p.transaction():
                await p.send("orders", b"z" * 900)
            await asyncio.sleep(1)
        committed = [BIG, BIG] if ends == "commit" else []
        assert kafka.committed("orders") == [*committed, b"z" * 900]
        assert b"y" * 900 not in kafka.values("orders")

    simulate(body)


@pytest.mark.parametrize("way", ["send_batch", "partitioner"])
def test_a_call_that_waits_for_metadata_is_refused_when_the_transaction_ends(way: str) -> None:
    """The topic appears in the middle of the next transaction, which must not get the record."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        settings: Any = {}
        if way == "partitioner":
            settings["partitioner"] = lambda key, partitions, available: 0
        async with producer(world, kafka, **settings) as p:
            await p.begin_transaction()
            send = WAYS["enqueue" if way == "partitioner" else way]
            waits = asyncio.create_task(send(p, "new", b"leak"))
            await asyncio.sleep(0.05)
            await p.commit_transaction()
            async with p.transaction():
                kafka.topic("new", [1])
                with pytest.raises(ConfigError):
                    await waits
                await p.send("new", b"own")
        assert kafka.values("new") == [b"own"]

    simulate(body)


@pytest.mark.parametrize("level", [1, 2])
def test_an_abort_fails_records_of_an_unknown_topic_at_once(level: int) -> None:
    """They would otherwise wait for max_block_ms, and get into the next transaction."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            began = world.loop.time()
            await p.begin_transaction()
            waiting = p.send_nowait("new", b"leak")
            await p.abort_transaction()
            assert world.loop.time() - began < 0.1
            with pytest.raises(TransactionAborted, match="begin another one"):
                await waiting
            async with p.transaction():
                kafka.topic("new", [1])
                await p.send("new", b"own")
        assert kafka.values("new") == [b"own"]

    simulate(body, level=level)


@pytest.mark.parametrize("level", [1, 2])
def test_a_commit_waits_for_records_of_an_unknown_topic(level: int) -> None:
    """The topic is being created: its record belongs to the transaction."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            await p.begin_transaction()
            waiting = p.send_nowait("new", b"a")
            commit = asyncio.create_task(p.commit_transaction())
            await asyncio.sleep(0.2)
            assert not commit.done()
            kafka.topic("new", [1])
            await commit
            assert waiting.offset == 0
        assert kafka.committed("new") == [b"a"]

    simulate(body, level=level)


def test_a_commit_fails_if_the_topic_does_not_appear() -> None:
    """Half of the transaction must not become visible."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka) as p:
            with pytest.raises(TransactionAborted) as raised:
                async with p.transaction():
                    await p.send("orders", b"a")
                    p.send_nowait("new", b"b")
            assert isinstance(raised.value.__cause__, KafkaError)
            assert "new" in str(raised.value)
        assert kafka.committed("orders") == []

    simulate(body)


def test_a_failed_record_ends_the_commit_without_waiting_for_a_missing_topic() -> None:
    """The outcome is certain as soon as one record has failed."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=0) as p:
            kafka.faults.append(lambda attempt: 29)
            began = world.loop.time()
            await p.begin_transaction()
            p.send_nowait("orders", b"a")
            waiting = p.send_nowait("new", b"b")
            with pytest.raises(TransactionAborted):
                await p.commit_transaction()
            assert world.loop.time() - began < 1
            assert isinstance(waiting.exception(), TransactionAborted)

    simulate(body)


def test_a_lingering_record_of_an_aborted_transaction_is_not_sent() -> None:
    """The linger ends in the next transaction."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async with producer(world, kafka, linger_ms=100) as p:
            await p.begin_transaction()
            lingers = p.send_nowait("orders", b"leak")
            await p.abort_transaction()
            assert isinstance(lingers.exception(), TransactionAborted)
            async with p.transaction():
                await p.send("orders", b"own")
                await asyncio.sleep(0.2)
        assert kafka.values("orders") == [b"own"]
        assert len(kafka.ended) == 1, "nothing had reached a broker"

    simulate(body)
