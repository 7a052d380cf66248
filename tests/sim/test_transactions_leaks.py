"""Many transactions with cancels, timeouts and fences leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from aiokq import wire
from aiokq.core.errors import CommitOutcomeUnknown, KafkaError
from aiokq.fastpath.produce import Batch, Delivery, QueuedBatch
from aiokq.producer.transactions.transaction import Transaction
from tests.sim.transaction_world import Close, Silence, TransactionalKafka, producer, simulate

ROUNDS = int(os.environ.get("AIOKQ_TRANSACTION_ROUNDS", "600"))


@pytest.fixture(autouse=True)
def unlogged() -> Iterator[None]:
    """Disable the log: pytest keeps its errors, and with them the frames of the test."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def alive() -> Counter[str]:
    """Count the objects of a transaction that exist."""
    gc.collect()
    kinds = (Transaction, QueuedBatch, asyncio.Future, asyncio.TimerHandle, Batch, Delivery)
    found = (
        type(thing).__name__
        for thing in gc.get_objects()
        # A loop drops cancelled timers when there are many.
        if isinstance(thing, kinds)
        and not (type(thing) is asyncio.TimerHandle and thing.cancelled())
    )
    return Counter(found)


@pytest.mark.parametrize("level", [1, 2])
def test_nothing_is_left_of_many_transactions(level: int) -> None:
    """A task, timer or future per transaction would end a service after days."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        random = world.random
        kafka.first_epoch = 32_766 - ROUNDS // 4
        kafka.topic("orders", [1, 1])

        async def one(p: Any, n: int) -> None:
            kind = random.randrange(8)
            if kind == 0:
                kafka.script(wire.EndTxnRequest, random.choice([Close(), Silence()]))
            patience = random.choice([None, None, 0.0, 0.0005, 0.002])
            with contextlib.suppress(KafkaError, TimeoutError, ZeroDivisionError):
                try:
                    async with asyncio.timeout(patience), p.transaction() as txn:
                        for _ in range(random.randrange(4)):
                            p.send_nowait("orders", b"%d" % n)
                        if kind == 1:
                            await txn.send_offsets({("in", 0): n}, "g")
                        if kind == 2:
                            raise ZeroDivisionError
                        if kind == 3:
                            p.send_nowait("missing", b"x")
                            raise ZeroDivisionError
                        if kind == 4:
                            await p.send("orders", b"%d" % n)
                except CommitOutcomeUnknown:
                    await p.commit_transaction()

        p = producer(world, kafka, max_block_ms=8000, connections_max_idle_ms=0)
        async with p:
            for n in range(50):
                await one(p, n)
            await asyncio.sleep(60)
            before, tasks = alive(), len(asyncio.all_tasks())
            logs = kafka.seen(wire.EndTxnRequest)
            assert logs
            for n in range(ROUNDS):
                await one(p, n)
                for node in kafka.nodes.values():
                    node.seen.clear()
                kafka.logs.clear()
                kafka.attempts.clear()
                kafka.outcomes.clear()
            await asyncio.sleep(60)
            after = alive()
            assert len(asyncio.all_tasks()) <= tasks
            assert p._delivery.accumulator.used_bytes == 0
            assert not p._delivery._incomplete
            transactions = p._delivery.transactions
            assert not len(transactions._offsets)
            assert transactions._end.now is None
        grown = {name: after[name] - before[name] for name in after}
        assert all(count <= 10 for count in grown.values()), grown
        if level >= 2:
            assert kafka.producer_ids > 1, "the producer id was replaced"

    simulate(body, level=level, limit=1e6)


def test_nothing_is_left_of_producers_that_were_fenced() -> None:
    """A supervisor starts a new producer after each: tasks and connections of the old end."""

    async def body(world: Any, kafka: TransactionalKafka) -> None:
        async def fence() -> None:
            async with producer(world, kafka) as old:
                with contextlib.suppress(KafkaError):
                    async with old.transaction():
                        old.send_nowait("orders", b"old")
                        async with producer(world, kafka) as new, new.transaction():
                            new.send_nowait("orders", b"new")

        for _ in range(5):
            await fence()
        await asyncio.sleep(60)
        before, tasks = alive(), len(asyncio.all_tasks())
        for _ in range(40):
            await fence()
        await asyncio.sleep(60)
        after = alive()
        assert len(asyncio.all_tasks()) == tasks
        assert kafka[1].connections == 0
        assert all(after[name] - before[name] <= 10 for name in after), (before, after)

    simulate(body)
