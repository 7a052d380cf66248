"""Whatever a client sends for a login: the login fails, soon, and nothing else happens."""

from __future__ import annotations

import asyncio
import base64
import json
import time
import tracemalloc
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq import wire
from aiokq.broker.metadata.image.scram_shapes import shape_of
from aiokq.broker.security.authentication.claims import ClaimRules, authenticated, json_object
from aiokq.broker.security.authentication.exchange import (
    Authenticated,
    Exchange,
    ExchangeFailed,
)
from aiokq.broker.security.authentication.oauthbearer import OAuthExchange, TokenRefused
from aiokq.broker.security.authentication.plain import Passwords, PlainExchange
from aiokq.broker.security.authentication.sasl_login import ListenerLogin, SaslLogin
from aiokq.broker.security.authentication.scram import ScramCredentials, ScramExchange
from aiokq.broker.security.authentication.unsecured_tokens import UnsecuredTokens
from aiokq.connection.principal import ANONYMOUS
from aiokq.connection.request_context import CloseConnection, RequestContext, SessionState
from aiokq.connection.sasl.scram_messages import ServerFirst
from aiokq.core.errors import ProtocolError
from aiokq.wire.principal_records import UserScramCredentialRecord
from tests.unit.broker.harness import NOW_MS, Broker

T = TypeVar("T")

LISTENER = "LOGIN"
MOST_BYTES = 512 * 1024
"""The largest frame before a login (`sasl.server.max.receive.size`)."""

RECORD = UserScramCredentialRecord(
    name="alice",
    mechanism=1,
    salt=bytes(20),
    stored_key=bytes(range(32)),
    server_key=bytes(32),
    iterations=4096,
)
CREDENTIALS = ScramCredentials(
    "SCRAM-SHA-256",
    lambda: {("alice", 1): RECORD},
    lambda: Counter([shape_of(RECORD)]),
    b"secret",
)


class Clock:
    def monotonic(self) -> float:
        return 1.0

    def timestamp_ms(self) -> int:
        return NOW_MS

    def thread_time(self) -> float:
        return 1.0


def exchanges() -> dict[str, Exchange]:
    context = RequestContext(1, "", "", LISTENER)
    return {
        "PLAIN": PlainExchange(context, Passwords({"alice": "wonderland"})),
        "SCRAM-SHA-256": ScramExchange(CREDENTIALS),
        "OAUTHBEARER": OAuthExchange(context, UnsecuredTokens({}, Clock())),
    }


def result_of(work: Coroutine[object, None, T]) -> T:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


def respond(exchange: Exchange, message: bytes) -> bytes | None:
    """Return the answer to a message; None if it was refused."""
    try:
        return result_of(exchange.respond(message))
    except ExchangeFailed as failed:
        for text in (failed.reason, failed.told or ""):
            text.encode()  # it can be logged and sent
            assert len(text) < 200_000
        return None


# Messages of mechanisms

PIECES = st.sampled_from(
    [
        *(b"n,,", b"n=", b"r=", b"c=biws", b"p=", b"a=", b"m=", b"y,,", b"p=tls-unique,,"),
        *(b",", b"=", b"=2C", b"=3D", b"=2", b"\0", b"\x01", b"alice", b"wonderland"),
        *(b"\x01auth=Bearer ", b"auth=", b"Bearer ", b"eyJhbGciOiJub25lIn0.", b".", b"e30."),
        *(b"\xff", b"\xc3\xa9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b" ", b"\n", b"AAAA", b"=="),
    ]
)
MESSAGES = st.one_of(
    st.binary(max_size=300),
    st.lists(st.one_of(PIECES, st.binary(max_size=4)), max_size=20).map(b"".join),
)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
@given(st.lists(MESSAGES, min_size=1, max_size=4))
def test_any_messages_are_answered_or_refused(mechanism: str, messages: list[bytes]) -> None:
    """They log nobody in. No error has a part that could not be logged or sent."""
    exchange = exchanges()[mechanism]
    for message in messages:
        if b"alice\0wonderland" in message:
            return
        if respond(exchange, message) is None:
            break
    assert exchange.outcome is None


BASE64 = st.binary(max_size=80).map(base64.b64encode).map(bytes.decode)
PARTS_OF_FINAL = st.one_of(
    BASE64.map(lambda text: f"p={text}"),
    BASE64.map(lambda text: f"c={text}"),
    st.sampled_from(["r=NONCE", "r=NONCEx", "r=", "c=biws", "m=x", "x=y", "p=", "p==", ""]),
    st.text(max_size=20),
)


@given(st.sampled_from(["alice", "nobody", "=2C=3D"]), st.lists(PARTS_OF_FINAL, max_size=6))
def test_final_messages_of_scram_log_nobody_in(name: str, parts: list[str]) -> None:
    """With the nonce of the exchange, and without a proof of the password."""
    exchange = ScramExchange(CREDENTIALS)
    challenge = respond(exchange, f"n,,n={name},r=abc".encode())
    assert challenge is not None
    text = ",".join(parts).replace("NONCE", ServerFirst.parse(challenge).nonce)
    assert respond(exchange, text.encode(errors="surrogatepass")) is None
    assert exchange.outcome is None


# Tokens

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(min_value=10**300, max_value=10**400),
        st.floats(),
        st.text(max_size=10),
        st.sampled_from(["\ud800", "a\udfff", "alice", "none", "", " ", "\0", "RS256", "aud"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
TIMES = st.one_of(
    st.integers(NOW_MS // 1000 - 100, NOW_MS // 1000 + 100),
    st.sampled_from([10**400, -1, 0, 2**53, 2**53 + 1, 1e308, float("inf"), float("nan"), True]),
    JSON,
)
CLAIMS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("exp", "iat", "nbf"), TIMES),
        **dict.fromkeys(("sub", "scope", "aud", "iss"), JSON),
    },
)


def part(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def check_login(found: Authenticated) -> None:
    """A name that can be sent and stored, and a time that is an int64."""
    assert found.principal.name.encode()
    assert found.expires_at_ms is not None
    assert 0 <= found.expires_at_ms < 2**63


@given(
    st.one_of(st.just({"alg": "none"}), st.dictionaries(st.sampled_from(["alg", "kid"]), JSON)),
    st.one_of(CLAIMS, JSON, st.binary(max_size=50)),
    st.sampled_from(["", "", "x", ".", "="]),
)
def test_tokens_that_are_not_signed_are_refused_or_name_a_principal(
    header: object, claims: object, signature: str
) -> None:
    """Whatever their JSON says."""
    token = f"{part(header)}.{part(claims)}.{signature}"
    validate = UnsecuredTokens({}, Clock())
    try:
        found = result_of(validate(RequestContext(1, "", "", LISTENER), token))
    except TokenRefused:
        return
    check_login(found)


@given(CLAIMS, st.sampled_from([ClaimRules(), ClaimRules(("aud",), "alice", 5.0)]))
def test_claims_of_signed_tokens_are_refused_or_name_a_principal(
    claims: dict[str, object], rules: ClaimRules
) -> None:
    """An authorization server may be wrong, too."""
    try:
        read = json_object(json.dumps(claims).encode())
        found = authenticated(read, rules, NOW_MS / 1000)
    except TokenRefused:
        return
    check_login(found)


@given(st.text(max_size=200), st.lists(st.binary(max_size=60), max_size=5))
def test_signed_tokens_are_refused_whatever_they_are(text: str, parts: list[bytes]) -> None:
    """Nobody has signed them."""
    pytest.importorskip("jwt")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from aiokq.broker.security.authentication.signed_tokens import SignedTokens

    class Keys:
        async def find(self, *_: object) -> list[object]:
            return [Ed25519PrivateKey.generate().public_key()]

    validate = SignedTokens(Keys(), ClaimRules(), Clock())  # type: ignore[arg-type]
    header = part({"alg": "EdDSA"})
    for token in (text, ".".join(map(part, parts)), ".".join([header, *map(part, parts)])):
        with pytest.raises(TokenRefused):
            result_of(validate(RequestContext(1, "", "", LISTENER), token))


# Frames


class Node:
    """A node whose listener has all mechanisms, and clients that have not logged in."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.broker = Broker(legacy=False)
        self.loop.run_until_complete(self.broker.__aenter__())
        self.broker.node.dispatcher._areas.login._made = SaslLogin(
            {LISTENER: ListenerLogin({name: self.exchange(name) for name in exchanges()}, {})},
            clock=self.broker.clock,
            counters=self.broker.node.counters,
            failure_delay=lambda: 0.0,
        )

    @staticmethod
    def exchange(name: str):  # type: ignore[no-untyped-def]
        return lambda connection: exchanges()[name]

    def client(self) -> RequestContext:
        client = RequestContext(1, "10.0.0.9:5000", "10.0.0.9", LISTENER)
        client.session.state = SessionState.HANDSHAKE
        return client

    def send(self, client: RequestContext, frame: bytes) -> bytes | None:
        """Return the answer; None if the connection is closed."""
        try:
            return self.loop.run_until_complete(self.broker.frame(frame, client))
        except (CloseConnection, ProtocolError):
            return None

    def close(self) -> None:
        self.loop.run_until_complete(self.broker.__aexit__())
        self.loop.close()


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.close()


def request(message: wire.Request[wire.Response], version: int) -> bytes:
    fragments = wire.encode_request(message, version=version, correlation_id=7, client_id="c")
    return b"".join(map(bytes, fragments))[4:]


HANDSHAKES = st.builds(
    lambda mechanism, version: request(wire.SaslHandshakeRequest(mechanism=mechanism), version),
    st.sampled_from(["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "OAUTHBEARER", "none", ""]),
    st.integers(0, 1),
)
TOKENS = st.builds(
    lambda message, version: request(wire.SaslAuthenticateRequest(auth_bytes=message), version),
    MESSAGES,
    st.integers(0, 2),
)
HEADERS = st.builds(
    lambda key, version, rest: key.to_bytes(2, "big") + version.to_bytes(2, "big") + rest,
    st.sampled_from([0, 1, 3, 17, 18, 36, 36, 1000, 65535]),
    st.one_of(st.integers(0, 4), st.just(65535)),
    st.binary(max_size=60),
)
FRAMES = st.one_of(HANDSHAKES, TOKENS, HEADERS, MESSAGES)


@given(st.lists(FRAMES, min_size=1, max_size=6), st.data())
def test_any_frames_before_a_login_are_answered_or_close_the_connection(
    node: Node, frames: list[bytes], data: st.DataObject
) -> None:
    """Also frames of which a part is missing or changed; the node never has a bug to report."""
    client = node.client()
    for frame in frames:
        if b"alice\0wonderland" in frame:
            return
        if frame and data.draw(st.integers(0, 3)) == 0:
            at = data.draw(st.integers(0, len(frame) - 1))
            frame = frame[:at] + data.draw(st.binary(max_size=3)) + frame[at + 1 :]
        answer = node.send(client, frame)
        if answer is None:
            break
    assert client.session.principal == ANONYMOUS
    assert client.session.state is not SessionState.READY


# Long messages

JSON_DEPTH = base64.urlsafe_b64encode(b"[" * 20_000).rstrip(b"=")
LONG = {
    "zeros": bytes(MOST_BYTES),
    "names": b"n,,n=" + b"=2C" * 5_000,
    "no nonce": b"n,,n=" + b"a" * 16_000 + b",r",
    "extensions": b"n,,n=a,r=b" + b",a=b" * 4_000,
    "almost extensions": b"n,,n=a,r=b" + b",a=b" * 4_000 + b",=",
    "identities": b"n,a=" + b"=3D" * 5_000 + b",n=",
    "proofs": b"c=biws,r=a" + b",p=AAAA" * 2_300,
    "almost base64": b"c=" + b"A" * 16_001 + b",r=a,p=",
    "pairs": b"n,,\x01" + b"a=b\x01" * 16_000,
    "bearers": b"n,,\x01auth=" + b"Bearer " * 9_000 + b"\x01\x01",
    "blanks": b"n,,\x01auth=Bearer" + b" " * 60_000 + b"\x01\x01",
    "token": b"n,,\x01auth=Bearer " + b"a" * 60_000 + b"\x01\x01",
    "depth": b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0." + JSON_DEPTH + b".\x01\x01",
    "numbers": b"n,,\x01auth=Bearer eyJhbGciOiJub25lIn0."
    + base64.urlsafe_b64encode(b'{"exp":' + b"9" * 20_000 + b"}").rstrip(b"=")
    + b".\x01\x01",
    "separators": b"\0" * MOST_BYTES,
    "password": b"\0alice\0" + b"x" * 500_000,
    "user": b"\0" + b"x" * 500_000 + b"\0x",
    "not UTF-8": b"\xff" * MOST_BYTES,
}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
@pytest.mark.parametrize("name", LONG)
def test_long_messages_take_little_time_and_memory(mechanism: str, name: str) -> None:
    """A login must not hold the loop, nor memory beyond a few times its frame."""
    message = LONG[name]
    respond(exchanges()[mechanism], message)  # what is loaded once
    tracemalloc.start()
    began = time.thread_time()
    answer = respond(exchanges()[mechanism], message)
    seconds = time.thread_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 0.5  # with `tracemalloc`, which multiplies the time
    assert peak < 10 * MOST_BYTES
    if answer is not None:  # a nonce or a refusal
        assert len(answer) < 20_000
