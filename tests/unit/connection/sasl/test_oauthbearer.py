"""The client's side of OAUTHBEARER."""

from __future__ import annotations

import pytest

from aiokq.connection.sasl.oauth_token import OAuthToken
from aiokq.connection.sasl.oauthbearer import OAuthBearer, oauthbearer
from aiokq.core.errors import AuthenticationFailed


class Tokens:
    """A cache that has one token."""

    def __init__(self, token: OAuthToken) -> None:
        self.token = token
        self.was_refused = False

    async def get(self) -> OAuthToken:
        return self.token

    def refused(self) -> None:
        self.was_refused = True


def client(token: OAuthToken, **extensions: str) -> tuple[OAuthBearer, Tokens]:
    tokens = Tokens(token)
    return oauthbearer(tokens, extensions)("host"), tokens  # type: ignore[arg-type]


async def test_a_token_is_sent_with_its_extensions() -> None:
    mechanism, tokens = client(OAuthToken("a.b.c", None, {"x": "1"}), y="2", x="0")
    assert mechanism.name == "OAUTHBEARER"
    assert await mechanism.start() == b"n,,\x01auth=Bearer a.b.c\x01y=2\x01x=1\x01\x01"
    assert await mechanism.step(b"") is None
    assert not tokens.was_refused


async def test_a_refusal_is_answered_so_that_the_broker_sends_its_error() -> None:
    """RFC 7628 section 3.2.3: one byte, 01. The next login asks for another token."""
    mechanism, tokens = client(OAuthToken("a.b.c"))
    await mechanism.start()
    assert await mechanism.step(b'{"status":"invalid_token"}') == b"\x01"
    assert tokens.was_refused


async def test_a_broker_that_sends_no_error_is_an_error() -> None:
    mechanism, _ = client(OAuthToken("a.b.c"))
    await mechanism.start()
    await mechanism.step(b'{"status":"insufficient_scope"}')
    with pytest.raises(AuthenticationFailed, match=r"'insufficient_scope', which lacks.*'kafka'"):
        await mechanism.step(b'{"status":"insufficient_scope","scope":"kafka"}')
    for challenge in (b"", b"?"):
        with pytest.raises(AuthenticationFailed, match=r"refused the token$"):
            await mechanism.step(challenge)


@pytest.mark.parametrize(
    "token", [OAuthToken("not a token"), OAuthToken("t", None, {"auth": "not a token"})]
)
async def test_what_cannot_be_sent_is_an_error_without_the_token(token: OAuthToken) -> None:
    mechanism, _ = client(token)
    with pytest.raises(AuthenticationFailed) as caught:
        await mechanism.start()
    assert "not a token" not in str(caught.value)
    assert "not a token" not in repr(token) + repr(mechanism)
