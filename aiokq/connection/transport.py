"""FrameTransport: the asyncio protocol of a connection, for client and server, with backpressure.

FrameTransport does not decode frames. It works on any transport that takes a `BufferedProtocol`:
asyncio's, uvloop's, `TlsConnection` on either, and the simulation's.
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
    from aiokq.connection.loop_time import LoopTime
    from aiokq.core.types import Buffer

__all__ = ["WRITE_HIGH_WATER_BYTES", "FrameReceiver", "FrameTransport"]

# Smaller output is held until the end of the loop's iteration, to share a system call (10 us) with
# other output. Larger output is sent immediately, without a copy.
_HOLD_BYTES: Final = 16 * 1024
_HELD_MAX_BYTES: Final = 64 * 1024

# The limit exceeds the size of a Produce request of several batches, so that the limit does not
# slow down senders.
WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024


class FrameReceiver(Protocol):
    """Callbacks of a `FrameTransport`. They run on the loop and must not block."""

    def connected(self) -> None:
        """Handle a new connection: the transport can be written to."""

    def frames_received(self, frames: list[memoryview]) -> None:
        """Handle complete frames, in order."""

    def bytes_received(self) -> None:
        """Handle the receipt of bytes that completed no frame."""

    def invalid_received(self, error: KafkaError) -> None:
        """Handle bytes that are not a frame. All frames before these bytes were reported.

        Later bytes are not reported. The receiver must close the connection.
        """

    def lost(self, error: KafkaError) -> None:
        """Handle the end of the connection. Called once, after all other callbacks."""


class _Gone:
    """Replaces the receiver of a lost connection, so that transport and receiver form no cycle.

    The garbage collector would have to free the cycles, and on a node with many short connections
    it would stop the loop for 100 ms.
    """

    def connected(self) -> None: ...

    def frames_received(self, frames: list[memoryview]) -> None: ...

    def bytes_received(self) -> None: ...

    def invalid_received(self, error: KafkaError) -> None: ...

    def lost(self, error: KafkaError) -> None: ...


_GONE: Final = _Gone()


class FrameTransport(asyncio.BufferedProtocol):
    """Connects an asyncio transport to a `FrameReceiver`.

    Args:
        peer: the peer's address as text; None to ask the transport for it.
        is_accepted: whether a listener has accepted the connection. The listener has then enabled
            TCP_NODELAY and keepalive, and the owner calls `forget` in a forked child.

    Attributes:
        bytes_in: bytes received.
        bytes_out: bytes passed to the transport or the socket.
        ended: whether either side has closed the connection. The transport may not know yet.
        hung_up: whether the peer closed the connection without an error, before this side did.
        loop_time: counts the time of sending and receiving; None if it is not counted. For received
            data, the transport begins the count, and the receiver ends the count.
        write_high_water: bytes of unsent output above which `drain` waits.
    """

    __slots__ = (
        "_descriptor",
        "_error",
        "_handshaking",
        "_held",
        "_held_bytes",
        "_invalid",
        "_is_accepted",
        "_knows_peer",
        "_loop",
        "_lost",
        "_paused",
        "_receiver",
        "_transport",
        "_waiters",
        "bytes_in",
        "bytes_out",
        "ended",
        "hung_up",
        "loop_time",
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
        peer: str | None = None,
        is_accepted: bool = False,
    ) -> None:
        self.reader = reader
        self.bytes_in = 0
        self.bytes_out = 0
        self.ended = False
        self.hung_up = False
        self.loop_time: LoopTime | None = None
        self.peer = peer or ""
        self.write_high_water = write_high_water
        self._knows_peer = peer is not None
        self._is_accepted = is_accepted
        self._receiver: FrameReceiver = receiver
        self._loop = asyncio.get_running_loop()
        self._descriptor: forks.Descriptor | None = None
        self._held: list[Buffer] = []  # small output, held until this iteration of the loop ends
        self._held_bytes = 0
        self._invalid = False  # invalid bytes were received
        self._transport: asyncio.Transport | None = None
        self._handshaking: asyncio.Transport | None = None  # the transport in its TLS handshake
        self._error: KafkaError | None = None
        self._lost = False
        self._paused = False
        self._waiters: list[asyncio.Future[None]] = []

    # asyncio and `TlsConnection` call the following public methods.

    def handshake_begun(self, transport: asyncio.Transport) -> None:
        """Store a TLS transport before its handshake, so that it can be closed."""
        self._handshaking = transport
        if not self._knows_peer:
            self.peer = _address_text(transport.get_extra_info("peername"))
        if self.ended:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport; enable TCP_NODELAY and keepalive unless the listener has done so."""
        self._transport = cast("asyncio.Transport", transport)
        self._handshaking = None
        if not self._knows_peer:
            self.peer = _address_text(transport.get_extra_info("peername"))
        if not self._is_accepted:
            self._tune(transport.get_extra_info("socket"))
        if self.ended:  # the connection was closed, for example during the TLS handshake
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self.write_high_water)
        self._receiver.connected()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for the transport to receive into."""
        if self.loop_time is not None:
            self.loop_time.begin()
        return self.reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Pass complete frames to the receiver, and the error if invalid bytes follow."""
        self.bytes_in += nbytes
        if self._error is not None or self._invalid:
            return
        try:
            frames = self.reader.buffer_updated(nbytes)
        except KafkaError as error:
            self._invalid = True
            # The traceback is removed, because it would hold the receive buffer.
            self._receiver.invalid_received(error.with_traceback(None))
            return
        if frames:
            self._receiver.frames_received(frames)
            if self.reader.error is not None:
                self._invalid = True
                self._receiver.invalid_received(self.reader.error)
        else:
            self._receiver.bytes_received()

    def eof_received(self) -> bool:
        """Make the transport close: Kafka has no half-closed connections."""
        self.ended = True
        return False

    def pause_writing(self) -> None:
        """Make `drain` wait, because unsent output is above the high-water mark."""
        self._paused = True

    def resume_writing(self) -> None:
        """Wake up `drain`, because unsent output is below the low-water mark."""
        self._paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection once, with its first known cause.

        The call also reports the end of a connection that was never made.
        """
        if self._lost:
            return
        self._lost = self.ended = True
        self._descriptor = self._handshaking = None
        self._drop_held()
        self.reader.abandon()  # frees a partial frame now, even if a cycle keeps the reader
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
        receiver, self._receiver = self._receiver, _GONE
        receiver.lost(error)

    def _tune(self, sock: socket.socket | None) -> None:
        """Prepare the socket of a connection that this process has begun."""
        if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Keepalive detects a peer whose machine is gone even if nothing is sent to it.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # A forked child closes its copy of the socket. An open copy would keep the connection
            # open for the peer after this process has closed it.
            self._descriptor = forks.Descriptor(sock.fileno())
        except OSError as error:  # the connection was reset; connection_lost will be called
            self.fail(ConnectionLost(f"connection to {self.peer} lost: {error}"))

    # The owner calls the following public methods.

    @property
    def in_handshake(self) -> bool:
        """Whether the TLS handshake has begun and is not complete."""
        return self._handshaking is not None

    @property
    def transport(self) -> asyncio.Transport:
        """The asyncio transport; valid after `connected`."""
        assert self._transport is not None
        return self._transport

    @property
    def made(self) -> bool:
        """Whether the asyncio transport exists; with TLS, it exists after the TLS handshake."""
        return self._transport is not None

    @property
    def closing(self) -> bool:
        """Whether the connection is closed or closing, or has no asyncio transport yet."""
        return self._lost or self._transport is None or self._transport.is_closing()

    @property
    def unsent(self) -> int:
        """The bytes of output that the system has not accepted yet."""
        if self._transport is None:
            return 0
        return self._held_bytes + self._transport.get_write_buffer_size()

    @property
    def unread(self) -> bool:
        """Whether the socket has unread input, or an unread end of input."""
        transport = self.transport
        if transport.get_extra_info("undecrypted"):
            return True
        sock = transport.get_extra_info("socket")
        return sock is not None and _readable(sock.fileno())

    @property
    def peer_has_left(self) -> bool:
        """Whether the peer has closed the connection, as far as the system knows.

        Unlike `unread`, this property does not depend on unread input. It is always False on
        Windows. On Linux it is True as soon as the peer has ended its output; on other systems it
        stays False while the peer can still receive.
        """
        sock = self.transport.get_extra_info("socket")
        return sock is not None and _left(sock.fileno())

    @property
    def writing_paused(self) -> bool:
        """Whether unsent output is above the high-water mark."""
        return self._paused

    # Hot path, once per response; measured by benchmarks/micro/connection.py.
    def hold(self, fragments: Sequence[Buffer], size: int) -> bool:
        """Hold small output until the end of this iteration of the loop, if possible.

        Returns:
            False, with nothing done, if the output is not small, or if the connection is closed or
            has too much unsent output.
        """
        held_bytes = self._held_bytes + size
        if size >= _HOLD_BYTES or held_bytes >= _HELD_MAX_BYTES or self._paused or self.ended:
            return False
        held = self._held
        if not held:
            self._loop.call_soon(self.push)
        held += fragments
        self._held_bytes = held_bytes
        self.bytes_out += size
        return True

    # Hot path, once per request; measured by benchmarks/micro/connection.py.
    def write(self, fragments: Sequence[Buffer], size: int, *, at_once: bool = False) -> None:
        """Send buffers of `size` bytes in total; never blocks, and copies only small output.

        Small output is collected and sent at the end of this iteration of the loop; with `at_once`
        it is sent now, together with the output collected before.
        """
        self.bytes_out += size
        held = self._held
        if size < _HOLD_BYTES:
            if not held and not at_once:
                self._loop.call_soon(self.push)
            held += fragments
            self._held_bytes += size
            if at_once or self._held_bytes >= _HELD_MAX_BYTES:
                self.push()
            return
        if held:
            self.push()
        if len(fragments) == 1:
            self.transport.write(fragments[0])
        else:
            self.transport.writelines(fragments)

    def send(self, fragments: Sequence[Buffer]) -> int:
        """Send small output without holding it; return its size. The connection must be open."""
        assert self._transport is not None
        data = b"".join(fragments)
        size = len(data)
        self.bytes_out += size
        if self._held:
            self.push()
        self._transport.write(data)
        return size

    def push(self) -> None:
        """Pass the held output to the transport."""
        held = self._held
        if held:
            # Count here only if no step of the receiver's task is running, because the step counts
            # its own time.
            loop_time = self.loop_time
            counts = loop_time is not None and not loop_time.is_running
            if loop_time is not None and counts:
                loop_time.begin()
            self.transport.write(held[0] if len(held) == 1 else b"".join(held))
            self._held = []
            self._held_bytes = 0
            if loop_time is not None and counts:
                loop_time.end()

    def _drop_held(self) -> None:
        self._held = []
        self._held_bytes = 0

    async def drain(self) -> None:
        """If unsent output is above the high-water mark, wait until it is below the low-water mark.

        Raises:
            ConnectionLost: the connection is gone.
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
        """Wait until the system has accepted all output.

        Raises:
            ConnectionLost: the connection is gone.
        """
        self.push()
        if self.unsent and not self._lost:
            # A mark of 0 makes the transport report when its buffer is empty.
            self.transport.set_write_buffer_limits(high=0)
            try:
                await self.drain()
            finally:
                if not self._lost:
                    self.transport.set_write_buffer_limits(high=self.write_high_water)
        elif self._lost:
            await self.drain()

    def pause_reading(self) -> None:
        """Stop receiving until `resume_reading`."""
        if not self.closing:
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if not self.closing:
            self.transport.resume_reading()

    def forget(self) -> None:
        """Close the copy of the socket in a forked child; see `forks.Inherited`."""
        transport = self._transport or self._handshaking
        if self._lost or transport is None:
            return
        try:
            sock = transport.get_extra_info("socket")
            fd = -1 if sock is None else sock.fileno()
        except (OSError, RuntimeError):  # the transport has closed the socket
            return
        if fd >= 0:
            forks.close_copy(fd)

    def close(self, error: KafkaError | None = None) -> None:
        """Close after all output is sent; `error` becomes the cause if no cause is set yet.

        During the TLS handshake, close immediately.
        """
        self.ended = True
        if self._error is None:
            self._error = error
        if self._transport is not None:
            self.push()
            self._transport.close()
        elif self._handshaking is not None:
            self._handshaking.abort()

    def fail(self, error: KafkaError) -> None:
        """Close immediately and drop unsent output; `error` becomes the cause if there is none."""
        self.ended = True
        if self._error is None:
            self._error = error
        self._drop_held()
        transport = self._transport or self._handshaking
        if transport is not None:
            transport.abort()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


def _readable(fd: int) -> bool:
    """Return whether the descriptor can be read without blocking."""
    if sys.platform == "win32":
        return bool(select.select([fd], [], [], 0)[0])
    poll = select.poll()  # select() takes no descriptor above 1023
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _left(fd: int) -> bool:
    """Return whether the peer of a socket has closed the connection."""
    if sys.platform == "win32":
        return False
    poll = select.poll()
    poll.register(fd, getattr(select, "POLLRDHUP", 0))  # errors are reported in any case
    return bool(poll.poll(0))


def _address_text(address: object) -> str:
    """Return an address as "host:port", with an IPv6 host in brackets."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[0], address[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address) if address else "?"
