"""SASL SCRAM-SHA-256 and SCRAM-SHA-512: the client proves that it knows its password.

A login costs the broker three HMACs. If the stored credentials have several shapes (iterations,
length and alphabet of the salt), a login costs one more HMAC for each shape. The expensive PBKDF2
runs only where a credential is made.

For an unknown user, the broker invents a credential with the shape of a stored one. It sends the
salt of this credential, and refuses the user after the proof, as for a wrong password. Kafka
refuses an unknown user at the first message, which tells which users exist.

Source: RFC 5802; Kafka ``ScramSaslServer.java``. The differences from Kafka's parser are named in
``connection/sasl/scram_messages.py``.
Tests: ``tests/unit/broker/security/authentication/test_scram.py``.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import hmac
import math
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.metadata.image.scram_shapes import (
    BASE_36,
    KAFKA_SALT,
    KAFKA_SALT_BITS,
    ScramShape,
)
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
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.principal_records import UserScramCredentialRecord

if TYPE_CHECKING:
    from aiokq.connection.sasl.scram_formulas import ScramMechanism

__all__ = ["Credential", "Credentials", "ScramCredentials", "ScramExchange"]

Credentials: TypeAlias = Mapping[tuple[str, int], UserScramCredentialRecord]
"""Credentials by user name and number of the mechanism."""

NONCE_BYTES: Final = 24

MOST_SHAPES: Final = 64
"""Maximum number of shapes that invented credentials may have.

If the stored credentials have more shapes, only the most frequent of them are used.
"""


class Credential(NamedTuple):
    """The part of a credential that a login uses.

    Attributes:
        is_genuine: False for an invented credential.
    """

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes
    is_genuine: bool

    def __repr__(self) -> str:
        return "<Credential>"


class ScramCredentials:
    """The credentials of one mechanism, with invented ones for unknown users.

    Args:
        mechanism: name of the mechanism, such as "SCRAM-SHA-256".
        credentials: returns the stored credentials, which may change.
        shapes: returns how many stored credentials have each shape.
        secret: the key from which the salts of unknown users are derived, so that they stay the
            same and cannot be predicted.

    Attributes:
        mechanism: the mechanism.
    """

    def __init__(
        self,
        mechanism: str,
        credentials: Callable[[], Credentials],
        shapes: Callable[[], Mapping[ScramShape, int]],
        secret: bytes,
    ) -> None:
        self.mechanism: ScramMechanism = SCRAM_MECHANISMS[mechanism]
        self._credentials = credentials
        self._shapes = shapes
        self._secret = secret
        # The keys of all invented credentials. No proof is valid for them.
        self._unknown_key = secrets.token_bytes(self.mechanism.size)

    def of(self, name: str) -> Credential:
        """Return the credential of a user, genuine or invented.

        A stored credential with fewer than `LEAST_ITERATIONS` iterations counts as missing. An
        invented credential has the shape of stored credentials, if there are any; frequent shapes
        are chosen more often. Its salt and its iterations stay the same for a name, as long as the
        same shapes are in use. No proof is valid for an invented credential.
        """
        # Computed for existing users too, so that both cases take the same time.
        salt, iterations = self._invented(name)
        key = self._unknown_key
        found = self._credentials().get((name, self.mechanism.number))
        if found is None or found.iterations < LEAST_ITERATIONS:
            return Credential(bytes(salt), iterations, bytes(key), bytes(key), False)
        return Credential(
            bytes(found.salt),
            found.iterations,
            bytes(found.stored_key),
            bytes(found.server_key),
            True,
        )

    def has_still(self, name: str, credential: Credential) -> bool:
        """Return whether a genuine credential that `of` returned is stored unchanged."""
        found = self._credentials().get((name, self.mechanism.number))
        return (
            found is not None
            and found.salt == credential.salt
            and found.iterations == credential.iterations
            and hmac.compare_digest(found.stored_key, credential.stored_key)
        )

    def _invented(self, name: str) -> tuple[bytes, int]:
        """Return the salt and the iterations of an invented credential."""
        # Not BLAKE2, which would take a third of the time: Python may lack it in FIPS mode.
        seed = hmac.digest(self._secret, f"{self.mechanism.name},{name}".encode(), "sha512")
        shape = self._shape_for(seed)
        return _invented_salt(seed, shape), shape.iterations

    def _shape_for(self, seed: bytes) -> ScramShape:
        """Return the shape of the invented credential of a user.

        Rendezvous hashing takes the shape with the best score for the user, so that a new shape
        changes the shapes of few users. The salt depends on the shape, so the credential of such a
        user looks like one with a new password. The frequency of a shape is rounded to a power of
        two, so that one more credential of a known shape changes almost nothing.
        """
        number = self.mechanism.number
        shapes = [  # from a copy, because a thread may add a credential during the loop
            (shape, count)
            for shape, count in list(self._shapes().items())
            if shape.mechanism == number and shape.iterations >= LEAST_ITERATIONS
        ]
        if not shapes:
            return ScramShape(number, DEFAULT_ITERATIONS, SALT_BYTES, is_text=False)
        if len(shapes) == 1:
            return shapes[0][0]
        if len(shapes) > MOST_SHAPES:
            shapes = heapq.nlargest(MOST_SHAPES, shapes, key=lambda one: (one[1], one[0]))
        scores = [
            (-math.log(_fraction(seed, shape)) / (1 << count.bit_length()), shape)
            for shape, count in shapes
        ]
        return min(scores)[1]


def _fraction(seed: bytes, shape: ScramShape) -> float:
    """Return a number above 0 and below 1 that follows from the seed of a user and a shape."""
    digest = hmac.digest(seed, b"shape " + _text_of(shape), "sha512")
    return (int.from_bytes(digest[:6], "big") + 1) / (2**48 + 1)


@functools.lru_cache(2 * MOST_SHAPES)
def _text_of(shape: ScramShape) -> bytes:
    return repr(shape).encode()


def _invented_salt(seed: bytes, shape: ScramShape) -> bytes:
    if shape.salt_bytes == KAFKA_SALT:
        number = int.from_bytes(_salt_bytes(seed, shape, 32), "big") % (1 << KAFKA_SALT_BITS)
        digits = bytearray()
        while number:
            number, digit = divmod(number, len(BASE_36))
            digits.append(BASE_36[digit])
        return bytes(reversed(digits))
    salt = _salt_bytes(seed, shape, shape.salt_bytes)
    return bytes(BASE_36[byte % len(BASE_36)] for byte in salt) if shape.is_text else salt


def _salt_bytes(seed: bytes, shape: ScramShape, size: int) -> bytes:
    """Return bytes that follow from the seed of a user and a shape."""
    return hashlib.shake_256(seed + b"salt " + _text_of(shape)).digest(size)


class ScramExchange:
    """The broker's side of one exchange with a SCRAM mechanism.

    Attributes:
        outcome: see `Exchange`.
    """

    __slots__ = ("_credential", "_credentials", "_first", "_sent", "outcome")

    refusal: Final = None
    """See `Exchange`."""

    def __init__(self, credentials: ScramCredentials) -> None:
        self._credentials = credentials
        self._first: ClientFirst | None = None
        self._sent: ServerFirst | None = None
        self._credential: Credential | None = None
        self.outcome: Authenticated | None = None

    async def respond(self, message: bytes) -> bytes:
        """See `answer`."""
        return self.answer(message)

    def answer(self, message: bytes) -> bytes:
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
        credential = self._credential = self._credentials.of(first.name)
        nonce = first.nonce + secrets.token_bytes(NONCE_BYTES).hex()
        self._first = first
        self._sent = ServerFirst(nonce, credential.salt, credential.iterations)
        return self._sent.render()

    def _verify(self, final: ClientFinal) -> bytes:
        first, sent, credential = self._first, self._sent, self._credential
        assert first is not None
        assert sent is not None
        assert credential is not None
        self._sent = self._credential = None
        if not hmac.compare_digest(final.nonce.encode(), sent.nonce.encode()):
            reason = "the nonce is not that of this exchange"
            if final.nonce == first.nonce + sent.nonce:
                reason = "the client repeats its nonce, as librdkafka before 2.6.1 does: update it"
            raise ExchangeFailed(reason)
        mechanism = self._credentials.mechanism
        signed = auth_message(first, sent, final)
        is_proof = is_proof_of(mechanism, credential.stored_key, signed, final.proof)
        # An administrator may have changed or deleted it since the first message. It is looked up
        # only for a right proof, so that unknown users are refused in the same time.
        if not (
            is_proof
            and credential.is_genuine
            and self._credentials.has_still(first.name, credential)
        ):
            raise ExchangeFailed("unknown user or wrong password")
        self.outcome = Authenticated(Principal.user(first.name))
        return ServerFinal(server_signature(mechanism, credential.server_key, signed)).render()
