"""Owns the interface of SASL mechanisms: what another one has to implement; no mechanism.

Source: RFC 4422; KIP-43, KIP-152.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

__all__ = ["MechanismFactory", "SaslMechanism"]


class SaslMechanism(Protocol):
    """The client's side of one exchange; a new object is made for every connection."""

    @property
    def name(self) -> str:
        """The registered name, as in "PLAIN" or "SCRAM-SHA-512"."""
        ...

    async def start(self) -> bytes:
        """The first message to the broker. May wait, as for a token.

        Raises:
            AuthenticationFailed: there is nothing to log in with.
        """
        ...

    def step(self, challenge: bytes) -> bytes | None:
        """The answer to what the broker sent; `None` when the mechanism has nothing to add.

        Called for every answer of the broker, the last one included, so that a mechanism in
        which the broker proves itself too can check that.

        Raises:
            AuthenticationFailed: the broker's answer is wrong, or it could not prove itself.
        """
        ...


MechanismFactory: TypeAlias = Callable[[str], SaslMechanism]
"""Makes the mechanism of one connection, given the host name connected to."""
