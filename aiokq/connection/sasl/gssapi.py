"""GSSAPI: login by a Kerberos ticket.

The package gssapi calls the system's Kerberos library, which talks to the key distribution center
and makes the messages for the broker. The calls block, so they run in threads. Kerberos does not
encrypt the connection: use SASL_SSL for that.

Source: RFC 4752; Kafka ``SaslClientAuthenticator.java``.
Tests: ``tests/unit/connection/sasl/test_gssapi.py``, ``tests/interop/apache/test_kerberos.py``.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from aiokq.core.errors import AuthenticationFailed, ConfigError

if TYPE_CHECKING:
    from aiokq.core.offload import Offload

__all__ = ["Gssapi", "KerberosTickets", "gssapi"]

_NO_LAYER: Final = 0x01
"""The bit for "no security layer", the only choice that Kafka offers."""

_caches: Final = itertools.count(1)
"""The numbers of the caches of tickets of this process."""


class KerberosTickets:
    """Makes security contexts of a client, with tickets from a keytab or a cache.

    Args:
        service: `sasl_kerberos_service_name`.
        principal: the client's principal; None for the principal of the cache or keytab.
        keytab: file with the client's keys; None to use the tickets that `kinit` obtained.
        library: the package gssapi; a test may pass another.

    Raises:
        ConfigError: the package gssapi is not installed.
    """

    def __init__(
        self,
        service: str,
        *,
        principal: str | None = None,
        keytab: str | None = None,
        library: Any = None,
    ) -> None:
        if library is None and importlib.util.find_spec("gssapi") is None:
            raise ConfigError(
                "sasl_mechanism=GSSAPI needs the package gssapi: pip install 'aiokq[gssapi]', and "
                "the system's Kerberos library with its headers (libkrb5-dev on Debian)"
            )
        self._service = service
        self._principal = principal
        self._keytab = keytab
        # The library keeps a cache until the process ends. If a later client used the same name, it
        # would log in with the tickets of this client.
        self._cache = f"MEMORY:aiokq-{next(_caches)}"
        self._library = library

    def context(self, host: str) -> Any:
        """Return a new security context for a broker; may contact the key distribution center."""
        if self._library is None:
            self._library = importlib.import_module("gssapi")
        library = self._library
        target = library.Name(f"{self._service}@{host}", library.NameType.hostbased_service)
        credentials = None
        if self._keytab is not None or self._principal is not None:
            name = None
            if self._principal is not None:
                name = library.Name(self._principal, library.NameType.kerberos_principal)
            store = None
            if self._keytab is not None:
                # The library obtains tickets with the keytab, and renews them. They are kept in
                # memory, so that the tickets of `kinit` are not replaced.
                store = {"client_keytab": self._keytab, "ccache": self._cache}
            credentials = library.Credentials(name=name, usage="initiate", store=store)
        return library.SecurityContext(
            name=target,
            creds=credentials,
            mech=library.MechType.kerberos,
            usage="initiate",
            flags=(
                library.RequirementFlag.mutual_authentication
                | library.RequirementFlag.replay_detection
                | library.RequirementFlag.out_of_sequence_detection
                | library.RequirementFlag.integrity
            ),
        )


class Gssapi:
    """The client's side of one SASL exchange with the mechanism GSSAPI.

    Args:
        tickets: makes the security context.
        host: the host name of the broker, as in its principal.
        offload: runs the calls of the Kerberos library.
    """

    name = "GSSAPI"

    def __init__(self, tickets: KerberosTickets, host: str, offload: Offload) -> None:
        self._tickets = tickets
        self._host = host
        self._offload = offload
        self._context: Any = None
        self._agreed = False

    def __repr__(self) -> str:
        return "<Gssapi>"

    async def start(self) -> bytes:
        """Return the first message, with a ticket for the broker.

        Raises:
            AuthenticationFailed: there is no ticket.
        """
        return await self._offload.run(self._begin)

    async def step(self, challenge: bytes) -> bytes | None:
        """Return the answer to a message of the broker; None if the broker has accepted.

        Raises:
            AuthenticationFailed: the message is malformed, the broker is not authentic, or the
                broker demands a security layer.
        """
        if self._agreed:
            if challenge:
                raise AuthenticationFailed("SASL GSSAPI: the broker sent a message after the last")
            return None
        return await self._offload.run(self._answer, bytes(challenge))

    def _begin(self) -> bytes:
        try:
            self._context = self._tickets.context(self._host)
            token: bytes = self._context.step()
        except Exception as error:
            raise _failed(error) from error
        return token

    def _answer(self, challenge: bytes) -> bytes:
        context = self._context
        try:
            if not context.complete:
                return context.step(challenge) or b""
            offer = context.unwrap(challenge).message
        except Exception as error:
            raise _failed(error) from error
        if len(offer) != 4 or not offer[0] & _NO_LAYER:
            raise AuthenticationFailed(
                "SASL GSSAPI: the broker demands a security layer, which Kafka does not have"
            )
        self._agreed = True
        try:
            # No security layer, buffer size 0, and no authorization id.
            answer: bytes = context.wrap(bytes([_NO_LAYER, 0, 0, 0]), False).message
        except Exception as error:
            raise _failed(error) from error
        return answer


def _failed(error: Exception) -> AuthenticationFailed:
    told = " ".join(str(error).split()) or type(error).__name__
    return AuthenticationFailed(
        f"SASL GSSAPI: {told}; check the tickets (klist), sasl_kerberos_service_name, and that "
        "the broker is addressed by the host name of its principal"
    )


def gssapi(
    tickets: KerberosTickets, offload: Offload, *, domain_name: str | None = None
) -> Callable[[str], Gssapi]:
    """Return a mechanism factory for `Security`.

    Args:
        domain_name: the host name in the principals of all brokers; None for the host name of each
            broker's address.
    """
    return lambda host: Gssapi(tickets, domain_name or host, offload)
