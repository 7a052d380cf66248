"""Keys, proofs and signatures of SCRAM against the vectors of RFC 5802, RFC 7677 and Kafka."""

from __future__ import annotations

import base64

import pytest

from aiokq.connection.sasl.scram_formulas import (
    SCRAM_MECHANISMS,
    client_key,
    client_proof,
    is_proof_of,
    keys_of_password,
    keys_of_salted_password,
    salted_password,
    server_signature,
)

SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]
SHA_512 = SCRAM_MECHANISMS["SCRAM-SHA-512"]

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
KAFKAS_MESSAGE = (
    b"n=rfc,r=rOprNGfwEbeRWgbNEkqO,"
    b"r=rOprNGfwEbeRWgbNEkqOvktu69dr682wpcgygbl4ek52d,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
    b"c=biws,r=rOprNGfwEbeRWgbNEkqOvktu69dr682wpcgygbl4ek52d"
)
RFC_MESSAGE = (
    b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
)


def test_the_keys_are_those_of_apache_kafka() -> None:
    """The values are from a login at Apache Kafka 4.2.0 with the user `rfc`."""
    salted = salted_password(SHA_256, "pencil", SALT, 4096)
    assert salted.hex() == "c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d"
    key = client_key(SHA_256, salted)
    assert key.hex() == "a60fc923d67e8644a92d16b96eda5ef4656b0c725c484374be25535576996e8b"
    keys = keys_of_password(SHA_256, "pencil", SALT, 4096)
    assert keys == keys_of_salted_password(SHA_256, salted)
    assert keys.stored_key.hex() == (
        "586e5df283e6dceb5c3e791d8b8528ec191e664045ce971792e2e6b5bb13e2a6"
    )
    assert keys.server_key.hex() == (
        "c1f3cbc1c13a9d35a14c0990eed97629ea225863e566a4314ab99f3f00e5d9d5"
    )


@pytest.mark.parametrize(
    ("message", "proof", "signature"),
    [
        (
            KAFKAS_MESSAGE,
            "wac4LZlo5mlXBxu7h/I86+7OrBA2zZOX01YC+tRFNXc=",
            "dDTA3hWqhPUqnXijso5Hsn4rshBW9OgmIrc8lhbNqSg=",
        ),
        (
            RFC_MESSAGE,
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ],
)
def test_proof_and_signature(message: bytes, proof: str, signature: str) -> None:
    """The first login was recorded at Apache Kafka, the second is in RFC 7677."""
    salted = salted_password(SHA_256, "pencil", SALT, 4096)
    keys = keys_of_salted_password(SHA_256, salted)
    proven = client_proof(SHA_256, client_key(SHA_256, salted), message)
    assert base64.b64encode(proven).decode() == proof
    assert is_proof_of(SHA_256, keys.stored_key, message, proven)
    signed = server_signature(SHA_256, keys.server_key, message)
    assert base64.b64encode(signed).decode() == signature


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512], ids=lambda each: each.name)
def test_any_other_proof_is_refused(mechanism) -> None:
    """A changed bit, a wrong length, another message, another password."""
    salted = salted_password(mechanism, "geheim", b"salt", 4096)
    keys = keys_of_salted_password(mechanism, salted)
    proof = client_proof(mechanism, client_key(mechanism, salted), b"message")
    assert len(proof) == len(keys.stored_key) == mechanism.size
    assert is_proof_of(mechanism, keys.stored_key, b"message", proof)
    for wrong in (bytes([proof[0] ^ 1]) + proof[1:], proof[:-1], proof + b"\0", b""):
        assert not is_proof_of(mechanism, keys.stored_key, b"message", wrong)
    assert not is_proof_of(mechanism, keys.stored_key, b"massage", proof)
    other = keys_of_password(mechanism, "Geheim", b"salt", 4096)
    assert not is_proof_of(mechanism, other.stored_key, b"message", proof)


def test_passwords_are_not_prepared() -> None:
    """Kafka uses the UTF-8 of the password; SASLprep would map the ligature to two letters."""
    ligature = keys_of_password(SHA_256, "\N{LATIN SMALL LIGATURE FI}", b"s", 4096)
    assert ligature != keys_of_password(SHA_256, "fi", b"s", 4096)


def test_the_keys_are_not_shown() -> None:
    """The server key lets anybody pose as the broker."""
    keys = keys_of_password(SHA_256, "pencil", SALT, 4096)
    assert repr(keys) == "<ScramKeys>"
