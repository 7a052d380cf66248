"""The keys, proofs and signatures of SCRAM, for both ends, the admin client and `--add-scram`.

A broker keeps `ScramKeys` per user and mechanism. Neither the password nor a client's proof can be
computed from them. All comparisons of secrets take the same time for equal and unequal values.

Source: RFC 5802 section 3; Kafka ``ScramFormatter.java``, ``ScramMechanism.java``.
Tests: ``tests/unit/connection/sasl/test_scram_formulas.py``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from aiokq.core.named_tuple import NamedTuple

__all__ = [
    "DEFAULT_ITERATIONS",
    "LEAST_ITERATIONS",
    "MOST_ITERATIONS",
    "SALT_BYTES",
    "SCRAM_MECHANISMS",
    "SCRAM_MECHANISM_OF",
    "ScramKeys",
    "ScramMechanism",
    "client_key",
    "client_proof",
    "is_proof_of",
    "keys_of_password",
    "keys_of_salted_password",
    "salted_password",
    "server_signature",
]

LEAST_ITERATIONS: Final = 4096
"""Kafka's minimum number of iterations of a credential, which is also Kafka's default."""

MOST_ITERATIONS: Final = 16384
"""Kafka's maximum number of iterations of a credential."""

DEFAULT_ITERATIONS: Final = 4096

SALT_BYTES: Final = 20
"""Length of the salts that aiokq makes."""


_HASHES: Final = {"sha256": hashlib.sha256, "sha512": hashlib.sha512}


class ScramMechanism(NamedTuple):
    """A SCRAM mechanism.

    Attributes:
        name: the registered name, such as "SCRAM-SHA-256".
        number: the mechanism's number in Kafka's records and requests.
        function: the name of the hash function for `hashlib`.
        size: the length of hashes and keys in bytes.
    """

    name: str
    number: int
    function: str
    size: int


SCRAM_MECHANISMS: Final[Mapping[str, ScramMechanism]] = {
    "SCRAM-SHA-256": ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32),
    "SCRAM-SHA-512": ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64),
}
"""The supported mechanisms by their names, which are case-sensitive."""

SCRAM_MECHANISM_OF: Final[Mapping[int, ScramMechanism]] = {
    mechanism.number: mechanism for mechanism in SCRAM_MECHANISMS.values()
}
"""The supported mechanisms by their numbers."""


class ScramKeys(NamedTuple):
    """The keys that a broker stores for a password, beside the salt and the iteration count.

    Attributes:
        stored_key: the key with which the broker verifies the proof of a client.
        server_key: the key with which the broker proves that it knows the credential.
    """

    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "<ScramKeys>"


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return the salted password. The call takes milliseconds, and other threads run meanwhile.

    As in Kafka, the password is encoded as UTF-8 without SASLprep.
    """
    return hashlib.pbkdf2_hmac(mechanism.function, password.encode(), salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return the key that only the client knows."""
    return hmac.digest(salted, b"Client Key", mechanism.function)


def keys_of_salted_password(mechanism: ScramMechanism, salted: bytes) -> ScramKeys:
    """Return the keys that a broker stores."""
    key = client_key(mechanism, salted)
    return ScramKeys(
        _HASHES[mechanism.function](key).digest(),
        hmac.digest(salted, b"Server Key", mechanism.function),
    )


def keys_of_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> ScramKeys:
    """Return the keys that a broker stores. The call takes as long as `salted_password`."""
    return keys_of_salted_password(
        mechanism, salted_password(mechanism, password, salt, iterations)
    )


def client_proof(mechanism: ScramMechanism, key: bytes, auth_message: bytes) -> bytes:
    """Return the client's proof that it has the client key."""
    stored_key = _HASHES[mechanism.function](key).digest()
    signature = hmac.digest(stored_key, auth_message, mechanism.function)
    return _xor(key, signature)


def is_proof_of(
    mechanism: ScramMechanism, stored_key: bytes, auth_message: bytes, proof: bytes
) -> bool:
    """Return whether a client's proof belongs to a stored key.

    The comparison takes constant time. A proof of the wrong length belongs to no key.
    """
    signature = hmac.digest(stored_key, auth_message, mechanism.function)
    if len(proof) != len(signature):
        return False
    key = _xor(proof, signature)
    return hmac.compare_digest(_HASHES[mechanism.function](key).digest(), stored_key)


def server_signature(mechanism: ScramMechanism, server_key: bytes, auth_message: bytes) -> bytes:
    """Return the signature by which a broker proves that it has the server key."""
    return hmac.digest(server_key, auth_message, mechanism.function)


def _xor(one: bytes, other: bytes) -> bytes:
    """Return the exclusive or of two byte strings of the same length."""
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))
