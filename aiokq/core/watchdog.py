"""Watchdog: detects a blocked event loop and reports the line that blocks it.

Each watched loop has one watchdog thread, which serves all watchdogs of the loop. This thread
schedules a callback on the loop. If the callback does not run in time, the watchdog thread records
the stack of the blocked thread. If the watchdog thread itself does not run in time, the whole
process was suspended, for example by SIGSTOP or a debugger. Never used in a simulation. Tests:
tests/unit/core/test_watchdog.py.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Final

from aiokq.core import forks

logger = logging.getLogger("aiokq.core")

STACK_LIMIT: Final = 40
"""Maximum number of frames recorded; the innermost frames are kept."""

SUSPENSION_SECONDS: Final = 0.5
"""If a wait of the watchdog thread ends this many seconds late, the process was suspended."""

SUSPENSIONS_KEPT: Final = 16
"""Maximum number of suspensions that are remembered."""


class Watchdog:
    """Watches the loop on which it is started.

    Args:
        on_stall: called on the loop when it runs again, with the seconds for which it was blocked
            and the recorded stack. The stall itself is logged as soon as it is detected, so that a
            stall that never ends is logged too.
        threshold: seconds without a response of the loop that count as a stall.
        interval: seconds between two checks; each check costs the loop one callback.
    """

    def __init__(
        self,
        on_stall: Callable[[float, str], object],
        *,
        threshold: float = 0.5,
        interval: float = 0.25,
    ) -> None:
        self.threshold = threshold
        self.interval = interval
        self._on_stall = on_stall
        self._stopped = False
        self._thread: _LoopThread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive() and not self._stopped

    def start(self) -> None:
        """Watch the running loop. May be called again while started."""
        if self._thread is None:
            self._thread = _LoopThread.watched_by(self)

    def stop(self) -> None:
        """Stop watching for good, without waiting for the thread. May be called twice."""
        self._stopped = True
        if self._thread is not None:
            self._thread.leave(self)

    def suspended(self, seconds: float) -> float:
        """Return for how many of the last `seconds` the whole process was suspended.

        A thread that does not release the GIL counts as a suspension. A suspension prolongs a wait
        of the watchdog thread, and counts from the start of this wait. The result may therefore be
        too high by one wait, `interval` or `threshold` seconds, per suspension.
        """
        return 0.0 if self._thread is None else self._thread.suspended(seconds)

    def report(self, stalled: float, stack: str) -> None:
        """Report the end of a stall. Context: the watched loop."""
        if not self._stopped:
            self._on_stall(stalled, stack)


class _Threads:
    """The watchdog threads of this process, by loop."""

    def __init__(self) -> None:
        self.forget()
        forks.watch(self)

    def forget(self) -> None:
        """Replace the threads and the lock in a forked child.

        The threads do not exist in the child, and the lock may be held by a thread of the parent.
        """
        self.lock = threading.Lock()
        self.of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopThread] = (
            weakref.WeakKeyDictionary()
        )


_threads: Final = _Threads()


class _LoopThread(threading.Thread):
    """The thread that watches one loop; it ends with the loop, or when no watchdog is left."""

    def __init__(self, loop: asyncio.AbstractEventLoop, first: Watchdog) -> None:
        super().__init__(name="aiokq-watchdog", daemon=True)
        self._loop = loop
        self._loop_thread = threading.get_ident()
        # The tuple is replaced, never modified, because the thread iterates over it while watchdogs
        # are added and removed.
        self._watchdogs: tuple[Watchdog, ...] = (first,)
        self._changed = threading.Event()
        self._waiting = (time.monotonic(), math.inf)
        """Begin of the present wait, and the time at which the wait should end."""
        self._suspensions: tuple[tuple[float, float], ...] = ()
        """Begin and end of the waits during which the process was suspended."""

    @classmethod
    def watched_by(cls, watchdog: Watchdog) -> _LoopThread:
        """Add `watchdog` to the thread of the running loop; start the thread if necessary."""
        loop = asyncio.get_running_loop()
        with _threads.lock:
            thread = _threads.of.get(loop)
            if thread is not None and thread._watchdogs and thread.is_alive():
                thread._watchdogs += (watchdog,)
                thread._changed.set()
            else:
                thread = _threads.of[loop] = cls(loop, watchdog)
                thread.start()
        return thread

    def leave(self, watchdog: Watchdog) -> None:
        with _threads.lock:
            self._watchdogs = tuple(other for other in self._watchdogs if other is not watchdog)
        self._changed.set()

    def suspended(self, seconds: float) -> float:
        """See `Watchdog.suspended`. Context: any thread."""
        now = time.monotonic()
        began, due = self._waiting
        suspensions = self._suspensions
        if now - due >= SUSPENSION_SECONDS:  # this thread has not run since the suspension
            suspensions += ((began, now),)
        return sum(max(0.0, end - max(start, now - seconds)) for start, end in suspensions)

    def run(self) -> None:
        try:
            self._watch()
        finally:
            # Remove the thread: it refers to the loop, and the entry would keep the loop alive.
            with _threads.lock:
                if _threads.of.get(self._loop) is self:
                    del _threads.of[self._loop]

    def _watch(self) -> None:
        alive = threading.Event()
        while watchdogs := self._watchdogs:
            if self._wait(self._changed, min(watchdog.interval for watchdog in watchdogs)):
                self._changed.clear()
                continue
            alive.clear()
            asked = time.monotonic()
            if not _call_soon(self._loop, alive.set):
                return
            if self._wait(alive, min(watchdog.threshold for watchdog in watchdogs)):
                continue
            stack = _stack_of(sys._current_frames().get(self._loop_thread))
            logger.warning(
                "event loop is blocked: seconds=%.3f\n%s", time.monotonic() - asked, stack
            )
            while not self._wait(alive, min(watchdog.interval for watchdog in watchdogs)):
                if not self._watchdogs or self._loop.is_closed():
                    return
            stalled = time.monotonic() - asked
            for watchdog in self._watchdogs:
                if stalled >= watchdog.threshold:
                    _call_soon(self._loop, watchdog.report, stalled, stack)

    def _wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for the event; return True if it was set or if the process was suspended."""
        began = time.monotonic()
        self._waiting = (began, began + seconds)
        is_set = event.wait(seconds)
        now = time.monotonic()
        self._waiting = (now, math.inf)
        if now - began - seconds < SUSPENSION_SECONDS:
            return is_set
        self._suspensions = (*self._suspensions[1 - SUSPENSIONS_KEPT :], (began, now))
        return True


def _call_soon(
    loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object
) -> bool:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:  # the loop is closed
        return False
    return True


def _stack_of(frame: FrameType | None) -> str:
    if frame is None:
        return "(the event loop's thread has ended)\n"
    return "".join(traceback.format_stack(frame)[-STACK_LIMIT:])
