"""SaslMechanism: the interface of the client's SASL mechanisms.

Source: RFC 4422; KIP-43, KIP-152.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

__all__ = ["MechanismFactory", "SaslMechanism"]


class SaslMechanism(Protocol):
    """The client's side of one SASL exchange.

    Each exchange has its own object, unless the mechanism has no state.
    """

    @property
    def name(self) -> str:
        """The registered name, such as "PLAIN" or "SCRAM-SHA-512"."""
        ...

    async def start(self) -> bytes:
        """Return the first message to the broker. The call may wait, for example for a token.

        Raises:
            AuthenticationFailed: there are no credentials.
            ConnectionLost: there are no credentials at the moment.
        """
        ...

    async def step(self, challenge: bytes) -> bytes | None:
        """Return the response to the broker's message; `None` if the mechanism has none.

        Called for every message of the broker, including the last, so that a mechanism with mutual
        authentication can verify the broker.

        Raises:
            AuthenticationFailed: the broker's message is wrong, or the broker is not authentic.
        """
        ...


MechanismFactory: TypeAlias = Callable[[str], SaslMechanism]
"""Takes the host name of the broker; returns the mechanism for one exchange."""
