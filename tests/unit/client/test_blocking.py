"""run_blocking: in which threads functions run, how many at a time, and in which order."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading

import pytest

import aiokq
from aiokq.client import blocking
from aiokq.core.types import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)

REQUEST = contextvars.ContextVar("REQUEST", default="")


class Work:
    """Functions that block until the test releases them."""

    def __init__(self) -> None:
        self.began: list[object] = []
        self.running = self.most = 0
        self._gates: dict[object, threading.Event] = {}
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def __call__(self, item: object, name: object) -> object:
        with self._lock:
            self.began.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            gate = self._gates.setdefault(name, threading.Event())
        self._loop.call_soon_threadsafe(self._changed.set)
        assert gate.wait(10)
        with self._lock:
            self.running -= 1
        return name

    def let_go(self, *names: object) -> None:
        with self._lock:
            gates = [self._gates.setdefault(name, threading.Event()) for name in names]
        for gate in gates:
            gate.set()

    async def until_began(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.began) < count:
                await self._changed.wait()
                self._changed.clear()


async def test_a_coroutine_function_is_refused():
    """The call returned a coroutine that was never awaited, so the handler never ran."""

    async def handle(item: object) -> None: ...

    with pytest.raises(TypeError, match="coroutine function"):
        await aiokq.run_blocking(handle, P0)


async def test_a_blocking_function_leaves_the_loop_running():
    """A handler that sleeps past the session timeout must not get its member removed."""
    ticks = 0
    done = threading.Event()

    async def tick() -> None:
        nonlocal ticks
        while ticks < 3:
            await asyncio.sleep(0)
            ticks += 1
        done.set()

    ticking = asyncio.create_task(tick())
    assert await aiokq.run_blocking(done.wait, 10)
    assert ticks == 3
    await ticking


async def test_calls_of_one_partition_run_in_order():
    """Two records of a partition in two threads could be processed in the wrong order."""
    work = Work()
    tasks = [asyncio.create_task(aiokq.run_blocking(work, P0, n)) for n in range(5)]
    await work.until_began(1)
    other = asyncio.create_task(aiokq.run_blocking(work, P1, "other"))
    await work.until_began(2)
    assert work.began == [0, "other"]
    work.let_go("other", *range(5))
    assert await asyncio.gather(*tasks) == list(range(5))
    assert await other == "other"
    assert work.began == [0, "other", 1, 2, 3, 4]
    assert blocking._CALLS[asyncio.get_running_loop()]._last == {}


async def test_the_number_of_threads_is_limited():
    """A thread for each record would overload the machine."""
    work = Work()
    count = blocking.BLOCKING_THREADS + 5
    names = range(count)
    tasks = [asyncio.create_task(aiokq.run_blocking(work, None, n)) for n in names]
    await work.until_began(blocking.BLOCKING_THREADS)
    work.let_go(*names)
    assert await asyncio.gather(*tasks) == list(names)
    assert work.most == blocking.BLOCKING_THREADS


async def test_waiting_for_a_partition_occupies_no_thread():
    """A slow partition with many waiting calls must not stop the others."""
    work = Work()
    count = blocking.BLOCKING_THREADS * 2
    tasks = [asyncio.create_task(aiokq.run_blocking(work, P0, n)) for n in range(count)]
    await work.until_began(1)
    work.let_go("other")
    assert await aiokq.run_blocking(work, P1, "other") == "other"
    work.let_go(*range(count))
    await asyncio.gather(*tasks)


async def test_a_call_cancelled_while_waiting_never_runs_and_delays_no_other():
    """The call after it still waits for the one before it."""
    work = Work()
    first, second, third = (asyncio.create_task(aiokq.run_blocking(work, P0, n)) for n in (1, 2, 3))
    await work.until_began(1)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert work.began == [1]
    work.let_go(1, 3)
    assert await asyncio.gather(first, third) == [1, 3]
    assert work.began == [1, 3]


async def test_a_call_cancelled_while_running_keeps_its_place():
    """A thread cannot be stopped, so the next call has to wait for it."""
    work = Work()
    first = asyncio.create_task(aiokq.run_blocking(work, P0, 1))
    await work.until_began(1)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(aiokq.run_blocking(work, P0, 2))
    await asyncio.sleep(0)
    assert work.began == [1]
    work.let_go(1, 2)
    assert await second == 2
    assert work.most == 1


async def test_an_exception_of_the_function_is_raised_and_the_next_call_runs():
    """A failing handler must not stop its partition."""

    def fail(item: object) -> None:
        raise LookupError("no such customer")

    with pytest.raises(LookupError, match="no such customer"):
        await aiokq.run_blocking(fail, P0)
    assert await aiokq.run_blocking(str, P0) == "t-0"


async def test_a_failure_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture):
    """The waiting task was cancelled before the function failed."""
    work = Work()

    def fail(item: object) -> None:
        work(item, "fail")
        raise LookupError("no such customer")

    task = asyncio.create_task(aiokq.run_blocking(fail, P0))
    await work.until_began(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with caplog.at_level(logging.ERROR, "aiokq.client"):
        work.let_go("fail", "next")
        await aiokq.run_blocking(work, P0, "next")
    assert "no such customer" in caplog.text


async def test_context_variables_and_keywords_are_passed_to_the_thread():
    """Otherwise a trace id would be lost."""
    REQUEST.set("7")

    def handle(record: aiokq.Record, *, greeting: str) -> str:
        return f"{greeting} {REQUEST.get()} {record.offset}"

    record = aiokq.Record("t", 0, 5, 0)
    assert await aiokq.run_blocking(handle, record, greeting="hello") == "hello 7 5"


def test_threads_end_with_their_loop():
    """A program that runs a loop for each job must not accumulate threads."""
    names = []

    async def main() -> None:
        names.append(await aiokq.run_blocking(lambda: threading.current_thread()))

    asyncio.run(main())
    gc.collect()
    names[0].join(10)
    assert not names[0].is_alive()
