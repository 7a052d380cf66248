"""SingleReaderGuard: detects that a second task reads from the same record source."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, Final

__all__ = ["TWO_READERS", "SingleReaderGuard"]

TWO_READERS: Final = "another task is reading from this consumer: use streams(n)"


class SingleReaderGuard:
    """The tasks that run `async for` over a record source; only the latest loop may continue.

    A task gets an error if it requests a chunk for its loop after another task has begun a loop.
    Single reads (`anext`, `getone`) do not count as loops.

    Attributes:
        doubtful: whether `check` is necessary; False while one task reads.
    """

    __slots__ = ("_fresh", "_latest", "_newcomer", "_older", "_reader", "doubtful")

    def __init__(self) -> None:
        self.doubtful = False
        self._fresh = False
        # Weak references: a task that has ended is no reader, and must not be kept alive.
        self._latest: weakref.ref[asyncio.Task[Any]] | None = None
        self._reader: weakref.ref[asyncio.Task[Any]] | None = None
        self._newcomer: weakref.ref[asyncio.Task[Any]] | None = None
        self._older: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    def reads(self) -> None:
        """Register the running task as the reader."""
        task = asyncio.current_task()
        self._reader = None if task is None else weakref.ref(task)

    @property
    def reader(self) -> asyncio.Task[Any] | None:
        """The task that began to read last; None if no task did, or if that task was freed."""
        return None if self._reader is None else self._reader()

    def begins(self) -> None:
        """Register a new `async for` loop of the running task.

        The loop becomes the latest loop when the task requests a chunk, which calls `check`.
        """
        self.reads()
        task = asyncio.current_task()
        if task is not None and (self._latest is None or self._latest() is not task):
            self._newcomer = weakref.ref(task)
            self.doubtful = self._fresh = True

    def check(self) -> bool:
        """Check the running task, which requests the next chunk.

        Returns:
            Whether a task has begun an `async for` loop since the last call, and the task of the
            previous loop has not ended. The previous task may then still be in its loop.

        Raises:
            RuntimeError: another task has begun an `async for` loop since the running task began
                its own.
        """
        task = asyncio.current_task()
        if task is None:
            return False
        latest = None if self._latest is None else self._latest()
        if latest is not None and latest.done():
            latest = None
        if self._newcomer is not None and self._newcomer() is task:
            if latest is not None:
                self._older.add(latest)
            self._older.discard(task)
            self._latest, self._newcomer = weakref.ref(task), None
        elif task in self._older:
            if latest is not None:
                raise RuntimeError(TWO_READERS)
            self._older.discard(task)
            self._latest = weakref.ref(task)
        self.doubtful = self._newcomer is not None or bool(self._older)
        fresh, self._fresh = self._fresh, False
        return fresh and latest is not None
