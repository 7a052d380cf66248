"""ResponseWriter: sends responses of buffers and file ranges, and disconnects stalled clients.

On a plain TCP socket, `os.sendfile` sends a file range from the page cache. For ranges of 1 MB,
`os.sendfile` took 0.35 s of CPU per GB under asyncio, and 0.51 s under uvloop. Reading a range into
memory and writing it took 0.56 s under asyncio, and 0.60 s under uvloop. These are medians of seven
interleaved rounds on a busy machine; single rounds scatter widely (benchmarks/micro/connection.py).

`os.sendfile` is called on the transport's own descriptor while the transport has no unsent output.
The loop's `sendfile` is not used: uvloop does not implement `sendfile`, and asyncio's `sendfile`
detaches the transport from the loop while it sends. Without a plain TCP socket (TLS, the
simulation), ranges are read and written in chunks.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NoReturn, cast

from aiokq.connection.turn import COPIED_BYTES_PER_TURN, SENT_BYTES_PER_TURN
from aiokq.core.errors import ConnectionLost, KafkaError
from aiokq.core.files import FileRange

if TYPE_CHECKING:
    from aiokq.connection.transport import FrameTransport
    from aiokq.connection.turn import Turn
    from aiokq.core.types import Buffer
    from aiokq.wire import Fragment

try:
    import fcntl
    import termios
except ImportError:  # not available on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["SERVER_WRITE_HIGH_WATER_BYTES", "ResponseWriter"]

# A range of at most this size is read into memory and sent together with the fragments around it,
# which saves a system call.
_INLINE_BYTES: Final = 16 * 1024
_CHUNK_BYTES: Final = 256 * 1024
_SENDFILE_BYTES: Final = 1024 * 1024

_IOV_MAX: Final = 1024

# Errors from keepalive and routers; they are not subclasses of ConnectionError.
_GONE: Final = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENOTCONN)

SERVER_WRITE_HIGH_WATER_BYTES: Final = 256 * 1024
"""Bytes of unsent output at which writing pauses.

The unsent output of a slow client can exceed the limit by one write, which is a chunk of a file
range or a whole response without file ranges.
"""


class ResponseWriter:
    """Sends responses on one connection, one after the other.

    Args:
        transport: transport of the connection.
        write_stall: seconds after which a client that receives no bytes is disconnected.
        turn: the node's turn; limits the bytes that are sent before other tasks run.
    """

    __slots__ = ("_stall", "_transport", "_turn", "_writable")

    def __init__(self, transport: FrameTransport, write_stall: float, turn: Turn) -> None:
        self._transport = transport
        self._turn = turn
        self._stall = write_stall
        self._writable: asyncio.Future[None] | None = None

    def write_small(self, fragments: Sequence[Fragment]) -> int | None:
        """Send a small response without waiting; return its size.

        Returns `None` if nothing was sent, because the response is large or has file ranges, or
        because the transport is not ready or has failed. The caller then passes the response to
        `write`.
        """
        # Hot path, measured by benchmarks/micro/produce.py. A coroutine per response would cost
        # more than everything else.
        size = 0
        for fragment in fragments:
            if type(fragment) is FileRange:
                return None
            size += len(fragment)
        held = self._transport.hold(fragments, size)  # type: ignore[arg-type]  # no ranges of files
        return size if held else None

    async def write(self, fragments: Sequence[Fragment]) -> int:
        """Send a response; return its size when the transport can take the next response.

        Raises:
            ConnectionLost: the client is gone, or has received no bytes for `write_stall` seconds;
                or a file is closed, or ends before the end of its range.
            OSError: a file cannot be read.
        """
        size, in_files = 0, False
        for fragment in fragments:
            size += len(fragment)
            in_files = in_files or type(fragment) is FileRange
        transport = self._transport
        if transport.closing:
            raise ConnectionLost(f"connection to {transport.peer} closed before the response")
        if in_files:
            fragments = [
                self._read(fragment, 0, fragment.length)
                if isinstance(fragment, FileRange) and fragment.length <= _INLINE_BYTES
                else fragment
                for fragment in fragments
            ]
            if any(type(fragment) is FileRange for fragment in fragments):
                descriptor = self._descriptor()
                if descriptor is None or any(
                    isinstance(fragment, FileRange) and fragment.file.fileno() is None
                    for fragment in fragments
                ):
                    await self._copy(fragments)
                else:
                    await self._send(descriptor, fragments)
                return size
        transport.write(cast("Sequence[Buffer]", fragments), size)
        if transport.writing_paused:
            await self._drain()
        return size

    def lost(self) -> None:
        """Wake up a waiting write; called when the connection is gone or the socket is writable."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    async def _copy(self, fragments: Sequence[Fragment]) -> None:
        transport = self._transport
        # Without a limit, a client that reads as fast as this method sends would occupy the loop.
        share = self._turn.share(COPIED_BYTES_PER_TURN)
        for fragment in fragments:
            if not isinstance(fragment, FileRange):
                transport.write([fragment], len(fragment))
            else:
                sent = 0
                while sent < fragment.length:
                    chunk = self._read(fragment, sent, min(_CHUNK_BYTES, fragment.length - sent))
                    sent += len(chunk)
                    transport.write([chunk], len(chunk))
                    if transport.writing_paused:
                        await self._drain()
                        share.renew()
                    elif share.spend(0, len(chunk)):
                        await share.next()
                        self._check_open()
            if transport.writing_paused:
                await self._drain()

    def _read(self, fragment: FileRange, skip: int, length: int) -> bytes:
        data = (
            b"" if fragment.file.closed else fragment.file.pread(length, fragment.position + skip)
        )
        if len(data) != length:
            self._shrunk(fragment)
        return data

    async def _drain(self, *, empty: bool = False) -> None:
        """Wait until unsent output is below the low-water mark, or all is sent if `empty` is set.

        Raises:
            ConnectionLost: the client is gone, or has received no bytes for `write_stall` seconds.
        """
        transport = self._transport
        while True:
            before = self._unsent()
            try:
                async with asyncio.timeout(self._stall):
                    await (transport.flush() if empty else transport.drain())
                return
            except TimeoutError:
                self._check_progress(before)

    def _descriptor(self) -> int | None:
        """Return the socket's descriptor if `os.sendfile` can be used on it, else None."""
        transport = self._transport.transport
        if not hasattr(os, "sendfile") or transport.get_extra_info("sslcontext") is not None:
            return None
        sock = transport.get_extra_info("socket")
        if sock is None:
            return None
        descriptor: int = sock.fileno()
        return descriptor if descriptor >= 0 else None

    async def _send(self, descriptor: int, fragments: Sequence[Fragment]) -> None:
        transport = self._transport
        transport.push()
        if transport.unsent:
            await self._drain(empty=True)
        buffers: list[memoryview] = []
        # Without a limit, a client that reads as fast as this method sends would occupy the loop.
        share = self._turn.share(SENT_BYTES_PER_TURN)
        for fragment in fragments:
            if not isinstance(fragment, FileRange):
                buffers.append(memoryview(fragment))
                continue
            await self._send_buffers(descriptor, buffers)
            buffers = []
            position, end = fragment.position, fragment.position + fragment.length
            while position < end:
                # The descriptor is valid until the transport is closing; later its number may
                # belong to another connection.
                self._check_open()
                # The file is closed if its partition was deleted during the response.
                source = fragment.file.fileno()
                if source is None or source < 0:
                    self._shrunk(fragment)
                try:
                    n = os.sendfile(
                        descriptor, source, position, min(end - position, _SENDFILE_BYTES)
                    )
                except (BlockingIOError, InterruptedError):
                    await self._wait_writable(descriptor)
                    share.renew()
                    continue
                except OSError as error:
                    if not _peer_is_gone(error):
                        raise
                    raise self._broken(error) from error
                if n == 0:
                    self._shrunk(fragment)
                position += n
                transport.bytes_out += n
                if share.spend(0, n):
                    await share.next()
        await self._send_buffers(descriptor, buffers)

    async def _send_buffers(self, descriptor: int, buffers: list[memoryview]) -> None:
        while buffers:
            self._check_open()
            try:
                n = os.writev(descriptor, buffers[:_IOV_MAX])
            except (BlockingIOError, InterruptedError):
                await self._wait_writable(descriptor)
                continue
            except OSError as error:
                if not _peer_is_gone(error):
                    raise
                raise self._broken(error) from error
            self._transport.bytes_out += n
            done = 0
            while done < len(buffers) and n >= len(buffers[done]):
                n -= len(buffers[done])
                done += 1
            del buffers[:done]
            if n:
                buffers[0] = buffers[0][n:]

    async def _wait_writable(self, descriptor: int) -> None:
        """Wait until the socket is writable.

        The loop watches a duplicate, because asyncio refuses `add_writer` for the descriptor of a
        transport.
        """
        loop = asyncio.get_running_loop()
        duplicate = os.dup(descriptor)
        try:
            while True:
                before = self._unsent()
                self._writable = loop.create_future()
                loop.add_writer(duplicate, self.lost)  # `lost` only wakes up the wait
                try:
                    async with asyncio.timeout(self._stall):
                        await self._writable
                    return
                except TimeoutError:
                    self._check_progress(before)
                finally:
                    loop.remove_writer(duplicate)
                    self._writable = None
        finally:
            # An open duplicate would keep the connection open after the socket was closed.
            os.close(duplicate)

    def _check_open(self) -> None:
        if self._transport.closing:
            raise ConnectionLost(f"connection to {self._transport.peer} closed during a response")

    def _check_progress(self, before: tuple[int, int]) -> None:
        """Close the connection and raise ConnectionLost if the client has received nothing.

        Args:
            before: an earlier return value of `_unsent`.
        """
        if not self._transport.closing and self._unsent() == before:
            raise self._give_up(
                ConnectionLost(
                    f"{self._transport.peer} read nothing of a response for {self._stall:g} s"
                )
            )

    def _unsent(self) -> tuple[int, int]:
        """Return the numbers of unsent bytes in the transport and in the system's send buffer."""
        queued = 0
        descriptor = None if self._transport.closing else self._descriptor()
        if descriptor is not None and fcntl is not None:
            try:
                answer = fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0\0\0\0")
                queued = int.from_bytes(answer, sys.byteorder)
            except OSError:  # no such ioctl: only the transport's own buffer is counted
                queued = 0
        return self._transport.unsent, queued

    def _broken(self, error: OSError) -> ConnectionLost:
        lost = ConnectionLost(f"connection to {self._transport.peer} lost: {error}")
        self._give_up(lost)
        return lost

    def _shrunk(self, fragment: FileRange) -> NoReturn:
        """Close the connection and raise ConnectionLost, because the range cannot be read."""
        raise self._give_up(
            ConnectionLost(
                f"{fragment.file.path} ends before the end of the {fragment.length} bytes at "
                f"{fragment.position} that are being sent"
            )
        )

    def _give_up(self, error: KafkaError) -> KafkaError:
        self._transport.fail(error)
        return error


def _peer_is_gone(error: OSError) -> bool:
    """Return whether an error means that the peer is gone; False for file errors and bugs."""
    return isinstance(error, ConnectionError) or error.errno in _GONE
