"""The server side of connections: order, limits, and clients that are slow, gone, hostile or too
many.
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from aiokq import wire
from aiokq.connection.accepted_connection import WAITING_BYTES, AcceptedConnection
from aiokq.connection.framing import RECEIVE_BUFFER_BYTES, FrameReader
from aiokq.connection.server import CloseConnection, RequestContext, Server, ServerLimits
from aiokq.core.background import FAIL_ON_BUGS
from aiokq.core.counters import BrokerCounters
from aiokq.core.environment import Address
from aiokq.core.errors import ConnectionLost, ProtocolError
from aiokq.core.files import FileRange
from tests.sim.harness.simulation import Simulation, run

SERVER = "10.0.0.1"
CLIENT = "10.0.0.9"

Handle = Callable[[RequestContext, memoryview], Awaitable[Sequence[wire.Fragment] | None]]


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


class Handler:
    """Responds to each request with its own bytes, or as the test defines."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.contexts: list[RequestContext] = []
        self.in_work = 0
        self.most_in_work = 0
        self.answer: Handle = self.echo

    async def handle(
        self, context: RequestContext, frame: memoryview
    ) -> Sequence[wire.Fragment] | None:
        self.frames.append(bytes(frame))
        self.contexts.append(context)
        self.in_work += 1
        self.most_in_work = max(self.most_in_work, self.in_work)
        try:
            return await self.answer(context, frame)
        finally:
            self.in_work -= 1

    @staticmethod
    async def echo(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
        return [len(data).to_bytes(4, "big"), data]


async def acknowledge(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
    return [b"\0\0\0\x02", b"ok"]


class Client(asyncio.BufferedProtocol):
    """A client that sends and receives frames, and can misbehave."""

    def __init__(self) -> None:
        self.reader = FrameReader()
        self.frames: list[memoryview] = []
        self.received = 0
        self.lost = asyncio.Event()
        self.got = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += nbytes
        self.frames += self.reader.buffer_updated(nbytes)
        self.got.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self.got.set()

    def send(self, *payloads: bytes) -> None:
        self.transport.write(b"".join(map(frame, payloads)))

    async def receive(self, count: int) -> list[bytes]:
        while len(self.frames) < count and not self.lost.is_set():
            self.got.clear()
            await self.got.wait()
        return [bytes(f) for f in self.frames]


class Bench:
    """A server in a simulated world."""

    def __init__(self, simulation: Simulation, limits: ServerLimits) -> None:
        environment = simulation.environment(SERVER)
        self.simulation = simulation
        self.environment = environment
        self.handler = Handler()
        self.failures: list[BaseException] = []
        self.server = Server(
            environment.network,
            None,
            9092,
            self.handler,
            clock=environment.clock,
            counters=BrokerCounters(),
            limits=limits,
            on_failure=self.failures.append,
        )

    async def client(self, host: str = CLIENT) -> Client:
        network = self.simulation.network.at(host)
        _, protocol = await network.connect(Client, Address(SERVER, 9092))
        return protocol


@asynccontextmanager
async def bench(simulation: Simulation, limits: ServerLimits | None = None) -> AsyncIterator[Bench]:
    made = Bench(simulation, limits or ServerLimits())
    await made.server.start()
    try:
        yield made
    finally:
        await made.server.close(drain=1.0)


def test_requests_of_a_connection_are_handled_one_at_a_time_and_in_order() -> None:
    """A client pipelines ten requests; the second must not overtake the first."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            client = await b.client()

            async def slow(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                await asyncio.sleep(1.0 / (data[0] + 1))
                return await Handler.echo(context, data)

            b.handler.answer = slow
            client.send(*(bytes([n]) for n in range(10)))
            assert await client.receive(10) == [bytes([n]) for n in range(10)]
            assert b.handler.most_in_work == 1

    run(1, main)


class Panic(BaseException):
    """As of a Rust extension."""


def test_a_failed_server_tells_its_owner() -> None:
    """Regression: its listener accepted connections that were closed, and nobody noticed."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            panic = Panic()

            def fail() -> None:
                raise panic

            b.server._quotas.report = fail  # type: ignore[method-assign]
            await asyncio.sleep(60)
            assert b.failures == [panic]

    run(1, main)


def test_a_panic_does_not_end_the_renewal_of_certificates(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cryptography` reads files of the key store; the former certificate stays in use."""
    monkeypatch.delenv(FAIL_ON_BUGS, raising=False)

    class Stores:
        expires_at = None
        looks = 0

        async def current(self, *arguments: object) -> None:
            self.looks += 1
            if self.looks == 1:
                raise Panic("broken")

        def pause(self, clock: object) -> float:
            return 5.0

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            stores = Stores()
            renewal = asyncio.create_task(b.server._renew(stores))  # type: ignore[arg-type]
            await asyncio.sleep(60)
            assert stores.looks > 2
            renewal.cancel()
            with pytest.raises(asyncio.CancelledError):
                await renewal

    run(1, main)
    assert "renewal of certificates" in caplog.text


def test_connections_are_served_independently() -> None:
    """One client's long poll must not delay the others."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            one, two = await b.client(), await b.client()

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                if data == b"slow":
                    await asyncio.sleep(5)
                return await Handler.echo(context, data)

            b.handler.answer = answer
            one.send(b"slow")
            two.send(b"fast")
            async with asyncio.timeout(1):
                assert await two.receive(1) == [b"fast"]
            assert await one.receive(1) == [b"slow"]

    run(1, main)


@pytest.mark.parametrize(("size", "in_turn"), [(900_000, 1), (64 * 1024, 8)])
def test_a_single_request_is_handled_between_the_many_of_another_client(
    size: int, in_turn: int
) -> None:
    """One client's megabytes of requests were all handled in one iteration of the loop, and a small
    Metadata request of another client had to wait for all of them.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            b.handler.answer = acknowledge
            await b.client()
            await b.client()
            many, one = b.server._connections
            arrive(many, frame(bytes(size)) * 4 * in_turn)
            arrive(one, frame(b"one"))
            asyncio.get_running_loop().call_soon(arrive, one, frame(b"two"))
            await asyncio.sleep(1)
            assert len(b.handler.frames) == 4 * in_turn + 2
            assert b.handler.frames.index(b"one") == in_turn
            assert b.handler.frames.index(b"two") == 2 * in_turn + 1

    run(1, main)


@pytest.mark.parametrize(("size", "in_turn"), [(50_000, 1), (11_000, 3), (100, 16)])
def test_a_request_is_handled_between_the_large_answers_of_another_client(
    size: int, in_turn: int
) -> None:
    """Regression: only the bytes of requests were counted. The answers to 16 small Metadata
    requests over thousands of partitions were all encoded before another client was served.
    """

    async def main(simulation: Simulation) -> None:
        async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
            nbytes = size if data == b"Metadata" else 2
            return [nbytes.to_bytes(4, "big"), bytes(nbytes)]

        async with bench(simulation) as b:
            b.handler.answer = answer
            await b.client()
            await b.client()
            many, one = b.server._connections
            arrive(many, frame(b"Metadata") * 16)
            arrive(one, frame(b"one"))
            await asyncio.sleep(1)
            assert len(b.handler.frames) == 17
            assert b.handler.frames.index(b"one") == in_turn

    run(1, main)


def test_a_connection_stopped_between_two_requests_handles_no_more() -> None:
    """No request was in progress at that moment, and the next one was started."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            client = await b.client()
            b.handler.answer = acknowledge
            [connection] = b.server._connections
            arrive(connection, frame(bytes(900_000)) * 3)
            asyncio.get_running_loop().call_soon(connection.stop)
            await client.lost.wait()
            assert (len(b.handler.frames), len(client.frames)) == (1, 1)
            assert b.server.budget.used == 0

    run(1, main)


def test_reading_pauses_for_a_client_that_sends_large_requests_without_end() -> None:
    """Ten megabytes of requests arrive while the first is handled; most stay in the client's
    buffer.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            client = await b.client()
            b.handler.answer = sleeper(10)
            client.send(*([bytes(100_000)] * 100))
            await asyncio.sleep(5)
            # The waiting requests, of which the last arrived when one byte was free, and one more.
            assert b.server.budget.used <= WAITING_BYTES + 200_000
            assert client.transport.get_write_buffer_size() > 8_000_000

    run(1, main)


def test_reading_pauses_for_a_client_that_sends_small_requests_without_end() -> None:
    """Only the requests of one read wait in the server."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            client = await b.client()
            b.handler.answer = sleeper(10)
            client.send(*([bytes(1000)] * 10_000))
            await asyncio.sleep(5)
            assert b.server.budget.used <= 2 * RECEIVE_BUFFER_BYTES
            assert client.transport.get_write_buffer_size() > 9_000_000

    run(1, main)


@pytest.mark.parametrize("size", [10, 1000, 128 * 1024])
def test_five_requests_in_flight_do_not_pause_reading(size: int) -> None:
    """Five requests of a producer arrive together. Pausing and resuming reads would cost two system
    calls, although the requests are handled at once.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            client = await b.client()
            [connection] = b.server._connections
            stops: list[None] = []
            pause = connection.transport.transport.pause_reading
            connection.transport.transport.pause_reading = (  # type: ignore[method-assign]
                lambda: stops.append(pause())
            )
            for _ in range(3):
                before = len(client.frames)
                arrive(connection, frame(bytes(size)) * 5)
                await client.receive(before + 5)
            assert not stops

    run(1, main)


def arrive(connection: AcceptedConnection, data: bytes) -> int:
    """Deliver `data` in one iteration of the loop and return the size of the last buffer."""
    left = memoryview(data)
    while left:
        buffer = connection.transport.get_buffer(-1)
        size = min(len(left), len(buffer))
        buffer[:size] = left[:size]
        left = left[size:]
        connection.transport.buffer_updated(size)
    return len(buffer)


def sleeper(seconds: float) -> Handle:
    async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
        await asyncio.sleep(seconds)
        return await Handler.echo(context, data)

    return answer


def test_a_client_that_sends_byte_by_byte_is_served() -> None:
    """A slow client is not a stalled one."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            client = await b.client()
            for byte in frame(b"hello") + frame(b"world"):
                client.transport.write(bytes([byte]))
                await asyncio.sleep(3)
            assert await client.receive(2) == [b"hello", b"world"]

    run(1, main)


def test_a_client_that_stalls_within_a_request_is_disconnected() -> None:
    """Half a request arrives, then nothing: its memory is freed after `read_stall`."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(read_stall=10.0)) as b:
            client = await b.client()
            client.transport.write((1_000_000).to_bytes(4, "big") + b"x")
            await asyncio.sleep(5)
            assert b.server.budget.used == 1_000_000
            await asyncio.sleep(10)
            assert client.lost.is_set()
            assert b.server.budget.used == 0
            assert b.server.connections == 0

    run(1, main)


def test_a_client_that_stalls_within_its_second_request_is_disconnected() -> None:
    """The first request arrived together with the start of the second, which uses memory and has
    the same stall limit.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(read_stall=30.0)) as b:
            b.handler.answer = sleeper(5)
            client = await b.client()
            [connection] = b.server._connections
            arrive(connection, frame(bytes(1000)) + frame(bytes(2000))[:500])
            assert b.server.budget.used >= 1496
            await asyncio.sleep(6)
            assert len(client.frames) == 1
            assert b.server.connections == 1
            await asyncio.sleep(60)
            assert b.server.connections == 0
            assert b.server.budget.used == 0

    run(1, main)


def test_the_idle_timeout_limits_the_time_to_receive_a_request() -> None:
    """A byte a second avoids `read_stall`, but the whole request must arrive within `max_idle`."""

    async def main(simulation: Simulation) -> None:
        limits = ServerLimits(read_stall=10.0, max_idle=60.0)
        async with bench(simulation, limits) as b:
            client = await b.client()
            client.transport.write((1000).to_bytes(4, "big"))
            for _ in range(100):
                client.transport.write(b"x")
                await asyncio.sleep(1)
            assert client.lost.is_set()

    run(1, main)


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    """connections.max.idle.ms counts from the end of the last request."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(max_idle=10.0)) as b:
            idle, busy = await b.client(), await b.client()
            b.handler.answer = sleeper(30)
            busy.send(b"x")
            await asyncio.sleep(20)
            assert idle.lost.is_set()
            assert not busy.lost.is_set()
            assert await busy.receive(1) == [b"x"]
            await asyncio.sleep(15)
            assert busy.lost.is_set()

    run(1, main)


def test_idle_and_throttle_times_use_only_the_loops_clock() -> None:
    """When a machine sleeps, the loop's time may advance while the server's clock stands still; an
    active client would then seem idle.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(max_idle=100.0, read_stall=50.0)) as b:

            class Behind:
                timestamp_ms = b.environment.clock.timestamp_ms

                @staticmethod
                def monotonic() -> float:
                    return b.environment.clock.monotonic() - 3600

            b.server.clock = Behind()
            client = await b.client()
            for count in range(1, 10):
                client.send(b"x")
                await client.receive(count)
                await asyncio.sleep(90)
                assert b.server.connections == 1
            throttle_for_5_s(b, simulation)
            begin = simulation.loop.time()
            client.send(b"throttle", b"next")
            await client.receive(11)
            client.send(b"last", b"and this")
            await client.receive(13)
            assert 5 <= simulation.loop.time() - begin < 5.1
            await asyncio.sleep(150)
            assert b.server.connections == 0

    run(1, main)


def test_a_client_that_waited_long_for_a_response_is_not_idle() -> None:
    """A client whose request took longer than `max_idle` was closed once it had the response."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(max_idle=100.0)) as b:
            b.handler.answer = sleeper(150)
            client = await b.client()
            client.send(b"x")
            await client.receive(1)
            await asyncio.sleep(60)
            assert b.server.connections == 1
            await asyncio.sleep(100)
            assert b.server.connections == 0

    run(1, main)


def test_a_peer_whose_machine_is_off_is_disconnected() -> None:
    """Such a half-open connection never gets a FIN; the idle timeout ends it."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(max_idle=10.0)) as b:
            client = await b.client()
            client.send(b"x")
            await client.receive(1)
            simulation.network.power_off(CLIENT)
            await asyncio.sleep(20)
            assert b.server.connections == 0

    run(1, main)


def test_a_client_that_reads_nothing_is_disconnected_with_bounded_memory() -> None:
    """The client requests fifty megabytes and reads none; the server buffers a few hundred KB."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(write_stall=10.0)) as b:
            file = b.environment.files.open("/log", create=True)
            file.pwritev([bytes(50_000_000)], 0)

            async def fetch(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                return [(50_000_000).to_bytes(4, "big"), FileRange(file, 0, 50_000_000)]

            b.handler.answer = fetch
            client = await b.client()
            client.transport.pause_reading()
            client.send(b"x", b"y")
            await asyncio.sleep(5)
            (wire_,) = simulation.network.connections(SERVER)
            assert wire_.server.get_write_buffer_size() <= 600_000
            assert len(b.handler.frames) == 1  # the next waits for the first one's response
            await asyncio.sleep(10)
            assert b.server.connections == 0
            file.close()

    run(1, main)


def test_unread_small_responses_are_bounded() -> None:
    """A small response is sent without waiting, unless too much output is unsent."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(write_stall=10.0)) as b:

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                return [(10_000).to_bytes(4, "big"), bytes(10_000)]

            b.handler.answer = answer
            client = await b.client()
            client.transport.pause_reading()
            client.send(*([b"x"] * 10_000))
            await asyncio.sleep(5)
            (wire_,) = simulation.network.connections(SERVER)
            assert wire_.server.get_write_buffer_size() <= 600_000
            assert len(b.handler.frames) < 200
            await asyncio.sleep(20)
            assert b.server.connections == 0
            assert b.server.budget.used == 0

    run(1, main)


def test_a_closed_connection_whose_client_reads_nothing_is_aborted() -> None:
    """The client pipelines, is refused, and reads no response; its socket must be closed."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(write_stall=10.0)) as b:

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                if data == b"refuse":
                    raise CloseConnection("refused")
                return [(200_000).to_bytes(4, "big"), bytes(200_000)]

            b.handler.answer = answer
            client = await b.client()
            client.transport.pause_reading()
            client.send(b"a", b"b", b"refuse", b"c")
            await asyncio.sleep(60)
            assert b.server.connections == 0

    run(1, main)


def test_data_received_while_closing_is_not_charged_to_the_budget() -> None:
    """TLS keeps receiving until its last bytes are sent. Requests that arrived then were never
    handled, and stayed charged to the memory budget of all connections.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(write_stall=10.0)) as b:

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                if data == b"refuse":
                    raise CloseConnection("refused")
                return [(200_000).to_bytes(4, "big"), bytes(200_000)]

            b.handler.answer = answer
            client = await b.client()
            client.transport.pause_reading()
            client.send(b"a", b"b", b"refuse")
            await asyncio.sleep(5)
            (connection,) = b.server._connections
            assert connection.transport.closing
            data = frame(bytes(1000))
            connection.transport.get_buffer(-1)[: len(data)] = data
            connection.transport.buffer_updated(len(data))
            await asyncio.sleep(60)
            assert b.server.connections == 0
            assert b.server.budget.used == 0

    run(1, main)


def test_a_failing_disconnect_callback_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A long poll and a group member may wait for the same client; both must be notified."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            heard = []

            async def answer(context: RequestContext, data: memoryview) -> None:
                context.on_disconnect(lambda: 1 / 0)
                context.on_disconnect(lambda: heard.append(context))

            b.handler.answer = answer
            client = await b.client()
            client.send(b"x")
            await asyncio.sleep(1)
            client.transport.abort()
            await asyncio.sleep(1)
            assert heard

    run(1, main)
    assert "ZeroDivisionError" in caplog.text


def test_a_connection_whose_check_fails_does_not_delay_the_checks_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The failing check is repeated at growing intervals until it succeeds."""
    monkeypatch.delenv(FAIL_ON_BUGS)
    check, broken = AcceptedConnection.check, True
    looks: dict[int, list[float]] = {1: [], 2: []}

    def looked_at(self: AcceptedConnection, now: float) -> None:
        looks[self.context.connection_id].append(now)
        if broken and self.context.connection_id == 1:
            raise ZeroDivisionError
        check(self, now)

    monkeypatch.setattr(AcceptedConnection, "check", looked_at)

    async def main(simulation: Simulation) -> None:
        nonlocal broken
        async with bench(simulation, ServerLimits(read_stall=2.0)) as b:
            clients = [await b.client() for _ in range(2)]
            await asyncio.sleep(100)
            assert len(looks[2]) > 190
            assert 5 <= len(looks[1]) <= 8  # after 1, 2, 4, 8, 16 ... seconds
            assert b.server.counters.background_failures == {"sweep of connections": len(looks[1])}
            broken = False
            await asyncio.sleep(100)
            assert len(looks[1]) > 100
            clients[0].send(b"x")
            assert await clients[0].receive(1) == [b"x"]

    run(1, main)


def test_a_slow_reader_that_makes_progress_is_kept() -> None:
    """A consumer on a slow line may need minutes for a response."""

    async def main(simulation: Simulation) -> None:
        simulation.network.bytes_per_second = 20_000
        async with bench(simulation, ServerLimits(write_stall=10.0)) as b:
            file = b.environment.files.open("/log", create=True)
            file.pwritev([bytes(3_000_000)], 0)

            async def fetch(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                return [(3_000_000).to_bytes(4, "big"), FileRange(file, 0, 3_000_000)]

            b.handler.answer = fetch
            client = await b.client()
            client.send(b"x")
            await client.receive(1)
            assert len(client.frames[0]) == 3_000_000
            assert simulation.loop.time() > 30  # three times `write_stall`
            file.close()

    run(1, main)


def test_responses_of_buffers_and_files_arrive_complete() -> None:
    """Fetch responses consist of headers and file ranges, small and large."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            content = bytes(range(256)) * 8192
            file = b.environment.files.open("/log", create=True)
            file.pwritev([content], 0)
            sizes = [10, 16 * 1024, 16 * 1024 + 1, 700_000, 1]
            parts: list[wire.Fragment] = []
            expected, position = b"", 0
            for size in sizes:
                parts += [b"head", FileRange(file, position, size)]
                expected += b"head" + content[position : position + size]
                position += size
            parts.append(memoryview(b"tail"))
            expected += b"tail"

            async def fetch(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                return [len(expected).to_bytes(4, "big"), *parts]

            b.handler.answer = fetch
            client = await b.client()
            client.send(b"x", b"y")
            assert await client.receive(2) == [expected, expected]
            assert b.server.counters.bytes_out == 2 * (len(expected) + 4)
            parts[:], expected = [FileRange(file, 3, 100)], content[3:103]
            client.send(b"z")
            assert (await client.receive(3))[2] == expected
            file.close()

    run(1, main)


def test_a_file_that_shrinks_under_a_response_ends_the_connection() -> None:
    """The size was already sent, so closing is the only way to signal that the rest is missing."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            file = b.environment.files.open("/log", create=True)
            file.pwritev([bytes(1000)], 0)

            async def fetch(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                return [(400_000).to_bytes(4, "big"), FileRange(file, 0, 400_000)]

            b.handler.answer = fetch
            client = await b.client()
            client.send(b"x")
            await client.lost.wait()
            assert client.frames == []
            file.close()

    run(1, main)


def test_an_error_in_a_handler_closes_its_connection_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The error is logged with the API and a traceback; the server continues."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                if data[:2] == b"\0\x03":
                    raise ZeroDivisionError
                return await Handler.echo(context, data)

            b.handler.answer = answer
            bad, good = await b.client(), await b.client()
            bad.send(b"\0\x03xxxx")
            await bad.lost.wait()
            good.send(b"fine")
            assert await good.receive(1) == [b"fine"]

    with caplog.at_level(logging.DEBUG, "aiokq.connection"):
        run(1, main)
    (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert "api=Metadata" in record.getMessage()
    assert record.exc_info is not None


@pytest.mark.parametrize(
    "error",
    [Panic(), asyncio.CancelledError(), GeneratorExit()],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_handler_raises_does_not_end_the_server(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Code of the user, such as `authenticate=`, may raise anything.

    Regression: the task of the connection failed, and with it the tasks of all connections; the
    server accepted no other connection.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                if data == b"bad":
                    raise error
                return await Handler.echo(context, data)

            b.handler.answer = answer
            bad, good = await b.client(), await b.client()
            good.send(b"one")
            assert await good.receive(1) == [b"one"]
            bad.send(b"bad")
            await bad.lost.wait()
            good.send(b"two")
            assert await good.receive(2) == [b"one", b"two"]
            late = await b.client()
            late.send(b"three")
            assert await late.receive(1) == [b"three"]
            assert b.server.supervisor.failed is None

    run(1, main)
    (record,) = [r for r in caplog.records if r.levelno >= logging.ERROR]
    assert "handler failed, closing connection" in record.getMessage()


@pytest.mark.parametrize("error", [CloseConnection("not supported"), ProtocolError("malformed")])
def test_a_handler_can_close_its_connection(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """For an unsupported version or a malformed request there is no response and no traceback."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                raise error

            b.handler.answer = answer
            client = await b.client()
            client.send(b"x", b"y")
            await client.lost.wait()
            assert (client.frames, len(b.handler.frames)) == ([], 1)

    run(1, main)
    assert not [r for r in caplog.records if r.levelno >= logging.ERROR]


def test_after_connection_lost_in_a_handler_all_received_requests_are_handled() -> None:
    """The handler raises ConnectionLost; requests that arrived with that one are not lost."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                if bytes(data) == b"lost":
                    raise ConnectionLost("nobody is there")
                return await Handler.echo(context, data)

            b.handler.answer = answer
            client = await b.client()
            client.send(b"lost", b"behind")
            await client.lost.wait()
            await asyncio.sleep(1)
            assert b.handler.frames == [b"lost", b"behind"]
            assert client.frames == []
            assert simulation.loop.time() < 5
            assert b.server.budget.used == 0

    run(1, main)


def test_the_memory_of_a_refused_client_is_freed_before_it_reads_the_last_response() -> None:
    """The client exceeded the budget, was refused, and read slowly: other clients waited until its
    connection was closed. It has the full `write_stall` to read its responses, however long the
    request took.
    """

    async def main(simulation: Simulation) -> None:
        limits = ServerLimits(queued_max_request_bytes=3_000_000, write_stall=60.0)
        async with bench(simulation, limits) as b:
            response = [(200_000).to_bytes(4, "big"), bytes(200_000)]

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                if bytes(data) == b"first":
                    return response
                await asyncio.sleep(100)
                raise CloseConnection("refused")

            b.handler.answer = answer
            slow = await b.client()
            slow.transport.pause_reading()
            slow.send(b"first", b"first")
            await asyncio.sleep(1)
            slow.send(bytes(5_000_000))
            await asyncio.sleep(1)
            assert b.server.budget.used == 5_000_000
            other = await b.client()
            other.send(bytes(6_000_000))
            await asyncio.sleep(110)
            assert b.server.connections == 2
            assert b.server.budget.used == 6_000_000
            b.handler.answer = acknowledge
            await asyncio.sleep(20)
            slow.transport.resume_reading()
            assert await slow.receive(2) == [bytes(200_000)] * 2

    run(1, main)


def test_neither_request_nor_response_is_kept_longer_than_needed() -> None:
    """While a client read slowly or polled for long, its previous request stayed in memory."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            seen: list[weakref.ref[memoryview]] = []

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                seen.append(weakref.ref(data))
                if len(seen) == 1:
                    body = memoryview(bytes(3_000_000))
                    seen.append(weakref.ref(body))
                    return [len(body).to_bytes(4, "big"), body]
                await asyncio.sleep(100)
                return await acknowledge(context, data)

            b.handler.answer = answer
            client = await b.client()
            client.transport.pause_reading()
            client.send(b"large", b"poll")
            await asyncio.sleep(5)
            assert [each() is None for each in seen] == [True, False]
            client.transport.resume_reading()
            await asyncio.sleep(50)
            assert [each() is None for each in seen] == [True, True, False]

    run(1, main)


def test_after_a_request_without_response_the_next_is_handled() -> None:
    """For example Produce with acks=0."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:

            async def answer(
                context: RequestContext, data: memoryview
            ) -> Sequence[wire.Fragment] | None:
                return None if data == b"none" else await Handler.echo(context, data)

            b.handler.answer = answer
            client = await b.client()
            client.send(b"none", b"none", b"ack")
            assert await client.receive(1) == [b"ack"]
            assert len(b.handler.frames) == 3

    run(1, main)


def test_complete_requests_of_a_client_that_left_are_handled() -> None:
    """A producer with acks=0 sends its last batches and closes: they are appended, as in Kafka."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            b.handler.answer = sleeper(1)
            client = await b.client()
            client.send(b"a", b"b", b"c")
            client.transport.close()
            await asyncio.sleep(10)
            assert b.handler.frames == [b"a", b"b", b"c"]
            assert b.server.connections == 0
            assert b.server.budget.used == 0

    run(1, main)


def test_a_handler_is_notified_when_its_client_is_gone() -> None:
    """The long poll of a dead consumer ends early."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            heard: list[float] = []

            async def answer(context: RequestContext, data: memoryview) -> None:
                gone = asyncio.Event()
                context.on_disconnect(gone.set)
                async with asyncio.timeout(60):
                    await gone.wait()
                assert not context.connected
                context.on_disconnect(lambda: heard.append(simulation.loop.time()))

            b.handler.answer = answer
            client = await b.client()
            client.send(b"poll")
            await asyncio.sleep(1)
            client.transport.abort()
            await asyncio.sleep(1)
            assert heard
            assert heard[0] < 1.5

    run(1, main)


@pytest.mark.parametrize(
    "hostile",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
    ],
)
def test_hostile_bytes_close_the_connection_and_cost_nothing(
    hostile: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Port scanners, browsers and TLS clients connect to every port."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            client = await b.client()
            client.transport.write(hostile)
            await client.lost.wait()
            assert b.server.budget.used == 0
            assert b.handler.frames == []
            other = await b.client()
            other.send(b"fine")
            assert await other.receive(1) == [b"fine"]

    with caplog.at_level(logging.WARNING, "aiokq.connection"):
        run(1, main)
    assert "closing connection" in caplog.text


def test_endless_hostile_bytes_are_few_log_lines_with_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A scanner in a loop filled the disk that also has the data."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                raise ZeroDivisionError if data[:2] == b"\0\x03" else ProtocolError("malformed")

            b.handler.answer = answer
            for _ in range(200):
                for sent in (b"\xff\xff\xff\xff", frame(b"\0\x12xxxx"), frame(b"\0\x03xxxx")):
                    client = await b.client()
                    client.transport.write(sent)
                    await client.lost.wait()
                await asyncio.sleep(0.1)

    with caplog.at_level(logging.WARNING, "aiokq.connection"):
        run(1, main)
    lines = [record.getMessage() for record in caplog.records]
    for api in ("none", "ApiVersions", "Metadata"):
        told = [line for line in lines if f"api={api} " in line]
        assert 3 <= len(told) <= 7, told
        assert told[0].endswith("times=1")
        assert int(told[-1].rpartition("=")[2]) > 60


@pytest.mark.parametrize("pause", [0.0, 0.5])
@pytest.mark.parametrize("invalid", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"GET / HTTP"])
def test_requests_before_invalid_bytes_are_answered(
    invalid: bytes, pause: float, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka, which reads a size after it has answered the last request.

    The invalid bytes arrive in the same segment, or while the requests are being handled. Nothing
    behind them is handled.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:

            async def slowly(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                await asyncio.sleep(1)
                return await Handler.echo(context, data)

            b.handler.answer = slowly
            client = await b.client()
            client.transport.write(frame(b"one") + frame(b"two") + (b"" if pause else invalid))
            if pause:
                await asyncio.sleep(pause)
                client.transport.write(invalid)
            await asyncio.sleep(0.2)
            client.send(b"behind")
            await client.lost.wait()
            assert client.frames == [b"one", b"two"]
            assert b.handler.frames == [b"one", b"two"]
            await asyncio.sleep(1)
            assert b.server.connections == 0
            assert b.server.budget.used == 0

    with caplog.at_level(logging.WARNING, "aiokq.connection"):
        run(1, main)
    assert caplog.text.count("closing connection") == 1


def test_requests_of_a_throttled_client_before_invalid_bytes_are_answered() -> None:
    """The throttle time is over first, as for other requests."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                context.mute_until = simulation.loop.time() + 5
                return await Handler.echo(context, data)

            b.handler.answer = answer
            client = await b.client()
            began = simulation.loop.time()
            client.transport.write(frame(b"one") + frame(b"two") + b"\xff\xff\xff\xff")
            await client.lost.wait()
            assert client.frames == [b"one", b"two"]
            assert 10 <= simulation.loop.time() - began < 11
            await asyncio.sleep(1)
            assert b.server.budget.used == 0

    run(1, main)


async def attempt(b: Bench, host: str) -> None:
    """Open a connection that is refused: reset at once, or before it is established."""
    try:
        client = await b.client(host)
    except ConnectionResetError:
        return
    await client.lost.wait()


def test_connections_are_limited_in_total_and_per_address(caplog: pytest.LogCaptureFixture) -> None:
    """A client that leaks connections must not lock out the others or fill the log."""

    async def main(simulation: Simulation) -> None:
        limits = ServerLimits(max_connections=4, max_connections_per_ip=2)
        async with bench(simulation, limits) as b:
            leaking = [await b.client("10.0.0.8") for _ in range(2)]
            for _ in range(20):
                await attempt(b, "10.0.0.8")
            others = [await b.client("10.0.0.7"), await b.client("10.0.0.6")]
            for client in (*leaking, *others):
                client.send(b"x")
                assert await client.receive(1) == [b"x"]
            await attempt(b, "10.0.0.5")
            assert b.server.counters.connections_refused == 21
            assert b.server.connections == 4
            leaking[0].transport.close()
            await asyncio.sleep(1)
            again = await b.client("10.0.0.8")
            again.send(b"y")
            assert await again.receive(1) == [b"y"]

    with caplog.at_level(logging.WARNING, "aiokq.connection"):
        run(1, main)
    told = [r.getMessage() for r in caplog.records if "connections refused" in r.getMessage()]
    assert 1 <= len(told) <= 2
    assert "peer=10.0.0.8:" in told[0]
    assert told[0].endswith("reason=max.connections.per.ip=2")


def test_large_requests_share_a_budget_and_all_get_through() -> None:
    """Twenty clients send ten megabytes each; the server may hold twenty-five in all."""

    async def main(simulation: Simulation) -> None:
        limits = ServerLimits(queued_max_request_bytes=25_000_000, read_stall=1000.0)
        async with bench(simulation, limits) as b:
            most = 0

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                nonlocal most
                await asyncio.sleep(0.1)
                most = max(most, b.server.budget.used)
                return [b"\0\0\0\x02", b"ok"]

            b.handler.answer = answer
            clients = [await b.client() for _ in range(20)]
            for client in clients:
                client.send(bytes(10_000_000))
            for client in clients:
                assert await client.receive(1) == [b"ok"]
            assert 20_000_000 < most <= 25_000_000 + 10_000_000 + 20 * 65_536
            assert b.server.budget.used == 0

    run(1, main)


def test_buffer_memory_for_expected_requests_is_charged_as_well() -> None:
    """A buffer for several large requests is allocated at once. When only one request arrived, it
    kept the whole buffer, but only its own size was charged to the budget.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            b.handler.answer = sleeper(1)
            await b.client()
            [connection] = b.server._connections
            data = frame(bytes(100_000))

            async def held_by(count: int) -> int:
                """Send `count` requests at once and return the size of the buffer that the last one
                uses.
                """
                held = arrive(connection, count * data)
                await asyncio.sleep(0.5)
                assert b.server.budget.used >= held - 4
                await asyncio.sleep(10)
                assert b.server.budget.used == 0
                return held

            held = [await held_by(count) for count in (1, 1, 2, 4, 1)]
            assert held[-1] >= 4 * len(data)

    run(1, main)


def test_receiving_ahead_stops_when_others_have_used_the_memory() -> None:
    """Each connection was allowed to receive ahead while much memory was free. When requests then
    arrived on all of them, they used four times the limit.
    """

    async def main(simulation: Simulation) -> None:
        limit = 8_000_000
        async with bench(simulation, ServerLimits(queued_max_request_bytes=limit)) as b:
            clients = [await b.client() for _ in range(30)]
            for connection in b.server._connections:
                for _ in range(4):
                    arrive(connection, frame(bytes(128 * 1024)) * 8)
                    await asyncio.sleep(1)
            assert b.server.budget.used == 0
            b.handler.answer = sleeper(10)
            for client in clients:
                client.send(bytes(128 * 1024))
            await asyncio.sleep(5)
            assert limit // 2 < b.server.budget.used <= limit + 128 * 1024
            await asyncio.sleep(100)
            assert b.server.budget.used == 0

    run(1, main)


def test_a_buffer_shared_by_requests_is_freed_with_the_last_of_them() -> None:
    """Eight requests arrived in one buffer of a megabyte. When seven had been answered and one
    waited, only an eighth of the buffer was charged.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            await b.client()
            [connection] = b.server._connections
            data = frame(bytes(128 * 1024)) * 8
            for _ in range(4):
                arrive(connection, data)
                await asyncio.sleep(1)
            kept: list[memoryview] = []

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                kept.append(data)
                if len(kept) == 8:
                    await asyncio.sleep(10)
                return await acknowledge(context, data)

            b.handler.answer = answer
            arrive(connection, data)
            await asyncio.sleep(5)
            assert len({id(each.obj) for each in kept}) == 1
            assert b.server.budget.used >= len(data) - 8 * 4
            assert connection._waiting == 0
            arrive(connection, frame(b"small"))
            await asyncio.sleep(10)
            assert len(kept) == 9
            assert b.server.budget.used == 0

    run(1, main)


def test_memory_charged_for_a_size_field_is_freed_with_the_request() -> None:
    """When the size field arrived alone and the rest in one piece, the memory stayed charged until
    the client sent something more.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            client = await b.client()
            [connection] = b.server._connections
            data = frame(bytes(150_000))
            for part in (data[:4], data[4:]):
                connection.transport.get_buffer(-1)[: len(part)] = part
                connection.transport.buffer_updated(len(part))
            await client.receive(1)
            await asyncio.sleep(1)
            assert b.server.budget.used == 0

    run(1, main)


def test_memory_that_a_client_frees_and_takes_again_is_counted_once() -> None:
    """A client's answered request freed memory for its own next request. The grant happened in the
    middle of the accounting of the first, and the memory in use stayed wrong for ever.
    """

    async def main(simulation: Simulation) -> None:
        limits = ServerLimits(queued_max_request_bytes=10_200_000, read_stall=1000.0)
        async with bench(simulation, limits) as b:
            answered = {500_000: asyncio.Event(), 4_000_000: asyncio.Event()}

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                if len(data) in answered:
                    await answered[len(data)].wait()
                return [b"\0\0\0\x02", b"ok"]

            b.handler.answer = answer
            one, busy, slow = [await b.client() for _ in range(3)]
            one.send(bytes(500_000))
            busy.send(bytes(4_000_000))
            large = frame(bytes(8_000_000))
            slow.transport.write(large[:5_000_000])
            await asyncio.sleep(5)
            assert b.server.budget.used == 12_500_000  # the slow client overdraws
            answered[4_000_000].set()
            one.send(bytes(3_000_000))
            await asyncio.sleep(5)
            answered[500_000].set()
            assert await one.receive(1) == [b"ok"]
            slow.transport.write(large[5_000_000:])
            assert await slow.receive(1) == [b"ok"]
            assert await one.receive(2) == [b"ok", b"ok"]
            await asyncio.sleep(5)
            assert b.server.budget.used == 0

    run(1, main)


def throttle_for_5_s(b: Bench, simulation: Simulation) -> None:
    """Throttle clients for 5 s that send `throttle`."""

    async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
        if data == b"throttle":
            context.mute_until = simulation.loop.time() + 5
        return await Handler.echo(context, data)

    b.handler.answer = answer


def test_no_requests_of_a_throttled_client_are_read() -> None:
    """KIP-219: the client has its response, and its next request waits in the socket."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            throttle_for_5_s(b, simulation)
            client = await b.client()
            client.send(b"throttle")
            await client.receive(1)
            assert simulation.loop.time() < 1
            client.send(b"next")
            await client.receive(2)
            assert 5 <= simulation.loop.time() < 5.1

    run(1, main)


def test_requests_received_together_with_the_throttled_one_wait_too() -> None:
    """A client that pipelines must be throttled too."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            throttle_for_5_s(b, simulation)
            client = await b.client()
            client.send(b"before", b"throttle", b"behind", b"throttle", b"last")
            for count, earliest in ((2, 0), (4, 5), (5, 10)):
                await client.receive(count)
                assert earliest <= simulation.loop.time() < earliest + 0.1
                assert len(client.frames) == count

    run(1, main)


def test_each_connection_has_a_session_of_its_own() -> None:
    """ApiVersions and SASL set state that belongs to one connection."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            one, two = await b.client(), await b.client("10.0.0.8")
            for client in (one, one, two):
                before = len(client.frames)
                client.send(b"x")
                await client.receive(before + 1)
            first, again, other = b.handler.contexts
            assert first is again
            assert first.session is not other.session
            assert first.connection_id != other.connection_id
            assert other.peer_host == "10.0.0.8"
            assert other.peer.startswith("10.0.0.8:")
            assert other.listener == "PLAINTEXT"

    run(1, main)


def test_requests_are_counted_by_api() -> None:
    """The latency is the time in the handler; unknown API keys do not get their own labels."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            b.handler.answer = sleeper(0.2)
            client = await b.client()
            client.send(b"\0\x03...", b"\0\x03...", b"\x7f\x7f...")
            await client.receive(3)
            await asyncio.sleep(0)
            counters = b.server.counters
            assert counters.requests == {"Metadata": 2, "unknown": 1}
            assert counters.request_seconds["Metadata"].sum >= 0.4
            assert counters.bytes_in == counters.bytes_out == 3 * 9
            assert (counters.connections.read(), counters.connections_accepted) == (1, 1)

    run(1, main)


def test_closing_completes_the_requests_in_progress() -> None:
    """In a clean shutdown the batch being appended is acknowledged, and the next request is not
    handled.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            b.handler.answer = sleeper(0.5)
            idle, busy = await b.client(), await b.client()
            busy.send(b"in work", b"too late")
            await asyncio.sleep(0.1)
            await b.server.close(drain=5.0)
            assert await busy.receive(2) == [b"in work"]
            assert idle.lost.is_set()
            assert b.handler.frames == [b"in work"]
            with pytest.raises(ConnectionRefusedError):
                await b.client()

    run(1, main)


def test_closing_waits_no_longer_than_its_drain_time() -> None:
    """A request never ends: it is cancelled, and the connection is closed."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            b.handler.answer = sleeper(1000)
            client = await b.client()
            client.send(b"x")
            await asyncio.sleep(0.1)
            started = simulation.loop.time()
            await b.server.close(drain=2.0)
            assert simulation.loop.time() - started < 3.1
            await client.lost.wait()
            assert b.handler.in_work == 0
            await b.server.close()

    run(1, main)


def test_a_concurrent_close_does_not_wait_longer() -> None:
    """A signal handler and `async with` both close the server; one of them waited for all of
    `drain`.
    """

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            b.handler.answer = sleeper(0.5)
            client = await b.client()
            client.send(b"x")
            await asyncio.sleep(0.1)
            started = simulation.loop.time()
            await asyncio.gather(*(b.server.close(drain=5.0) for _ in range(3)))
            assert simulation.loop.time() - started < 1.0

    run(1, main)


@pytest.mark.parametrize("turns", range(8))
def test_a_server_closed_while_starting_does_not_listen(turns: int) -> None:
    """The listener was created after close() had returned, and stayed open."""

    async def main(simulation: Simulation) -> None:
        b = Bench(simulation, ServerLimits())
        starting = asyncio.create_task(b.server.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        await b.server.close(drain=0.1)
        await asyncio.gather(starting, return_exceptions=True)
        with pytest.raises(ConnectionRefusedError):
            await b.client()

    run(1, main)


def test_a_port_in_use_raises_the_systems_error() -> None:
    """The broker is started twice."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation):
            second = Bench(simulation, ServerLimits())
            with pytest.raises(OSError, match="in use"):
                await second.server.start()
            await second.server.close()

    run(1, main)


def test_a_forked_child_does_not_handle_the_queued_requests_of_its_parent() -> None:
    """Regression: a child that left the parent's loop by sys.exit handled a request on its way."""

    async def scenario(simulation: Simulation) -> None:
        async with bench(simulation) as made:
            ends: list[int] = []

            async def fork(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                made.handler.answer = made.handler.echo
                pid = os.fork()
                if pid == 0:
                    try:
                        await asyncio.sleep(1)
                    finally:
                        [connection] = made.server._connections
                        os._exit(len(connection._frames))
                _, status = os.waitpid(pid, 0)  # noqa: ASYNC222
                ends.append(os.waitstatus_to_exitcode(status))
                return await made.handler.echo(context, data)

            made.handler.answer = fork
            client = await made.client()
            client.send(b"a", b"b", b"c")
            assert await client.receive(3) == [b"a", b"b", b"c"]
            assert ends == [0]
            assert made.handler.frames == [b"a", b"b", b"c"]

    run(1, scenario)


def test_a_refused_client_gets_its_answer_late_and_no_request_is_kept() -> None:
    """Whoever guesses passwords waits, and the broker holds no memory for the guesses."""

    async def refuse(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
        closing = CloseConnection("wrong password", delay=2.0)
        closing.answer = [b"\0\0\0\x02", b"no"]
        raise closing

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as world:
            world.handler.answer = refuse
            client = await world.client()
            loop = asyncio.get_running_loop()
            began = loop.time()
            client.send(b"guess", *[b"x" * 1000] * 10)
            await asyncio.sleep(1.0)
            client.send(b"more")
            assert world.server.budget.used == 0
            assert client.frames == []
            assert await client.receive(1) == [b"no"]
            await client.lost.wait()
            assert 2.0 <= loop.time() - began < 2.5
            assert world.handler.frames == [b"guess"]
            assert world.server.budget.used == 0

    run(1, main)


def test_a_client_that_disconnects_before_it_is_refused_is_forgotten() -> None:
    """The late answer has no receiver then."""

    async def refuse(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
        closing = CloseConnection("wrong password", delay=2.0)
        closing.answer = [b"\0\0\0\x02", b"no"]
        raise closing

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as world:
            world.handler.answer = refuse
            client = await world.client()
            client.send(b"guess")
            await asyncio.sleep(0.5)
            client.transport.abort()
            await asyncio.sleep(3.0)
            assert world.server.connections == 0

    run(1, main)
