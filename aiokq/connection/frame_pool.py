"""Owns memory for large frames, used again when nobody looks at it any more.

A fresh megabyte costs more than receiving into it: the system hands out zeroed pages one fault at a
time and takes them back at once. Under uvloop that was 0.8 s of CPU per GB received, where all else
takes 0.17 (benchmarks/micro/connection.py). Whether a buffer is free is not tracked: views of it go
where they please, and the language knows: a bytearray cannot be resized while there are any.
"""

from __future__ import annotations

from typing import Final

__all__ = ["POOL_BYTES", "FramePool"]

POOL_BYTES: Final = 16 * 1024 * 1024


class FramePool:
    """Buffers of the frames received last, up to `max_bytes` together.

    A buffer that stays in use, as of records an application keeps, is forgotten when newer ones
    need its place.
    """

    __slots__ = ("_buffers", "_held", "_ready", "max_bytes")

    def __init__(self, max_bytes: int = POOL_BYTES) -> None:
        self.max_bytes = max_bytes
        self._buffers: list[bytearray] = []  # least recently taken first
        self._held = 0
        self._ready: memoryview | None = None

    @property
    def held(self) -> int:
        """Bytes of the buffers it knows, in use or not."""
        return self._held

    def ready(self, size: int) -> memoryview:
        """Memory of `size` bytes to receive into, the same until somebody claims it.

        So a hundred readers that wait for something large hold one buffer. They must not return to
        the loop between this call and `claim`.
        """
        view = self._ready
        if view is None or len(view) != size:
            self._ready = None  # it may be the one to take
            view = self._ready = memoryview(self.take(size))[:size]
        return view

    def claim(self) -> None:
        """What `ready` gave is the caller's."""
        self._ready = None

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, of any content; free when its views are gone."""
        buffers = self._buffers
        for index in range(len(buffers) - 1, -1, -1):
            buffer = buffers[index]
            if size <= len(buffer) <= 2 * size and _unseen(buffer):
                buffers.append(buffers.pop(index))
                return buffer
        # Sizes are rounded up by an eighth at most, so that frames of about the same size share.
        step = 1 << max(0, size.bit_length() - 4)
        capacity = -(-size // step) * step
        buffer = bytearray(capacity + 1)
        buffer.pop()  # room for the byte that `_unseen` adds: no reallocation
        if capacity <= self.max_bytes:
            buffers.append(buffer)
            self._held += capacity
            while self._held > self.max_bytes:
                self._held -= len(buffers.pop(0))
        return buffer


def _unseen(buffer: bytearray) -> bool:
    """Whether nobody has a view of it."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
