"""aiokq.broker.security.authentication.oauthbearer: the exchange around a token."""

from __future__ import annotations

import json

import pytest

from aiokq.broker.security.authentication.exchange import Authenticated, ExchangeFailed
from aiokq.broker.security.authentication.oauthbearer import OAuthExchange, TokenRefused
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import RequestContext


async def validate(connection: RequestContext, token: str) -> Authenticated:
    if token == "good":
        return Authenticated(Principal.user("alice"), 12_345)
    if token == "narrow":
        raise TokenRefused("no scope", scope="produce consume")
    raise TokenRefused("the token has expired")


def exchange() -> OAuthExchange:
    return OAuthExchange(RequestContext(1, "", "", "L"), validate)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer good\x01\x01",
        b"n,a=alice,\x01auth=bearer good\x01traceId=123\x01\x01",
    ],
)
async def test_a_good_token_is_answered_with_nothing(message: bytes) -> None:
    """The session ends with the token."""
    login = exchange()
    assert await login.respond(message) == b""
    assert login.outcome == Authenticated(Principal.user("alice"), 12_345)


@pytest.mark.parametrize(
    ("token", "refusal"),
    [
        (b"bad", {"status": "invalid_token"}),
        (b"narrow", {"status": "insufficient_scope", "scope": "produce consume"}),
    ],
)
async def test_a_refused_token_fails_after_the_client_has_seen_the_reason(
    token: bytes, refusal: dict[str, str]
) -> None:
    """RFC 7628: the client acknowledges the JSON text by one byte, and gets it again with 58."""
    login = exchange()
    answer = await login.respond(b"n,,\x01auth=Bearer " + token + b"\x01\x01")
    assert json.loads(answer) == refusal
    assert login.outcome is None
    with pytest.raises(ExchangeFailed) as failed:
        await login.respond(b"\x01")
    assert json.loads(failed.value.told or "") == refusal


async def test_a_client_may_try_one_more_token_and_no_third() -> None:
    """Kafka looks at any number of tokens, without the delay of a failed login."""
    login = exchange()
    await login.respond(b"n,,\x01auth=Bearer bad\x01\x01")
    assert await login.respond(b"n,,\x01auth=Bearer good\x01\x01") == b""
    assert login.outcome is not None
    login = exchange()
    await login.respond(b"n,,\x01auth=Bearer bad\x01\x01")
    with pytest.raises(ExchangeFailed, match="expired"):
        await login.respond(b"n,,\x01auth=Bearer bad\x01\x01")


async def test_another_authorization_id_than_the_principal_is_refused() -> None:
    """A token of alice must not log in bob."""
    login = exchange()
    with pytest.raises(ExchangeFailed) as failed:
        await login.respond(b"n,a=bob,\x01auth=Bearer good\x01\x01")
    assert failed.value.told is not None
    assert "(bob)" in failed.value.told
    assert login.outcome is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\0alice\0password",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer good\x01auth=Bearer bad\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer good\x01x=\x01\x01",
        b"n,,\x01auth=Bearer good\x011x=a\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 500_000 + b"\x01\x01",
        b"\xff",
    ],
)
async def test_malformed_messages_get_the_text_for_all(message: bytes) -> None:
    """No token is in an error."""
    login = exchange()
    with pytest.raises(ExchangeFailed) as failed:
        await login.respond(message)
    assert failed.value.told is None
    assert "good" not in failed.value.reason
