"""Which connections a server accepts and closes when file descriptors are scarce."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from aiokq import wire
from aiokq.connection.connection_counts import ConnectionCounts
from aiokq.connection.request_context import RequestContext
from aiokq.connection.server_limits import ServerLimits
from aiokq.core.environment import Address
from tests.sim.harness.simulation import Simulation, run
from tests.unit.connection.test_server import Bench, Client, Handler, bench, frame

LONG = 1000.0


async def open_clients(b: Bench, count: int) -> list[Client]:
    """Connect clients one second apart, each of which sends one request."""
    clients = []
    for _ in range(count):
        clients.append(await b.client())
        clients[-1].send(b"x")
        assert await clients[-1].receive(1) == [b"x"]
        await asyncio.sleep(1)
    return clients


async def refused(b: Bench) -> bool:
    """Return whether a new connection is closed at once."""
    client = await b.client()
    try:
        async with asyncio.timeout(1):
            await client.lost.wait()
    except TimeoutError:
        return False
    return True


def lost(clients: Sequence[Client]) -> list[bool]:
    return [client.lost.is_set() for client in clients]


def test_the_connection_that_is_idle_longest_is_closed_for_a_new_one() -> None:
    """Idle time counts from the last request, not from the accept."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            clients = await open_clients(b, 4)
            clients[0].send(b"y")
            await clients[0].receive(2)
            simulation.network.scarce = lambda: True
            assert not await refused(b)
            assert lost(clients) == [False, True, False, False]
            assert not await refused(b)
            assert not await refused(b)
            assert lost(clients) == [False, True, True, True]
            assert b.server.connections == 4
            assert b.server.counters.connections_closed_for_room == 3
            assert b.server.counters.connections_refused == 0

    run(1, main)


def test_a_client_that_waits_for_its_response_is_not_idle() -> None:
    """Long fetches do not count as idle; a new connection is refused if no connection is idle."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:

            async def answer(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                if data == b"wait":
                    await asyncio.sleep(LONG)
                return await Handler.echo(context, data)

            b.handler.answer = answer
            clients = await open_clients(b, 3)
            for client in clients:
                client.send(b"wait")
                await asyncio.sleep(1)
            await asyncio.sleep(300)
            simulation.network.scarce = lambda: True
            assert await refused(b)
            assert b.server.connections == 3
            assert b.server.counters.connections_refused == 1
            for client in clients:
                assert await client.receive(2) == [b"x", b"wait"]
            assert not await refused(b)
            assert lost(clients) == [True, False, False]

    run(1, main)


def test_a_connection_with_a_partly_received_request_is_not_idle() -> None:
    """A large Produce request arrives over a slow line."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(read_stall=LONG)) as b:
            (client,) = await open_clients(b, 1)
            data = frame(bytes(1000))
            client.transport.write(data[:500])
            await asyncio.sleep(30)
            simulation.network.scarce = lambda: True
            assert await refused(b)
            client.transport.write(data[500:])
            assert await client.receive(2) == [b"x", bytes(1000)]
            client.transport.write(data[:2])  # less than the size field
            await asyncio.sleep(30)
            assert await refused(b)
            client.transport.write(data[2:])
            assert len(await client.receive(3)) == 3
            assert not await refused(b)
            assert client.lost.is_set()

    run(1, main)


def test_a_connection_with_unread_responses_is_not_idle() -> None:
    """The client reads slowly; closing its connection would lose the response."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation, ServerLimits(write_stall=LONG)) as b:

            async def large(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                return [(400_000).to_bytes(4, "big"), bytes(400_000)]

            clients = await open_clients(b, 2)
            b.handler.answer = large
            clients[0].transport.pause_reading()
            clients[0].send(b"y")
            await asyncio.sleep(1)
            simulation.network.scarce = lambda: True
            assert not await refused(b)
            assert lost(clients) == [False, True]
            clients[0].transport.resume_reading()
            assert len((await clients[0].receive(2))[1]) == 400_000

    run(1, main)


def test_a_client_that_is_throttled_is_not_idle() -> None:
    """If it were closed, it would reconnect at once without its throttle."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:

            async def mute(context: RequestContext, data: memoryview) -> Sequence[wire.Fragment]:
                context.mute_until = asyncio.get_running_loop().time() + 60
                return await Handler.echo(context, data)

            b.handler.answer = mute
            (client,) = await open_clients(b, 1)
            simulation.network.scarce = lambda: True
            assert await refused(b)
            await asyncio.sleep(60)
            assert not await refused(b)
            assert client.lost.is_set()

    run(1, main)


class NoTransport(asyncio.Transport):
    """A transport without data in either direction."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


def test_a_new_connection_is_not_idle_before_its_first_request_is_read() -> None:
    """Otherwise each of many clients that connect at once would close the one before it."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:

            async def wait(context: RequestContext, data: memoryview) -> None:
                await asyncio.sleep(LONG)

            b.handler.answer = wait
            connection = b.server.accept(Address("10.0.0.9", 1), make_room=None)
            assert connection is not None
            connection.connection_made(NoTransport())
            assert not b.server.make_room()
            await asyncio.sleep(0)
            assert not b.server.make_room()
            connection.connection_lost(None)

    run(1, main)


def test_idle_connections_are_closed_to_restore_the_reserve_that_files_used() -> None:
    """The reserve must be available for further files."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            clients = await open_clients(b, 2)
            since = [b.server.idle_since(behind) for behind in range(3)]
            assert since[0] is not None
            assert since[1] is not None
            assert since[0] < since[1]
            assert since[2] is None
            assert b.server.make_room()
            assert b.server.leaving == 1
            assert b.server.idle_since(0) == since[1]
            await asyncio.sleep(1)
            assert b.server.leaving == 0
            assert lost(clients) == [True, False]
            assert b.server.make_room()
            assert not b.server.make_room()
            await asyncio.sleep(1)
            assert b.server.connections == 0

    run(1, main)


def test_a_thousand_new_connections_are_one_log_line_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A client that opens connections in a loop must not fill the log's disk."""

    async def main(simulation: Simulation) -> None:
        async with bench(simulation) as b:
            await open_clients(b, 2)
            simulation.network.scarce = lambda: True
            began = asyncio.get_running_loop().time()
            for _ in range(1000):
                await b.client()
                await asyncio.sleep(0.2)
            assert 200 < asyncio.get_running_loop().time() - began < 210
            simulation.network.scarce = lambda: False
            await asyncio.sleep(120)

    with caplog.at_level(logging.WARNING, "aiokq.connection"):
        run(1, main)
    lines = [r.getMessage() for r in caplog.records]
    assert 4 <= len(lines) <= 5, lines
    assert all(line.startswith("out of descriptors: listener=PLAINTEXT ") for line in lines)
    closed = [int(line.rpartition("closed_idle=")[2]) for line in lines]
    assert closed[0] == 1
    assert sum(closed) == 1000


def test_closing_an_idle_connection_takes_constant_time() -> None:
    """The first idle connection is closed; those with unread responses are examined a few at a
    time.
    """
    from aiokq.connection.connection_quotas import LOOKED_AT, ConnectionQuotas
    from aiokq.core.counters import BrokerCounters

    class Transport:
        closing = False
        unread = False
        looks = 0

        def __init__(self, unsent: int) -> None:
            self._unsent = unsent
            self.failed = False

        @property
        def unsent(self) -> int:
            Transport.looks += 1
            return self._unsent

        def fail(self, error: Exception) -> None:
            self.failed = True

    class Connection:
        def __init__(self, unsent: int) -> None:
            self.transport = Transport(unsent)

    counts = ConnectionCounts(ServerLimits(), now=lambda: 0.0)
    admission = ConnectionQuotas(counts, BrokerCounters(), now=lambda: 0.0, listener="L")
    stuck = [Connection(1) for _ in range(1000)]
    free = [Connection(0) for _ in range(100_000)]
    for connection in (*stuck, *free):
        admission.idle[connection] = None  # type: ignore[index]
    attempts = 0
    while not admission.make_room():
        attempts += 1
    assert attempts == len(stuck) // LOOKED_AT
    assert Transport.looks <= len(stuck) + LOOKED_AT
    assert [one.transport.failed for one in free[:3]] == [True, False, False]
    for _ in range(5000):
        assert admission.make_room()
    assert Transport.looks <= len(stuck) + LOOKED_AT + 5000
