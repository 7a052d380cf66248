"""FramePool: buffers for large frames, reused when nothing refers to their memory.

Allocating a fresh megabyte costs more than receiving into it: the system zeroes the pages one page
fault at a time, and unmaps the pages when the memory is freed. Under uvloop, allocation took 0.8 s
of CPU per GB received, and all other work 0.17 s (benchmarks/micro/connection.py).

The pool does not track which buffers are free, because any code may hold views of them. Before a
buffer is reused, the pool tries to resize it: Python does not resize a bytearray while a view of it
exists.
"""

from __future__ import annotations

from typing import Final

__all__ = ["POOL_BYTES", "FramePool"]

POOL_BYTES: Final = 16 * 1024 * 1024


class FramePool:
    """The buffers that were used last for large frames.

    The total size of the buffers is at most `max_bytes`. Above this limit, the buffers that were
    taken longest ago are removed from the pool, even if they are in use.
    """

    __slots__ = ("_buffers", "_held", "_ready", "max_bytes")

    def __init__(self, max_bytes: int = POOL_BYTES) -> None:
        self.max_bytes = max_bytes
        self._buffers: list[bytearray] = []  # the least recently taken buffer is first
        self._held = 0
        self._ready: memoryview | None = None

    @property
    def held(self) -> int:
        """The total size of the pool's buffers, in use or not."""
        return self._held

    def ready(self, size: int) -> memoryview:
        """Return memory of `size` bytes to receive into.

        Until `claim` or a call with another size, calls return the same memory. Readers share the
        memory while they wait for large frames. A reader that keeps received bytes must therefore
        call `claim` before it returns to the loop.
        """
        view = self._ready
        if view is None or len(view) != size:
            self._ready = None  # otherwise, `take` would regard the buffer of this view as in use
            view = self._ready = memoryview(self.take(size))[:size]
        return view

    def claim(self) -> None:
        """Let the caller keep the memory that `ready` returned last."""
        self._ready = None

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes, new or reused, with any content."""
        buffers = self._buffers
        for index in range(len(buffers) - 1, -1, -1):
            buffer = buffers[index]
            if size <= len(buffer) <= 2 * size and _unseen(buffer):
                buffers.append(buffers.pop(index))
                return buffer
        # Sizes are rounded up by at most an eighth, so that frames of similar size share buffers.
        step = 1 << max(0, size.bit_length() - 4)
        capacity = -(-size // step) * step
        buffer = bytearray(capacity + 1)
        buffer.pop()  # keeps the allocation, so that `_unseen` can append a byte without growing it
        if capacity <= self.max_bytes:
            buffers.append(buffer)
            self._held += capacity
            while self._held > self.max_bytes:
                self._held -= len(buffers.pop(0))
        return buffer


def _unseen(buffer: bytearray) -> bool:
    """Return whether no view of `buffer` exists."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
