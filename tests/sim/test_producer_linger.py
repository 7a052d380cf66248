"""When batches linger, and when lingering would be useless."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from aiokq.fastpath.produce.suspended import Suspended
from aiokq.producer.settings import ProducerSettings
from tests.sim.producer_world import producer, simulate


def test_an_awaited_record_does_not_linger() -> None:
    """A program that awaits each send() waited linger_ms for each record, without a benefit."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000, linger_when_awaited=False) as p:
            start = world.loop.time()
            for n in range(10):
                assert (await p.send("orders", b"%d" % n)).offset == n
            assert world.loop.time() - start < 0.5

    simulate(body)


def test_tasks_that_wait_together_share_a_batch() -> None:
    """Sending the first record at once would make a batch of each."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000, linger_when_awaited=False) as p:
            await p.partitions_for("orders")
            start = world.loop.time()

            async def worker() -> None:
                for _ in range(5):
                    await p.send("orders", b"v")

            await asyncio.gather(*(worker() for _ in range(100)))
            assert world.loop.time() - start < 0.5
        assert [len(batch.records) for batch in kafka.log("orders").batches] == [100] * 5

    simulate(body)


def test_a_record_that_is_not_awaited_makes_its_batch_linger() -> None:
    """A program that does not wait will send more records, which the batch can take."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000, linger_when_awaited=False) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            p.send_nowait("orders", b"not awaited")
            await p.send("orders", b"v")
            assert 1.0 <= world.loop.time() - start < 1.5
        assert len(kafka.log("orders").batches) == 1

    simulate(body)


def test_records_linger_while_a_response_is_pending() -> None:
    """Otherwise a busy service would send each record in its own batch."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.delays[1] = 0.2
        async with producer(world, kafka, linger_ms=1000, linger_when_awaited=False) as p:
            await p.partitions_for("orders")
            start = world.loop.time()

            async def later(n: int) -> None:
                await asyncio.sleep(n / 100)
                await p.send("orders", b"v")

            await asyncio.gather(*(later(n) for n in range(20)))
            assert 0.4 <= world.loop.time() - start < 0.6
        assert [len(batch.records) for batch in kafka.log("orders").batches] == [1, 19]

    simulate(body)


def test_records_wait_for_a_pending_response_up_to_linger_ms() -> None:
    """A slow broker must not delay records to the others by more than linger_ms."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 2])
        kafka.delays[1] = 5.0
        async with producer(world, kafka, linger_ms=100, linger_when_awaited=False) as p:
            await p.send("orders", b"0", partition=1)
            slow = asyncio.create_task(p.send("orders", b"1", partition=0))
            await asyncio.sleep(0.05)
            start = world.loop.time()
            await p.send("orders", b"2", partition=1)
            assert 0.1 <= world.loop.time() - start < 0.2
            assert not slow.done()
            await slow

    simulate(body, nodes=2)


async def pending_after(p: Any, seconds: float) -> bool:
    """Whether an awaited record is undelivered after `seconds`."""
    try:
        await asyncio.wait_for(await p.enqueue("orders", b"v"), seconds)
    except TimeoutError:
        return True
    return False


def test_an_explicit_linger_applies_to_awaited_records_too() -> None:
    """With an explicit linger_ms=1000 an awaited record was sent at once."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            assert await pending_after(p, 0.1)
            await p.send("orders", b"v")
            assert 1.0 <= world.loop.time() - start < 1.5
        assert [len(batch.records) for batch in kafka.log("orders").batches] == [2]

    simulate(body)


def test_a_full_batch_or_a_flush_ends_an_explicit_linger() -> None:
    """linger_ms is an upper bound, as in Kafka."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=60_000, batch_size=1000) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            await asyncio.gather(*(p.send("orders", b"v" * 300) for _ in range(3)), p.flush())
            first = await p.enqueue("orders", b"v" * 600)
            p.send_nowait("orders", b"v" * 600)
            await first
            assert world.loop.time() - start < 1

    simulate(body)


@pytest.mark.parametrize("way", ["settings", "environment", "properties"])
def test_a_linger_from_a_file_or_the_environment_is_explicit(way: str, tmp_path: Path) -> None:
    """A setting from a file or an environment variable counts like a keyword."""
    if way == "environment":
        settings = ProducerSettings.from_env(environ={"KAFKA_LINGER_MS": "1000"})
    elif way == "properties":
        path = tmp_path / "producer.properties"
        path.write_text("linger.ms=1000\n")
        settings = ProducerSettings.from_properties(path)
    else:
        settings = ProducerSettings(linger_ms=1000)

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, settings=settings, client_id="overridden") as p:
            assert await pending_after(p, 0.1)

    simulate(body)


def test_without_an_explicit_linger_an_awaited_record_is_sent_at_once() -> None:
    """The user did not choose the default linger, so `await send()` takes one round trip."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            await p.send("orders", b"v")
            early = world.loop.time() - start
        async with producer(world, kafka, linger_when_awaited=True) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            await p.send("orders", b"v")
            assert world.loop.time() - start >= 0.005 > early

    simulate(body)


def test_an_awaited_send_many_does_not_linger_either() -> None:
    """`await (await send_many(...))` waited linger_ms for its last batches, unlike `await send()`.
    The same holds for a topic that becomes known later, and for records that move.
    """

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        async with producer(world, kafka, linger_ms=1000, linger_when_awaited=False) as p:
            start = world.loop.time()
            for _ in range(10):
                many = [(b"%d" % n, b"v") for n in range(20)]
                metas = await (await p.send_many("orders", many))
                assert {meta.partition for meta in metas} == {0, 1}
            assert world.loop.time() - start < 0.5

    simulate(body)


@pytest.mark.parametrize("beside", ["single", "many"])
def test_records_in_the_batch_of_an_awaited_send_many_linger_unless_awaited(beside: str) -> None:
    """A wait for two records of a batch does not count as a wait for a third one."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000, linger_when_awaited=False) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            if beside == "single":
                p.send_nowait("orders", b"not awaited")
            else:
                await p.send_many("orders", [(None, b"not awaited")])
            deliveries = await p.send_many("orders", [(None, b"1"), (None, b"2")])

            async def wait() -> None:
                await deliveries

            await asyncio.gather(wait(), wait(), wait())
            assert 1.0 <= world.loop.time() - start < 1.5

    simulate(body)


def test_a_cancelled_wait_for_send_many_does_not_count() -> None:
    """The program continues, and may add records to the batch."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.delays[1] = 0.2
        async with producer(world, kafka, linger_ms=1000, linger_when_awaited=False) as p:
            await p.partitions_for("orders")
            sent = asyncio.create_task(p.send("orders", b"on its way"))
            await asyncio.sleep(0.05)
            start = world.loop.time()
            deliveries = await p.send_many("orders", [(None, b"1"), (None, b"2")])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await deliveries
            await sent
            await asyncio.sleep(0.5)
            assert not deliveries.done()
            await deliveries
            assert world.loop.time() - start < 1.5

    simulate(body)


@pytest.mark.parametrize("how", ["gather", "wait_for", "tasks"])
def test_waits_that_begin_in_another_task_count_as_well(how: str) -> None:
    """gather() and wait_for() begin to wait one iteration later, and each took linger_ms."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000, linger_when_awaited=False) as p:
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


def test_a_record_that_missed_an_immediate_send_is_sent_after_linger() -> None:
    """A record that was to be sent at once while another was in flight was forgotten, until
    delivery_timeout_ms failed it.
    """

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
            while not late.done():  # noqa: ASYNC110  awaiting would send it at once
                await asyncio.sleep(0.1)
            assert world.loop.time() - start < 3

    simulate(body, nodes=2)


def test_a_flush_sends_before_it_waits() -> None:
    """A commit that first had to wake the sender sent its last records one turn later."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000) as p:
            await p.send("orders", b"connects")
            p.send_nowait("orders", b"v")
            flushing = p.flush()
            waiting = flushing.send(None)
            assert p._engine.node(1).in_flight == 1
            await Suspended(flushing, waiting)
        assert len(kafka.log("orders").batches) == 2

    simulate(body)
