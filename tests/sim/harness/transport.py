"""Wire and MemoryTransport: the two ends of a connection, with asyncio's transport semantics.

Bytes travel in segments, in order, each with its own delay. At most WINDOW bytes are in flight or
unread, as with TCP. If the reader stops, the writer's buffer grows to the high-water mark, which
pauses its protocol. network.py establishes the connections.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokq.core.types import Buffer
    from tests.sim.harness.network import MemoryNetwork

WINDOW = 256 * 1024
"""Bytes that may be in flight or unread in one direction."""

SEGMENT = 64 * 1024
"""The largest number of bytes that arrive at once."""

HIGH_WATER = 64 * 1024

FIN = "fin"
RESET = "reset"


class Wire:
    """A connection with its two ends, `client` and `server`."""

    def __init__(
        self,
        network: MemoryNetwork,
        number: int,
        hosts: tuple[str, str],
        names: tuple[tuple[str, int], tuple[str, int]],
    ) -> None:
        self.network = network
        self.number = number
        self.hosts = hosts
        """The client's machine and the server's machine."""
        self.client = MemoryTransport(self, 0, names[0], names[1])
        self.server = MemoryTransport(self, 1, names[1], names[0])
        (host, port), (peer, peer_port) = self.client.names
        self._text = f"#{number} {host}:{port}->{peer}:{peer_port}"
        self.dropped = False
        """Whether the connection is half-open: sent data vanishes, and neither end is notified."""

    def __str__(self) -> str:
        return self._text

    @property
    def open(self) -> bool:
        return not (self.client.lost and self.server.lost)

    @property
    def server_port(self) -> int:
        return self.client.names[1][1]

    def cut(self) -> None:
        """Reset the connection at both ends immediately."""
        self.network.trace.add("net.cut", str(self))
        for end in (self.client, self.server):
            end._reset(ConnectionResetError(104, "the simulation cut the connection"))

    def drop(self) -> None:
        """Let both ends go silent, as when a cable is pulled."""
        self.network.trace.add("net.drop", str(self))
        self.dropped = True


class MemoryTransport(asyncio.Transport):
    """One end of a Wire."""

    def __init__(
        self, wire: Wire, side: int, name: tuple[str, int], peername: tuple[str, int]
    ) -> None:
        super().__init__({"sockname": name, "peername": peername})
        self.wire = wire
        self.names = (name, peername)
        self.lost = False
        """Whether connection_lost() was called or is about to be called."""
        self._side = side
        self._loop = wire.network.loop
        self._protocol: asyncio.BaseProtocol | None = None
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._out: deque[memoryview] = deque()
        self._out_size = 0
        self._protocol_paused = False
        self._closing = False
        self._eof_written = False
        self._fin_sent = False
        self._under_way = 0
        """Bytes sent that the peer's protocol has not received yet."""
        self.flight: deque[tuple[float, memoryview | str]] = deque()
        """Segments in flight with their arrival times; no segment overtakes the one before it."""
        self._inbox: deque[memoryview | str] = deque()
        self._reading_paused = False
        self._connected = False

    @property
    def peer(self) -> MemoryTransport:
        return self.wire.server if self._side == 0 else self.wire.client

    # -- asyncio.Transport -----------------------------------------------------------------

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._loop.call_soon(self._read)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._pause_or_resume()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return (self._low, self._high)

    def get_write_buffer_size(self) -> int:
        return self._out_size

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Buffer) -> None:
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self.lost or self._closing:
            return
        view = memoryview(data).cast("B")
        if not view:
            return
        # Keep a reference, as recent asyncio and uvloop do: if the caller changes the bytes later,
        # the changed bytes are sent.
        self._out.append(view)
        self._out_size += len(view)
        self._pump()
        self._pause_or_resume()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        for data in list_of_data:
            self.write(data)

    def write_eof(self) -> None:
        if not self._eof_written and not self._closing:
            self._eof_written = True
            self._pump()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._pump()

    def abort(self) -> None:
        if self.lost:
            return
        self._discard()
        self._transmit(RESET, 0)
        self._lose(None)

    # -- sending ---------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what the window allows, then the end of the stream if it is due."""
        while self._out and self._under_way < WINDOW:
            head = self._out[0]
            size = min(len(head), WINDOW - self._under_way, self.wire.network.segment_size())
            if size == len(head):
                self._out.popleft()
            else:
                self._out[0] = head[size:]
            self._out_size -= size
            self._under_way += size
            self._transmit(memoryview(bytes(head[:size])), size)
        if not self._out and not self.lost:
            if (self._closing or self._eof_written) and not self._fin_sent:
                self._fin_sent = True
                self._transmit(FIN, 0)
            if self._closing:
                self._lose(None)

    def _transmit(self, segment: memoryview | str, size: int) -> None:
        wire = self.wire
        if wire.dropped:
            return
        when = self._loop.time() + wire.network.delay(wire, size)
        if self.flight:
            when = max(when, self.flight[-1][0])
        self.flight.append((when, segment))
        self._loop.call_at(when, self.land)

    def land(self) -> None:
        """Deliver the segments that are due to the peer; during a partition they stay in flight."""
        wire = self.wire
        if wire.dropped:
            self.flight.clear()
        if wire.network.separated(*wire.hosts):
            return
        now = self._loop.time() + 1e-9  # a timer may fire this much too early
        while self.flight and self.flight[0][0] <= now:
            self.peer._arrive(self.flight.popleft()[1])

    def _pause_or_resume(self) -> None:
        if self._protocol is None or self.lost:
            return
        if not self._protocol_paused and self._out_size > self._high:
            self._protocol_paused = True
            self._call(self._protocol.pause_writing)
        elif self._protocol_paused and self._out_size <= self._low:
            self._protocol_paused = False
            self._call(self._protocol.resume_writing)

    # -- receiving -------------------------------------------------------------------------

    def _connect(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._call(protocol.connection_made, self)
        self._connected = True
        self._read()

    def _arrive(self, segment: memoryview | str) -> None:
        """Handle a segment that arrives from the peer."""
        if segment == RESET:
            self._reset(ConnectionResetError(104, "Connection reset by peer"))
            return
        if self.lost:
            if segment != FIN:  # a kernel responds to data for a closed socket like this
                self._transmit(RESET, 0)
            return
        if isinstance(segment, memoryview):
            self.wire.network.trace.add(
                "net.data",
                f"{self.wire} to {'server' if self._side else 'client'} "
                f"{len(segment)} {zlib.crc32(segment):08x}",
            )
        self._inbox.append(segment)
        self._read()

    def _read(self) -> None:
        while self._inbox and self._connected and not self._reading_paused and not self._closing:
            segment = self._inbox.popleft()
            if isinstance(segment, str):
                self._receive_eof()
                return
            self._hand_over(segment)
        if self._closing:
            self._inbox.clear()

    def _hand_over(self, segment: memoryview) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            rest = segment
            while rest and not self._closing:
                if self._reading_paused:
                    self._inbox.appendleft(rest)
                    break
                given = self._call(protocol.get_buffer, -1)
                if self.lost:
                    return
                buffer = memoryview(given).cast("B")
                if not buffer:
                    self._fatal(RuntimeError("get_buffer() returned an empty buffer"))
                    return
                size = min(len(buffer), len(rest))
                buffer[:size] = rest[:size]
                rest = rest[size:]
                self._taken(size)
                self._call(protocol.buffer_updated, size)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            self._taken(len(segment))
            self._call(protocol.data_received, bytes(segment))

    def _taken(self, size: int) -> None:
        """Open the peer's window; if it waits, it continues in the next iteration of the loop."""
        peer = self.peer
        peer._under_way -= size
        if peer._out:
            self._loop.call_soon(peer._window_open)

    def _window_open(self) -> None:
        if not self.lost:
            self._pump()
            self._pause_or_resume()

    def _receive_eof(self) -> None:
        protocol = self._protocol
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        if not self._call(protocol.eof_received):
            self.close()

    # -- ending ----------------------------------------------------------------------------

    def _reset(self, error: Exception) -> None:
        if not self.lost:
            self._discard()
            self._lose(error)

    def _fatal(self, error: Exception) -> None:
        self._loop.call_exception_handler(
            {
                "message": "Fatal error: protocol failed.",
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )
        if not self.lost:
            self._discard()
            self._transmit(RESET, 0)
            self._lose(error)

    def _discard(self) -> None:
        self._closing = True
        self._out.clear()
        self._out_size = 0
        self._inbox.clear()

    def _vanish(self) -> None:
        """End the transport without calling its protocol, because its process has been killed."""
        self._discard()
        self.lost = True
        self._protocol = None

    def _lose(self, error: Exception | None) -> None:
        self._closing = self.lost = True
        self._inbox.clear()
        self.wire.network.forget(self.wire)
        self._loop.call_soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None and self._connected:
            self.wire.network.trace.add(
                "net.lost",
                f"{self.wire} {'server' if self._side else 'client'} {type(error).__name__}",
            )
            protocol.connection_lost(error)

    def _call(self, method: Callable[..., Any], *args: object) -> Any:
        try:
            return method(*args)
        except Exception as error:  # as asyncio's transports do
            self._fatal(error)
            return None

    def __repr__(self) -> str:
        state = "lost" if self.lost else "closing" if self._closing else "open"
        return f"<MemoryTransport {self.wire} {'server' if self._side else 'client'} {state}>"
