"""Whatever an authorization server publishes: its good keys are found, beside any malformed one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("jwt")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from aiokq.broker.security.authentication.token_keys import parse_key_set

GOOD = {
    **json.loads(OKPAlgorithm.to_jwk(Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key())),
    "kid": "good",
}

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(min_value=10**300, max_value=10**310),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(
            ["AQAB", "AAAA", "=", "\ud800", "é", "RSA", "EC", "OKP", "P-256", "Ed25519"]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = st.fixed_dictionaries(
    {},
    optional={
        "kty": st.one_of(st.sampled_from(["RSA", "EC", "OKP", "oct"]), JSON),
        "crv": st.one_of(
            st.sampled_from(["P-256", "P-384", "P-521", "secp256k1", "Ed25519", "X25519"]), JSON
        ),
        "kid": JSON,
        "use": st.one_of(st.just("sig"), JSON),
        "key_ops": st.one_of(st.just(["verify"]), JSON),
        **dict.fromkeys(("n", "e", "d", "p", "q", "dp", "dq", "qi", "oth", "x", "y", "k"), JSON),
    },
)


@given(st.lists(st.one_of(KEYS, JSON), max_size=5))
def test_a_good_key_is_found_beside_malformed_ones(entries: list[object]) -> None:
    """A malformed key is left out, and raises nothing."""
    text = json.dumps({"keys": [*entries, GOOD]}).encode()
    assert "good" in {key.key_id for key in parse_key_set(text)}


@given(st.one_of(st.binary(max_size=100), JSON.map(lambda value: json.dumps(value).encode())))
def test_anything_else_is_refused(text: bytes) -> None:
    """With one type of error."""
    with pytest.raises(ValueError, match="it "):
        parse_key_set(text)


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b'{"keys":' * 100_000, b'{"keys":[' + b"9" * 100_000 + b"]}", b"\xff" * 1000],
    ids=["depth", "objects", "number", "not UTF-8"],
)
def test_hostile_texts_are_refused(text: bytes) -> None:
    """They are read in a thread, and must not end it."""
    with pytest.raises(ValueError, match="it "):
        parse_key_set(text)
