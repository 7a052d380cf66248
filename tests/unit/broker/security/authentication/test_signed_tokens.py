"""aiokq.broker.security.authentication.signed_tokens: signatures, algorithms and hostile tokens."""

from __future__ import annotations

import hashlib
import hmac

import pytest

pytest.importorskip("jwt")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from aiokq.broker.security.authentication.claims import ClaimRules
from aiokq.broker.security.authentication.oauthbearer import TokenRefused
from aiokq.broker.security.authentication.signed_tokens import SignedTokens
from aiokq.broker.security.authentication.token_keys import parse_key_set
from aiokq.connection.request_context import RequestContext
from tests.unit.broker.security.authentication.token_makers import (
    NOW,
    ec_key,
    ed_key,
    jwk,
    key_set,
    part,
    rsa_key,
    token,
)

CONTEXT = RequestContext(1, "", "", "L")


class Keys:
    """The keys of a set, which is not fetched."""

    def __init__(self, *keys):
        self.keys = parse_key_set(key_set(*keys))
        self.asked = []

    async def find(self, key_id, kind, curve):
        self.asked.append(key_id)
        return [
            one.key
            for one in self.keys
            if (one.kind, one.curve) == (kind, curve) and key_id in (None, one.key_id)
        ]


class Clock:
    def timestamp_ms(self):
        return NOW * 1000


def validator(*keys, rules=ClaimRules()):  # noqa: B008  immutable
    return SignedTokens(Keys(*keys), rules, Clock())


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        *((rsa_key, name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        (ec_key, "ES256"),
        (lambda: ec_key(ec.SECP384R1), "ES384"),
        (lambda: ec_key(ec.SECP521R1), "ES512"),
        (ed_key, "EdDSA"),
    ],
)
async def test_a_token_that_a_key_has_signed_is_accepted(key, algorithm):
    """The algorithm that a key names is not enforced, as in Kafka."""
    key = key()
    alg = {"alg": "RS256"} if algorithm[1] == "S" and algorithm[0] in "RP" else {}
    found = await validator(jwk(key, "k", **alg))(CONTEXT, token(key, algorithm))
    assert str(found.principal) == "User:alice"
    assert found.expires_at_ms == (NOW + 3600) * 1000


async def test_without_a_key_id_every_fitting_key_is_tried():
    """A key set may have several keys, and a token need not name one."""
    keys = jwk(rsa_key(1), "a"), jwk(ec_key(), "e"), jwk(rsa_key(), "b")
    assert await validator(*keys)(CONTEXT, token(key_id=None))
    with pytest.raises(TokenRefused):
        await validator(*keys)(CONTEXT, token(key_id="a"))


@pytest.mark.parametrize(("key_id", "kids"), [(None, "abcdefghi"), ("k", "kkkkkkkkk")])
async def test_at_most_eight_keys_are_tried(key_id, kids, monkeypatch):
    """A token of a stranger must not cost a thousand checks of signatures."""
    keys = [jwk(ec_key(), kid) for kid in kids]
    check = validator(*keys)
    assert await check(CONTEXT, token(ec_key(), "ES256", key_id=key_id))
    other = ec.generate_private_key(ec.SECP256R1())
    tried = []
    decode = check._signatures.decode_complete
    monkeypatch.setattr(
        check._signatures,
        "decode_complete",
        lambda *args, **kwargs: tried.append(args) or decode(*args, **kwargs),
    )
    with pytest.raises(TokenRefused) as refused:
        await check(CONTEXT, token(other, "ES256", key_id=key_id))
    assert len(tried) == 8
    assert "first 8 keys" in refused.value.reason


def tampered():
    header, claims, signature = token().split(".")
    other = token(sub="admin").split(".")
    public = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    hs256 = f"{part({'alg': 'HS256', 'kid': 'k'})}.{claims}"
    confused = hmac.digest(public, hs256.encode(), hashlib.sha256)
    twice = part(b'{"alg":"RS256","alg":"none","kid":"k"}')
    deep = part(b"[" * 20_000)
    return {
        "other claims": f"{header}.{other[1]}.{signature}",
        "other signature": f"{header}.{claims}.{other[2]}",
        "no signature": f"{header}.{claims}.",
        "signature of another key": token(rsa_key(1)),
        "own key in the header": token(rsa_key(1), headers={"jwk": jwk(rsa_key(1), "k")}),
        "address of own keys": token(rsa_key(1), headers={"jku": "http://127.0.0.1/keys"}),
        "none": f"{part({'alg': 'none'})}.{claims}.",
        "None": f"{part({'alg': 'None', 'kid': 'k'})}.{claims}.{signature}",
        "no algorithm": f"{part({'kid': 'k'})}.{claims}.{signature}",
        "algorithm list": f"{part({'alg': ['RS256'], 'kid': 'k'})}.{claims}.{signature}",
        "HMAC with the public key": f"{hs256}.{part(confused)}",
        "two algorithms": f"{twice}.{claims}.{signature}",
        "an extension": token(headers={"crit": ["exp"], "exp": 1}),
        "two parts": f"{header}.{claims}",
        "four parts": f"{token()}.x",
        "encrypted": f"{token()}.a.b",
        "no base64": f"!{token()}",
        "nothing": "",
        "dots": "..",
        "too long": f"{header}.{'a' * 40_000}.{signature}",
        "long key id": token(key_id="k" * 1001),
        "number as key id": f"{part({'alg': 'RS256', 'kid': 1})}.{claims}.{signature}",
        "deep": f"{deep}.{claims}.{signature}",
    }


@pytest.mark.parametrize("name", sorted(tampered()))
async def test_hostile_tokens_are_refused(name):
    """No reason contains a part of the token."""
    text = tampered()[name]
    with pytest.raises(TokenRefused) as refused:
        await validator(jwk(rsa_key(), "k"))(CONTEXT, text)
    assert "alice" not in refused.value.reason
    assert not any(len(part) > 4 and part in refused.value.reason for part in text.split("."))


async def test_the_claims_of_a_signed_token_are_checked():
    """A signature does not make an old token valid."""
    check = validator(jwk(rsa_key(), "k"), rules=ClaimRules(issuer="i", audiences=("a",)))
    assert await check(CONTEXT, token(iss="i", aud="a"))
    for claims in ({"iss": "j"}, {"aud": "b"}, {"exp": NOW - 31}, {"iat": None}, {"sub": ""}):
        with pytest.raises(TokenRefused):
            await check(CONTEXT, token(**{"iss": "i", "aud": "a", **claims}))


async def test_a_key_of_another_curve_or_type_is_not_tried():
    """ES256 with a key of P-384 is not ES256 (RFC 7518, section 3.4)."""
    with pytest.raises(TokenRefused):
        await validator(jwk(ec_key(ec.SECP384R1), "k"))(CONTEXT, token(ec_key(), "ES256"))
    with pytest.raises(TokenRefused):
        await validator(jwk(ec_key(), "k"))(CONTEXT, token())
