"""`JwtAssertion`: a signed JWT with which the client asks an authorization server for a token.

Signing needs the package `cryptography`. The constructor checks that it is installed; the first
assertion imports the modules that sign.

Source: RFC 7523, KIP-1139; Kafka ``DefaultAssertionCreator.java``, ``AssertionUtils.java``. Kafka
reads only RSA keys, and reads encrypted keys only in DER form. Tests:
``tests/unit/connection/sasl/test_jwt_assertion.py``.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from aiokq.connection.sasl.token_sources import read_secret_file
from aiokq.core.errors import AuthenticationFailed, ConfigError

if TYPE_CHECKING:
    from aiokq.core.clock import Clock

__all__ = ["ASSERTION_ALGORITHMS", "JwtAssertion"]

ASSERTION_ALGORITHMS: Final = ("RS256", "ES256")


class JwtAssertion:
    """Makes and signs assertions. The key file is read again for each assertion.

    Args:
        algorithm: one of `ASSERTION_ALGORITHMS`.
        key_file: PEM file with the private key.
        passphrase: the passphrase of the key, if it is encrypted.
        claims: those of the claims `aud`, `iss` and `sub` that are configured.
        template_file: JSON file with `header` and `payload`, which override `claims`; or None.
        exp_seconds: lifetime of an assertion.
        nbf_seconds: the claim `nbf` is this many seconds before the time of the assertion.
        includes_jti: whether an assertion has the claim `jti`, a unique id.
        clock: the time of the assertion.

    Raises:
        ConfigError: the package `cryptography` is missing.
    """

    def __init__(
        self,
        *,
        algorithm: str,
        key_file: str,
        passphrase: str | None,
        claims: Mapping[str, str],
        template_file: str | None,
        exp_seconds: int,
        nbf_seconds: int,
        includes_jti: bool,
        clock: Clock,
    ) -> None:
        try:
            import cryptography  # noqa: F401  so that it is missed now, not at the first token
        except ImportError:
            raise ConfigError(
                "JWT bearer assertions need the package cryptography: pip install cryptography"
            ) from None
        self._algorithm = algorithm
        self._key_file = key_file
        self._passphrase = passphrase
        self._claims = claims
        self._template_file = template_file
        self._exp_seconds = exp_seconds
        self._nbf_seconds = nbf_seconds
        self._includes_jti = includes_jti
        self._clock = clock

    def __repr__(self) -> str:
        return f"<JwtAssertion {self._algorithm}>"

    def make(self) -> str:
        """Return a new assertion. The call reads files, so it must not run on the loop.

        Raises:
            AuthenticationFailed: a file cannot be read, or has no usable key or template.
        """
        header: dict[str, Any] = {}
        payload: dict[str, Any] = dict(self._claims)
        if self._template_file is not None:
            template = self._template(self._template_file)
            header.update(template.get("header", {}))
            payload.update(template.get("payload", {}))
        now = self._clock.timestamp_ms() // 1000
        header |= {"alg": self._algorithm, "typ": "JWT"}
        payload |= {
            "iat": now,
            "exp": now + self._exp_seconds,
            "nbf": now - self._nbf_seconds,
        }
        if self._includes_jti:
            payload["jti"] = secrets.token_hex(16)
        signed = f"{_packed(header)}.{_packed(payload)}"
        return f"{signed}.{_base64(self._signature(signed.encode()))}"

    def _template(self, path: str) -> dict[str, dict[str, Any]]:
        try:
            template = json.loads(read_secret_file(path))
        except (ValueError, RecursionError):
            template = None
        if not isinstance(template, dict) or not all(
            isinstance(template.get(part, {}), dict) for part in ("header", "payload")
        ):
            raise AuthenticationFailed(
                f"the file {path!r} must have a JSON object with the objects header and payload"
            )
        return template

    def _signature(self, signed: bytes) -> bytes:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        text = read_secret_file(self._key_file).encode()
        password = None if self._passphrase is None else self._passphrase.encode()
        try:
            key = load_pem_private_key(text, password)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise AuthenticationFailed(
                f"the file {self._key_file!r} has no private key in PEM, or its passphrase is wrong"
            ) from None
        if self._algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
            return key.sign(signed, padding.PKCS1v15(), SHA256())
        if self._algorithm == "ES256" and (
            isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1"
        ):
            r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        raise AuthenticationFailed(f"the key in {self._key_file!r} is not for {self._algorithm}")


def _packed(value: Mapping[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
