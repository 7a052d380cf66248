"""Owns the asyncio side of a connection, of both ends: bytes in, fragments out, backpressure.

It knows frames and nothing of what is in them. It works over any transport that takes a
`BufferedProtocol`: asyncio's, uvloop's, TLS on either, and the simulation's.
"""

from __future__ import annotations

import asyncio
import select
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol, cast

from aiokq.connection.framing import FrameReader
from aiokq.core import forks
from aiokq.core.errors import ConnectionLost, KafkaError

if TYPE_CHECKING:
    from aiokq.core.types import Buffer

__all__ = ["WRITE_HIGH_WATER_BYTES", "FrameReceiver", "FrameTransport"]

# Output below this waits for the end of the loop's turn, to share a system call (10 us) with what
# else is written in it; larger output is worth its own, and is not copied.
_HOLD_BYTES: Final = 16 * 1024
_HELD_MAX_BYTES: Final = 64 * 1024

# A produce request of several batches fits, so that a sender is stopped by the peer, not by us.
WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024


class FrameReceiver(Protocol):
    """What a `FrameTransport` reports to. Callbacks run in the loop and must not block."""

    def connected(self) -> None:
        """The transport can be written to."""

    def frames_received(self, frames: list[memoryview]) -> None:
        """Frames arrived whole, in order."""

    def bytes_received(self) -> None:
        """Part of a frame arrived, and no whole one."""

    def lost(self, error: KafkaError) -> None:
        """The connection is gone; called once, and nothing is called after it."""


class FrameTransport(asyncio.BufferedProtocol):
    """Glue between an asyncio transport and a `FrameReceiver`.

    Attributes:
        bytes_in: bytes received.
        bytes_out: bytes handed to the transport or the socket.
        hung_up: the peer closed the connection, in order and unasked.
        write_high_water: bytes of unsent output above which `drain` waits.
    """

    __slots__ = (
        "_descriptor",
        "_ended",
        "_error",
        "_held",
        "_held_bytes",
        "_loop",
        "_lost",
        "_paused",
        "_receiver",
        "_transport",
        "_waiters",
        "bytes_in",
        "bytes_out",
        "hung_up",
        "peer",
        "reader",
        "write_high_water",
    )

    def __init__(
        self,
        receiver: FrameReceiver,
        reader: FrameReader,
        *,
        write_high_water: int = WRITE_HIGH_WATER_BYTES,
    ) -> None:
        self.reader = reader
        self.bytes_in = 0
        self.bytes_out = 0
        self.hung_up = False
        self.peer = ""
        self.write_high_water = write_high_water
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._descriptor: forks.Descriptor | None = None
        self._held: list[Buffer] = []  # small output of this turn of the loop
        self._held_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._error: KafkaError | None = None
        self._lost = False
        self._ended = False  # closed from here or there; the transport itself may know of more
        self._paused = False
        self._waiters: list[asyncio.Future[None]] = []

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; small requests are not held back (TCP_NODELAY)."""
        self._transport = cast("asyncio.Transport", transport)
        self.peer = _address_text(transport.get_extra_info("peername"))
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # A peer whose machine is gone is found even when nothing is sent to it.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                # With a copy in a forked child the peer would not learn that we closed ours.
                self._descriptor = forks.Descriptor(sock.fileno())
            except OSError as error:  # reset before we got here; connection_lost follows
                self.fail(ConnectionLost(f"connection to {self.peer} lost: {error}"))
        if self._ended:  # perhaps during the TLS handshake, when there was nothing to abort
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self.write_high_water)
        self._receiver.connected()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Memory for the transport to receive into."""
        return self.reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over the frames that are whole now."""
        self.bytes_in += nbytes
        if self._error is not None:
            return
        try:
            frames = self.reader.buffer_updated(nbytes)
        except KafkaError as error:
            self.fail(error.with_traceback(None))  # which would hold what was received into
            return
        if frames:
            self._receiver.frames_received(frames)
            if self.reader.error is not None:
                self.fail(self.reader.error)
        else:
            self._receiver.bytes_received()

    def eof_received(self) -> bool:
        """Close our side too: Kafka has no half-closed connections."""
        self._ended = True
        return False

    def pause_writing(self) -> None:
        """The peer reads slower than we write."""
        self._paused = True

    def resume_writing(self) -> None:
        """Output is below the low-water mark again."""
        self._paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss with the cause known best, also if the connection was never made."""
        if self._lost:
            return
        self._lost = self._ended = True
        self._descriptor = None
        self._drop_held()
        self.reader.abandon()  # its owner and this know each other: the collector comes late
        error = self._error
        if error is None:
            if isinstance(exc, KafkaError):
                error = exc
            else:
                self.hung_up = exc is None
                how = "closed by the peer" if exc is None else f"lost: {exc or type(exc).__name__}"
                error = ConnectionLost(f"connection to {self.peer} {how}")
                error.__cause__ = exc
            self._error = error
        self._wake()
        self._receiver.lost(error)

    # -- what the owner calls

    @property
    def transport(self) -> asyncio.Transport:
        """The transport; only after `connected`."""
        assert self._transport is not None
        return self._transport

    @property
    def made(self) -> bool:
        """Whether there is a transport: there is none before a TLS handshake is done."""
        return self._transport is not None

    @property
    def closing(self) -> bool:
        """Whether the connection is closed, or about to be."""
        return self._lost or self._transport is None or self._transport.is_closing()

    @property
    def unsent(self) -> int:
        """Bytes written that the system has not taken yet."""
        if self._transport is None:
            return 0
        return self._held_bytes + self._transport.get_write_buffer_size()

    @property
    def unread(self) -> bool:
        """Whether the system has input, or its end, that was not received yet."""
        sock = self.transport.get_extra_info("socket")
        return sock is not None and _readable(sock.fileno())

    @property
    def writing_paused(self) -> bool:
        """Whether unsent output is above the high-water mark."""
        return self._paused

    # hot: once per response, benchmarks/micro/connection.py
    def hold(self, fragments: Sequence[Buffer], size: int) -> bool:
        """Send small output at the end of this turn of the loop, if nothing speaks against it.

        Returns:
            False if it is not small, or the connection is closed or has too much unsent: nothing
            was done.
        """
        held_bytes = self._held_bytes + size
        if size >= _HOLD_BYTES or held_bytes >= _HELD_MAX_BYTES or self._paused or self._ended:
            return False
        held = self._held
        if not held:
            self._loop.call_soon(self.push)
        held += fragments
        self._held_bytes = held_bytes
        self.bytes_out += size
        return True

    # hot: once per request, benchmarks/micro/connection.py
    def write(self, fragments: Sequence[Buffer], size: int) -> None:
        """Send buffers, `size` bytes together; never blocks, never copies needlessly.

        Small ones leave at the end of this turn of the loop, in one go.
        """
        self.bytes_out += size
        held = self._held
        if size < _HOLD_BYTES:
            if not held:
                self._loop.call_soon(self.push)
            held += fragments
            self._held_bytes += size
            if self._held_bytes >= _HELD_MAX_BYTES:
                self.push()
            return
        if held:
            self.push()
        if len(fragments) == 1:
            self.transport.write(fragments[0])
        else:
            self.transport.writelines(fragments)

    def push(self) -> None:
        """Hand small output to the transport now, not at the end of the turn."""
        held = self._held
        if held:
            self.transport.write(held[0] if len(held) == 1 else b"".join(held))
            self._held = []
            self._held_bytes = 0

    def _drop_held(self) -> None:
        self._held = []
        self._held_bytes = 0

    async def drain(self) -> None:
        """Wait until output may be written again.

        Raises:
            ConnectionLost: it is gone.
        """
        while self._paused and not self._lost:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        if self._lost:
            assert self._error is not None
            raise ConnectionLost(str(self._error)) from self._error

    async def flush(self) -> None:
        """Wait until the system took everything written.

        Raises:
            ConnectionLost: it is gone.
        """
        self.push()
        if self.unsent and not self._lost:
            # Lowering the mark makes the transport report the moment its buffer is empty.
            self.transport.set_write_buffer_limits(high=0)
            try:
                await self.drain()
            finally:
                if not self._lost:
                    self.transport.set_write_buffer_limits(high=self.write_high_water)
        elif self._lost:
            await self.drain()

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`."""
        if not self.closing:
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        if not self.closing:
            self.transport.resume_reading()

    def close(self, error: KafkaError | None = None) -> None:
        """Close after what was written is sent; `error` is reported as the cause."""
        self._ended = True
        if self._error is None:
            self._error = error
        if self._transport is not None:
            self.push()
            self._transport.close()

    def fail(self, error: KafkaError) -> None:
        """Close at once, dropping unsent output; `error` is reported as the cause."""
        self._ended = True
        if self._error is None:
            self._error = error
        self._drop_held()
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def _readable(fd: int) -> bool:
    """Whether a read would not wait."""
    if sys.platform == "win32":
        return bool(select.select([fd], [], [], 0)[0])
    poll = select.poll()  # select() takes no descriptor above 1023
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _address_text(address: object) -> str:
    """An address as people write it."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[0], address[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address) if address else "?"
