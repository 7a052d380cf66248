"""`Scribe`: writes log files in a thread, so that a slow disk does not delay messages.

The queue has a size limit. A job that does not fit is dropped, and the caller counts it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["Scribe"]

logger = logging.getLogger("aiokq.gateway")

MOST_BYTES: Final = 16 * 1024 * 1024
"""Largest size of the messages that wait to be written."""

CLOSE_SECONDS: Final = 5.0
"""Longest time for which `close` waits for the disk."""

LEAST_CLOSE_SECONDS: Final = 1.0
"""Time that `close` waits for the disk in any case, because a shutdown writes many lines last."""


class Scribe:
    """Runs jobs in the order in which they were submitted, one at a time.

    The thread is a daemon, so that the process can end even if a write blocks forever, for example
    to a FIFO without a reader.
    """

    def __init__(self, max_bytes: int = MOST_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Condition()
        self._jobs: deque[tuple[Callable[[], None], int]] = deque()
        self._bytes = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Callable[[], None], size: int) -> bool:
        """Queue a job; return False if there is no room for `size` bytes. A size of 0 always fits.

        Also return False after `close`, or if no thread can be started. A job must handle its
        errors.
        """
        with self._lock:
            if self._closed or (size and self._bytes and self._bytes + size > self._max_bytes):
                return False
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="aiokq-gateway-log", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system has no thread, or the interpreter ends
                    return False
                self._thread = thread
            self._jobs.append((job, size))
            self._bytes += size
            self._lock.notify()
        return True

    async def flush(self) -> None:
        """Wait until all submitted jobs have run."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def resolve() -> None:
            if not done.done():
                done.set_result(None)

        def finished() -> None:
            loop.call_soon_threadsafe(resolve)

        if self.submit(finished, 0):
            await done

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Run the queued jobs for at most `seconds`. May be called twice.

        Args:
            seconds: less than LEAST_CLOSE_SECONDS, and more than CLOSE_SECONDS, have no effect.
        """
        seconds = min(max(seconds, LEAST_CLOSE_SECONDS), CLOSE_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self.flush()
        except TimeoutError:
            logger.error(
                "log files were not written completely within %.3g s: jobs=%s",
                seconds,
                len(self._jobs),
            )
        with self._lock:
            self._closed = True
            self._lock.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._jobs:
                    if self._closed:
                        return
                    self._lock.wait()
                job, size = self._jobs.popleft()
            try:
                job()
            except Exception:
                logger.exception("a log file was not written")
            del job  # it may hold messages
            with self._lock:
                self._bytes -= size
