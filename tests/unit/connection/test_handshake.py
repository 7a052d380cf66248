"""Opening a connection: API versions, login, and failures with their remedies."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref
from typing import Any

import pytest

from aiokq import wire
from aiokq.connection.node import Node, NodeDown, Purpose
from aiokq.connection.options import ConnectionOptions
from aiokq.connection.sasl.mechanism import MechanismFactory
from aiokq.connection.sasl.plain import plain
from aiokq.connection.security import security
from aiokq.core.environment import Network
from aiokq.core.errors import (
    AuthenticationFailed,
    ConnectionLost,
    IllegalSaslState,
    ProtocolError,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
)
from tests.peers.scripted import Call, Close, ScriptedCluster, Silence
from tests.sim.harness.network import Always
from tests.sim.harness.simulation import Simulation, run
from tests.unit.connection.support import BROKER, RawServer, client, metadata, one_broker


def sasl(mechanism: MechanismFactory) -> ConnectionOptions:
    return ConnectionOptions(security=security("SASL_PLAINTEXT", mechanism=mechanism))


LOGIN = sasl(plain("anna", "secret"))


def asked_versions(kafka: ScriptedCluster) -> list[int]:
    return [s.version for s in kafka[1].seen if isinstance(s.request, wire.ApiVersionsRequest)]


def test_the_newest_api_versions_request_carries_the_client_name() -> None:
    """Brokers count clients by name and version (KIP-511)."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            connection = await node.connection(Purpose.CONTROL)
            (asked,) = kafka[1].seen_of(wire.ApiVersionsRequest)
            assert asked.client_software_name == "aiokq"
            assert asked.client_software_version
            assert asked_versions(kafka) == [4]
            assert connection.api_versions == kafka[1].versions

    run(1, main)


@pytest.mark.parametrize(("newest", "names_range", "asked"), [(3, True, [3]), (2, False, [0])])
def test_api_versions_is_retried_in_the_version_of_an_older_broker(
    newest: int, names_range: bool, asked: list[int]
) -> None:
    """The error response of Kafka 2.4 to 3.8 has the supported range; for older brokers only
    version 0 is safe.
    """

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            kafka[1].versions[18] = (0, newest)
            kafka[1].names_range = names_range
            await node.request(metadata())
            assert asked_versions(kafka) == asked

    run(1, main)


def test_a_broker_that_always_closes_on_api_versions_is_too_old() -> None:
    """Kafka 0.9 closes the connection. The first time may be chance; the second is a typed error
    with possible causes.
    """

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            kafka[1].on(wire.ApiVersionsRequest, Close())
            with pytest.raises(ConnectionLost, match=r"older than 0\.10") as once:
                await node.request(metadata())
            assert once.value.retriable
            with pytest.raises(UnsupportedVersion, match=r"older than 0\.10") as twice:
                await node.request(metadata())
            assert not twice.value.retriable

    run(1, main)


def test_a_peer_that_refuses_each_version_of_api_versions_is_named() -> None:
    """Version 0 is the last one to ask for; the peer answered, so it is not said to have closed."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            kafka[1].on(wire.ApiVersionsRequest, wire.ApiVersionsResponse(error_code=35))
            with pytest.raises(UnsupportedVersion, match="refuses ApiVersions, even version 0"):
                await node.request(metadata())
            assert asked_versions(kafka) == [4, 0]

    run(1, main)


def test_a_broker_that_worked_before_is_never_considered_too_old() -> None:
    """Closing on ApiVersions is then a restart or a network failure, and temporary."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            await node.request(metadata())
            await (await node.connection(Purpose.CONTROL)).close()
            kafka[1].script(wire.ApiVersionsRequest, *[Close()] * 5)
            for _ in range(5):
                with pytest.raises(ConnectionLost) as caught:
                    await node.request(metadata())
                assert caught.value.retriable
            await node.request(metadata())

    run(1, main)


def test_a_broker_that_is_starting_is_not_considered_too_old() -> None:
    """The broker closes one connection, then works; the count of such closes is reset."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (_, kafka, node):
            for _ in range(3):
                kafka[1].script(wire.ApiVersionsRequest, Close())
                with pytest.raises(ConnectionLost):
                    await node.request(metadata())
                await node.request(metadata())
                await (await node.connection(Purpose.CONTROL)).close()

    run(1, main)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "set security_protocol=SSL"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
    ],
)
def test_a_peer_that_is_not_kafka_is_named(answer: bytes, told: str) -> None:
    """A wrong port in bootstrap_servers must not be retried in a loop."""

    async def main(simulation: Simulation) -> None:
        network = simulation.network.at(BROKER)
        listener = await network.listen(Always(lambda: RawServer(answer)), None, 80)
        async with client(simulation) as world:
            node = world.node(BROKER, 80)
            with pytest.raises(ProtocolError, match=told):
                await node.request(metadata())
            attempts = world.counters.connections_failed
            with pytest.raises(ProtocolError, match=told):
                await node.request(metadata())
            assert world.counters.connections_failed == attempts
            await node.close()
        listener.close()

    run(1, main)


class Greeted:
    """A network whose peers send first, as mail and SSH servers do."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.resolve = network.resolve
        self.listen = network.listen

    async def connect(self, *args: Any, **kwargs: Any) -> Any:
        transport, protocol = await self._network.connect(*args, **kwargs)
        greeting = b"SSH-2.0-OpenSSH_9.2\r\n"
        protocol.get_buffer(len(greeting))[: len(greeting)] = greeting
        protocol.buffer_updated(len(greeting))
        return transport, protocol


def test_a_greeting_before_the_first_request_is_named() -> None:
    """The greeting ended the connection, and the error only said "is closing"."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, kafka, _):
            world.environment = dataclasses.replace(
                world.environment, network=Greeted(world.environment.network)
            )
            node = world.node(BROKER, kafka[1].port)
            with pytest.raises(ProtocolError, match="SSH"):
                await node.request(metadata())
            await node.close()

    run(1, main)


def test_a_peer_that_accepts_but_never_responds_times_out() -> None:
    """The connection setup timeout covers the handshake too."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation) as (world, kafka, node):
            kafka[1].on(wire.ApiVersionsRequest, Silence())
            started = world.loop.time()
            with pytest.raises(ConnectionLost, match=r"ApiVersions: no answer .*: not Kafka"):
                await node.request(metadata())
            assert 8 <= world.loop.time() - started <= 12.1

    run(1, main)


def test_the_error_names_the_timeout_that_ended_the_handshake() -> None:
    """A request timeout shorter than the setup timeout ends the handshake first."""

    async def main(simulation: Simulation) -> None:
        options = ConnectionOptions(request_timeout=2.0)
        async with one_broker(simulation, options) as (world, kafka, node):
            kafka[1].on(wire.ApiVersionsRequest, Silence())
            started = world.loop.time()
            with pytest.raises(ConnectionLost, match=r"ApiVersions: .* within 2 s: not Kafka"):
                await node.request(metadata())
            assert 2 <= world.loop.time() - started <= 3

    run(1, main)


# -- SASL


class SlowToken:
    """A mechanism whose first message is never ready."""

    name = "PLAIN"

    async def start(self) -> bytes:
        await asyncio.sleep(1000)
        return b""

    async def step(self, challenge: bytes) -> bytes | None:
        raise AssertionError


@pytest.mark.parametrize(
    ("silent", "slow_token", "step"),
    [
        (wire.SaslHandshakeRequest, False, "SaslHandshake"),
        (wire.SaslAuthenticateRequest, False, "SASL exchange"),
        (None, True, "SASL exchange"),
    ],
)
def test_the_error_names_the_step_of_sasl_that_took_too_long(
    silent: type | None, slow_token: bool, step: str
) -> None:
    """Regression: it named a firewall, although the connection had been made."""

    async def main(simulation: Simulation) -> None:
        options = sasl(lambda host: SlowToken()) if slow_token else LOGIN
        async with one_broker(simulation, options) as (_, kafka, node):
            Login(kafka)
            if silent is not None:
                kafka[1].on(silent, Silence())
            with pytest.raises(ConnectionLost, match=f"{step}: no answer within") as caught:
                await node.request(metadata())
            assert "firewall" not in str(caught.value)

    run(1, main)


class Login:
    """The broker's side of SASL PLAIN."""

    def __init__(self, kafka: ScriptedCluster, *, lifetime_ms: int = 0) -> None:
        self.tokens: list[bytes] = []
        self.lifetime_ms = lifetime_ms
        kafka[1].on(wire.SaslHandshakeRequest, self.handshake)
        kafka[1].on(wire.SaslAuthenticateRequest, self.authenticate)

    def handshake(self, request: object, call: Call) -> wire.SaslHandshakeResponse:
        assert isinstance(request, wire.SaslHandshakeRequest)
        known = request.mechanism == "PLAIN"
        return wire.SaslHandshakeResponse(error_code=0 if known else 33, mechanisms=["PLAIN"])

    def authenticate(self, request: object, call: Call) -> wire.SaslAuthenticateResponse:
        assert isinstance(request, wire.SaslAuthenticateRequest)
        self.tokens.append(bytes(request.auth_bytes))
        if request.auth_bytes != b"\0anna\0secret":
            return wire.SaslAuthenticateResponse(
                error_code=58, error_message="Authentication failed: Invalid username or password"
            )
        return wire.SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain_logs_in_before_anything_else(version: int) -> None:
    """ApiVersions, SaslHandshake v1, SaslAuthenticate in the broker's version, then requests."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, LOGIN) as (_, kafka, node):
            kafka[1].versions[36] = (0, version)
            login = Login(kafka)
            await node.request(metadata())
            assert login.tokens == [b"\0anna\0secret"]
            assert [(type(s.request).NAME, s.version) for s in kafka[1].seen[1:3]] == [
                ("SaslHandshake", 1),
                ("SaslAuthenticate", version),
            ]

    run(1, main)


def test_the_text_of_a_refusal_is_one_line() -> None:
    """A broker cannot forge lines of the log, and a long text does not hide aiokq's advice."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, sasl(plain("anna", "wrong"))) as (_, kafka, node):
            Login(kafka)
            kafka[1].on(
                wire.SaslAuthenticateRequest,
                lambda request, call: wire.SaslAuthenticateResponse(
                    error_code=58, error_message="no\nroot: forged \x1b[31m" + "x" * 5000
                ),
            )
            with pytest.raises(AuthenticationFailed, match="no root: forged ") as caught:
                await node.request(metadata())
            text = str(caught.value)
            assert "check the credentials" in text
            assert text.isprintable()
            assert len(text) < 2000

    run(1, main)


def test_a_wrong_password_is_a_typed_error_and_seldom_retried() -> None:
    """Frequent attempts would lock the account: many calls make one attempt in ten seconds."""

    async def main(simulation: Simulation) -> None:
        options = sasl(plain("anna", "wrong"))
        async with one_broker(simulation, options) as (world, kafka, node):
            login = Login(kafka)
            for _ in range(50):
                with pytest.raises(AuthenticationFailed, match="Invalid username") as caught:
                    await node.request(metadata())
                assert "wrong" not in str(caught.value)
                await asyncio.sleep(0.1)
            assert len(login.tokens) == 1
            await asyncio.sleep(10)
            with pytest.raises(AuthenticationFailed):
                await node.request(metadata())
            assert len(login.tokens) == 2
            assert isinstance(world.states[-1], NodeDown)

    run(1, main)


def test_the_error_for_a_disabled_mechanism_names_the_enabled_ones() -> None:
    """The client uses SCRAM-SHA-512, and the broker has only PLAIN."""

    class Other:
        name = "SCRAM-SHA-512"

        async def start(self) -> bytes:
            raise AssertionError("not asked")

        async def step(self, challenge: bytes) -> bytes | None:
            raise AssertionError("not asked")

    async def main(simulation: Simulation) -> None:
        options = ConnectionOptions(
            security=security("SASL_PLAINTEXT", mechanism=lambda _: Other())
        )
        async with one_broker(simulation, options) as (_, kafka, node):
            Login(kafka)
            with pytest.raises(UnsupportedSaslMechanism, match="one of: PLAIN"):
                await node.request(metadata())

    run(1, main)


def test_a_listener_without_sasl_says_so() -> None:
    """With SASL settings on the PLAINTEXT port, Kafka returns ILLEGAL_SASL_STATE."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, LOGIN) as (_, kafka, node):
            kafka[1].on(wire.SaslHandshakeRequest, wire.SaslHandshakeResponse(error_code=34))
            with pytest.raises(IllegalSaslState, match="does not use SASL"):
                await node.request(metadata())

    run(1, main)


def test_a_connection_closed_during_login_says_nothing_about_the_credentials() -> None:
    """The client tries again, as Java's does; a group's membership ended for good."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, LOGIN) as (_, kafka, node):
            Login(kafka)
            kafka[1].on(wire.SaslAuthenticateRequest, Close())
            with pytest.raises(ConnectionLost, match="closed the connection during") as caught:
                await node.request(metadata())
            assert caught.value.retriable

    run(1, main)


def test_a_mechanism_with_several_steps_runs_until_it_is_done() -> None:
    """Mechanisms such as SCRAM respond to challenges and verify the broker's final message."""
    heard: list[bytes] = []

    class Steps:
        name = "STEPS"

        async def start(self) -> bytes:
            return b"one"

        async def step(self, challenge: bytes) -> bytes | None:
            heard.append(bytes(challenge))
            return {b"1": b"two", b"2": b"three"}.get(bytes(challenge))

    async def main(simulation: Simulation) -> None:
        options = ConnectionOptions(
            security=security("SASL_PLAINTEXT", mechanism=lambda _: Steps())
        )
        async with one_broker(simulation, options) as (_, kafka, node):
            kafka[1].on(wire.SaslHandshakeRequest, wire.SaslHandshakeResponse())
            kafka[1].script(
                wire.SaslAuthenticateRequest,
                *(wire.SaslAuthenticateResponse(auth_bytes=b) for b in (b"1", b"2", b"ok")),
            )
            await node.request(metadata())
            assert [m.auth_bytes for m in kafka[1].seen_of(wire.SaslAuthenticateRequest)] == [
                b"one",
                b"two",
                b"three",
            ]
            assert heard == [b"1", b"2", b"ok"]

    run(1, main)


def test_a_lost_connection_is_released_before_its_session_lifetime_ends() -> None:
    """Session lifetimes last for hours; a timer must not keep a lost connection's buffers until
    then.
    """

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, LOGIN) as (_, kafka, node):
            Login(kafka, lifetime_ms=3_600_000)
            connection = await node.connection(Purpose.CONTROL)
            ended = weakref.ref(connection)
            await connection.close()
            del connection
            await node.request(metadata())
            await asyncio.sleep(5)
            gc.collect()
            assert ended() is None

    run(1, main)


def test_a_busy_connection_is_replaced_when_no_request_is_in_flight() -> None:
    """With two connections at a time, the order of a partition's batches could change."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, LOGIN) as (_, kafka, node):
            Login(kafka)
            old = await node.connection(Purpose.PRODUCE)
            kafka[1].script(wire.MetadataRequest, lambda request, call: slow(call))
            pending = old.send(metadata())
            await asyncio.sleep(9)
            old.retire()
            assert old.retiring
            assert not old.closed
            new = await node.connection(Purpose.PRODUCE)
            assert pending.done()
            assert new is not old

    async def slow(call: Call) -> wire.MetadataResponse:
        await asyncio.sleep(9.5)
        return wire.MetadataResponse()

    run(1, main)


def test_a_node_is_named_in_every_refusal() -> None:
    """With three brokers the user must know which one is concerned."""

    async def main(simulation: Simulation) -> None:
        async with one_broker(simulation, LOGIN) as (_, kafka, node):
            del kafka[1].versions[17]
            with pytest.raises(UnsupportedVersion, match="SaslHandshake") as caught:
                await node.request(metadata())
            assert caught.value.node == 1
            assert isinstance(node, Node)

    run(1, main)
