"""FrameReader: splits the received byte stream into frames, for client and server, without sockets.

A frame is a 4-byte big-endian size and that many bytes. Small frames are copied out of a receive
buffer, several per read. The part of a larger frame that is not in the receive buffer yet is
received directly into the memory of the frame.

After a large frame, more large frames are expected. If memory is ample, the reader prepares memory
for the expected frames. If memory is not ample, the next read is small, so that few bytes are
copied. Frames are writable memoryviews; nothing else uses the bytes of a frame.

Source: Kafka protocol guide, "Common Request and Response Structure".
"""

from __future__ import annotations

from struct import Struct
from typing import Final, Protocol

from aiokq.connection.frame_pool import FramePool
from aiokq.core.errors import ProtocolError

__all__ = [
    "DEFAULT_MAX_FRAME_BYTES",
    "FIRST_STEP_BYTES",
    "RECEIVE_BUFFER_BYTES",
    "SIZE_BYTES",
    "FrameReader",
    "Spare",
    "foreign_protocol",
]

SIZE_BYTES: Final = 4

DEFAULT_MAX_FRAME_BYTES: Final = 104_857_600
"""Kafka's default of `socket.request.max.bytes`."""

_read_size: Final = Struct(">i").unpack_from

# Large enough for thousands of small frames per read, and small enough that only a sixteenth of a 1
# MB frame is copied.
RECEIVE_BUFFER_BYTES: Final = 65_536

# Size of the first read after a frame that was larger than the receive buffer.
_START_BYTES: Final = 4096

# Maximum memory, in bytes, that is prepared for several large frames: as much as a server's
# connection may queue, with room for eight requests of 128 KB.
_TOGETHER_BYTES: Final = 1152 * 1024

# Memory allocated first for a large frame. More is allocated in steps as the bytes arrive, but not
# more than the size of the frame. Produce requests of the Java client and of librdkafka are at most
# 1 MB by default, so one step is enough for them.
FIRST_STEP_BYTES: Final = 2 * 1024 * 1024

LEAST_FOREIGN: Final = 0x14 << 24
"""The least size that results if the first 4 bytes of another protocol are read as a frame size."""

_TLS_RECORD_TYPES: Final = {0x14, 0x15, 0x16, 0x17}
_HTTP_STARTS: Final = (
    b"HTTP", b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ",
)  # fmt: skip


class Spare(Protocol):
    """The interface through which a `FrameReader` consults the memory budget."""

    @property
    def ample(self) -> bool:
        """Whether enough memory is free to read ahead without asking the budget."""
        ...


class FrameReader:
    """Splits the bytes that a transport receives into frames.

    Designed for `asyncio.BufferedProtocol`: `get_buffer` returns the memory to receive into,
    `buffer_updated` takes the number of bytes received. The size of a frame is checked before
    memory is allocated. The memory of a large frame is doubled in steps as bytes arrive, so that a
    hostile size allocates at most `first_step` bytes.

    Args:
        max_frame_bytes: largest accepted frame, without its size field.
        scratch: receive buffer that readers of one loop share, so that an idle connection holds no
            memory. Sharing needs a transport that calls `get_buffer`, receives and calls
            `buffer_updated` without returning to the loop. All transports do so, except those of
            Windows' proactor loop.
        pool: source of the memory of large frames; may be shared under the condition of `scratch`.
        first_step: bytes of memory that are allocated first for a large frame.
        raises_first_step: whether the receipt of a larger frame raises `first_step` to the size of
            this frame. Then only the first of several frames of that size is copied while its
            memory grows, and a hostile size allocates no more than the peer has sent in one frame.
        spare: the memory budget. While it has ample free memory, the read after a large frame takes
            memory for one or more frames of the same size without asking the budget. Used only with
            a shared `scratch` and `pool`.

    Attributes:
        max_frame_bytes: largest accepted frame, without its size field. May be changed between two
            frames.
        first_step: see the argument; may be changed between two frames.
        spare: see the argument; may be changed between two frames.
        together: whether the large frames returned last share one block of memory. The block is
            free when none of these frames is in use.
        slack: bytes of that block that belong to no frame; 0 if `together` is False.
        error: error in the bytes after the frames returned last, or None; nothing may be received
            after an error.
    """

    __slots__ = (
        "_allocated",
        "_checked_first",
        "_expected",
        "_filled",
        "_frame",
        "_frame_size",
        "_partial",
        "_pool",
        "_raises_first_step",
        "_room",
        "_scratch",
        "_start",
        "_taken_ahead",
        "error",
        "first_step",
        "max_frame_bytes",
        "slack",
        "spare",
        "together",
    )

    def __init__(
        self,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        *,
        scratch: bytearray | None = None,
        pool: FramePool | None = None,
        spare: Spare | None = None,
        first_step: int = FIRST_STEP_BYTES,
        raises_first_step: bool = False,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.first_step = first_step
        self.error: ProtocolError | None = None
        self.together = False
        self.slack = 0
        self._expected = 0  # bytes of the large frames expected next, with size fields
        self._taken_ahead = False  # whether the last buffer was memory for expected frames
        self._pool = FramePool() if pool is None else pool
        self.spare = spare
        self._raises_first_step = raises_first_step
        self._scratch = memoryview(bytearray(RECEIVE_BUFFER_BYTES) if scratch is None else scratch)
        self._start = self._scratch  # the part that the next read may fill
        self._partial = b""  # the first bytes of a size field, at most 3
        # Memory of the partial frame. The view is kept between two reads: without a view, the pool
        # would consider the buffer free.
        self._frame: memoryview | None = None
        self._room = 0  # bytes of `_frame` that may be filled before more memory is allocated
        self._frame_size = 0
        self._allocated = 0  # bytes of the block that `_frame` keeps in use
        self._filled = 0
        self._checked_first = False

    @property
    def allocated(self) -> int:
        """The bytes of memory allocated for a partly received frame; 0 if there is none."""
        return self.needs[0]

    @property
    def wanted(self) -> int:
        """The bytes of memory that the partial frame needs next; 0 if it has enough.

        The owner may delay the next `get_buffer` until that memory is available.
        """
        return self.needs[1]

    @property
    def needs(self) -> tuple[int, int]:
        """The properties `allocated` and `wanted` as a pair, computed together to save time."""
        if self._frame is None:
            return 0, 0
        if self._filled < self._room:
            return self._allocated, 0
        return self._allocated, self._next_step() - self._room

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has been partly received."""
        return self._frame is not None or bool(self._partial)

    def get_buffer(self, sizehint: int = -1) -> memoryview:
        """Return non-empty memory to receive into, valid until the next method call."""
        frame = self._frame
        if frame is None:
            spare = self.spare
            self._taken_ahead = bool(
                self._expected and not self._partial and spare is not None and spare.ample
            )
            return self._pool.ready(self._expected) if self._taken_ahead else self._start
        filled = self._filled
        if filled == self._room:
            self._room = self._allocated = self._next_step()
            grown = memoryview(self._take(self._room))
            grown[:filled] = frame[:filled]
            self._frame = frame = grown
        return frame[filled : self._room]

    def buffer_updated(self, nbytes: int) -> list[memoryview]:
        """Count `nbytes` received into the last buffer; return the frames that became complete.

        Raises:
            ProtocolError: a size is negative or above the limit, or the bytes are not Kafka's
                protocol. If complete frames precede the error, they are returned instead, and the
                error is stored in `error`.
        """
        frame = self._frame
        self.together = False
        self.slack = 0
        if frame is None:
            if self._taken_ahead:
                return self._take_expected(nbytes)
            return self._cut(self._scratch[:nbytes])
        self._filled += nbytes
        if self._filled < self._frame_size:
            return []
        self._frame = None
        size = self._frame_size
        self.together = True
        self.slack = self._allocated - size
        if self._raises_first_step and size > self.first_step:
            self.first_step = size
        if not RECEIVE_BUFFER_BYTES < size <= FIRST_STEP_BYTES:
            self._expected = 0
        elif self._expected <= size:
            self._expected = SIZE_BYTES + size
        return [frame[:size]]

    def abandon(self) -> None:
        """Release the memory of a partial frame, because no more bytes will come."""
        self._frame = None
        self._partial = b""

    def feed(self, data: bytes | bytearray | memoryview) -> list[memoryview]:
        """Return the frames completed by `data`; keep a partial frame for the next call.

        Raises:
            ProtocolError: as from `buffer_updated`; the frames before the error are lost.
        """
        frames: list[memoryview] = []
        view = memoryview(data)
        while len(view):
            into = self.get_buffer()
            n = min(len(into), len(view))
            into[:n] = view[:n]
            frames += self.buffer_updated(n)
            view = view[n:]
            if self.error is not None:
                raise self.error
        return frames

    # Hot path, one pass per read of large frames; measured by benchmarks/raw_load.py.
    def _take_expected(self, nbytes: int) -> list[memoryview]:
        """Return the frames received into the prepared memory, usually the expected frames."""
        received = self._pool.ready(self._expected)
        frames: list[memoryview] = []
        position = left = one = 0
        while position + SIZE_BYTES <= nbytes:
            (size,) = _read_size(received, position)
            if not RECEIVE_BUFFER_BYTES < size <= self.max_frame_bytes:
                break
            one = SIZE_BYTES + size
            begin, end = position + SIZE_BYTES, position + one
            if end > nbytes:  # `get_buffer` allocates more if this memory is too small
                self._frame = received[begin:end]
                self._room = len(self._frame)
                self._frame_size = size
                self._filled = nbytes - begin
                self._allocated = len(received)
                position = nbytes
                break
            frames.append(received[begin:end])
            left += size
            position = end
        if not one:  # no large frame was received: copy the small frames
            self._expected = 0
            return self._cut(received[:nbytes])
        self._pool.claim()
        if self._frame is None:  # otherwise, the partial frame holds the memory
            self.together = True
            self.slack = len(received) - left
        # Expect as many bytes again, or twice as many if the memory was full. If the partial frame
        # is too large to be expected, `buffer_updated` resets `_expected` after the frame.
        ahead = 2 * nbytes if nbytes == len(received) else nbytes
        self._expected = max(1, min(-(-ahead // one), _TOGETHER_BYTES // one)) * one
        if position < nbytes:
            try:
                frames += self._cut(received[position:nbytes])
            except ProtocolError as error:
                self.error = error.with_traceback(None)  # the traceback would hold the frames
        return frames

    # Hot path, one pass per read; measured by benchmarks/micro/connection.py.
    def _cut(self, data: memoryview) -> list[memoryview]:
        nbytes = len(data)
        if self._partial:
            missing = SIZE_BYTES - len(self._partial)
            size_field = self._partial + bytes(data[:missing])
            if len(size_field) < SIZE_BYTES:
                self._partial = size_field
                return []
            self._partial = b""
            size = self._check(size_field)
            data = data[missing:]
            nbytes = len(data)
            position = 0
        elif nbytes >= SIZE_BYTES:
            size = self._check(data)
            position = SIZE_BYTES
        else:
            self._partial = bytes(data)
            return []
        frames: list[memoryview] = []
        limit = self.max_frame_bytes
        while True:
            end = position + size
            if end > nbytes:
                self._begin(size, data[position:])
                return frames
            self._start = self._scratch
            frames.append(memoryview(bytearray(data[position:end])))
            position = end + SIZE_BYTES
            if position > nbytes:
                self._partial = bytes(data[end:])
                return frames
            (size,) = _read_size(data, end)
            if not 0 <= size <= limit:
                self.error = _bad_size(size, limit)
                return frames

    def _check(self, data: bytes | memoryview) -> int:
        """Return the size of the frame that begins with `data`, if the limit permits it.

        For the first frame, check that the peer speaks Kafka.
        """
        size: int
        (size,) = _read_size(data, 0)
        if not self._checked_first:
            self._checked_first = True
            foreign = foreign_protocol(bytes(data[:SIZE_BYTES])) if size >= LEAST_FOREIGN else None
            if foreign is not None:
                raise ProtocolError(foreign)
        if not 0 <= size <= self.max_frame_bytes:
            raise _bad_size(size, self.max_frame_bytes)
        return size

    def _begin(self, size: int, start: memoryview) -> None:
        """Store the start of a frame; `get_buffer` allocates more when the owner allows it."""
        self._frame_size = size
        self._filled = len(start)
        self._start = self._scratch[:_START_BYTES] if size > RECEIVE_BUFFER_BYTES else self._scratch
        self._room = self._allocated = self._filled
        self._frame = memoryview(bytearray(start))

    def _take(self, size: int) -> bytearray:
        return self._pool.take(size) if size > RECEIVE_BUFFER_BYTES else bytearray(size)

    def _next_step(self) -> int:
        return min(self._frame_size, max(2 * self._room, self.first_step))


def foreign_protocol(start: bytes) -> str | None:
    """Return advice if the first 4 bytes suggest another protocol than Kafka's, else None.

    If the first 4 bytes of such a protocol are read as the size of a frame, the size is at least
    320 MiB. The first frame of a connection is never so large.
    """
    if start[0] in _TLS_RECORD_TYPES and start[1] == 3 and start[2] <= 4:
        return (
            "the peer speaks TLS, and this side does not: set security_protocol=SSL (or "
            "SASL_SSL) on the client, or use the PLAINTEXT port"
        )
    if start in _HTTP_STARTS:
        return (
            f"the peer speaks HTTP ({start.decode()!r}) and is probably a web server, proxy or "
            "browser: use the address of a Kafka listener"
        )
    if start.startswith(b"SSH-"):
        return "the peer speaks SSH: use the address of a Kafka listener"
    return None


def _bad_size(size: int, limit: int) -> ProtocolError:
    text = size.to_bytes(SIZE_BYTES, "big", signed=True)
    if text.isascii() and text.decode().isprintable():
        return ProtocolError(f"not a Kafka frame: it begins with the text {text.decode()!r}")
    if size < 0:
        return ProtocolError(f"frame of negative size {size}: the peer does not speak Kafka")
    return ProtocolError(
        f"frame of {size} bytes is above the limit of {limit}: the peer does not speak Kafka, or"
        " the limit is too low"
    )
