"""Signed assertions: their claims, their signatures, and keys that cannot be used."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from aiokq.connection.sasl.jwt_assertion import JwtAssertion
from aiokq.core.errors import AuthenticationFailed

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)


class Clock:
    """A clock that stands."""

    def timestamp_ms(self) -> int:
        return 1_000_000_500


def saved(key: Any, path: Path, passphrase: str | None = None) -> str:
    how = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode())
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
    return str(path)


def assertion(key_file: str, **changes: Any) -> JwtAssertion:
    arguments: dict[str, Any] = {
        "algorithm": "RS256",
        "key_file": key_file,
        "passphrase": None,
        "claims": {"aud": "a", "iss": "i", "sub": "s"},
        "template_file": None,
        "exp_seconds": 300,
        "nbf_seconds": 60,
        "includes_jti": False,
        "clock": Clock(),
    }
    return JwtAssertion(**(arguments | changes))


def parts(text: str) -> tuple[Any, Any, bytes, bytes]:
    """Return header, payload, signature, and the signed text."""
    first, second, third = text.split(".")
    header, payload, signature = (
        base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in (first, second, third)
    )
    return json.loads(header), json.loads(payload), signature, f"{first}.{second}".encode()


@pytest.fixture(scope="module")
def rsa_key() -> Any:
    return rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize("passphrase", [None, "open"])
def test_rs256(rsa_key: Any, tmp_path: Path, passphrase: str | None) -> None:
    path = saved(rsa_key, tmp_path / "key.pem", passphrase)
    header, payload, signature, signed = parts(assertion(path, passphrase=passphrase).make())
    assert header == {"alg": "RS256", "typ": "JWT"}
    assert payload == {
        "aud": "a",
        "iss": "i",
        "sub": "s",
        "iat": 1_000_000,
        "exp": 1_000_300,
        "nbf": 999_940,
    }
    rsa_key.public_key().verify(signature, signed, padding.PKCS1v15(), SHA256())


def test_es256(tmp_path: Path) -> None:
    """The signature has 64 bytes, as RFC 7518 demands."""
    key = ec.generate_private_key(ec.SECP256R1())
    path = saved(key, tmp_path / "key.pem")
    _, _, signature, signed = parts(assertion(path, algorithm="ES256").make())
    assert len(signature) == 64
    der = encode_dss_signature(
        int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    )
    key.public_key().verify(der, signed, ec.ECDSA(SHA256()))


def test_a_template_adds_to_header_and_claims(rsa_key: Any, tmp_path: Path) -> None:
    """It overrides the settings, and cannot change algorithm and times, as in Kafka."""
    template = tmp_path / "template.json"
    template.write_text(
        '{"header": {"kid": "k", "alg": "none"}, "payload": {"sub": "t", "exp": 1}}'
    )
    made = assertion(
        saved(rsa_key, tmp_path / "key.pem"), template_file=str(template), includes_jti=True
    )
    header, payload, *_ = parts(made.make())
    assert header == {"kid": "k", "alg": "RS256", "typ": "JWT"}
    assert (payload["sub"], payload["exp"]) == ("t", 1_000_300)
    assert len(payload["jti"]) == 32
    assert parts(made.make())[1]["jti"] != payload["jti"]


def test_what_cannot_be_used_is_named_without_its_content(rsa_key: Any, tmp_path: Path) -> None:
    path = saved(rsa_key, tmp_path / "key.pem", "open")
    for changes in ({}, {"passphrase": "shut"}, {"passphrase": "open", "algorithm": "ES256"}):
        with pytest.raises(AuthenticationFailed, match=r"key\.pem") as caught:
            assertion(path, **changes).make()
        assert "shut" not in str(caught.value)
    for text in ("[]", "?", '{"header": 1}'):
        (tmp_path / "template.json").write_text(text)
        with pytest.raises(AuthenticationFailed, match=r"template\.json"):
            assertion(path, template_file=str(tmp_path / "template.json")).make()
