"""Offload: runs long work outside the event loop.

Passing work to the executor costs about 100 µs, so work below a given size is done on the loop.
Tests: tests/unit/core/test_offload.py.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Final, Protocol, TypeVar, TypeVarTuple

from aiokq.core.errors import Closed

try:
    from concurrent.futures import ThreadPoolExecutor
except RuntimeError:
    pass  # this module is imported at interpreter shutdown, when no pool is used
else:

    class _Pool(ThreadPoolExecutor):
        """A pool that uses fewer threads if the system can start no further thread.

        `ThreadPoolExecutor.submit` queues a function and then starts a thread. If the start of the
        thread failed, `submit` would raise an error although another thread runs the function.
        """

        def _adjust_thread_count(self) -> None:
            try:
                super()._adjust_thread_count()
            except RuntimeError as error:
                if interpreter_ends():
                    raise
                if not self._threads:
                    self._work_queue.get_nowait()  # a later thread must not run the refused work
                    raise NoThread(
                        "no new thread can be started: raise the limit of processes (ulimit -u) "
                        "or free memory"
                    ) from error


R = TypeVar("R")
Ts = TypeVarTuple("Ts")

FAST_CODEC_THRESHOLD: Final = 128 * 1024
"""Size of records in bytes from which snappy, lz4 and zstd run in a thread (80 µs of work)."""

GZIP_THRESHOLD: Final = 32 * 1024
"""Size of records in bytes from which gzip runs in a thread (1 ms of work)."""

THREADS: Final = 12
"""Default maximum number of threads of a ThreadOffload.

A caller with many long functions should leave most threads to other callers.
"""


class NoThread(RuntimeError):
    """The function was not run: the pool has no thread, and no thread can be started."""


def interpreter_ends() -> bool:
    """Return whether thread pools refuse new work, as during interpreter shutdown.

    Python shuts the pools down before it calls the functions of `atexit` and before it joins
    non-daemon threads.
    """
    pools = sys.modules.get("concurrent.futures.thread")
    return getattr(pools, "_shutdown", False) or not threading.main_thread().is_alive()


class Offload(Protocol):
    """Runs blocking functions outside the event loop.

    Cancelling the await only ends the wait: a running function continues.
    """

    async def run(self, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        """Run `fn`, in a thread if possible.

        Raises:
            Closed: `close` was called.
            NoThread: the first thread cannot be started; `fn` is not run.
        """
        ...

    async def run_sized(self, size: int, threshold: int, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        """Run `fn` as `run` does if `size` is at least `threshold`, else on the loop."""
        ...

    def close(self) -> None:
        """Refuse new functions; functions passed before are still run to their end."""
        ...


class ThreadOffload:
    """Runs functions in a bounded thread pool, which is created on first use.

    At interpreter shutdown there is no pool, and functions run on the loop. A broker that is closed
    by `atexit` can therefore still record its clean shutdown.
    """

    def __init__(self, max_workers: int = THREADS, *, name: str = "aiokq-offload") -> None:
        self._max_workers = max_workers
        self._name = name
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    async def run(self, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        if self._closed:
            raise Closed(f"{self._name} is closed: work must be handed in before close()")
        if interpreter_ends():
            return fn(*args)
        if self._executor is None:
            self._executor = _Pool(self._max_workers, self._name)
        try:
            done = asyncio.get_running_loop().run_in_executor(self._executor, fn, *args)
        except RuntimeError:
            if not interpreter_ends():
                raise
            return fn(*args)  # interpreter shutdown has begun since the check
        return await done

    async def run_sized(self, size: int, threshold: int, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        if size < threshold:
            return fn(*args)
        return await self.run(fn, *args)

    def close(self) -> None:
        self._closed = True
        executor, self._executor = self._executor, None
        if executor is not None:
            # Do not wait, because that would block the loop. Queued work is kept: its awaiters
            # would otherwise get a CancelledError although nobody cancelled them.
            executor.shutdown(wait=False)


class InlineOffload:
    """Runs functions on the loop: for simulations, where threads would not be deterministic."""

    def __init__(self) -> None:
        self._closed = False

    async def run(self, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        if self._closed:
            raise Closed("this offload is closed: work must be handed in before close()")
        return fn(*args)

    async def run_sized(self, size: int, threshold: int, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        if size < threshold:
            return fn(*args)
        return await self.run(fn, *args)

    def close(self) -> None:
        self._closed = True
