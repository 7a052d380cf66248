"""Producers used from the wrong thread, loop or process or after their end; internal failures."""

# ruff: noqa: PT031, ASYNC222  for a forked child and an object that is garbage collected

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import Any

import pytest

from aiokq.client.cluster import Cluster
from aiokq.core.errors import Closed, WrongLoop
from aiokq.producer.interceptors import Interceptor, ProducerRecord
from aiokq.producer.producer import Producer
from tests.sim.producer_world import CLIENT, Kafka, producer, simulate


def test_use_from_another_thread_is_refused_without_side_effects() -> None:
    """The record of the other thread is refused, those of the owning thread are accepted."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            await p.send("orders", b"mine")
            errors: list[BaseException] = []

            def other() -> None:
                for call in (lambda: p.send_nowait("orders", b"theirs"), run_send):
                    try:
                        call()
                    except WrongLoop as error:
                        errors.append(error)

            def run_send() -> None:
                asyncio.run(p.send("orders", b"theirs"))

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            assert len(errors) == 2
            await p.send("orders", b"mine too")
        assert kafka.values("orders") == [b"mine", b"mine too"]

    simulate(body)


@pytest.mark.parametrize("options", [{}, {"value_serializer": lambda value: value}])
def test_records_and_headers_of_a_wrong_type_are_named_in_the_error(
    options: dict[str, Any],
) -> None:
    """The error was "'int' object is not iterable". With a serializer another code path is used."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, **options) as p:
            await p.partitions_for("orders")
            for records in (5, None, "text"):
                with pytest.raises(TypeError, match="must be a list or another iterable, as in"):
                    await p.send_many("orders", records)
            for record in (5, (b"v",)):
                with pytest.raises(TypeError, match="record 1 is not a tuple of"):
                    await p.send_many("orders", [(None, b"v"), record])
            for headers in (5, [5], ["text"], [("n", b"v", 3)]):
                with pytest.raises(TypeError, match=r"headers are \(name, value\) pairs"):
                    await p.send("orders", b"v", headers=headers)
                with pytest.raises(TypeError, match=r"headers are \(name, value\) pairs"):
                    await p.enqueue("orders", b"v", headers=headers)
                with pytest.raises(TypeError, match=r"headers are \(name, value\) pairs"):
                    p.send_nowait("orders", b"v", headers=headers)
                with pytest.raises(TypeError, match=r"headers are \(name, value\) pairs"):
                    await p.send_many("orders", [(None, b"v", headers)])
                with pytest.raises(TypeError, match=r"headers are \(name, value\) pairs"):
                    p.create_batch().append(b"v", headers=headers)
            deliveries = await p.send_many("orders", (pair for pair in [(None, b"1")]))
            assert len(await deliveries) == 1
        assert kafka.values("orders") == [b"1"]

    simulate(body)


def test_another_loop_cannot_close_a_producer() -> None:
    """close() from another thread ended the producer and waited on the wrong loop."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            errors: list[BaseException] = []

            def other() -> None:
                try:
                    asyncio.run(p.close())
                except WrongLoop as error:
                    errors.append(error)

            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            assert len(errors) == 1
            await p.send("orders", b"mine")
        assert kafka.values("orders") == [b"mine"]

    simulate(body)


def test_use_on_another_loop_is_refused_after_the_first_has_ended() -> None:
    """If one producer is used in two calls of asyncio.run, nothing would ever be sent."""
    kept: list[Producer] = []

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka)
        await p.start()
        await p.send("orders", b"v")
        kept.append(p)

    simulate(body)

    async def later() -> None:
        for call in (kept[0].send, kept[0].enqueue):
            with pytest.raises((WrongLoop, Closed)):
                await call("orders", b"lost")
        with pytest.raises((WrongLoop, Closed)):
            kept[0].send_nowait("orders", b"lost")
        with pytest.raises((WrongLoop, Closed)):
            await kept[0].flush()

    asyncio.run(later())
    with pytest.warns(ResourceWarning, match="was not closed"):
        kept.clear()
        gc.collect()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_use_in_a_forked_child_is_refused() -> None:
    """The child shares the parent's sockets, and both would write to them."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000) as p:
            await p.send("orders", b"mine")
            p.send_nowait("orders", b"open batch")
            native = p.send_nowait
            read, write = os.pipe()
            child = os.fork()
            if child == 0:
                said = b""
                for call in (native, p.send_nowait):
                    try:
                        call("orders", b"theirs")
                    except (WrongLoop, Closed) as error:
                        said += type(error).__name__.encode() + b" "
                os.write(write, said)
                os._exit(0)
            os.waitpid(child, 0)
            os.close(write)
            assert os.read(read, 100) == b"WrongLoop WrongLoop "
            os.close(read)
        assert kafka.values("orders") == [b"mine", b"open batch"]

    simulate(body)


def test_a_bug_in_an_internal_task_reaches_every_waiter() -> None:
    """The exception fails the producer, so that no caller waits for ever."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka, linger_ms=0)
        await p.start()
        await p.send("orders", b"v")

        async def broken() -> None:
            raise ZeroDivisionError("a bug")

        kafka.delays[1] = 1.0
        waiting = await p.enqueue("orders", b"w")
        p._delivery._spawn(broken(), "broken")
        with pytest.raises(Closed, match="a bug"):
            await waiting
        with pytest.raises(Closed):
            await p.send("orders", b"x")
        report = await p.close()
        assert (report.delivered, report.unsent) == (1, 1)

    simulate(body)


def test_interceptors_run_once_for_a_record_that_waits_for_buffer_memory() -> None:
    """The record was serialized before it waited."""

    class Counting(Interceptor):
        calls = 0

        def on_enqueue(self, record: ProducerRecord) -> ProducerRecord:
            self.calls += 1
            return record

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        counting = Counting()
        options = {"buffer_memory": 4_000, "batch_size": 1_000, "interceptors": (counting,)}
        async with producer(world, kafka, **options) as p:
            for _ in range(50):
                await p.enqueue("orders", b"x" * 400)
        assert counting.calls == 50
        assert len(kafka.values("orders")) == 50

    simulate(body)


def test_a_start_that_fails_leaves_nothing_open() -> None:
    """No broker responds: the error says so, and the caller need not close anything."""
    from aiokq.core.errors import BootstrapFailed

    async def body(world: Any, kafka: Kafka) -> None:
        await kafka[1].stop()
        p = Producer(
            kafka.bootstrap_servers,
            _environment=world.environment(CLIENT),
            bootstrap_timeout_ms=500,
        )
        with pytest.raises(BootstrapFailed):
            await p.start()
        assert (await p.close()).complete
        await kafka[1].start()

    simulate(body)


def test_a_cancelled_close_of_the_cluster_closes_all_its_producers() -> None:
    """The second producer kept its tasks, and callers that awaited its records waited for ever."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        cluster = Cluster(kafka.bootstrap_servers, _environment=world.environment(CLIENT))
        await cluster.start()
        producers = [cluster.producer() for _ in range(3)]
        deliveries = []
        for p in producers:
            await p.start()
            await p.send("orders", b"v")
        kafka.delays[1] = 1000.0
        for p in producers:
            deliveries.append(await p.enqueue("orders", b"stuck"))
        closing = asyncio.create_task(cluster.close())
        await asyncio.sleep(1)
        start = world.loop.time()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert world.loop.time() - start < 5
        for delivery in deliveries:
            assert isinstance(delivery.exception(), Closed)
        for p in producers:
            assert (await p.close()).unsent == 1

    simulate(body, limit=10_000)


def test_a_start_that_is_cancelled_leaves_nothing_open() -> None:
    """__aexit__ is not called after a failed start, and the producer's own cluster stayed open."""

    async def body(world: Any, kafka: Any) -> None:
        for turns in range(1, 40):
            p = producer(world, kafka)
            starting = asyncio.create_task(p.start())
            for _ in range(turns):
                await asyncio.sleep(0.0003)
            if not starting.cancel():
                break
            with pytest.raises(asyncio.CancelledError):
                await starting
            with pytest.raises(Closed):
                await p.start()
            assert (await p.close()).complete
        else:
            pytest.fail("it never came to start")
        await p.close()
        left = {task.get_name() for task in asyncio.all_tasks()}
        assert not [name for name in left if name.startswith(("producer", "cluster"))]

    simulate(body)


def test_two_tasks_may_start_a_producer() -> None:
    """The second call started everything again, with a second timer and subscription."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka)
        await asyncio.gather(p.start(), p.start(), p.start())
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert sum(name.endswith(": timers") for name in names) == 1
        assert (await p.send("orders", b"v")).offset == 0
        assert (await p.close()).delivered == 1

    simulate(body)


def test_the_error_of_a_producer_whose_cluster_is_not_started_says_so() -> None:
    """The producer started, and its records waited for metadata that was never requested."""

    async def body(world: Any, kafka: Any) -> None:
        cluster = Cluster(kafka.bootstrap_servers, _environment=world.environment(CLIENT))
        with pytest.raises(Closed, match="not started"):
            await cluster.producer().start()
        await cluster.close()

    simulate(body)


def test_a_long_throttle_needs_one_timer() -> None:
    """Each record sent while a broker throttled the producer (KIP-219) set its own timer."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=0) as p:
            await p.send("orders", b"v")
            (sender,) = p._delivery._senders._senders.values()
            sender.node.throttled(5_000)
            set_before = world.loop.time()
            deliveries = []
            for _ in range(50):
                deliveries.append(await p.enqueue("orders", b"v"))
                await asyncio.sleep(0.01)
            timers = [h for h in world.loop.timers() if h._callback == sender._silence_over]
            assert len(timers) == 1
            await asyncio.gather(*deliveries)
            assert 5 <= world.loop.time() - set_before < 6

    simulate(body)


def test_a_throttle_timer_does_not_outlive_its_producer() -> None:
    """A throttle time of a minute kept a closed producer in memory for that time."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka)
        await p.start()
        await p.send("orders", b"v")
        p._engine.node(1).throttled(60_000)
        await p.enqueue("orders", b"too late")
        await asyncio.sleep(0.1)
        report = await p.close(timeout=0.5)
        assert (report.delivered, report.unsent) == (1, 1)
        await asyncio.sleep(0.1)
        left = list(map(str, world.loop.timers()))
        assert not [timer for timer in left if "Sender" in timer], left

    simulate(body)
