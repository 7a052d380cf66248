"""When batches linger, and when nothing would come of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.sim.producer_world import producer, simulate


def test_an_awaited_record_does_not_linger() -> None:
    """A program that awaits each send() paid linger_ms per record, for nothing."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000) as p:
            start = world.loop.time()
            for n in range(10):
                assert (await p.send("orders", b"%d" % n)).offset == n
            assert world.loop.time() - start < 0.5

    simulate(body)


def test_tasks_that_wait_together_share_a_batch() -> None:
    """Cutting the first record off from the others would make a batch of each."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000) as p:
            await p.partitions_for("orders")
            start = world.loop.time()

            async def worker() -> None:
                for _ in range(5):
                    await p.send("orders", b"v")

            await asyncio.gather(*(worker() for _ in range(100)))
            assert world.loop.time() - start < 0.5
        assert [len(batch.records) for batch in kafka.log("orders").batches] == [100] * 5

    simulate(body)


def test_a_record_that_nobody_awaits_lingers_and_so_do_the_others() -> None:
    """Who does not wait goes on sending: the batch is better off with what comes."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            p.send_nowait("orders", b"not awaited")
            await p.send("orders", b"v")
            assert 1.0 <= world.loop.time() - start < 1.5
        assert len(kafka.log("orders").batches) == 1

    simulate(body)


def test_while_an_answer_is_due_what_comes_lingers() -> None:
    """Otherwise a busy service would send every record on its own."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.delays[1] = 0.2
        async with producer(world, kafka, linger_ms=1000) as p:
            await p.partitions_for("orders")
            start = world.loop.time()

            async def later(n: int) -> None:
                await asyncio.sleep(n / 100)
                await p.send("orders", b"v")

            await asyncio.gather(*(later(n) for n in range(20)))
            assert 0.4 <= world.loop.time() - start < 0.6
        assert [len(batch.records) for batch in kafka.log("orders").batches] == [1, 19]

    simulate(body)


def test_linger_ms_is_the_most_that_is_waited_for_an_answer() -> None:
    """One slow broker must not hold up the others beyond what was asked for."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 2])
        kafka.delays[1] = 5.0
        async with producer(world, kafka, linger_ms=100) as p:
            await p.send("orders", b"0", partition=1)
            slow = asyncio.create_task(p.send("orders", b"1", partition=0))
            await asyncio.sleep(0.05)
            start = world.loop.time()
            await p.send("orders", b"2", partition=1)
            assert 0.1 <= world.loop.time() - start < 0.2
            assert not slow.done()
            await slow

    simulate(body, nodes=2)


def test_it_lingers_all_the_same_if_it_is_to() -> None:
    """Fewer, larger requests may matter more than a round trip."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000, linger_when_awaited=True) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            await p.send("orders", b"v")
            assert 1.0 <= world.loop.time() - start < 1.5

    simulate(body)


def test_records_of_send_many_linger_awaited_or_not() -> None:
    """Awaiting all of them is one wait: it does not say that nobody else adds to the batch."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            await (await p.send_many("orders", [(None, b"1"), (None, b"2")]))
            assert 1.0 <= world.loop.time() - start < 1.5

    simulate(body)


@pytest.mark.parametrize("how", ["gather", "wait_for", "tasks"])
def test_waits_that_begin_in_a_task_count_as_well(how: str) -> None:
    """gather() and wait_for() wait a turn later than `await` does: each took linger_ms."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            if how == "gather":
                await asyncio.gather(*await p.send_many("orders", [(None, b"1"), (None, b"2")]))
            elif how == "wait_for":
                await asyncio.wait_for(await p.enqueue("orders", b"1"), 10)
            else:
                await asyncio.gather(*[asyncio.create_task(p.send("orders", b"v"))] * 3)
            assert world.loop.time() - start < 0.5

    simulate(body)


def test_what_came_in_a_hurry_lingers_no_longer_than_others_when_the_hurry_is_over() -> None:
    """It was to leave at once, could not, as another was on its way, and was then forgotten until
    delivery_timeout_ms failed it."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 2])
        kafka.delays.update({1: 0.2, 2: 0.5})
        async with producer(world, kafka, linger_ms=2000) as p:
            await p.partitions_for("orders")
            p.send_nowait("orders", b"flushed", partition=0)
            flush = asyncio.create_task(p.flush())
            await asyncio.sleep(0.1)
            p.send_nowait("orders", b"on its way", partition=1)
            await asyncio.sleep(0.05)
            late = p.send_nowait("orders", b"behind it", partition=1)
            await flush
            start = world.loop.time()
            while not late.done():
                await asyncio.sleep(0.1)
            assert world.loop.time() - start < 3

    simulate(body, nodes=2)
