"""ReaderWaiters: the futures of readers that wait for a record, an error or the end of reading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["ReaderWaiters"]


class ReaderWaiters:
    """Waiting readers of one record source.

    Args:
        starved: called when a reader begins to wait, and no other reader waits.

    Attributes:
        hungry: whether a reader is waiting. While a reader waits, the source's partitions without
            buffered data are fetched even if the buffers are full.
    """

    __slots__ = ("_futures", "_starved", "hungry")

    def __init__(self, starved: Callable[[], None]) -> None:
        self.hungry = False
        self._starved = starved
        self._futures: list[asyncio.Future[None]] = []

    def __bool__(self) -> bool:
        return bool(self._futures)

    def add(self, future: asyncio.Future[None]) -> None:
        """Complete `future` at the next `wake`."""
        # A cancelled wait stays in the list until the next wait is added.
        self._futures = [waiter for waiter in self._futures if not waiter.done()]
        self._futures.append(future)
        future.add_done_callback(self._done)
        if not self.hungry:
            self.hungry = True
            self._starved()

    def wake(self) -> None:
        """Wake all waiting readers, which then check again for records."""
        futures, self._futures = self._futures, []
        for future in futures:
            if not future.done():
                future.set_result(None)
        self.hungry = False

    @property
    def waiting(self) -> bool:
        """Whether the future of a reader is pending."""
        return any(not future.done() for future in self._futures)

    def _done(self, _: asyncio.Future[None]) -> None:
        self.hungry = self.waiting
