"""A gateway that is cancelled, or whose tasks are cancelled, at any await.

A run is repeated with the fault after each number of iterations of the loop. After each of them,
the gateway closes: each message has an outcome or is in the spool, no memory of the pool is in use
except that of topics, no task and no descriptor is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from aiokq.errors import Closed
from aiokq.gateway.accounting import Snapshot
from aiokq.gateway.router import PARTITION_BYTES, TOPIC_BYTES
from tests.sim.gateway_world import GatewayWorld, with_gateway
from tests.sim.producer_world import Kafka, times

DESCRIPTORS = "/dev/fd"
PARTITIONS = {b"t": 3, b"u": 1}
ENGINES = ("producer", "bruce")
STEP, SHORT_STEP = 31, 7
"""In the short form, the fault happens after each STEP-th iteration."""

pytestmark = pytest.mark.skipif(not os.path.isdir(DESCRIPTORS), reason="cannot count descriptors")

steps = pytest.mark.parametrize("step", [STEP, pytest.param(1, marks=pytest.mark.torture)])
short_steps = pytest.mark.parametrize(
    "step", [SHORT_STEP, pytest.param(1, marks=pytest.mark.torture)]
)


def options(engine: str, *, spool: bool = False, world: str = "") -> dict[str, Any]:
    delivery: dict[str, Any] = {"engine": engine, "shutdown_max_delay_ms": 2000}
    if engine == "bruce":
        delivery |= {"pause_initial_ms": 200, "min_pause_ms": 100}
    return {
        "delivery": delivery,
        "batching": {"time_ms": 5},
        "limits": {"max_message_bytes": 1000},
        "dead_letters": {"topic": "dead"},
        **({"spool": {"path": f"{world}/spool", "segment_bytes": 4096}} if spool else {}),
    }


def faults(kafka: Kafka) -> None:
    """Let brokers refuse some batches: once with a retriable error, once for good, once late."""
    kafka.delays[1] = 0.003
    kafka.faults += [
        times(1, 19, when=lambda a: a.topic == "t"),
        times(1, 44, when=lambda a: a.topic == "u"),
        times(1, 7, when=lambda a: a.topic == "dead"),
    ]


async def traffic(w: GatewayWorld) -> None:
    """Send messages that are delivered, refused, too long, and of topics that do not exist."""
    for n in range(12):
        value = b"%d" % n
        w.feed(("t", value), ("t", value), ("u", value), ("missing", value), ("no/name", value))
        if n % 4 == 3:
            w.feed(("t", bytes(2000)))
        await asyncio.sleep(0.004)
    await asyncio.sleep(0.8)


SENT = 12 * 5 + 3


def checked(final: Snapshot, sent: int, *, kept: int = 0) -> None:
    """Check the last numbers of a gateway."""
    total = final.total
    known = total.acked + sum(total.discarded) + total.dead_lettered
    assert total.received == sent == known + total.in_flight
    assert total.in_flight == kept
    for topic in final.topics.values():
        own = topic.acked + sum(topic.discarded) + topic.dead_lettered + topic.in_flight
        assert topic.received == own
        assert kept or not topic.in_flight
    if not kept:
        charged = [
            TOPIC_BYTES + PARTITION_BYTES * PARTITIONS[topic.topic]
            for topic in final.core.topics.values()
        ]
        assert (final.core.held, final.core.taken) == (0, 0)
        assert final.core.used_bytes == sum(charged)


async def alone() -> None:
    """Check that no other task is left, apart from those of the scripted brokers."""
    for _ in range(5):
        await asyncio.sleep(0)
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not [name for name in left if "gateway" in name or "close" in name or "reload" in name]


class Faulty(Exception):
    """The failure of a part of the gateway."""


async def fail() -> None:
    raise Faulty


def everywhere(step: int, run: Callable[[int], bool]) -> None:
    """Call `run` with growing numbers of iterations, until it returns False."""
    count = 0
    while run(count):
        count += step
    assert count >= step


@contextlib.contextmanager
def no_descriptor_left(count: int) -> Iterator[None]:
    gc.collect()
    before = len(os.listdir(DESCRIPTORS))
    yield
    gc.collect()
    assert len(os.listdir(DESCRIPTORS)) == before, f"after {count} iterations"


@steps
@pytest.mark.parametrize("spool", [False, True], ids=["memory", "spool"])
@pytest.mark.parametrize("engine", ENGINES)
def test_all_tasks_are_cancelled_at_any_await(engine: str, spool: bool, step: int) -> None:
    """A part fails: router, engine, dead letters and reports are cancelled where they are."""

    def run(count: int) -> bool:
        failed = False

        async def body(w: GatewayWorld) -> None:
            nonlocal failed
            faults(w.kafka)
            made = w.gateway

            def strike() -> None:
                nonlocal failed
                if made.accepting:
                    failed = True
                    made._spawn(fail(), "fault")

            await made.start()
            w.simulation.loop.at_step(count, strike)
            await traffic(w)
            struck = failed
            if struck:
                with pytest.raises(Closed) as raised:
                    await made.run_until(asyncio.Event())
                assert isinstance(raised.value.__cause__, Faulty)
            began = asyncio.get_running_loop().time()
            final = await made.close()
            assert asyncio.get_running_loop().time() - began < 5
            kept = final.total.in_flight if spool and struck else 0
            checked(final, SENT, kept=kept)
            if not struck:
                assert final.total.acked >= 30
                assert final.total.dead_lettered >= 12
            await alone()
            if kept:
                await replayed(w, kept)

        with no_descriptor_left(count):
            with_gateway(lambda w: body(_with(w, engine, spool)))
        return failed

    everywhere(step, run)


async def replayed(w: GatewayWorld, kept: int) -> None:
    """Check that the next gateway delivers what the last one kept."""
    again = GatewayWorld(
        w.simulation, w.kafka, w.path, options("producer", spool=True, world=str(w.path))
    )
    await again.gateway.start()
    async with asyncio.timeout(60):
        while again.gateway.snapshot().total.in_flight:
            again.gateway._pump()
            await asyncio.sleep(0.02)
    final = await again.gateway.close()
    checked(final, kept)
    assert final.total.replayed == kept
    assert os.listdir(w.path / "spool") == ["lock"]


def _with(w: GatewayWorld, engine: str, spool: bool) -> GatewayWorld:
    """Return the world with a gateway of other options."""
    return GatewayWorld(
        w.simulation, w.kafka, w.path, options(engine, spool=spool, world=str(w.path))
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_start_is_cancelled_at_any_await(engine: str) -> None:
    """Once or twice; the sockets, the spool and the loop are free afterwards."""

    def run(count: int) -> bool:
        done = False

        async def body(w: GatewayWorld) -> None:
            nonlocal done
            started = asyncio.ensure_future(w.gateway.start())
            for _ in range(count // 2):
                await asyncio.sleep(0)
            done = started.done()
            started.cancel()
            if count % 2:
                await asyncio.sleep(0)
                started.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await started
            await w.gateway.close()
            assert not (w.path / "stream").exists()
            await alone()
            again = _with(w, engine, spool=True)
            await again.gateway.start()
            again.feed(("t", b"v"))
            await asyncio.sleep(0.5)
            checked(await again.gateway.close(), 1)

        with no_descriptor_left(count):
            with_gateway(lambda w: body(_with(w, engine, spool=True)))
        return not done

    count = 0
    while run(count):
        count += 1
    assert count > 3


@pytest.mark.parametrize("spool", [False, True], ids=["memory", "spool"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_gateway_is_closed_at_any_await_of_its_start(engine: str, spool: bool) -> None:
    """Regression: the start went on, and opened parts that nobody closed."""

    def run(count: int) -> bool:
        done = False

        async def body(w: GatewayWorld) -> None:
            nonlocal done
            started = asyncio.ensure_future(w.gateway.start())
            for _ in range(count):
                await asyncio.sleep(0)
            done = started.done()
            final = await w.gateway.close()
            assert final.total.received == 0
            if done:
                await started
            else:
                with pytest.raises(Closed):
                    await started
            assert not w.gateway.accepting
            assert await w.gateway.close() is final
            assert not (w.path / "stream").exists()
            await alone()
            again = _with(w, engine, spool)
            await again.gateway.start()
            again.feed(("t", b"v"))
            await asyncio.sleep(0.5)
            checked(await again.gateway.close(), 1)

        with no_descriptor_left(count):
            with_gateway(lambda w: body(_with(w, engine, spool)))
        return not done

    count = 0
    while run(count):
        count += 1
    assert count > 3


@short_steps
@pytest.mark.parametrize("spool", [False, True], ids=["memory", "spool"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_close_is_cancelled_at_any_await(engine: str, spool: bool, step: int) -> None:
    """The caller is cancelled; the gateway closes nevertheless, and delivers what it has."""

    def run(count: int) -> bool:
        done = False

        async def body(w: GatewayWorld) -> None:
            nonlocal done
            faults(w.kafka)
            await w.gateway.start()
            traffic_ = asyncio.ensure_future(traffic(w))
            await asyncio.sleep(0.06)
            traffic_.cancel()
            closing = asyncio.ensure_future(w.gateway.close())
            w.simulation.loop.at_step(count, closing.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await closing
            done = not closing.cancelled()
            final = await w.gateway.close()
            checked(final, w.sent, kept=final.total.in_flight if spool else 0)
            await alone()

        with no_descriptor_left(count):
            with_gateway(lambda w: body(_with(w, engine, spool)))
        return not done

    everywhere(step, run)


@short_steps
@pytest.mark.parametrize("change", ["engine", "kafka", "inputs"])
def test_a_reload_is_cancelled_at_any_await(change: str, step: int) -> None:
    """The change is completed, nothing is lost, and the order per partition is kept."""

    def run(count: int) -> bool:
        done = False

        async def body(w: GatewayWorld) -> None:
            nonlocal done
            await w.gateway.start()
            values = options("producer")
            feeding = asyncio.ensure_future(numbers(w))
            await asyncio.sleep(0.02)
            if change == "engine":
                values = options("bruce")
            elif change == "kafka":
                values["kafka"] = {
                    "bootstrap_servers": w.kafka.bootstrap_servers,
                    "client_id": "another",
                }
            else:
                values["inputs"] = ("stream", "second")
            w.write(**values)
            begun = False

            async def reload() -> None:
                nonlocal begun
                begun = True
                await w.gateway.reload()

            reloading = asyncio.ensure_future(reload())
            w.simulation.loop.at_step(count, reloading.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await reloading
            done = not reloading.cancelled()
            again = await w.gateway.reload()
            assert not again or not begun  # it was completed, unless it had not begun
            await feeding
            await asyncio.sleep(0.5)
            final = await w.gateway.close()
            checked(final, w.sent)
            assert final.total.acked == w.sent
            assert w.kafka.values("u") == [b"%d" % n for n in range(w.sent)]
            await alone()

        with no_descriptor_left(count):
            with_gateway(lambda w: body(_with(w, "producer", spool=False)))
        return not done

    everywhere(step, run)


async def numbers(w: GatewayWorld) -> None:
    for n in range(30):
        w.feed(("u", b"%d" % n))
        await asyncio.sleep(0.003)


def test_a_reload_does_not_discard_what_is_being_appended() -> None:
    """Regression: a piece that waited for a producer's metadata was in no count of the engine.

    The reload took the old engine as empty, closed it, and the piece was discarded.
    """

    async def body(w: GatewayWorld) -> None:
        await w.gateway.start()
        producer = w.gateway.engine
        held_back = asyncio.Event()
        inner: Callable[..., Coroutine[Any, Any, Any]] = producer._producer  # type: ignore[attr-defined]

        async def slow(*arguments: object) -> Any:
            await held_back.wait()
            return await inner(*arguments)

        producer._producer = slow  # type: ignore[attr-defined]
        producer._send_now = lambda lane: False  # type: ignore[attr-defined]  what has to wait
        w.feed(("u", b"0"))
        await asyncio.sleep(0.5)
        assert sum(map(sum, producer.held().values())) == 1
        w.write(**options("bruce"))
        reloading = asyncio.ensure_future(w.gateway.reload())
        await asyncio.sleep(0.5)
        assert not reloading.done()
        held_back.set()
        assert "delivery.engine" in await reloading
        final = await w.gateway.close()
        checked(final, 1)
        assert w.kafka.values("u") == [b"0"]

    with_gateway(lambda w: body(_with(w, "producer", spool=False)))
