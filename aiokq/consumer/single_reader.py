"""SingleReaderGuard: notices that a second task reads what one reads already."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, Final

__all__ = ["TWO_READERS", "SingleReaderGuard"]

TWO_READERS: Final = "another task is reading from this consumer: use streams(n)"


class SingleReaderGuard:
    """The tasks that loop over an source; the one that began last goes on, older loops are refused.

    A loop that was left cannot be told from one whose body takes long. But once another task has
    begun a loop, a task that goes on with its own was never out of it. What a task does without a
    loop (`anext`, `getone`) says nothing.

    Attributes:
        doubtful: whether there is anything to check; else one task reads, as it should.
    """

    __slots__ = ("_fresh", "_latest", "_newcomer", "_older", "_reader", "doubtful")

    def __init__(self) -> None:
        self.doubtful = False
        self._fresh = False
        # Weak: a task that ended is no reader, and must not be kept for it.
        self._latest: weakref.ref[asyncio.Task[Any]] | None = None
        self._reader: weakref.ref[asyncio.Task[Any]] | None = None
        self._newcomer: weakref.ref[asyncio.Task[Any]] | None = None
        self._older: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    def reads(self) -> None:
        """The running task reads."""
        task = asyncio.current_task()
        self._reader = None if task is None else weakref.ref(task)

    @property
    def reader(self) -> asyncio.Task[Any] | None:
        """The task that began to read last; None if none did, or nobody has it any more."""
        return None if self._reader is None else self._reader()

    def begins(self) -> None:
        """The running task begins a loop; it counts from the first chunk that it gets."""
        self.reads()
        task = asyncio.current_task()
        if task is not None and (self._latest is None or self._latest() is not task):
            self._newcomer = weakref.ref(task)
            self.doubtful = self._fresh = True

    def check(self) -> bool:
        """The running task wants the next chunk.

        Returns:
            Whether another task has begun since the last time, and this or that one may be in a
            loop all the same.

        Raises:
            RuntimeError: another task has begun a loop since this one began its own.
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
