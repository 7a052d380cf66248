"""BufferMemoryWaiters: the calls that wait for free buffer memory of the `Accumulator`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from aiokq.core.errors import BufferFull, KafkaError, copy_error

__all__ = ["BufferMemoryWaiters"]

T = TypeVar("T")


class _Waiter:
    __slots__ = ("future", "number", "size")

    def __init__(self, number: int, size: int, future: asyncio.Future[None]) -> None:
        self.number = number
        self.size = size
        self.future = future


class BufferMemoryWaiters:
    """FIFO queue of calls that wait for buffer memory; served strictly in order.

    Memory stays reserved for a waiter between the grant and the waiter's next step. A waiter that
    is cancelled in between returns the memory, and the next waiter is served.

    Args:
        fits: returns whether the given number of bytes is free. The number is the size that a
            waiter needs, plus the memory that was granted but is not used yet.
        waiting: called with the number of waiters, including those with granted memory, whenever
            the number may have changed.
        timeout: seconds after which a waiter fails with BufferFull.
    """

    def __init__(
        self, fits: Callable[[int], bool], waiting: Callable[[int], None], timeout: float
    ) -> None:
        self._fits = fits
        self._waiting = waiting
        self._timeout = timeout
        self._numbers = count()
        self._line: deque[_Waiter] = deque()
        self._granted: set[_Waiter] = set()
        self._granted_bytes = 0

    def __len__(self) -> int:
        return len(self._line) + len(self._granted)

    async def take(self, size: int, append: Callable[[], T]) -> T:
        """Wait for memory, then return the result of `append()`.

        `append` is called as soon as the waiter resumes after the grant, without another await. If
        `append` raises BufferFull, or an earlier call waits again, this call waits again at its
        previous position in the queue.

        Args:
            size: bytes that must be free before `append` is called; `append` may take more.

        Raises:
            BufferFull: the memory did not become free within max_block_ms.
            KafkaError: the error passed to `fail`.
            Exception: the exception of `append`, except BufferFull.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        waiter = _Waiter(next(self._numbers), size, loop.create_future())
        self._line.append(waiter)
        try:
            self._waiting(len(self))
            if self._line[0] is waiter:
                self.freed()
            while True:
                handle = loop.call_at(deadline, self._give_up, waiter)
                try:
                    await waiter.future
                finally:
                    handle.cancel()
                if not self._line or waiter.number < self._line[0].number:
                    try:
                        return append()
                    except BufferFull:
                        pass  # the `append` of an earlier waiter took more bytes than its `size`
                self._ungrant(waiter)
                waiter.future = loop.create_future()
                self._put_back(waiter)
        finally:
            self._leave(waiter)

    def freed(self) -> None:
        """Grant freed memory to waiters, in order."""
        while self._line:
            waiter = self._line[0]
            if waiter.future.done():  # cancelled or timed out: the waiter cleans up when it runs
                self._line.popleft()
                continue
            if not self._fits(self._granted_bytes + waiter.size):
                return
            self._line.popleft()
            self._granted.add(waiter)
            self._granted_bytes += waiter.size
            waiter.future.set_result(None)

    def fail(self, error: KafkaError) -> None:
        """Fail, with a copy of `error`, all waiters that have not been granted memory."""
        for waiter in self._line:
            if not waiter.future.done():
                waiter.future.set_exception(copy_error(error))

    def _leave(self, waiter: _Waiter) -> None:
        """Remove a waiter that has appended or failed; serve the next waiters."""
        self._ungrant(waiter)
        if waiter in self._line:
            self._line.remove(waiter)
        self._waiting(len(self))
        self.freed()

    def _put_back(self, waiter: _Waiter) -> None:
        """Put `waiter` back at the position of its number, because waiters resume in any order."""
        place = 0
        while place < len(self._line) and self._line[place].number < waiter.number:
            place += 1
        self._line.insert(place, waiter)

    def _ungrant(self, waiter: _Waiter) -> None:
        if waiter in self._granted:
            self._granted.discard(waiter)
            self._granted_bytes -= waiter.size

    def _give_up(self, waiter: _Waiter) -> None:
        if not waiter.future.done():
            waiter.future.set_exception(
                BufferFull(
                    f"no free space in buffer_memory for max_block_ms={self._timeout * 1000:.0f}: "
                    "the brokers take records more slowly than they are sent; raise "
                    "buffer_memory, or send less"
                )
            )
