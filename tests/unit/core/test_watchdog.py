"""The watchdog. Only real time shows stalls, so these tests wait for milliseconds."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable

from aiokq.core.watchdog import Watchdog, _LoopThread

logger = logging.getLogger("aiokq.core")


class Noticed(logging.Handler):
    """Calls `callback` when the watchdog's thread has logged."""

    callback: Callable[[], None]
    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage()
        self.callback()


async def test_a_stall_is_reported_with_the_line_that_stalled():
    """A blocking call in a handler makes everything else time out."""
    noticed, logged = threading.Event(), Noticed()
    logged.callback = noticed.set
    reported = asyncio.Event()
    reports: list[tuple[float, str]] = []

    def on_stall(seconds: float, stack: str) -> None:
        reports.append((seconds, stack))
        reported.set()

    def the_blocking_call() -> None:
        noticed.wait(10)

    watchdog = Watchdog(on_stall, threshold=0.05, interval=0.005)
    logger.addHandler(logged)
    try:
        watchdog.start()
        watchdog.start()
        the_blocking_call()
        await reported.wait()
    finally:
        logger.removeHandler(logged)
        watchdog.stop()
    seconds, stack = reports[0]
    assert seconds >= 0.05
    assert "the_blocking_call" in stack
    assert "event loop is blocked" in logged.text


async def test_a_busy_loop_that_responds_is_not_reported():
    """False alarms would teach users to ignore the watchdog."""
    reports: list[float] = []
    watchdog = Watchdog(lambda s, _: reports.append(s), threshold=30, interval=0.002)
    watchdog.start()
    for _ in range(10):
        await asyncio.sleep(0.002)
    assert watchdog.running
    watchdog.stop()
    watchdog.stop()
    assert not watchdog.running
    assert watchdog._thread is not None
    await asyncio.to_thread(watchdog._thread.join, 5)
    assert not watchdog._thread.is_alive()
    assert reports == []


def test_the_thread_ends_with_its_loop():
    """A client that was never closed must not keep a thread."""
    watchdog = Watchdog(lambda *_: None, threshold=0.02, interval=0.002)

    async def main() -> None:
        watchdog.start()

    asyncio.run(main())
    assert watchdog._thread is not None
    watchdog._thread.join(5)
    assert not watchdog.running


async def test_watchdogs_of_one_loop_share_a_thread():
    """A process with a hundred clients had a hundred threads, and logged a hundred stacks."""
    noticed, logged = threading.Event(), Noticed()
    logged.callback = noticed.set
    reports: list[str] = []
    patient = Watchdog(lambda *_: reports.append("patient"), threshold=30, interval=15)
    patient.start()
    gone = Watchdog(lambda *_: reports.append("gone"), threshold=0.05, interval=0.005)
    gone.start()
    strict = [
        Watchdog(lambda *_: reports.append("strict"), threshold=0.05, interval=0.005)
        for _ in range(2)
    ]
    logger.addHandler(logged)
    try:
        for watchdog in strict:
            watchdog.start()
        gone.stop()
        thread = patient._thread
        assert thread is not None
        assert {watchdog._thread for watchdog in strict} == {thread}
        noticed.wait(10)
        while len(reports) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    finally:
        logger.removeHandler(logged)
        for watchdog in (patient, *strict):
            watchdog.stop()
    assert reports == ["strict", "strict"]
    assert logged.text.count("event loop is blocked") == 1
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()


async def test_a_loop_is_watched_again_after_the_last_one_stopped():
    """A client opened after another was closed must not join a thread that is about to end."""
    first, second = (Watchdog(lambda *_: None, threshold=30, interval=0.005) for _ in range(2))
    first.start()
    first.stop()
    second.start()
    assert second._thread is not first._thread
    assert second.running
    second.stop()


def test_a_loop_that_has_ended_is_not_kept() -> None:
    """In a long-lived process each asyncio.run() left its loop in memory."""

    async def watched() -> weakref.ref[asyncio.AbstractEventLoop]:
        watchdog = Watchdog(lambda s, _: None, threshold=30, interval=0.002)
        watchdog.start()
        watchdog.stop()
        return weakref.ref(asyncio.get_running_loop())

    def end_of_threads() -> None:
        for thread in threading.enumerate():
            if thread.name == "aiokq-watchdog":
                thread.join(5)

    loop = asyncio.run(watched())
    end_of_threads()
    gc.collect()
    assert loop() is None


async def test_a_wait_that_ends_far_too_late_is_a_suspension_of_the_process(monkeypatch):
    """SIGSTOP stops the watchdog's thread, too: no line of the program is to blame."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)

    class Late(threading.Event):
        """An event that is not set in time."""

        def __init__(self, took: float) -> None:
            super().__init__()
            self.took = took

        def wait(self, timeout: float | None = None) -> bool:
            nonlocal now
            now += self.took
            return False

    watchdog = Watchdog(lambda seconds, stack: None)
    assert watchdog.suspended(1000) == 0, "it is not started"
    watchdog._thread = thread = _LoopThread(asyncio.get_running_loop(), watchdog)
    assert not thread._wait(Late(0.3), 0.25), "a busy machine"
    assert watchdog.suspended(1000) == 0
    assert thread._wait(Late(4), 0.25)
    assert watchdog.suspended(1000) == 4
    now += 10
    assert watchdog.suspended(12) == 2, "only the last seconds count"
    thread._waiting = (now, now + 0.25)
    now += 5  # the loop runs again before the watchdog's thread
    assert watchdog.suspended(1000) == 9
