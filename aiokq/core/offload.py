"""Owns the way out of the event loop for work that takes long; not the decision what is long.

An executor hop costs about 100 µs, so work below a size is done in place.
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
    pass  # imported first while the interpreter ends: then it is not used

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

FAST_CODEC_THRESHOLD: Final = 128 * 1024
"""Bytes from which snappy, lz4 and zstd leave the loop (about 80 µs of work)."""

GZIP_THRESHOLD: Final = 32 * 1024
"""Bytes from which gzip leaves the loop (about 1 ms of work)."""

THREADS: Final = 12
"""The most functions that run at once. Who may have many that take long leaves most of them to
others."""


def interpreter_ends() -> bool:
    """Whether the pools of the process take no more work, as when functions of `atexit` run.

    They are ended before those functions, and before threads that are no daemons are waited for.
    """
    pools = sys.modules.get("concurrent.futures.thread")
    return getattr(pools, "_shutdown", False) or not threading.main_thread().is_alive()


class Offload(Protocol):
    """Runs blocking functions off the loop.

    Cancelling the await ends the wait only: a function that already runs runs on.
    """

    async def run(self, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        """Always leaves the loop. Raises Closed after close()."""
        ...

    async def run_sized(self, size: int, threshold: int, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        """In place while `size` is below `threshold` (both bytes), else as `run`."""
        ...

    def close(self) -> None:
        """No new work; what was accepted is finished."""
        ...


class ThreadOffload:
    """A bounded pool of threads, made when first needed.

    While the interpreter ends there is no pool, and work is done in place: a broker that is closed
    by `atexit` must still write that it was closed.
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
            self._executor = ThreadPoolExecutor(self._max_workers, self._name)
        try:
            done = asyncio.get_running_loop().run_in_executor(self._executor, fn, *args)
        except RuntimeError:
            if not interpreter_ends():
                raise
            return fn(*args)  # it has begun to end since it was asked
        return await done

    async def run_sized(self, size: int, threshold: int, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        if size < threshold:
            return fn(*args)
        return await self.run(fn, *args)

    def close(self) -> None:
        self._closed = True
        executor, self._executor = self._executor, None
        if executor is not None:
            # Not waited for, the loop must not block; queued work is kept, its awaiters
            # would otherwise see a CancelledError that nobody asked for.
            executor.shutdown(wait=False)


class InlineOffload:
    """Runs everything in place: for simulations, where a thread would bring chance in."""

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
