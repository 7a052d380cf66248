"""SASL PLAIN: user name and password in one message, which is readable without TLS.

Source: RFC 4616; Kafka `PlainSaslServer.java`.
"""

from __future__ import annotations

from collections.abc import Callable

from aiokq.core.errors import ConfigError

__all__ = ["Plain", "plain"]


class Plain:
    """The client's side of one SASL exchange with the mechanism PLAIN.

    Args:
        username: `sasl_plain_username`.
        password: `sasl_plain_password`.

    Raises:
        ConfigError: the user name or the password is empty, or contains a NUL.
    """

    name = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        for setting, value in (("username", username), ("password", password)):
            if not value:
                raise ConfigError(f"SASL PLAIN needs a {setting}: set sasl_plain_{setting}")
            if "\0" in value:
                raise ConfigError(f"sasl_plain_{setting} must not hold a NUL character")
        self._message = f"\0{username}\0{password}".encode()

    def __repr__(self) -> str:
        return "<Plain>"

    async def start(self) -> bytes:
        """Return the only message of the mechanism, with an empty authorization id."""
        return self._message

    async def step(self, challenge: bytes) -> bytes | None:
        """Return None, because the exchange ends with the broker's first response."""
        return None


def plain(username: str, password: str) -> Callable[[str], Plain]:
    """Return a mechanism factory for `Security`; the credentials are checked by this call.

    Raises:
        ConfigError: a credential is empty or contains a NUL.
    """
    made = Plain(username, password)  # has no state, so all connections share the object
    return lambda host: made
