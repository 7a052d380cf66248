"""SASL SCRAM-SHA-256 and SCRAM-SHA-512: the client proves that it knows its password.

A login costs the broker three HMACs. PBKDF2, which is expensive, runs only where a credential is
made.

A client that names an unknown user gets a salt, too, and is refused after its proof, as after a
wrong password. Kafka refuses it before, which tells which users exist.

Source: RFC 5802; Kafka ``ScramSaslServer.java``. The differences from Kafka's parser are named in
``connection/sasl/scram_messages.py``.
Tests: ``tests/unit/broker/security/authentication/test_scram.py``.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import string
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.security.authentication.exchange import Authenticated, ExchangeFailed
from aiokq.connection.principal import Principal
from aiokq.connection.sasl.scram_formulas import (
    DEFAULT_ITERATIONS,
    LEAST_ITERATIONS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    is_proof_of,
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
from aiokq.wire.principal_records import UserScramCredentialRecord

if TYPE_CHECKING:
    from aiokq.connection.sasl.scram_formulas import ScramMechanism

__all__ = ["Credentials", "ScramCredentials", "ScramExchange"]

Credentials: TypeAlias = Mapping[tuple[str, int], UserScramCredentialRecord]
"""Credentials by user name and number of the mechanism."""

NONCE_BYTES: Final = 24

_BASE36: Final = string.digits.encode() + string.ascii_lowercase.encode()
"""The characters of the salts that Kafka's tools make."""


class ScramCredentials:
    """The credentials of one mechanism, and invented ones for users that do not exist.

    Args:
        mechanism: name of the mechanism, such as "SCRAM-SHA-256".
        credentials: returns the stored credentials, which may change.
        secret: makes salts of unknown users that nobody can foresee, and that stay the same.

    Attributes:
        mechanism: the mechanism.
    """

    def __init__(
        self, mechanism: str, credentials: Callable[[], Credentials], secret: bytes
    ) -> None:
        self.mechanism: ScramMechanism = SCRAM_MECHANISMS[mechanism]
        self._credentials = credentials
        self._secret = secret
        self._model: UserScramCredentialRecord | None = None

    def of(self, name: str) -> tuple[UserScramCredentialRecord, bool]:
        """Return the credential of a user, and whether it is genuine.

        An invented credential looks like the oldest one of this mechanism: it has as many
        iterations, and a salt of the same length and alphabet. No proof fits it.
        """
        stored = self._credentials()
        invented = self._invented(name, self._model_of(stored))  # in any case: it takes time
        found = stored.get((name, self.mechanism.number))
        if found is None or found.iterations < LEAST_ITERATIONS:
            return invented, False
        return found, True

    def _model_of(self, stored: Credentials) -> UserScramCredentialRecord | None:
        """Return the credential that invented ones look like; None if none is stored."""
        model, number = self._model, self.mechanism.number
        if model is None or stored.get((model.name, number)) is not model:
            # A copy, because a thread may add a credential meanwhile.
            every = list(stored.values())
            model = self._model = next((one for one in every if one.mechanism == number), None)
        return model

    def _invented(
        self, name: str, model: UserScramCredentialRecord | None
    ) -> UserScramCredentialRecord:
        like = bytes(SALT_BYTES) if model is None else bytes(model.salt)[:256]
        salt = b""
        while len(salt) < len(like):
            text = f"{self.mechanism.name},{len(salt)},{name}"
            salt += hmac.digest(self._secret, text.encode(), "sha512")
        if model is not None and not like.strip(_BASE36):
            salt = bytes(_BASE36[byte % len(_BASE36)] for byte in salt)
        key = secrets.token_bytes(self.mechanism.size)
        return UserScramCredentialRecord(
            name=name,
            mechanism=self.mechanism.number,
            salt=salt[: len(like)],
            stored_key=key,
            server_key=key,
            iterations=DEFAULT_ITERATIONS if model is None else model.iterations,
        )


class ScramExchange:
    """The broker's side of one exchange with a SCRAM mechanism.

    Attributes:
        outcome: see `Exchange`.
    """

    __slots__ = ("_credentials", "_first", "_genuine", "_record", "_sent", "outcome")

    def __init__(self, credentials: ScramCredentials) -> None:
        self._credentials = credentials
        self._first: ClientFirst | None = None
        self._sent: ServerFirst | None = None
        self._record: UserScramCredentialRecord | None = None
        self._genuine = False
        self.outcome: Authenticated | None = None

    async def respond(self, message: bytes) -> bytes:
        """Return the answer to the first or the final message of the client.

        Raises:
            ExchangeFailed: the message is malformed, the proof is wrong, or the client asks to act
                as another user.
        """
        try:
            if self._first is None:
                return self._challenge(ClientFirst.parse(message))
            return self._verify(ClientFinal.parse(message))
        except ScramMessageError as error:
            raise ExchangeFailed(str(error)) from None

    def _challenge(self, first: ClientFirst) -> bytes:
        if first.extensions.get("tokenauth", "").lower() == "true":
            raise ExchangeFailed("this broker has no delegation tokens")
        if first.authzid not in ("", first.name):
            told = (
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
            raise ExchangeFailed("the client asks to act as another user", told=told)
        self._record, self._genuine = self._credentials.of(first.name)
        nonce = base64.urlsafe_b64encode(secrets.token_bytes(NONCE_BYTES)).decode().rstrip("=")
        self._first = first
        self._sent = ServerFirst(
            first.nonce + nonce, bytes(self._record.salt), self._record.iterations
        )
        return self._sent.render()

    def _verify(self, final: ClientFinal) -> bytes:
        first, sent, record = self._first, self._sent, self._record
        assert first is not None
        assert sent is not None
        assert record is not None
        self._sent = self._record = None
        if not hmac.compare_digest(final.nonce.encode(), sent.nonce.encode()):
            raise ExchangeFailed("the nonce is not that of this exchange")
        mechanism = self._credentials.mechanism
        signed = auth_message(first, sent, final)
        is_proof = is_proof_of(mechanism, bytes(record.stored_key), signed, final.proof)
        if not (is_proof and self._genuine):
            raise ExchangeFailed("unknown user or wrong password")
        self.outcome = Authenticated(Principal.user(first.name))
        return ServerFinal(server_signature(mechanism, bytes(record.server_key), signed)).render()
