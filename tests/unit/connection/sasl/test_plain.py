"""SASL PLAIN, the one message and what it cannot carry."""

from __future__ import annotations

import pytest

from aiokq.connection.sasl.plain import Plain, plain
from aiokq.core.errors import ConfigError


async def test_the_message_is_user_and_password_behind_nuls() -> None:
    """RFC 4616: the authorization id is empty, text is UTF-8."""
    mechanism = plain("anna", "schlüssel")("kafka.example.org")
    assert mechanism.name == "PLAIN"
    assert await mechanism.start() == b"\0anna\0schl\xc3\xbcssel"
    assert await mechanism.step(b"") is None


@pytest.mark.parametrize(("user", "password"), [("", "x"), ("x", ""), ("a\0b", "x"), ("x", "\0")])
def test_what_it_cannot_carry_is_refused_when_configured(user: str, password: str) -> None:
    """A NUL would end the field: somebody else's name might be what is left."""
    with pytest.raises(ConfigError, match="sasl_plain_"):
        plain(user, password)


def test_the_password_is_in_no_repr() -> None:
    """Objects end up in logs."""
    assert "geheim" not in repr(Plain("anna", "geheim"))
