"""aiokq.broker.security.authentication.sasl_login: the order of a login's requests, as Kafka's.

The requests pass through the dispatcher of a node, in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokq import wire
from aiokq.broker.handlers import APIS
from aiokq.broker.security.authentication.exchange import (
    Authenticated,
    ExchangeFailed,
    Mechanism,
)
from aiokq.broker.security.authentication.oauthbearer import OAuthExchange, TokenRefused
from aiokq.broker.security.authentication.sasl_login import ListenerLogin, SaslLogin
from aiokq.connection.principal import ANONYMOUS, Principal
from aiokq.connection.request_context import CloseConnection, RequestContext, SessionState
from tests.unit.broker.every_request import every_request
from tests.unit.broker.harness import NOW_MS, Broker

LISTENER = "SASL_PLAINTEXT"
DELAY = 0.25


class Scripted:
    """An exchange that is complete after the message ``user NAME [MILLISECONDS]``."""

    answer = None
    refusal = None

    def __init__(self) -> None:
        self.outcome: Authenticated | None = None

    async def respond(self, message: bytes) -> bytes:
        word, *rest = message.decode().split()
        if word == "user":
            expires = NOW_MS + int(rest[1]) if len(rest) > 1 else None
            self.outcome = Authenticated(Principal.user(rest[0]), expires)
            return b""
        if word == "bug":
            raise RuntimeError("a bug")
        if word == "tell":
            raise ExchangeFailed("told", told="a text")
        if word == "fail":
            raise ExchangeFailed("a secret reason")
        return b"more " + message


class Login:
    """A client of a node whose listener has the scripted mechanisms A and B."""

    def __init__(self, broker: Broker, **max_reauth_ms: int) -> None:
        self.broker = broker
        self.client = RequestContext(1, "10.0.0.9:5000", "10.0.0.9", LISTENER)
        self.client.session.state = SessionState.HANDSHAKE
        self.logged_in = 0
        self.told: list[tuple[RequestContext, str, str]] = []
        self.client.on_login = self.count
        self.mechanisms: dict[str, Mechanism] = {
            "A": lambda _: Scripted(),
            "B": lambda _: Scripted(),
        }
        self.logins = SaslLogin(
            {LISTENER: ListenerLogin(self.mechanisms, max_reauth_ms)},
            clock=broker.clock,
            counters=broker.node.counters,
            failure_delay=lambda: DELAY,
        )
        broker.node.dispatcher._areas.login._made = self.logins

    def count(self) -> None:
        self.logged_in += 1

    @property
    def session(self):
        return self.client.session

    async def ask(self, request, version):
        return await self.broker.ask(request, version, client=self.client)

    async def versions(self, version=3):
        return await self.ask(
            wire.ApiVersionsRequest(client_software_name="x", client_software_version="1"), version
        )

    async def handshake(self, mechanism="A", version=1):
        return await self.ask(wire.SaslHandshakeRequest(mechanism=mechanism), version)

    async def token(self, message: str, version=2):
        return await self.ask(wire.SaslAuthenticateRequest(auth_bytes=message.encode()), version)

    async def raw(self, message: bytes):
        """Send a token without the header of a request; return the answer without its size."""
        return await self.broker.frame(message, self.client)


def answered(closing: CloseConnection, request_class, version):
    """Return the response that a closed connection gets before."""
    assert closing.answer is not None
    frame = b"".join(map(bytes, closing.answer))[4:]
    _, response = wire.decode_response(request_class.RESPONSE, frame, version)
    return response


@asynccontextmanager
async def login(**max_reauth_ms: int) -> AsyncIterator[Login]:
    async with Broker(legacy=False) as broker:
        yield Login(broker, **max_reauth_ms)


# The first login


@pytest.mark.parametrize("asks_versions", [False, True])
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_client_logs_in(version: int, asks_versions: bool) -> None:
    """ApiVersions may be omitted. Success is told by an empty text, not null, as Kafka does."""
    async with login() as client:
        if asks_versions:
            assert (await client.versions()).error_code == 0
        shaken = await client.handshake()
        assert (shaken.error_code, shaken.mechanisms) == (0, ["A", "B"])
        more = await client.token("one", version)
        assert (more.error_code, more.auth_bytes) == (0, b"more one")
        assert client.session.principal is ANONYMOUS
        assert client.logged_in == 0
        done = await client.token("user alice", version)
        assert (done.error_code, done.error_message, done.auth_bytes) == (0, "", b"")
        assert done.session_lifetime_ms == 0
        assert client.session.state is SessionState.READY
        assert client.session.principal == Principal("User", "alice")
        assert (client.session.mechanism, client.session.expires_at) == ("A", None)
        assert client.logged_in == 1
        assert client.session.sasl is None
        assert (await client.ask(wire.MetadataRequest(topics=[]), 9)).cluster_id
        assert dict(client.broker.node.counters.logins) == {"A": 1}


async def test_tokens_may_be_sent_without_the_header_of_a_request() -> None:
    """Clients with SaslHandshake 0: each frame is a token, however it looks."""
    async with login() as client:
        assert (await client.handshake(version=0)).error_code == 0
        assert await client.raw(b"x") == b"more x"
        looks_like_a_request = b"\0\x12\0\0\0\0\0\1 user"
        assert await client.raw(looks_like_a_request) == b"more " + looks_like_a_request
        assert await client.raw(b"user alice") == b""
        assert client.session.principal.name == "alice"
        assert (await client.versions()).error_code == 0
        with pytest.raises(CloseConnection):
            await client.raw(b"user bob")


async def test_a_failed_token_without_a_header_closes_without_an_answer() -> None:
    """There is no field for an error."""
    async with login() as client:
        await client.handshake(version=0)
        with pytest.raises(CloseConnection) as closed:
            await client.raw(b"tell")
        assert closed.value.answer is None
        assert closed.value.delay == DELAY


async def test_api_versions_may_be_repeated_after_an_error_only() -> None:
    """The second good one closes the connection at once."""
    async with login() as client:
        bad = wire.ApiVersionsRequest(client_software_name="-", client_software_version="1")
        assert (await client.ask(bad, 3)).error_code == 42
        frame = b"\0\x12\0\x63\0\0\0\7\0\0\0"
        answer = await client.broker.frame(frame, client.client)
        assert answer is not None
        assert int.from_bytes(answer[4:6], "big") == 35
        assert (await client.versions()).error_code == 0
        with pytest.raises(CloseConnection) as closed:
            await client.versions()
        assert (closed.value.answer, closed.value.delay) == (None, 0)


@pytest.mark.parametrize("mechanism", ["C", "a", "", "A "])
async def test_a_mechanism_that_is_not_enabled_is_refused_with_the_list(mechanism: str) -> None:
    """Upper and lower case differ."""
    async with login() as client:
        with pytest.raises(CloseConnection) as closed:
            await client.handshake(mechanism)
        response = answered(closed.value, wire.SaslHandshakeRequest, 1)
        assert (response.error_code, response.mechanisms) == (33, ["A", "B"])
        assert closed.value.delay == DELAY
        assert dict(client.broker.node.counters.failed_logins) == {"other": 1}


@pytest.mark.parametrize(
    ("token", "told"),
    [
        ("tell", "a text"),
        (
            "fail",
            "Authentication failed during authentication due to invalid credentials with SASL "
            "mechanism A",
        ),
    ],
)
async def test_wrong_credentials_are_answered_late(token: str, told: str) -> None:
    """The text for the client contains the reason only if the mechanism says so."""
    async with login() as client:
        await client.handshake()
        with pytest.raises(CloseConnection) as closed:
            await client.token(token)
        response = answered(closed.value, wire.SaslAuthenticateRequest, 2)
        assert (response.error_code, response.error_message, response.auth_bytes) == (58, told, b"")
        assert closed.value.delay == DELAY
        assert client.session.principal is ANONYMOUS
        assert client.session.state is SessionState.AUTHENTICATE
        assert dict(client.broker.node.counters.failed_logins) == {"A": 1}


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("name", ["a" * 20_000, "\u20ac" * 10_922])
async def test_a_text_that_is_too_long_for_a_response_is_cut(name: str, version: int) -> None:
    """Regression: the connection was closed at once, without an answer."""
    async with login(A=60_000) as client:
        await client.handshake()
        await client.token(f"user {name}", version)
        await client.handshake()
        with pytest.raises(CloseConnection) as closed:
            await client.token(f"user {name}2", version)
        response = answered(closed.value, wire.SaslAuthenticateRequest, version)
        assert response.error_code == 58
        whole = f"Cannot change principals during re-authentication from User.{name}: User.{name}2"
        assert whole.startswith(response.error_message)
        assert 32_767 - 3 < len(response.error_message.encode()) <= 32_767
        assert closed.value.delay == DELAY


async def test_a_failed_login_is_told_to_the_audit_log() -> None:
    """With the reason that the client does not learn."""
    async with login() as client:
        told = []
        client.logins._failed = lambda *arguments: told.append(arguments)
        await client.handshake()
        with pytest.raises(CloseConnection):
            await client.token("fail")
        assert told == [(client.client, "A", "a secret reason")]


async def validate(connection: RequestContext, token: str) -> Authenticated:
    if token not in ("alice", "bob"):
        raise TokenRefused(f"not the token of alice, but {len(token)} bytes")
    return Authenticated(Principal.user(token))


@asynccontextmanager
async def refused_token(
    *, is_again: bool = False, version: int = 1, later: str = ""
) -> AsyncIterator[Login]:
    """A client whose first token has been refused and that may still go on.

    It is counted as one failed login, whatever follows, and each reason is told once.

    Args:
        is_again: whether it has logged in before.
        version: of SaslHandshake.
        later: the reason that is told in addition.
    """
    async with login(OAUTHBEARER=60_000) as client:
        client.mechanisms["OAUTHBEARER"] = lambda connection: OAuthExchange(connection, validate)
        client.logins._failed = lambda *arguments: client.told.append(arguments)
        if is_again:
            await client.handshake("OAUTHBEARER")
            await client.token(bearer("alice"))
        await client.handshake("OAUTHBEARER", version)
        if version:
            refused = await client.token(bearer("bad"))
            assert refused.error_code == 0
            assert refused.auth_bytes == b'{"status":"invalid_token"}'
        else:
            assert await client.raw(bearer("bad").encode()) == b'{"status":"invalid_token"}'
        yield client
        assert client.told == [
            (client.client, "OAUTHBEARER", reason)
            for reason in ("not the token of alice, but 3 bytes", later)
            if reason
        ]
        assert dict(client.broker.node.counters.failed_logins) == {"OAUTHBEARER": 1}


def bearer(token: str) -> str:
    return f"n,,\x01auth=Bearer {token}\x01\x01"


@pytest.mark.parametrize("is_again", [False, True])
async def test_a_refused_token_is_counted_at_once(is_again: bool) -> None:
    """franz-go closes the connection then."""
    async with refused_token(is_again=is_again) as client:
        assert len(client.told) == 1
        assert client.broker.node.counters.failed_logins["OAUTHBEARER"] == 1
        client.client.disconnected()


@pytest.mark.parametrize("is_again", [False, True])
@pytest.mark.parametrize(
    ("message", "later"),
    [
        ("\x01", ""),
        (bearer("bad"), ""),
        (bearer("worse"), "not the token of alice, but 5 bytes"),
        ("malformed", "the client-first message is malformed"),
        (
            "n,a=eve,\x01auth=Bearer alice\x01\x01",
            "the client asks to act as another principal",
        ),
    ],
)
async def test_a_refused_token_is_counted_once_if_the_exchange_goes_on(
    message: str, later: str, is_again: bool
) -> None:
    """The client that goes on waits for its answer; one that has closed cannot be delayed."""
    async with refused_token(is_again=is_again, later=later) as client:
        with pytest.raises(CloseConnection) as closed:
            await client.token(message)
        assert answered(closed.value, wire.SaslAuthenticateRequest, 2).error_code == 58
        assert closed.value.delay == DELAY


async def test_a_token_of_another_principal_is_told_after_a_refused_token() -> None:
    """Regression: the audit log had only the reason of the first token."""
    async with refused_token(is_again=True, later="another principal than before") as client:
        with pytest.raises(CloseConnection) as closed:
            await client.token(bearer("bob"))
        assert answered(closed.value, wire.SaslAuthenticateRequest, 2).error_code == 58
        assert client.session.principal.name == "alice"


@pytest.mark.parametrize(
    ("message", "later"),
    [("\x01", ""), (bearer("worse"), "not the token of alice, but 5 bytes")],
)
async def test_a_refused_token_without_a_header_is_counted_once(message: str, later: str) -> None:
    """After version 0 of SaslHandshake."""
    async with refused_token(version=0, later=later) as client:
        with pytest.raises(CloseConnection) as closed:
            await client.raw(message.encode())
        assert closed.value.answer is None
        assert closed.value.delay == DELAY


async def test_a_refused_token_is_counted_if_a_second_one_logs_in() -> None:
    """It was a failed login, and then there is one that has not failed."""
    async with refused_token() as client:
        assert (await client.token(bearer("alice"))).error_code == 0
        assert client.session.principal.name == "alice"
        assert dict(client.broker.node.counters.logins) == {"OAUTHBEARER": 1}


async def test_another_request_after_a_refused_token_is_not_counted_again() -> None:
    """It is answered with 34, as during any login."""
    async with refused_token() as client:
        with pytest.raises(CloseConnection) as closed:
            await client.ask(wire.FindCoordinatorRequest(key="g"), 0)
        assert closed.value.delay == DELAY


class Waiting(Scripted):
    """An exchange that accepts any message, but only when its task is cancelled."""

    def __init__(self, began: asyncio.Event, *, suppresses: bool) -> None:
        super().__init__()
        self.began = began
        self.suppresses = suppresses

    async def respond(self, message: bytes) -> bytes:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self.suppresses:
                raise
        self.outcome = Authenticated(Principal.user("alice"))
        return b""


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("suppresses", [False, True])
async def test_a_login_fails_if_the_client_leaves_before_the_answer(
    suppresses: bool, version: int
) -> None:
    """Else a client could guess without a trace, or be logged in after it has gone."""
    async with login() as client:
        client.logins._failed = lambda *arguments: client.told.append(arguments)
        began = asyncio.Event()
        client.mechanisms["A"] = lambda _: Waiting(began, suppresses=suppresses)
        await client.handshake(version=version)
        check = asyncio.create_task(client.token("guess") if version else client.raw(b"guess"))
        await began.wait()
        check.cancel()
        client.client.disconnected()
        with pytest.raises(CloseConnection if suppresses else asyncio.CancelledError):
            await check
        reason = "the connection ended before the answer"
        assert client.told == [(client.client, "A", reason)]
        counters = client.broker.node.counters
        assert (dict(counters.failed_logins), dict(counters.logins)) == ({"A": 1}, {})
        assert client.session.principal is ANONYMOUS


async def test_a_login_that_the_end_of_the_node_cancels_is_not_counted() -> None:
    """It says nothing about the client."""
    async with login() as client:
        began = asyncio.Event()
        client.mechanisms["A"] = lambda _: Waiting(began, suppresses=False)
        await client.handshake()
        check = asyncio.create_task(client.token("guess"))
        await began.wait()
        check.cancel()
        with pytest.raises(asyncio.CancelledError):
            await check
        assert not dict(client.broker.node.counters.failed_logins)


async def test_a_bug_of_a_mechanism_logs_nobody_in() -> None:
    """The connection is closed as after any bug."""
    async with login() as client:
        await client.handshake()
        with pytest.raises(RuntimeError):
            await client.token("bug")
        assert client.session.principal is ANONYMOUS
        assert client.session.state is SessionState.AUTHENTICATE


OTHERS = [
    (api.key, version)
    for api in APIS.values()
    for version in {api.min_version, api.max_version}
    if api.key != 36
]


@pytest.mark.parametrize("key_version", OTHERS, ids=str)
async def test_another_request_in_place_of_a_token_is_answered_with_34(key_version) -> None:
    """If the response has no place for an error outside of lists, it is empty."""
    key, version = key_version
    async with login() as client:
        await client.handshake()
        request = every_request(key, version, ["t"], {}, "g")[0]
        with pytest.raises(CloseConnection) as closed:
            await client.ask(request, version)
        response = answered(closed.value, type(request), version)
        fields = {f.name: f for f in response.__fields__}
        field = fields.get("error_code")
        if field is not None and field.since <= version <= field.until:
            assert response.error_code == 34
        assert closed.value.delay == DELAY
        assert client.session.principal is ANONYMOUS


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\x24\0\3\0\0\0\1\0\0\0\0",  # SaslAuthenticate 3
        b"\3\xe7\0\0\0\0\0\1\0\0",  # API 999
        b"\0\3\0\x63\0\0\0\1\0\0\0",  # Metadata 99
    ],
)
async def test_what_cannot_be_answered_closes_at_once_in_place_of_a_token(frame: bytes) -> None:
    """Kafka does not know the format of the response."""
    async with login() as client:
        await client.handshake()
        with pytest.raises(CloseConnection) as closed:
            await client.broker.frame(frame, client.client)
        assert (closed.value.answer, closed.value.delay) == (None, 0)


async def test_a_large_token_is_refused() -> None:
    """`sasl.server.max.receive.size` counts until the login is complete."""
    async with login() as client:
        await client.handshake()
        with pytest.raises(CloseConnection, match="bytes before"):
            await client.token("x" * 524_288)


@pytest.mark.parametrize("listener", ["PLAINTEXT", LISTENER])
async def test_without_a_login_to_do_34_leaves_the_connection_open(listener: str) -> None:
    """On a listener without SASL, and after a login whose session has no end."""
    async with login() as client:
        if listener == LISTENER:
            await client.handshake()
            await client.token("user alice")
        else:
            client.client = client.broker.client
        for _ in range(2):
            assert (await client.handshake()).error_code == 34
            told = await client.token("user bob")
            assert (told.error_code, told.error_message) == (
                34,
                "SaslAuthenticate request received after successful authentication",
            )
        assert client.session.principal.name == ("alice" if listener == LISTENER else "ANONYMOUS")
        assert (await client.versions()).error_code == 0


# Sessions and re-authentication


@pytest.mark.parametrize(
    ("limit", "token", "lifetime_ms"),
    [
        (0, "user alice", 0),
        (5000, "user alice", 5000),
        (0, "user alice 3000", 3000),
        (5000, "user alice 3000", 3000),
        (5000, "user alice 9000", 5000),
        (5000, "user alice -1", 0),
    ],
)
async def test_the_lifetime_is_the_shortest_limit(limit: int, token: str, lifetime_ms: int) -> None:
    """A credential that has expired within the skew ends its session at once (Kafka, too)."""
    async with login(A=limit, B=1) as client:
        await client.handshake()
        assert (await client.token(token)).session_lifetime_ms == lifetime_ms
        if token == "user alice" and not limit:
            assert client.session.expires_at is None
        else:
            left = client.session.expires_at - asyncio.get_running_loop().time()
            assert left == pytest.approx(lifetime_ms / 1000, abs=1)


async def expire(client: Login) -> None:
    client.session.expires_at = asyncio.get_running_loop().time() - 0.001


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("version", [0, 1])
async def test_a_client_logs_in_again_on_the_same_connection(expired: bool, version: int) -> None:
    """Without ApiVersions, before or after the end of the session."""
    async with login(A=60_000) as client:
        await client.handshake()
        await client.token("user alice")
        if expired:
            await expire(client)
        before = client.session.expires_at
        assert (await client.handshake(version=version)).error_code == 0
        assert client.session.principal.name == "alice"
        if version:
            assert (await client.token("user alice")).session_lifetime_ms == 60_000
        else:
            assert await client.raw(b"user alice") == b""
        assert client.session.state is SessionState.READY
        assert client.session.expires_at > before
        assert client.logged_in == 1
        assert dict(client.broker.node.counters.logins) == {"A": 1, "A again": 1}


async def test_after_its_end_a_session_has_only_the_handshake() -> None:
    """Any other request closes the connection without an answer, ApiVersions too."""
    for request, version in [
        (wire.MetadataRequest(topics=[]), 9),
        (wire.ApiVersionsRequest(), 0),
        (wire.SaslAuthenticateRequest(auth_bytes=b"user alice"), 1),
    ]:
        async with login(A=60_000) as client:
            await client.handshake()
            await client.token("user alice")
            await expire(client)
            with pytest.raises(CloseConnection) as closed:
                await client.ask(request, version)
            assert (closed.value.answer, closed.value.delay) == (None, 0)


async def test_a_client_logs_in_again_at_most_once_a_second() -> None:
    """Else 34; and after the end of the session the connection is closed."""
    async with login(A=60_000) as client:
        for _ in range(2):
            await client.handshake()
            await client.token("user alice")
        assert (await client.handshake()).error_code == 34
        assert client.session.state is SessionState.READY
        await expire(client)
        with pytest.raises(CloseConnection):
            await client.handshake()
        client.session.reauthenticated_at -= 1
        assert (await client.handshake()).error_code == 0


async def test_the_principal_cannot_change() -> None:
    """Also by its type."""
    async with login(A=60_000) as client:
        await client.handshake()
        await client.token("user alice")
        await client.handshake()
        with pytest.raises(CloseConnection) as closed:
            await client.token("user bob")
        response = answered(closed.value, wire.SaslAuthenticateRequest, 2)
        assert response.error_code == 58
        assert response.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        assert client.session.principal.name == "alice"
        assert client.session.state is SessionState.AUTHENTICATE


async def test_the_mechanism_cannot_change() -> None:
    """An enabled one fails at the next token, an unknown one at once, both without an answer."""
    async with login(A=60_000) as client:
        await client.handshake()
        await client.token("user alice")
        assert (await client.handshake("B")).error_code == 0
        with pytest.raises(CloseConnection) as closed:
            await client.token("user alice")
        assert (closed.value.answer, closed.value.delay) == (None, DELAY)
    async with login(A=60_000) as client:
        await client.handshake()
        await client.token("user alice")
        with pytest.raises(CloseConnection) as closed:
            await client.handshake("C")
        assert (closed.value.answer, closed.value.delay) == (None, 0)
        assert dict(client.broker.node.counters.failed_logins) == {"other": 1}


async def test_a_failed_reauthentication_says_so() -> None:
    """Kafka's text names it."""
    async with login(A=60_000) as client:
        await client.handshake()
        await client.token("user alice")
        await client.handshake()
        with pytest.raises(CloseConnection) as closed:
            await client.token("fail")
        response = answered(closed.value, wire.SaslAuthenticateRequest, 2)
        assert "during re-authentication due" in response.error_message


async def test_another_request_during_a_reauthentication_is_answered_with_34() -> None:
    """The session cannot be used while its client logs in again."""
    async with login(A=60_000) as client:
        await client.handshake()
        await client.token("user alice")
        await client.handshake()
        with pytest.raises(CloseConnection) as closed:
            await client.ask(wire.FindCoordinatorRequest(key="g"), 0)
        assert answered(closed.value, wire.FindCoordinatorRequest, 0).error_code == 34
