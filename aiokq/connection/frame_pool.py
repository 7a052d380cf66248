"""FramePool: buffers for large frames, reused when nothing refers to their memory.

Allocating a fresh megabyte costs more than receiving into it: the system zeroes its pages one fault
at a time and reclaims them at once. Under uvloop that took 0.8 s of CPU per GB received, where
everything else takes 0.17 (benchmarks/micro/connection.py). The pool does not track which buffers
are free, because any code may hold views of them. It asks Python instead: a bytearray cannot be
resized while a view of it exists.
"""

from __future__ import annotations

from typing import Final

__all__ = ["POOL_BYTES", "FramePool"]

POOL_BYTES: Final = 16 * 1024 * 1024


class FramePool:
    """The buffers of the latest frames, up to `max_bytes` together.

    A buffer that stays in use, as by records that an application keeps, is dropped from the pool
    when newer buffers need its place.
    """

    __slots__ = ("_buffers", "_held", "_ready", "max_bytes")

    def __init__(self, max_bytes: int = POOL_BYTES) -> None:
        self.max_bytes = max_bytes
        self._buffers: list[bytearray] = []  # least recently taken first
        self._held = 0
        self._ready: memoryview | None = None

    @property
    def held(self) -> int:
        """The total size of the pool's buffers, in use or not."""
        return self._held

    def ready(self, size: int) -> memoryview:
        """Return memory of `size` bytes to receive into; it stays the same until `claim` is called.

        A hundred readers that wait for large frames thus share one buffer. A reader must not return
        to the loop between this call and `claim`.
        """
        view = self._ready
        if view is None or len(view) != size:
            self._ready = None  # or `take` would regard the buffer of this view as in use
            view = self._ready = memoryview(self.take(size))[:size]
        return view

    def claim(self) -> None:
        """Forget the memory that `ready` returned last: it belongs to the caller now."""
        self._ready = None

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes, any content; reused when no view is left."""
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
        buffer.pop()  # keeps capacity, so that `_unseen` appends a byte without a reallocation
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
