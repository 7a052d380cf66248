"""When a token was issued and when it ends, read from the token itself."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq.connection.sasl.jwt_lifetime import lifetime_of


def jwt(claims: object) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{payload}.c2ln"


def test_a_jwt_says_when_it_ends() -> None:
    assert lifetime_of(jwt({"iat": 100, "exp": 200.5})) == (100.0, 200.5)
    assert lifetime_of(jwt({"exp": 200})) == (None, 200.0)


@pytest.mark.parametrize(
    "token",
    [
        "opaque",
        "a.b",
        "a.b.c",
        "a..c",
        jwt([1]),
        jwt({"exp": "200"}),
        jwt({"exp": True}),
        jwt({"exp": -1}),
        jwt({"exp": 10**400}),
        jwt({"exp": 1e300}),
        "e30." + base64.urlsafe_b64encode(b'{"exp": NaN}').decode() + ".c2ln",
        "e30." + base64.urlsafe_b64encode(b"[" * 100_000).decode() + ".c2ln",
    ],
)
def test_any_other_text_says_nothing(token: str) -> None:
    assert lifetime_of(token) == (None, None)


@given(st.text())
def test_any_text_is_taken(token: str) -> None:
    lifetime_of(token)
    lifetime_of(f"a.{token}.b")
