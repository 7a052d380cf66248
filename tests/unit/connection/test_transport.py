"""The asyncio side of a connection: when output is written, in which order, and closing."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.connection.frame_pool import FramePool
from aiokq.connection.framing import FrameReader
from aiokq.connection.transport import FrameTransport
from aiokq.core.errors import Closed, ConnectionLost, KafkaError, ProtocolError


class Recorder(asyncio.Transport):
    """A transport that accepts all data and records each call."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.ended = ""
        self.queued = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def writelines(self, parts: object) -> None:
        self.writes.append(b"".join(parts))  # type: ignore[arg-type]

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.queued

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class Receiver:
    """Records what a FrameTransport reports."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self.invalid: KafkaError | None = None

    def connected(self) -> None: ...

    def frames_received(self, frames: list[memoryview]) -> None: ...

    def bytes_received(self) -> None: ...

    def invalid_received(self, error: KafkaError) -> None:
        self.invalid = error

    def lost(self, error: KafkaError) -> None:
        self.error = error


@pytest.fixture
async def pair() -> tuple[FrameTransport, Recorder]:
    transport, recorder = FrameTransport(Receiver(), FrameReader()), Recorder()
    transport.connection_made(recorder)
    return transport, recorder


Pair = tuple[FrameTransport, Recorder]


async def test_output_that_is_sent_at_once_takes_earlier_output_along(pair: Pair) -> None:
    """And schedules no further write."""
    transport, recorder = pair
    transport.write([b"a"], 1, at_once=True)
    assert recorder.writes == [b"a"]
    transport.write([b"b"], 1)
    assert recorder.writes == [b"a"]
    transport.write([b"c", b"d"], 2, at_once=True)
    assert recorder.writes == [b"a", b"bcd"]
    await asyncio.sleep(0)
    assert recorder.writes == [b"a", b"bcd"]
    assert transport.bytes_out == 4


async def test_small_writes_of_one_loop_iteration_share_a_system_call(pair: Pair) -> None:
    """A system call costs ten times a small request; fifty pipelined requests share one."""
    transport, recorder = pair
    for n in range(50):
        transport.write([b"%02d" % n, b"x"], 3)
    assert not recorder.writes
    assert transport.unsent == 150
    await asyncio.sleep(0)
    assert recorder.writes == [b"".join(b"%02dx" % n for n in range(50))]
    assert (transport.unsent, transport.bytes_out) == (0, 150)
    transport.write([b"next"], 4)
    await asyncio.sleep(0)
    assert recorder.writes[1:] == [b"next"]


async def test_large_output_is_written_at_once_and_in_order(pair: Pair) -> None:
    """A batch of a megabyte is worth a system call and must not be copied."""
    transport, recorder = pair
    large = bytes(100_000)
    transport.write([b"first"], 5)
    transport.write([b"head", large], len(large) + 4)
    assert recorder.writes == [b"first", b"head" + large]
    transport.write([b"last"], 4)
    await asyncio.sleep(0)
    assert recorder.writes[2:] == [b"last"]


async def test_small_output_is_buffered_up_to_a_limit(pair: Pair) -> None:
    """Buffered output does not count for backpressure, so it must be bounded."""
    transport, recorder = pair
    for _ in range(1000):
        transport.write([bytes(1000)], 1000)
        assert transport.unsent < 66_000
    assert sum(map(len, recorder.writes)) > 900_000


async def test_hold_accepts_small_output_unless_the_caller_has_to_wait(pair: Pair) -> None:
    """When hold() refuses, the caller has to use a method that waits."""
    transport, recorder = pair
    assert transport.hold([b"o", b"ne"], 3)
    assert transport.hold([b"two"], 3)
    assert not transport.hold([bytes(16 * 1024)], 16 * 1024)
    assert not transport.hold([bytes(100_000)], 100_000)
    assert (recorder.writes, transport.unsent) == ([], 6)
    await asyncio.sleep(0)
    assert recorder.writes == [b"onetwo"]
    assert (transport.unsent, transport.bytes_out) == (0, 6)
    transport.pause_writing()
    assert not transport.hold([b"three"], 5)
    transport.resume_writing()
    assert transport.hold([b"three"], 5)
    while transport.hold([bytes(1000)], 1000):
        assert transport.unsent < 66_000
    assert recorder.writes == [b"onetwo"]


@pytest.mark.parametrize("end", ["eof", "close", "fail", "lost"])
async def test_hold_refuses_output_for_a_closed_connection(pair: Pair, end: str) -> None:
    """It would be written to a closed transport and counted as sent."""
    transport, _ = pair
    if end == "eof":
        transport.eof_received()
    elif end == "close":
        transport.close(Closed("done"))
    elif end == "fail":
        transport.fail(ConnectionLost("gone"))
    else:
        transport.connection_lost(None)
    assert not transport.hold([b"answer"], 6)
    assert (transport.unsent, transport.bytes_out) == (0, 0)


async def test_closing_writes_the_buffered_output(pair: Pair) -> None:
    """Responses and acks=0 requests written in the same iteration must not be lost."""
    transport, recorder = pair
    transport.write([b"answer"], 6)
    transport.close(Closed("done"))
    assert (recorder.writes, recorder.ended) == ([b"answer"], "closed")


async def test_failing_discards_the_buffered_output(pair: Pair) -> None:
    """Nothing may be written to an aborted transport."""
    transport, recorder = pair
    transport.write([b"answer"], 6)
    transport.fail(ConnectionLost("gone"))
    await asyncio.sleep(0)
    assert (recorder.writes, recorder.ended, transport.unsent) == ([], "aborted", 0)


async def test_buffered_output_is_discarded_when_the_connection_is_lost(pair: Pair) -> None:
    """asyncio warns of writes to a transport whose connection is lost."""
    transport, recorder = pair
    transport.write([b"answer"], 6)
    transport.connection_lost(None)
    await asyncio.sleep(0)
    assert (recorder.writes, transport.unsent) == ([], 0)


class Ample:
    ample = True


def arrive(transport: FrameTransport, data: bytes) -> None:
    into = transport.get_buffer(-1)
    into[: len(data)] = data
    del into
    transport.buffer_updated(len(data))


@pytest.mark.parametrize("before", [0, 3], ids=["alone", "behind others"])
async def test_a_partly_received_frame_is_released_when_the_connection_is_lost(before: int) -> None:
    """Its memory is no longer charged to the budget, and a closed connection, which is in a
    reference cycle with its owner, would keep it until the garbage collector runs.
    """
    size = 100_000
    start, rest = size.to_bytes(4, "big") + bytes(60_000), bytes(40_000)
    pool = FramePool()
    transport = FrameTransport(Receiver(), FrameReader(pool=pool, spare=Ample()))
    transport.connection_made(Recorder())
    for _ in range(before):  # from the second frame on a buffer is ready
        arrive(transport, start)
        arrive(transport, rest)
    arrive(transport, start)
    arrive(transport, rest[:-1])
    held = pool.held
    assert held >= size
    transport.connection_lost(None)
    pool.take(size)
    assert pool.held == held  # the pool gave the same buffer again


async def test_an_invalid_frame_keeps_no_shared_buffer() -> None:
    """The traceback of the error referred to the buffer until the garbage collector ran."""
    pool, recorder = FramePool(), Recorder()
    receiver = Receiver()
    transport = FrameTransport(receiver, FrameReader(pool=pool, spare=Ample()))
    transport.connection_made(recorder)
    arrive(transport, (100_000).to_bytes(4, "big") + bytes(60_000))
    arrive(transport, bytes(40_000))
    ready = pool.ready(100_004)
    arrive(transport, b"\xff" * 4)
    assert isinstance(receiver.invalid, ProtocolError)
    assert pool.ready(100_004) is ready
    pool.claim()
    memory = ready.obj
    assert isinstance(memory, bytearray)
    del ready
    memory.append(0)  # raises BufferError if a view of the buffer is left


async def test_flush_writes_the_buffered_output_first(pair: Pair) -> None:
    """A file is sent directly to the socket and must come after the output written before it."""
    transport, recorder = pair
    transport.write([b"header"], 6)
    await transport.flush()
    assert recorder.writes == [b"header"]


async def test_a_transport_that_connects_after_close_is_aborted() -> None:
    """A TLS handshake was in progress when the connection was closed or failed."""

    class Served(Receiver):
        def connected(self) -> None:
            raise AssertionError

    for end in (FrameTransport.close, FrameTransport.fail):
        transport, recorder = FrameTransport(Served(), FrameReader()), Recorder()
        end(transport, Closed("x"))
        assert not transport.made
        transport.connection_made(recorder)
        assert recorder.ended == "aborted"
