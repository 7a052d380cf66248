"""Sessions are renewed on the same connection, while requests and responses go on (KIP-368)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aiokq import wire
from aiokq.connection.connection import Connection
from aiokq.connection.node import Node, NodeDown, Purpose
from aiokq.connection.options import ConnectionOptions
from aiokq.connection.sasl.plain import plain
from aiokq.connection.security import security
from aiokq.core.errors import AuthenticationFailed, ConnectionLost
from tests.peers.scripted import Call, Close, Delay, ScriptedCluster
from tests.sim.harness.simulation import Simulation, run
from tests.unit.connection.support import metadata, one_broker, produce


class Provider:
    """A mechanism whose credentials may be missing, or never come."""

    name = "PLAIN"

    def __init__(self) -> None:
        self.error: AuthenticationFailed | None = None
        self.hangs = False

    async def start(self) -> bytes:
        if self.hangs:
            await asyncio.sleep(1e6)
        if self.error is not None:
            raise self.error
        return b"\0anna\0secret"

    async def step(self, challenge: bytes) -> bytes | None:
        return None


def options(provider: Provider | None = None, *, max_idle: float = 540.0) -> ConnectionOptions:
    mechanism = plain("anna", "secret") if provider is None else lambda host: provider
    return ConnectionOptions(
        security=security("SASL_PLAINTEXT", mechanism=mechanism), max_idle=max_idle
    )


class Broker:
    """The broker's side: it closes connections whose session has ended, as Kafka does."""

    def __init__(self, kafka: ScriptedCluster, lifetime: float = 10.0) -> None:
        self.kafka = kafka
        self.lifetime = lifetime
        self.ends: dict[int, float] = {}
        self.logins: list[tuple[int, float]] = []
        self.between: set[int] = set()
        self.error = 0
        self.seconds = 0.0
        kafka[1].on(wire.SaslHandshakeRequest, self.handshake)
        kafka[1].on(wire.SaslAuthenticateRequest, self.authenticate)
        kafka[1].on(wire.MetadataRequest, self.metadata)

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def handshake(self, request: object, call: Call) -> wire.SaslHandshakeResponse:
        self.between.add(call.context.connection_id)
        return wire.SaslHandshakeResponse(mechanisms=["PLAIN"])

    def authenticate(self, request: object, call: Call) -> object:
        connection = call.context.connection_id
        self.between.discard(connection)
        if self.error:
            return wire.SaslAuthenticateResponse(error_code=self.error, error_message="changed")
        self.logins.append((connection, self.now()))
        self.ends[connection] = self.now() + self.lifetime
        answer = wire.SaslAuthenticateResponse(session_lifetime_ms=round(self.lifetime * 1000))
        return Delay(self.seconds, answer) if self.seconds else answer

    def metadata(self, request: object, call: Call) -> object:
        connection = call.context.connection_id
        assert connection not in self.between, "a request between handshake and token"
        if self.now() > self.ends[connection]:
            return Close()
        return wire.MetadataResponse(cluster_id="c")


async def exchange_begun(connection: Connection) -> None:
    """Wait until the renewal begins."""
    for _ in range(200):
        if connection.holding:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("no renewal")


def test_a_session_is_renewed_on_the_same_connection() -> None:
    """At 0.85 to 0.95 of the lifetime; the connection stays, and no request fails."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options()) as (world, kafka, node):
            broker = Broker(kafka)
            connections = set()
            for _ in range(100):
                await node.request(metadata())
                connections.add(await node.connection(Purpose.CONTROL))
                await asyncio.sleep(1)
            assert len(connections) == 1
            assert 11 <= len(broker.logins) <= 13
            pauses = [
                later[1] - earlier[1]
                for earlier, later in zip(broker.logins, broker.logins[1:], strict=False)
            ]
            assert all(8.4 <= pause <= 9.7 for pause in pauses)
            assert max(pauses) - min(pauses) > 0.1
            assert len(world.states) == 1

    run(1, main)


def test_requests_wait_for_the_exchange_and_keep_their_order() -> None:
    """The broker takes two seconds. Responses to earlier requests arrive meanwhile, later requests
    follow in their order, and each gets its own response.
    """

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options()) as (_, kafka, node):
            broker = Broker(kafka)
            count = 0

            def numbered(request: object, call: Call) -> wire.MetadataResponse:
                nonlocal count
                count += 1
                assert isinstance(broker.metadata(request, call), wire.MetadataResponse)
                return wire.MetadataResponse(cluster_id=str(count))

            kafka[1].on(wire.MetadataRequest, numbered)
            connection = await node.connection(Purpose.CONTROL)
            broker.seconds = 2.0
            futures = []
            held = 0
            while len(broker.logins) < 3:
                futures.append(connection.send(metadata()))
                held += connection.holding
                await connection.drain()
                await asyncio.sleep(0.1)
            assert held
            answers = [(await future).cluster_id for future in futures]
            assert answers == [str(n + 1) for n in range(len(futures))]
            assert connection.error is None

    run(1, main)


def test_requests_without_an_answer_wait_too() -> None:
    """Produce with acks=0 during the exchange: its bytes are sent afterwards, unchanged."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options()) as (_, kafka, node):
            broker = Broker(kafka)
            kafka[1].on(wire.ProduceRequest, None)
            kafka[1].versions[0] = (9, 9)
            connection = await node.connection(Purpose.PRODUCE)
            broker.seconds = 2.0
            await exchange_begun(connection)
            before = len(kafka[1].seen_of(wire.ProduceRequest))
            began = simulation.loop.time()
            for size in (10, 20, 30):
                connection.send_no_reply(produce(size))
            await connection.drain()
            assert simulation.loop.time() - began >= 1
            await asyncio.sleep(1)
            sent = kafka[1].seen_of(wire.ProduceRequest)[before:]
            assert [len(r.topic_data[0].partition_data[0].records or b"") for r in sent] == [
                10,
                20,
                30,
            ]

    run(1, main)


def test_a_long_request_in_flight_does_not_end_the_exchange() -> None:
    """A broker answers in order, so the answer to SaslHandshake may take as long as a JoinGroup
    that waits for other members: longer than the request timeout, and than the session.
    """

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options()) as (_, kafka, node):
            broker = Broker(kafka)
            connection = await node.connection(Purpose.CONTROL)
            await asyncio.sleep(5)
            kafka[1].script(
                wire.MetadataRequest, Delay(100.0, wire.MetadataResponse(cluster_id="late"))
            )
            waiting = connection.send(metadata(), timeout=200.0)
            await asyncio.sleep(6)
            assert connection.holding
            later = connection.send(metadata(), timeout=200.0)
            assert (await waiting).cluster_id == "late"
            assert (await later).cluster_id == "c"
            assert len(broker.logins) == 2
            assert connection.error is None

    run(1, main)


def test_a_broker_that_does_not_answer_the_exchange_is_left() -> None:
    """The requests that waited were not sent, and their errors say so."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options()) as (_, kafka, node):
            broker = Broker(kafka)
            connection = await node.connection(Purpose.CONTROL)
            broker.seconds = 1000.0
            await exchange_begun(connection)
            held = connection.send(metadata(), timeout=500.0)
            with pytest.raises(ConnectionLost, match="Metadata was not sent") as caught:
                await held
            assert not caught.value.may_have_been_written
            assert connection.closed
            broker.seconds = 0.0
            await node.request(metadata())

    run(1, main)


def test_credentials_that_were_changed_end_the_connection() -> None:
    """The broker refuses the renewal. The error is that of a login."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options()) as (world, kafka, node):
            broker = Broker(kafka)
            connection = await node.connection(Purpose.CONTROL)
            broker.error = 58
            error = await connection.wait_closed()
            assert isinstance(error, AuthenticationFailed)
            assert "the session was not renewed: changed" in str(error)
            assert isinstance(world.states[-1], NodeDown)
            with pytest.raises(AuthenticationFailed):
                await node.request(metadata())

    run(1, main)


def test_a_broker_that_stops_during_the_exchange_is_not_a_refusal() -> None:
    """The next login follows at once, not after the ten seconds that follow a refusal."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options()) as (_, kafka, node):
            broker = Broker(kafka)
            connection = await node.connection(Purpose.CONTROL)
            kafka[1].script(wire.SaslAuthenticateRequest, Close())
            error = await connection.wait_closed()
            assert isinstance(error, ConnectionLost)
            began = simulation.loop.time()
            await node.request(metadata())
            assert simulation.loop.time() - began < 2
            assert len(broker.logins) == 2

    run(1, main)


@pytest.mark.parametrize("hangs", [False, True])
def test_missing_credentials_leave_the_connection_until_its_session_ends(
    hangs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The provider of tokens fails or hangs: requests go on until shortly before the end. The
    connection is then replaced, without a request that fails.
    """
    provider = Provider()

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options(provider)) as (world, kafka, node):
            broker = Broker(kafka, lifetime=100.0)
            connection = await node.connection(Purpose.CONTROL)
            provider.hangs = hangs
            provider.error = None if hangs else AuthenticationFailed("no token")
            for _ in range(940):
                await node.request(metadata())
                await asyncio.sleep(0.1)
            assert await node.connection(Purpose.CONTROL) is connection
            await asyncio.sleep(5)
            provider.hangs, provider.error = False, None
            await node.request(metadata())
            assert await node.connection(Purpose.CONTROL) is not connection
            assert len(broker.logins) == 2
            assert len(world.states) == 1

    with caplog.at_level(logging.WARNING):
        run(1, main)
    assert (
        "session not renewed: node=1 error=SASL_AUTHENTICATION_FAILED (58): no token" in caplog.text
    ) == (not hangs)


def test_credentials_that_come_late_renew_the_session() -> None:
    """A provider that failed is asked again after ten seconds."""
    provider = Provider()

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options(provider, max_idle=0.0)) as (_, kafka, node):
            broker = Broker(kafka, lifetime=400.0)
            connection = await node.connection(Purpose.CONTROL)
            provider.error = AuthenticationFailed("no token")
            await asyncio.sleep(381)
            provider.error = None
            await asyncio.sleep(12)
            assert len(broker.logins) == 2
            assert connection.error is None

    run(1, main)


def test_renewals_do_not_keep_an_idle_connection() -> None:
    """connections_max_idle_ms counts from the last request, not from the last renewal."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options(max_idle=60.0)) as (_, kafka, node):
            broker = Broker(kafka)
            connection = await node.connection(Purpose.CONTROL)
            await node.request(metadata())
            began = simulation.loop.time()
            await connection.wait_closed()
            assert 59 <= simulation.loop.time() - began <= 61
            assert len(broker.logins) >= 6

    run(1, main)


def test_a_session_that_is_too_short_is_replaced() -> None:
    """Brokers refuse a second renewal within a second of the first."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options()) as (world, kafka, node):
            broker = Broker(kafka, lifetime=1.0)
            for _ in range(100):
                await node.request(metadata())
                await asyncio.sleep(0.1)
            assert 10 <= len(broker.logins) <= 14
            assert len({connection for connection, _ in broker.logins}) == len(broker.logins)
            assert len(world.states) == 1

    run(1, main)


@pytest.mark.parametrize("lifetime", [-1.0, 1e15])
def test_strange_lifetimes(lifetime: float) -> None:
    """A negative one is none; one of a million years is no error."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options()) as (_, kafka, node):
            broker = Broker(kafka, lifetime=lifetime)
            await node.connection(Purpose.CONTROL)
            await asyncio.sleep(100)
            assert len(broker.logins) == 1

    run(1, main)


def test_a_client_that_closes_during_the_exchange() -> None:
    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options()) as (world, kafka, node):
            broker = Broker(kafka)
            connection = await node.connection(Purpose.CONTROL)
            broker.seconds = 5.0
            await exchange_begun(connection)
            await _close(node)
            assert connection.error is not None
            assert not world.supervisor.failed

    run(1, main)


async def _close(node: Node) -> None:
    await node.close()
    await asyncio.sleep(1)


def test_a_renewed_session_may_have_no_end() -> None:
    """The setting was changed: the old end of the session does not count any more."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, options()) as (_, kafka, node):
            broker = Broker(kafka)
            connection = await node.connection(Purpose.CONTROL)
            kafka[1].script(wire.SaslAuthenticateRequest, wire.SaslAuthenticateResponse())
            await asyncio.sleep(100)
            assert connection.error is None
            assert not connection.retiring
            assert len(broker.logins) == 1

    run(1, main)
