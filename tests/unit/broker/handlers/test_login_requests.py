"""Requests of a login that are handled without a task get the answers that all others get."""

from __future__ import annotations

import base64
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokq import wire
from aiokq.broker.security.authentication.plain import Passwords, PlainExchange
from aiokq.broker.security.authentication.sasl_login import ListenerLogin, SaslLogin
from aiokq.broker.security.authentication.scram import ScramCredentials, ScramExchange
from aiokq.connection.request_context import CloseConnection, RequestContext, SessionState
from aiokq.connection.sasl.scram_formulas import (
    SCRAM_MECHANISMS,
    client_key,
    client_proof,
    keys_of_salted_password,
    salted_password,
)
from aiokq.core.errors import ProtocolError
from aiokq.wire.principal_records import UserScramCredentialRecord
from tests.unit.broker.harness import Broker

LISTENER = "SASL_PLAINTEXT"
SCRAM = "SCRAM-SHA-256"
MECHANISM = SCRAM_MECHANISMS[SCRAM]
SALTED = salted_password(MECHANISM, "pencil", b"salt", 4096)
KEYS = keys_of_salted_password(MECHANISM, SALTED)
CREDENTIAL = UserScramCredentialRecord(
    name="alice",
    mechanism=MECHANISM.number,
    salt=b"salt",
    stored_key=KEYS.stored_key,
    server_key=KEYS.server_key,
    iterations=4096,
)


class Slow(PlainExchange):
    """A mechanism that may have to wait."""

    answer = None  # type: ignore[assignment]


@asynccontextmanager
async def broker() -> AsyncIterator[Broker]:
    passwords = Passwords({"alice": "secret"})
    credentials = ScramCredentials(
        SCRAM, lambda: {("alice", MECHANISM.number): CREDENTIAL}, dict, b"secret"
    )
    async with Broker(legacy=False) as made:
        made.node.dispatcher._areas.login._made = SaslLogin(
            {
                LISTENER: ListenerLogin(
                    {
                        "PLAIN": lambda connection: PlainExchange(connection, passwords),
                        "SLOW": lambda connection: Slow(connection, passwords),
                        SCRAM: lambda _: ScramExchange(credentials),
                    },
                    {"PLAIN": 5000},
                )
            },
            clock=made.clock,
            counters=made.node.counters,
        )
        yield made


def stranger() -> RequestContext:
    context = RequestContext(1, "10.0.0.9:5000", "10.0.0.9", LISTENER)
    context.session.state = SessionState.HANDSHAKE
    return context


def frame(request: wire.Request[wire.Response], version: int, number: int = 7) -> bytes:
    fragments = wire.encode_request(
        request, version=version, correlation_id=number, client_id="test"
    )
    return b"".join(map(bytes, fragments))[4:]


def versions(version: int, name: str = "x") -> bytes:
    software = {"client_software_name": name, "client_software_version": "1"}
    return frame(wire.ApiVersionsRequest(**(software if version >= 3 else {})), version)


def shake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return frame(wire.SaslHandshakeRequest(mechanism=mechanism), version)


def token(message: bytes, version: int = 2) -> bytes:
    return frame(wire.SaslAuthenticateRequest(auth_bytes=message), version)


RIGHT, WRONG = b"\0alice\0secret", b"\0alice\0wrong"


async def outcome(made: Broker, data: bytes, client: RequestContext, at_once: bool) -> object:
    """Return what a request leads to, in a form that can be compared."""
    dispatcher = made.node.dispatcher
    view = memoryview(bytearray(data))
    try:
        if at_once:
            answer = dispatcher.handle_login(client, view)
            if answer is None:
                return None
        else:
            answer = await dispatcher.handle(client, view)
    except CloseConnection as closing:
        answered = closing.answer
        return str(closing), closing.delay, answered and b"".join(map(bytes, answered))
    except ProtocolError as error:
        return str(error)
    assert answer is not None
    return b"".join(map(bytes, answer))


@pytest.mark.parametrize(
    "requests",
    [
        *([versions(version), shake(), token(RIGHT)] for version in range(5)),
        *([shake(), token(RIGHT, version)] for version in range(3)),
        *([shake(), token(WRONG, version)] for version in range(3)),
        [versions(3), versions(3)],
        [shake(), token(RIGHT), shake()],
        [shake(), token(RIGHT), token(RIGHT)],
        [versions(3, "-"), versions(3, "-"), versions(3), shake()],
        [b"\0\x12\0\x63\0\0\0\7\0\0\0"],
        [shake("GSSAPI")],
        [shake("GSSAPI", 0)],
        [shake("plain")],
        [shake(), shake()],
        [shake(), versions(0)],
        [shake(), frame(wire.MetadataRequest(topics=[]), 9)],
        [shake(), token(b"")],
        [shake(), token(b"\xff")],
        [shake(), token(b"bob\0alice\0secret")],
        [shake(), token(b"\0bob\0secret")],
        [token(RIGHT)],
        [frame(wire.MetadataRequest(topics=[]), 9)],
        [b"\0\x11\0\1\0\0\0\7\xff\xff"],
        [b"\0\x11\0\1\0\0\0\7\0\x10abc"],
        [b"\0\x12"],
        [b""],
        [b"\0\x63\0\1\0\0\0\7\xff\xff"],
        [b"\0\x11\0\x09\0\0\0\7\xff\xff"],
        [shake(SCRAM), token(b"nonsense")],
        [shake(SCRAM), token(b"n,,n=alice,r=abc,tokenauth=true")],
        [shake(SCRAM), token(b"n,a=bob,n=alice,r=abc")],
    ],
    ids=str,
)
async def test_both_ways_lead_to_the_same(requests: list[bytes]) -> None:
    """Answers, errors, delays, sessions and counts."""
    async with broker() as made, broker() as other:
        client, same = stranger(), stranger()
        for number, request in enumerate(requests):
            expected = await outcome(made, request, client, at_once=False)
            found = await outcome(other, request, same, at_once=True)
            if found is None:  # the general way takes over, as in a connection
                found = await outcome(other, request, same, at_once=False)
            assert found == expected, number
            for name in ("state", "principal", "mechanism", "software_name", "sends_tokens"):
                assert getattr(same.session, name) == getattr(client.session, name)
        for counters in ("logins", "failed_logins", "errors"):
            assert getattr(other.node.counters, counters) == getattr(made.node.counters, counters)


async def test_ordinary_logins_need_no_task() -> None:
    """Each request is answered at once."""
    async with broker() as made:
        client = stranger()
        unknown = b"\0\x12\0\x63\0\0\0\7\0\0\0"  # ApiVersions 99 of a newer client
        for request in (unknown, versions(3), shake(), token(RIGHT)):
            assert isinstance(await outcome(made, request, client, at_once=True), bytes)
        assert client.session.principal.name == "alice"
        assert client.session.state is SessionState.READY


@pytest.mark.parametrize("password", ["pencil", "pen"])
async def test_a_login_by_scram_needs_no_task(password: str) -> None:
    """Whether the password is right or wrong."""
    async with broker() as made:
        client = stranger()
        await outcome(made, shake(SCRAM), client, at_once=True)
        bare = b"n=alice,r=abc"
        answer = await outcome(made, token(b"n,," + bare), client, at_once=True)
        assert isinstance(answer, bytes)
        _, response = wire.decode_response(wire.SaslAuthenticateResponse, answer[4:], 2)
        challenge = bytes(response.auth_bytes)
        final = b"c=biws," + challenge.split(b",")[0]
        signed = b",".join((bare, challenge, final))
        salted = salted_password(MECHANISM, password, b"salt", 4096)
        proof = client_proof(MECHANISM, client_key(MECHANISM, salted), signed)
        last = token(final + b",p=" + base64.b64encode(proof))
        found = await outcome(made, last, client, at_once=True)
        if password == "pencil":
            signature = hmac.digest(KEYS.server_key, signed, "sha256")
            assert isinstance(found, bytes)
            assert base64.b64encode(signature) in found
        else:
            assert isinstance(found, tuple)
            assert found[:2] == ("unknown user or wrong password", 0.1)


@pytest.mark.parametrize(
    "requests",
    [
        [shake("SLOW"), token(RIGHT)],
        [shake("PLAIN", 0), RIGHT],
        [shake("PLAIN", 0), b"abc"],
        [versions(3) + bytes(20_000)],
    ],
    ids=["may wait", "a token without a header", "a short token", "a long request"],
)
async def test_other_requests_take_the_general_way(requests: list[bytes]) -> None:
    """And nothing has changed before."""
    async with broker() as made:
        client = stranger()
        for request in requests[:-1]:
            assert await outcome(made, request, client, at_once=True) is not None
        assert await outcome(made, requests[-1], client, at_once=True) is None
        assert await outcome(made, requests[-1], client, at_once=False) is not None


async def test_api_versions_has_the_levels_of_features_that_are_in_effect() -> None:
    """Although its body is encoded once."""
    async with broker() as made:

        async def epoch() -> int:
            answer = await outcome(made, versions(3), stranger(), at_once=True)
            assert isinstance(answer, bytes)
            _, response = wire.decode_response(wire.ApiVersionsResponse, answer[4:], 3)
            return response.finalized_features_epoch

        before = await epoch()
        assert await epoch() == before
        await made.create("t")
        assert await epoch() > before
