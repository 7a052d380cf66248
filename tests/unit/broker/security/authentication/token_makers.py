"""Keys and tokens for tests of OAUTHBEARER."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

NOW = 1_700_000_000


@functools.cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return one of several keys; creating one takes a tenth of a second."""
    return rsa.generate_private_key(65537, bits)


@functools.cache
def ec_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


@functools.cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def jwk(key: Any, key_id: str | None = None, **more: object) -> dict[str, Any]:
    """Return the public part of a key as a JSON Web Key."""
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        found = RSAAlgorithm.to_jwk(public, as_dict=True)
    elif isinstance(public, ec.EllipticCurvePublicKey):
        found = ECAlgorithm.to_jwk(public, as_dict=True)
    else:
        found = OKPAlgorithm.to_jwk(public, as_dict=True)
    named = {} if key_id is None else {"kid": key_id}
    found = {name: value for name, value in found.items() if name != "key_ops"}
    return {**found, **named, **more}


def key_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys}).encode()


def token(
    key: Any = None,
    algorithm: str = "RS256",
    *,
    key_id: str | None = "k",
    headers: dict[str, object] | None = None,
    **claims: object,
) -> str:
    """Return a signed token of alice; a claim that is None is left out."""
    every = {"sub": "alice", "iat": NOW, "exp": NOW + 3600, **claims}
    named = {} if key_id is None else {"kid": key_id}
    return jwt.encode(
        {name: value for name, value in every.items() if value is not None},
        rsa_key() if key is None else key,
        algorithm,
        headers={**named, **(headers or {})},
    )


def part(value: object) -> str:
    """Return a part of a token."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def unsecured(header: object = None, **claims: object) -> str:
    every = {"sub": "alice", "exp": NOW + 3600, **claims}
    found = {name: value for name, value in every.items() if value is not None}
    return f"{part({'alg': 'none'} if header is None else header)}.{part(found)}."
