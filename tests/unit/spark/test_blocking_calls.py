"""Blocking calls in threads: cancelling a wait ends the call, and nothing depends on one loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from aiokq.spark import blocking_calls


class Properties(dict[str, str]):
    def clone(self) -> Properties:
        return Properties(self)


class Context:
    """Stands in for the context of a classic session, with local properties and cancelled tags."""

    def __init__(self) -> None:
        self.kept = threading.local()
        self.cancelled: list[str] = []
        self.on_cancel: Callable[[], None] = lambda: None
        self.interrupts = False

    _jsc = property(lambda self: self)

    def sc(self) -> Context:
        return self

    def getLocalProperties(self) -> Properties:
        if not hasattr(self.kept, "properties"):
            self.kept.properties = Properties()
        return cast("Properties", self.kept.properties)

    def setLocalProperties(self, properties: Properties) -> None:
        self.kept.properties = properties

    def addJobTag(self, tag: str) -> None:
        self.getLocalProperties()["spark.job.tags"] = tag

    def setInterruptOnCancel(self, interrupts: bool) -> None:
        self.interrupts = interrupts

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancelled.append(tag)
        self.on_cancel()


class Session:
    def __init__(self) -> None:
        self.sparkContext = Context()


async def test_a_cancelled_wait_cancels_its_jobs_and_outlives_none() -> None:
    """A collect that continues after its request was cancelled would waste the cores."""
    session = Session()
    context = session.sparkContext
    begun, ended = threading.Event(), threading.Event()
    tags: set[str] = set()

    def collect() -> None:
        tags.add(context.getLocalProperties()["spark.job.tags"])
        begun.set()
        assert ended.wait(60)
        raise RuntimeError("job cancelled")

    def on_cancel() -> None:
        # The first interrupt may come before the job exists, so interrupts are repeated.
        if len(context.cancelled) == 2:
            ended.set()

    context.on_cancel = on_cancel
    task = asyncio.create_task(blocking_calls.call(cast("Any", session), collect))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert context.interrupts
    assert set(context.cancelled) == tags
    assert len(tags) == 1


def test_one_loop_after_another_uses_the_same_threads() -> None:
    """Nothing may be bound to the loop of the first asyncio.run."""

    async def main() -> set[str]:
        names = await asyncio.gather(
            *(blocking_calls.in_thread(lambda: threading.current_thread().name) for _ in range(4))
        )
        return set(names)

    used = [asyncio.run(main()) for _ in range(3)]
    before = threading.active_count()
    used += [asyncio.run(main()) for _ in range(20)]

    assert all(name.startswith("aiokq-spark") for names in used for name in names)
    assert threading.active_count() <= max(before, blocking_calls.THREADS + 4)


async def test_a_call_leaves_nothing_to_the_next_one_of_its_thread() -> None:
    """A leftover tag would cancel the next call's jobs, a leftover pool would delay them."""
    session = cast("Any", Session())
    context = session.sparkContext
    found: list[tuple[str, dict[str, str]]] = []

    def fail() -> None:
        properties = context.getLocalProperties()
        found.append((threading.current_thread().name, dict(properties)))
        properties["spark.scheduler.pool"] = "slow"
        raise LookupError("no such table")

    for _ in range(40):
        with pytest.raises(LookupError, match="no such table"):
            await blocking_calls.call(session, fail)

    assert len({name for name, _ in found}) <= blocking_calls.THREADS
    assert all(properties.keys() == {"spark.job.tags"} for _, properties in found)
    assert len({properties["spark.job.tags"] for _, properties in found}) == 40


ENDING = """
import asyncio
from aiokq.spark import blocking_calls
from aiokq.spark.handlers import foreach_batch
from aiokq.spark.worker import loop_thread

async def handler(frame, batch):
    await asyncio.sleep(0)

async def main():
    await blocking_calls.in_thread(lambda: None)

for _ in range(3):
    asyncio.run(main())
    foreach_batch(handler)(None, 0)
forever = loop_thread().submit(asyncio.sleep(3600))
print("done")
"""


def test_a_process_that_used_the_bridges_ends_at_once_and_says_nothing() -> None:
    """Waiting threads, or a coroutine on the loop, delayed the end of a driver."""
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", ENDING],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
    assert time.monotonic() - started < 60
