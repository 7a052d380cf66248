"""SCRAM-SHA-256 and SCRAM-SHA-512: the client proves its password without sending it.

The client also verifies that the broker knows the credential. The broker chooses the number of
iterations, so the client limits it, and computes the hashes in a thread.

Source: RFC 5802, KIP-84; Kafka ``ScramSaslClient.java``.
Tests: ``tests/unit/connection/sasl/test_scram.py``.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.connection.sasl.scram_formulas import (
    LEAST_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramMechanism,
    client_key,
    client_proof,
    keys_of_salted_password,
    salted_password,
    server_signature,
)
from aiokq.connection.sasl.scram_messages import (
    ClientFinal,
    ClientFirst,
    ScramMessageError,
    ServerFinal,
    ServerFirst,
    auth_message,
)
from aiokq.core.errors import AuthenticationFailed, ConfigError

if TYPE_CHECKING:
    from aiokq.core.offload import Offload

__all__ = ["MOST_ITERATIONS_TAKEN", "Scram", "ScramCredential", "scram"]

MOST_ITERATIONS_TAKEN: Final = 1_000_000
"""Largest number of iterations that the client computes, in about half a second.

Kafka's brokers have at most 16,384.
"""

_KEPT: Final = 8
"""Number of salts for which keys are kept.

Few are enough, because a user has the same salt on all brokers of a cluster.
"""

_NONCE_BYTES: Final = 24


class ScramCredential:
    """User name and password of a client, with the keys computed so far.

    Args:
        mechanism: "SCRAM-SHA-256" or "SCRAM-SHA-512".
        username: `sasl_plain_username`.
        password: `sasl_plain_password`.
        offload: runs PBKDF2.

    Raises:
        ConfigError: the user name or the password is empty, or the user name contains a NUL.
    """

    def __init__(self, mechanism: str, username: str, password: str, offload: Offload) -> None:
        for setting, value in (("username", username), ("password", password)):
            if not value:
                raise ConfigError(f"SASL {mechanism} needs a {setting}: set sasl_plain_{setting}")
        if "\0" in username:
            raise ConfigError("sasl_plain_username must not hold a NUL character")
        self.mechanism: ScramMechanism = SCRAM_MECHANISMS[mechanism]
        self.username = username
        self._password = password
        self._offload = offload
        self._keys: OrderedDict[tuple[bytes, int], tuple[bytes, bytes]] = OrderedDict()
        self._computing = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ScramCredential {self.mechanism.name}>"

    async def keys(self, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
        """Return client key and server key; compute them once per salt and iteration count."""
        async with self._computing:  # connections that are opened together share the computation
            found = self._keys.get((salt, iterations))
            if found is None:
                salted = await self._offload.run(
                    salted_password, self.mechanism, self._password, salt, iterations
                )
                found = (
                    client_key(self.mechanism, salted),
                    keys_of_salted_password(self.mechanism, salted).server_key,
                )
                self._keys[salt, iterations] = found
                if len(self._keys) > _KEPT:
                    self._keys.popitem(last=False)
            else:
                self._keys.move_to_end((salt, iterations))
            return found


class Scram:
    """The client's side of one SASL exchange with a SCRAM mechanism.

    Args:
        credential: shared by the exchanges of a client.
        nonce: printable ASCII text that nobody can predict.
    """

    def __init__(self, credential: ScramCredential, nonce: str) -> None:
        self.name = credential.mechanism.name
        self._credential = credential
        self._first = ClientFirst(credential.username, nonce)
        self._signature: bytes | None = None
        self._verified = False

    def __repr__(self) -> str:
        return f"<Scram {self.name}>"

    async def start(self) -> bytes:
        """Return the client-first message."""
        return self._first.render()

    async def step(self, challenge: bytes) -> bytes | None:
        """Return the client-final message, then None when the broker's signature is verified.

        Raises:
            AuthenticationFailed: the message is malformed, the iteration count is out of range, the
                credentials are refused, or the broker is not authentic.
        """
        try:
            if self._signature is None:
                return await self._prove(ServerFirst.parse(challenge))
            final = ServerFinal.parse(challenge)
        except ScramMessageError as error:
            raise AuthenticationFailed(f"SASL {self.name}: {error}") from None
        if final.error is not None:
            raise AuthenticationFailed(
                f"SASL {self.name}: the broker refused the credentials: {final.error!r}"
            )
        if self._verified or not hmac.compare_digest(final.signature, self._signature):
            raise AuthenticationFailed(
                f"SASL {self.name}: the broker could not prove that it knows the user's "
                "credential: it may be an impostor"
            )
        self._verified = True
        return None

    async def _prove(self, challenge: ServerFirst) -> bytes:
        if not challenge.nonce.startswith(self._first.nonce) or (
            challenge.nonce == self._first.nonce
        ):
            raise AuthenticationFailed(
                f"SASL {self.name}: the broker's nonce does not continue the client's: the answer "
                "may have been sent before"
            )
        if not LEAST_ITERATIONS <= challenge.iterations <= MOST_ITERATIONS_TAKEN:
            raise AuthenticationFailed(
                f"SASL {self.name}: the broker asks for {challenge.iterations} iterations; "
                f"between {LEAST_ITERATIONS} and {MOST_ITERATIONS_TAKEN} are accepted"
            )
        mechanism = self._credential.mechanism
        key, server_key = await self._credential.keys(challenge.salt, challenge.iterations)
        unproven = ClientFinal(challenge.nonce)
        signed = auth_message(self._first, challenge, unproven)
        self._signature = server_signature(mechanism, server_key, signed)
        return ClientFinal(challenge.nonce, client_proof(mechanism, key, signed)).render()


def scram(
    mechanism: str,
    username: str,
    password: str,
    offload: Offload,
    *,
    nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
) -> Callable[[str], Scram]:
    """Return a mechanism factory for `Security`; the credentials are checked by this call.

    Args:
        nonce: returns a new nonce; a test may pass one that repeats.

    Raises:
        ConfigError: a credential is empty, or the user name contains a NUL.
    """
    credential = ScramCredential(mechanism, username, password, offload)
    return lambda host: Scram(credential, nonce())
