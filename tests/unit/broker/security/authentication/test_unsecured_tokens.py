"""aiokq.broker.security.authentication.unsecured_tokens: tokens for development."""

from __future__ import annotations

import base64
import json

import pytest

from aiokq.broker.security.authentication.oauthbearer import TokenRefused
from aiokq.broker.security.authentication.unsecured_tokens import UnsecuredTokens
from aiokq.connection.request_context import RequestContext
from aiokq.core.errors import ConfigError

NOW = 1_700_000_000
CONTEXT = RequestContext(1, "", "", "L")


class Clock:
    def timestamp_ms(self) -> int:
        return NOW * 1000


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def token(header: object = None, signature: str = "", **claims: object) -> str:
    every = {"sub": "alice", "exp": NOW + 60, **claims}
    found = {name: value for name, value in every.items() if value is not None}
    return f"{part(header or {'alg': 'none'})}.{part(found)}.{signature}"


@pytest.mark.parametrize(
    ("claims", "options"),
    [
        ({}, {}),
        ({"iat": NOW}, {}),
        ({"iat": NOW + 0.0009}, {}),  # the clock has whole milliseconds
        ({"sub": " alice\n"}, {}),
        ({"iat": NOW + 2, "exp": NOW - 2}, {"AllowableClockSkewMs": "x"}),
        ({"sub": None, "name": "alice"}, {"PrincipalClaimName": "name"}),
        ({"scope": "a b"}, {"RequiredScope": "b a"}),
        ({"scopes": ["a", "b"]}, {"RequiredScope": "b", "ScopeClaimName": "scopes"}),
        ({"exp": NOW - 2}, {"AllowableClockSkewMs": "3000"}),
    ],
)
async def test_a_token_of_the_claimed_name_is_accepted(
    claims: dict[str, object], options: dict[str, str]
) -> None:
    """The options of Kafka's login module count."""
    every = {f"unsecuredValidator{name}": value for name, value in options.items()}
    if options.get("AllowableClockSkewMs") == "x":
        with pytest.raises(ConfigError, match="AllowableClockSkewMs"):
            UnsecuredTokens(every, Clock())
        return
    found = await UnsecuredTokens(every, Clock())(CONTEXT, token(**claims))
    assert str(found.principal) == "User:alice"


@pytest.mark.parametrize(
    "text",
    [
        token(exp=NOW),
        token(exp=None),
        token(sub=None),
        token(sub=" "),
        token(sub="\u00a0alice"),
        token(sub="alice\u2028"),
        token(iat=NOW + 0.002),
        token(iat=NOW + 1),
        token(iat=NOW + 60),
        token({"alg": "RS256"}),
        token({"alg": "NONE"}),
        token(signature="x"),
        "a.b",
        "..",
        "!!.!!.",
        token(sub="a" * 40_000),
    ],
)
async def test_other_tokens_are_refused(text: str) -> None:
    """Above all signed ones, whose signature nobody checks."""
    with pytest.raises(TokenRefused) as refused:
        await UnsecuredTokens({}, Clock())(CONTEXT, text)
    assert refused.value.scope is None


async def test_a_missing_scope_is_named() -> None:
    """The client can ask for another token then."""
    options = {"unsecuredValidatorRequiredScope": "write read"}
    for claims in ({}, {"scope": "read"}, {"scope": ["write"]}, {"scope": 5}):
        with pytest.raises(TokenRefused) as refused:
            await UnsecuredTokens(options, Clock())(CONTEXT, token(**claims))
        assert refused.value.scope == "write read"
