"""aiokq.broker.security.authentication.plain: the password of a user."""

from __future__ import annotations

import pytest

from aiokq.broker.security.authentication.exchange import ExchangeFailed
from aiokq.broker.security.authentication.plain import WRONG, Passwords, PlainExchange
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import RequestContext

CHECK = Passwords({"alice": "schlüssel", "eve": "x", "User:bob": "p,="})


def exchange() -> PlainExchange:
    return PlainExchange(RequestContext(1, "", "", "L"), CHECK)


@pytest.mark.parametrize(
    "message", [b"\0alice\0schl\xc3\xbcssel", b"alice\0alice\0schl\xc3\xbcssel"]
)
async def test_a_user_with_its_password_is_authenticated(message: bytes) -> None:
    """The authorization id is empty or the user itself."""
    login = exchange()
    assert await login.respond(message) == b""
    assert login.outcome is not None
    assert login.outcome.principal == Principal("User", "alice")
    assert login.outcome.expires_at_ms is None


async def test_a_name_with_a_colon_is_a_name() -> None:
    """A user cannot choose the type of its principal."""
    login = exchange()
    await login.respond(b"\0User:bob\0p,=")
    assert login.outcome is not None
    assert login.outcome.principal == ("User", "User:bob", False)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"\0alice\0wrong", WRONG),
        (b"\0nobody\0x", WRONG),
        (b"\0nobody\0\x00", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0" * 500_000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"a\0b", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0\xff\xfe", WRONG),
        (b"eve\0alice\0wrong", WRONG),
        (
            b"eve\0alice\0schl\xc3\xbcssel",
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
        ),
    ],
)
async def test_kafkas_texts_tell_why_a_login_has_failed(message: bytes, told: str) -> None:
    """An unknown user and a wrong password have one text. The password comes before the authzid."""
    login = exchange()
    with pytest.raises(ExchangeFailed) as failed:
        await login.respond(message)
    assert failed.value.told == told
    assert login.outcome is None
    assert "schl" not in f"{failed.value!r} {failed.value.reason}"
