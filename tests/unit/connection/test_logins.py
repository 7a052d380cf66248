"""Connections before their login: what they hold is bounded, and delays no other client."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from aiokq import wire
from aiokq.connection.accepted_connection import (
    FREE_LOGIN_BYTES,
    LOGIN_REQUESTS,
    AcceptedConnection,
)
from aiokq.connection.request_context import CloseConnection, RequestContext, SessionState
from aiokq.connection.server import Server, ServerLimits
from aiokq.connection.server_security import ServerSecurity
from aiokq.connection.strangers import Strangers
from aiokq.core.counters import BrokerCounters
from aiokq.core.environment import Address
from aiokq.core.errors import ProtocolError
from tests.sim.harness.simulation import Simulation, run
from tests.unit.connection.test_connection_quotas import lost
from tests.unit.connection.test_server import CLIENT, SERVER, Client, frame

MIB = 1024 * 1024
ANSWER = b"\0\0\0\x02ok"


class Logins:
    """Answers requests; "login" logs in, "check" waits for `checked` and then logs in.

    Attributes:
        ended: how the checks ended.
    """

    def __init__(self) -> None:
        self.checked = asyncio.Event()
        self.ended: list[str] = []
        self.handled: list[bytes] = []

    def handle_login(
        self, context: RequestContext, data: memoryview
    ) -> Sequence[wire.Fragment] | None:
        """Answer requests but for "check" at once."""
        kind = bytes(data[:5])
        if kind == b"check":
            return None
        self.handled.append(kind)
        if kind == b"guess":
            closing = CloseConnection("wrong password", delay=2.0)
            closing.answer = [b"\0\0\0\x02", b"no"]
            raise closing
        if kind == b"wrong":
            raise ProtocolError("not a request")
        if kind == b"fault":
            raise RuntimeError("a bug")
        if kind == b"login":
            self.log_in(context)
        return [ANSWER]

    @staticmethod
    def log_in(context: RequestContext) -> None:
        context.session.state = SessionState.READY
        if context.on_login is not None:
            context.on_login()
            context.on_login = None

    async def handle(
        self, context: RequestContext, data: memoryview
    ) -> Sequence[wire.Fragment] | None:
        kind = bytes(data[:5])
        self.handled.append(kind)
        if kind == b"check":
            try:
                await self.checked.wait()
            except asyncio.CancelledError:
                self.ended.append("cancelled")
                raise
            self.ended.append("checked")
        if kind in (b"login", b"check"):
            self.log_in(context)
        return [ANSWER]


AT_ONCE = [False]
"""Whether the servers of a test handle requests of logins without a task, if they can."""


@pytest.fixture(autouse=True, params=[False, True], ids=["by a task", "at once"])
def way(request: pytest.FixtureRequest) -> None:
    AT_ONCE[0] = request.param


class World:
    """A server whose clients log in, in a simulated network."""

    def __init__(self, simulation: Simulation, limits: ServerLimits) -> None:
        environment = simulation.environment(SERVER)
        self.network = simulation.network.at(CLIENT)
        self.handler = Logins()
        self.server = Server(
            environment.network,
            None,
            9092,
            self.handler,
            clock=environment.clock,
            counters=BrokerCounters(),
            limits=limits,
            security=ServerSecurity(sasl=True, handshake_timeout=30.0),
        )
        if AT_ONCE[0]:
            self.server.login_handler = self.handler.handle_login

    async def client(self) -> Client:
        _, client = await self.network.connect(Client, Address(SERVER, 9092))
        return client

    async def logged_in(self, request: bytes = b"login") -> Client:
        client = await self.client()
        client.send(request)
        assert await client.receive(1) == [b"ok"]
        return client

    def connection(self) -> AcceptedConnection:
        """Return the connection that was accepted last."""
        return list(self.server._connections)[-1]


@asynccontextmanager
async def world(simulation: Simulation, **limits: int) -> AsyncIterator[World]:
    made = World(simulation, ServerLimits(**{"queued_max_request_bytes": 32 * MIB, **limits}))  # type: ignore[arg-type]
    await made.server.start()
    try:
        yield made
    finally:
        await made.server.close(drain=1.0)


def announced(size: int, sent: int) -> bytes:
    """Return the beginning of a request."""
    return size.to_bytes(4, "big") + bytes(sent)


def test_strangers_who_stop_within_a_request_do_not_pause_logged_in_clients(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A thousand of them send half of the largest request that is permitted before the login.

    Regression: they used up `queued.max.request.bytes`, and large requests waited for 37 seconds.
    """

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            loop = asyncio.get_running_loop()
            working = await w.logged_in()
            strangers = []
            for _ in range(1000):
                stranger = await w.client()
                stranger.transport.write(announced(512 * 1024, 256 * 1024))
                strangers.append(stranger)
            await asyncio.sleep(1)
            assert w.server.budget.used == 0
            assert w.server.login_budget.used <= w.server.login_budget.limit == 4 * MIB
            closed = sum(one.lost.is_set() for one in strangers)
            assert closed == w.server.counters.connections_closed_before_login > 900
            began = loop.time()
            for answered in range(2, 5):
                working.send(bytes(20 * MIB))
                assert await working.receive(answered) == [b"ok"] * answered
            assert loop.time() - began < 1
            assert w.server.connections == 1 + 1000 - closed

    with caplog.at_level(logging.WARNING):
        run(1, main)
    lines = [one for one in caplog.messages if "closed before their login" in one]
    assert 1 <= len(lines) <= 2
    assert "the memory for requests before the login is used up" in lines[0]


def test_a_client_logs_in_although_strangers_have_used_up_the_memory() -> None:
    """Common logins are smaller than what a connection may hold in any case."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            for _ in range(30):
                stranger = await w.client()
                stranger.transport.write(announced(512 * 1024, 400 * 1024))
            await asyncio.sleep(1)
            assert w.server.login_budget.used > 3 * MIB
            client = await w.logged_in(b"login" + bytes(FREE_LOGIN_BYTES - 4096))
            client.send(bytes(MIB))
            assert await client.receive(2) == [b"ok"] * 2

    run(1, main)


def test_whole_requests_of_strangers_are_bounded_as_well() -> None:
    """Requests that were received by one read are counted after it."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            for _ in range(200):
                stranger = await w.client()
                stranger.send(b"check", bytes(60_000))
            await asyncio.sleep(1)
            assert w.server.login_budget.used <= w.server.login_budget.limit
            assert w.server.counters.connections_closed_before_login > 100
            w.handler.checked.set()

    run(1, main)


def test_many_small_requests_before_the_login_end_the_connection() -> None:
    """An empty request is counted as nothing, and costs memory all the same."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            allowed, refused = await w.client(), await w.client()
            for client in (allowed, refused):
                client.send(b"check")
            await asyncio.sleep(1)
            allowed.send(*[b""] * (LOGIN_REQUESTS - 1))
            refused.send(*[b""] * LOGIN_REQUESTS)
            await asyncio.sleep(1)
            assert (allowed.lost.is_set(), refused.lost.is_set()) == (False, True)
            assert w.handler.ended == ["cancelled"]
            w.handler.checked.set()
            assert await allowed.receive(LOGIN_REQUESTS) == [b"ok"] * LOGIN_REQUESTS

    run(1, main)


def test_a_client_cannot_go_on_sending_requests_before_its_login() -> None:
    """Requests that are answered with an error, such as ApiVersions of a version that is too new.

    Regression: only requests that waited were counted. A client that read its answers could send
    requests as fast as they were answered, until `handshake.timeout.ms`.
    """

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client = await w.client()
            for number in range(1, LOGIN_REQUESTS + 1):
                client.send(b"hello")
                assert len(await client.receive(number)) == number
            client.send(b"hello")
            await client.lost.wait()
            assert len(client.frames) == LOGIN_REQUESTS
            assert w.server.counters.connections_closed_before_login == 1

    run(1, main)


def test_after_the_login_requests_are_not_counted() -> None:
    """The limit is for strangers."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client = await w.logged_in()
            for number in range(2, 2 * LOGIN_REQUESTS):
                client.send(b"hello")
                assert len(await client.receive(number)) == number

    run(1, main)


def test_requests_before_the_login_that_a_task_handles_are_steps_of_strangers() -> None:
    """One in each step, in the order in which they arrived.

    Regression: once a request of a connection had been handled by a task, all its requests were,
    and took any part of the loop's time. One ApiVersions request of an unknown version was enough.
    """

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            w.handler.checked.set()
            steps: list[str] = []

            class Counting(Strangers):
                async def next(self, host: str) -> None:
                    steps.append(host)
                    await super().next(host)

            w.server.strangers = Counting(w.server.turn, w.server.clock.monotonic)
            client = await w.client()
            client.send(b"token", b"token", b"check", b"data!", b"data!")
            assert await client.receive(5) == [b"ok"] * 5
            # Those before the first one that must wait need no task.
            assert steps == [CLIENT] * (1 if AT_ONCE[0] else 3)
            assert w.handler.handled[-3:] == [b"check", b"data!", b"data!"]

    run(1, main)


def test_a_client_that_sends_its_login_byte_by_byte_reads_within_the_share() -> None:
    """Its connection is not read until `Strangers` allows it, and then the login goes on."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            resumed: list[Callable[[], None]] = []

            class Reads(Strangers):
                def read(self, resume: Callable[[], None], host: str) -> bool:
                    assert host == CLIENT
                    resumed.append(resume)
                    return False

            w.server.strangers = Reads(w.server.turn, w.server.clock.monotonic)
            client = await w.client()
            for number, byte in enumerate(frame(b"login")):
                client.transport.write(bytes([byte]))
                await asyncio.sleep(1)
                if number < 8:
                    assert not client.frames
                    assert len(resumed) == 1
                    resumed.pop()()
            assert await client.receive(1) == [b"ok"]
            client.transport.write(frame(b"data!")[:5])
            await asyncio.sleep(1)
            assert not resumed

    run(1, main)


def test_the_memory_of_a_login_moves_to_the_memory_of_clients() -> None:
    """Requests behind the login stay counted, and nothing is counted twice."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client = await w.client()
            client.transport.write(frame(b"check") + frame(bytes(1000)) + announced(9000, 3000))
            await asyncio.sleep(1)
            budget, logins = w.server.budget, w.server.login_budget
            assert budget.used == 0
            assert logins.used >= 5 + 1000 + 3000
            w.handler.checked.set()
            await client.receive(2)
            assert logins.used == 0
            assert 3000 <= budget.used <= 9000
            client.transport.write(bytes(6000))
            assert await client.receive(3) == [b"ok"] * 3
            assert budget.used == 0

    run(1, main)


def test_after_the_login_requests_are_received_ahead() -> None:
    """As for a client that needs no login: the memory for logged-in clients is asked."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client = await w.client()
            await asyncio.sleep(0.1)
            reader = w.connection().transport.reader
            assert reader.spare is None
            client.send(b"login")
            await client.receive(1)
            assert reader.spare is w.server.budget

    run(1, main)


@pytest.mark.parametrize("again", [False, True], ids=["first login", "renewal"])
def test_a_check_of_a_client_that_is_gone_is_cancelled(again: bool) -> None:
    """It may take half a minute, and held the request, those behind it, and their memory."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client = await (w.logged_in() if again else w.client())
            if again:
                w.connection().context.session.state = SessionState.AUTHENTICATE
            client.send(b"check" + bytes(3000), bytes(5000))
            client.transport.write(announced(9000, 4000))
            await asyncio.sleep(1)
            connection = weakref.ref(w.connection())
            used = w.server.budget.used + w.server.login_budget.used
            assert used >= 12_000
            client.transport.abort()
            await asyncio.sleep(1)
            assert w.handler.ended == ["cancelled"]
            assert w.server.budget.used == w.server.login_budget.used == 0
            assert w.server.connections == 0
            assert b"\0\0\0\0\0" not in w.handler.handled
            gc.collect()
            assert connection() is None

    run(1, main)


def test_requests_of_a_logged_in_client_that_is_gone_are_handled() -> None:
    """Records that were sent with acks=0 before the client closed its connection are not lost."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client = await w.logged_in()
            w.connection().context.session.state = SessionState.READY
            client.send(b"check", b"last!")
            await asyncio.sleep(1)
            client.transport.abort()
            await asyncio.sleep(1)
            w.handler.checked.set()
            await asyncio.sleep(1)
            assert w.handler.ended == ["checked"]
            assert w.handler.handled[-1] == b"last!"
            assert w.server.budget.used == w.server.login_budget.used == 0

    run(1, main)


def test_a_login_that_takes_too_long_is_ended() -> None:
    """`handshake.timeout.ms` also ends a check that hangs while its client waits."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client = await w.client()
            client.send(b"check")
            await asyncio.sleep(20)
            assert not client.lost.is_set()
            await asyncio.sleep(20)
            assert client.lost.is_set()
            assert w.handler.ended == ["cancelled"]
            assert w.server.login_budget.used == 0

    run(1, main)


def test_a_later_login_that_takes_too_long_is_ended() -> None:
    """`handshake.timeout.ms` limits a re-authentication, too, from its beginning."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            for request in (b"", b"check"):  # one waits, the other has a check that hangs
                client = await w.logged_in()
                session = w.connection().context.session
                await asyncio.sleep(40)
                session.reauthenticated_at = asyncio.get_running_loop().time()
                session.state = SessionState.AUTHENTICATE
                if request:
                    client.send(request)
                await asyncio.sleep(20)
                assert not client.lost.is_set()
                await asyncio.sleep(20)
                assert client.lost.is_set()
            assert w.handler.ended == ["cancelled"]
            client = await w.logged_in()
            session = w.connection().context.session
            session.reauthenticated_at = asyncio.get_running_loop().time()
            await asyncio.sleep(40)  # it has logged in again
            assert not client.lost.is_set()
            assert w.server.connections == 1

    run(1, main)


def test_without_descriptors_stalled_strangers_are_closed_before_idle_clients() -> None:
    """However long the clients are idle. A login that the broker still checks goes on.

    Regression: clients that had been idle for a second were closed for strangers, and connections
    that sent nothing on a listener with TLS kept everybody out until `handshake.timeout.ms`.
    """

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client = await w.logged_in()
            checking = await w.client()
            checking.send(b"check")
            await asyncio.sleep(5)
            strangers = [await w.client() for _ in range(3)]
            strangers[1].transport.write(announced(9000, 10))
            simulation.network.scarce = lambda: True
            await asyncio.sleep(2)
            others = []
            for closed in range(1, 4):
                others.append(await w.client())
                await asyncio.sleep(0.1)
                assert sum(one.lost.is_set() for one in strangers) == closed
            assert lost([client, checking]) == [False, False]
            # Younger strangers are left alone, and the idle client makes room.
            others.append(await w.client())
            await asyncio.sleep(0.1)
            assert not any(one.lost.is_set() for one in others)
            assert client.lost.is_set()
            simulation.network.scarce = lambda: False
            w.handler.checked.set()
            assert await checking.receive(1) == [b"ok"]
            assert w.server.counters.connections_closed_for_room == 4

    run(1, main)


at_once = pytest.mark.parametrize("way", [True], indirect=True, ids=["at once"])


def tasks_of(w: World) -> list[str]:
    return [one.get_name() for one in asyncio.all_tasks() if "connection " in one.get_name()]


@at_once
def test_a_client_has_no_task_before_its_first_request_after_the_login() -> None:
    """What anybody can open costs little."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client = await w.client()
            client.send(b"hello", b"more!")
            assert await client.receive(2) == [b"ok"] * 2
            client.send(b"login")
            await client.receive(3)
            await asyncio.sleep(1)
            assert tasks_of(w) == []
            assert w.connection() in w.server.idle
            client.send(b"data!")
            await client.receive(4)
            assert len(tasks_of(w)) == 1
            assert w.handler.handled == [b"hello", b"more!", b"login", b"data!"]
            assert w.server.counters.requests["unknown"] == 4

    run(1, main)


@at_once
def test_requests_behind_a_login_are_handled_in_order() -> None:
    """Those of the login without a task, the others by it."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client = await w.client()
            client.send(*[b"hello"] * 9, b"login", *[b"data!"] * 20, b"check", b"last!")
            await client.receive(30)
            w.handler.checked.set()
            assert await client.receive(32) == [b"ok"] * 32
            assert w.handler.handled[9:11] == [b"login", b"data!"]
            assert w.handler.handled[-1] == b"last!"
            assert w.server.budget.used == w.server.login_budget.used == 0

    run(1, main)


@at_once
def test_a_failed_login_is_answered_late_and_keeps_no_request() -> None:
    """As it is by a task; what comes behind it is not read."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            loop = asyncio.get_running_loop()
            client = await w.client()
            began = loop.time()
            client.send(b"guess", *[bytes(1000)] * 10)
            await asyncio.sleep(1)
            client.send(b"more!")
            assert w.server.login_budget.used == 0
            assert client.frames == []
            assert tasks_of(w) == []
            assert await client.receive(1) == [b"no"]
            await client.lost.wait()
            assert 2.0 <= loop.time() - began < 2.5
            assert w.handler.handled == [b"guess"]
            await asyncio.sleep(1)
            assert w.server.connections == 0

    run(1, main)


@at_once
def test_closing_the_server_waits_for_the_answer_to_a_failed_login() -> None:
    """As for any request that is being handled, for a limited time."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            clients = [await w.client() for _ in range(2)]
            for client in clients:
                client.send(b"guess")
            await asyncio.sleep(0.5)
            clients[1].transport.abort()
            await w.server.close(drain=5.0)
            assert await clients[0].receive(1) == [b"no"]
            assert w.server.connections == 0

    run(1, main)


@at_once
@pytest.mark.parametrize("request_", [b"wrong", b"fault"])
def test_a_request_that_fails_ends_its_connection_only(
    request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Wrong input, or a bug of the handler."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client, other = await w.client(), await w.client()
            client.send(b"hello", request_, b"hello")
            await client.lost.wait()
            assert [bytes(one) for one in client.frames] == [b"ok"]
            other.send(b"login")
            assert await other.receive(1) == [b"ok"]
            assert w.server.login_budget.used == 0

    with caplog.at_level(logging.WARNING):
        run(1, main)
    assert "closing connection" in caplog.text


@at_once
def test_a_client_that_sends_a_large_request_is_at_work() -> None:
    """Strangers have their share beside it only.

    Regression: a request that took more than a millisecond to arrive counted as no request
    meanwhile, so that strangers could use all the time.
    """

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client, stranger = await w.logged_in(), await w.client()
            stranger.transport.write(frame(bytes(1000))[:500])
            await asyncio.sleep(1)
            before = w.server.turn.begun
            client.transport.write(frame(bytes(1000))[:500])
            await asyncio.sleep(1)
            assert w.server.turn.begun == before + 1
            stranger.transport.write(bytes(100))
            await asyncio.sleep(1)
            assert w.server.turn.begun == before + 1

    run(1, main)


def test_a_frame_that_is_too_large_is_refused_late() -> None:
    """After the answers to the requests before it; its body is not read."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation, failed_login_delay=2) as w:
            loop = asyncio.get_running_loop()
            client = await w.client()
            began = loop.time()
            client.transport.write(frame(b"hello") + announced(513 * 1024, 0))
            await client.lost.wait()
            assert [bytes(one) for one in client.frames] == [b"ok"]
            assert 2.0 <= loop.time() - began < 2.5

    run(1, main)


@at_once
def test_a_stopped_server_handles_no_more_requests_of_strangers() -> None:
    """Their connections are closed."""

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            client = await w.client()
            client.send(b"hello")
            await client.receive(1)
            w.server.stop()
            client.send(b"login")
            await client.lost.wait()
            assert w.handler.handled == [b"hello"]

    run(1, main)


def test_requests_behind_a_login_are_not_those_of_a_stranger() -> None:
    """They arrive together with its last request.

    Regression: all requests of a client that sent them without a pause used the time of strangers,
    so that nobody else could log in.
    """

    class Watched(Strangers):
        __slots__ = ("is_counting",)

        def begin(self) -> None:
            self.is_counting = True
            super().begin()

        def end(self) -> None:
            self.is_counting = False
            super().end()

    async def main(simulation: Simulation) -> None:
        async with world(simulation) as w:
            watched = w.server.strangers = Watched(w.server.turn, w.server.clock.monotonic)
            watched.is_counting = False
            handle, counted = w.handler.handle, []

            async def watching(
                context: RequestContext, data: memoryview
            ) -> Sequence[wire.Fragment] | None:
                counted.append((bytes(data[:5]), watched.is_counting))
                return await handle(context, data)

            w.handler.handle = watching  # type: ignore[method-assign]
            client = await w.client()
            client.send(b"login", *[b"after"] * 20)
            assert await client.receive(21) == [b"ok"] * 21
            assert counted[-20:] == [(b"after", False)] * 20

    run(1, main)
