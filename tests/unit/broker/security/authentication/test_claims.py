"""aiokq.broker.security.authentication.claims: what the claims of a token must say."""

from __future__ import annotations

import pytest

from aiokq.broker.security.authentication.claims import ClaimRules, authenticated, json_object
from aiokq.broker.security.authentication.oauthbearer import TokenRefused

NOW = 1_700_000_000
GOOD = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 100}


def test_a_token_is_of_its_subject_until_it_expires() -> None:
    """The default rules demand no issuer."""
    found = authenticated({**GOOD, "sub": " \t\x1falice\x00 ", "iss": "any"}, ClaimRules(), NOW)
    assert str(found.principal) == "User:alice"
    assert found.expires_at_ms == (NOW + 100) * 1000


@pytest.mark.parametrize(
    ("changed", "rules"),
    [
        ({"iat": NOW + 50}, ClaimRules()),  # as Kafka, unlike PyJWT
        ({"exp": NOW - 29, "iat": NOW - 60}, ClaimRules(skew=30)),
        ({"nbf": NOW + 30}, ClaimRules(skew=30)),
        ({"exp": NOW + 0.5}, ClaimRules(skew=0)),
        ({"iss": "https://i"}, ClaimRules(issuer="https://i")),
        ({"aud": "b"}, ClaimRules(audiences=("a", "b"))),
        ({"aud": ["x", "b"]}, ClaimRules(audiences=("a", "b"))),
        ({"scope": "a b"}, ClaimRules()),
        ({"scope": ["a", "b"]}, ClaimRules()),
        ({"scope": None}, ClaimRules()),
        ({"client": "alice", "sub": 1}, ClaimRules(name_claim="client")),
    ],
)
def test_claims_that_kafka_accepts(changed: dict[str, object], rules: ClaimRules) -> None:
    """Differences of clocks are allowed in both directions."""
    assert authenticated({**GOOD, **changed}, rules, NOW).principal.name == "alice"


@pytest.mark.parametrize(
    ("changed", "rules"),
    [
        ({"exp": NOW - 30}, ClaimRules(skew=30)),
        ({"exp": None}, ClaimRules()),
        ({"exp": str(NOW + 100)}, ClaimRules()),
        ({"exp": True}, ClaimRules()),
        ({"exp": float("inf")}, ClaimRules()),
        ({"exp": float("nan")}, ClaimRules()),
        ({"exp": 10**30}, ClaimRules()),
        ({"exp": -1}, ClaimRules()),
        ({"iat": None}, ClaimRules()),
        ({"iat": NOW + 101}, ClaimRules()),
        ({"nbf": NOW + 31}, ClaimRules(skew=30)),
        ({"nbf": "x"}, ClaimRules()),
        ({"iss": "https://other"}, ClaimRules(issuer="https://i")),
        ({}, ClaimRules(issuer="https://i")),
        ({"iss": ["https://i"]}, ClaimRules(issuer="https://i")),
        ({"aud": "a"}, ClaimRules()),  # Kafka, too
        ({"aud": "c"}, ClaimRules(audiences=("a", "b"))),
        ({"aud": []}, ClaimRules(audiences=("a",))),
        ({"aud": {"a": 1}}, ClaimRules(audiences=("a",))),
        ({"aud": ["a", 1]}, ClaimRules(audiences=("a",))),
        ({}, ClaimRules(audiences=("a",))),
        ({"scope": ["a", ""]}, ClaimRules()),
        ({"scope": ["a", " a"]}, ClaimRules()),
        ({"scope": ["a", 1]}, ClaimRules()),
        ({"scope": " "}, ClaimRules()),
        ({"sub": ""}, ClaimRules()),
        ({"sub": "  "}, ClaimRules()),
        ({"sub": "alice\u00a0"}, ClaimRules()),
        ({"sub": " \u2003alice"}, ClaimRules()),
        ({"sub": "\u3000"}, ClaimRules()),
        ({"sub": "alice\x85"}, ClaimRules()),
        ({"sub": 5}, ClaimRules()),
        ({"sub": ["alice"]}, ClaimRules()),
        ({}, ClaimRules(name_claim="client")),
    ],
)
def test_claims_that_are_refused(changed: dict[str, object], rules: ClaimRules) -> None:
    """Every claim one by one; the reason names no value."""
    with pytest.raises(TokenRefused) as refused:
        authenticated({**GOOD, **changed}, rules, NOW)
    assert "alice" not in refused.value.reason
    assert refused.value.scope is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"1",
        b"{",
        b"\xff",
        b'{"sub":"a","sub":"b"}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 20_000 + b"}",
    ],
)
def test_hostile_json_is_refused(text: bytes) -> None:
    """Two values of a name would mean different things to different readers."""
    with pytest.raises(TokenRefused):
        json_object(text)
