"""Owns noticing that an event loop stands still, and on which line; what follows is the owner's.

A thread asks the loop for a sign of life and, if none comes in time, takes the stack of the
loop's thread while it still hangs. Never used in a simulation. Tests:
tests/unit/core/test_watchdog.py.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final

logger = logging.getLogger("aiokq.core")

STACK_LIMIT: Final = 40
"""Innermost frames that are kept."""


class Watchdog:
    """Watches the loop that starts it.

    Args:
        on_stall: called on the loop, once it runs again, with the seconds it stood still and
            the stack it was first seen with. A stall that does not end is logged all the same.
        threshold: seconds without a sign of life that are a stall.
        interval: seconds between two looks; each costs the loop one callback.
    """

    def __init__(
        self,
        on_stall: Callable[[float, str], object],
        *,
        threshold: float = 0.5,
        interval: float = 0.25,
    ) -> None:
        self._on_stall = on_stall
        self._threshold = threshold
        self._interval = interval
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Context: on the loop to be watched. Harmless if started."""
        if self._thread is not None:
            return
        self._thread = threading.Thread(
            target=self._watch,
            args=(asyncio.get_running_loop(), threading.get_ident()),
            name="aiokq-watchdog",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Returns at once; harmless twice. A watchdog is not started again."""
        self._stopping.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        alive = threading.Event()
        while not self._stopping.wait(self._interval):
            alive.clear()
            asked = time.monotonic()
            if not _call_soon(loop, alive.set):
                return
            if alive.wait(self._threshold):
                continue
            stack = _stack_of(sys._current_frames().get(thread_id))
            logger.warning(
                "event loop stands still: seconds=%.3f\n%s", time.monotonic() - asked, stack
            )
            while not alive.wait(self._interval):
                if self._stopping.is_set() or loop.is_closed():
                    return
            stalled = time.monotonic() - asked
            if not _call_soon(loop, self._report, stalled, stack):
                return

    def _report(self, stalled: float, stack: str) -> None:
        if not self._stopping.is_set():
            self._on_stall(stalled, stack)


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
        return "(the loop's thread has ended)\n"
    return "".join(traceback.format_stack(frame)[-STACK_LIMIT:])
