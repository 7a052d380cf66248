"""Checks of the claims of a token: principal, audience, issuer, scopes and times.

Source: RFC 7519; Kafka ``BrokerJwtValidator.java``, ``ClaimValidationUtils.java`` and the rules of
jose4j that Kafka uses.
Tests: ``tests/unit/broker/security/authentication/test_claims.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from aiokq.broker.security.authentication.exchange import Authenticated
from aiokq.broker.security.authentication.oauthbearer import TokenRefused
from aiokq.connection.principal import Principal
from aiokq.core.named_tuple import NamedTuple

__all__ = [
    "MAX_TOKEN_BYTES",
    "ClaimRules",
    "Claims",
    "authenticated",
    "json_object",
    "principal_name",
    "seconds",
]

MAX_TOKEN_BYTES: Final = 32 * 1024
"""Length of the longest token that is examined."""

Claims = Mapping[str, object]

_LATEST: Final = 2**53
"""The last second that a claim may name, so that its milliseconds are an int64."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's `String.trim` removes."""


class ClaimRules(NamedTuple):
    """The rules that the claims of a token must meet.

    Attributes:
        audiences: the claim ``aud`` must name one of these audiences. If empty, a token with the
            claim ``aud`` is refused.
        issuer: the only accepted issuer; None accepts any.
        skew: allowed difference between clocks, in seconds.
        scope_claim: the name of the claim with the scopes.
        name_claim: the name of the claim with the name of the principal.
    """

    audiences: tuple[str, ...] = ()
    issuer: str | None = None
    skew: float = 30.0
    scope_claim: str = "scope"
    name_claim: str = "sub"


def authenticated(claims: Claims, rules: ClaimRules, now: float) -> Authenticated:
    """Return the principal of a token whose signature is valid.

    Within the skew, an expired token is accepted. The session then ends at once, as in Kafka.

    Args:
        now: seconds since 1970.

    Raises:
        TokenRefused: a claim is missing or malformed, or does not meet the rules.
    """
    expires, issued = seconds(claims, "exp"), seconds(claims, "iat")
    starts = seconds(claims, "nbf") if "nbf" in claims else issued
    if expires + rules.skew <= now:
        raise TokenRefused("the token has expired")
    if expires < issued:
        raise TokenRefused("the token expires before it was issued")
    if "nbf" in claims and (starts > now + rules.skew or expires < starts):
        raise TokenRefused("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused("the issuer of the token is not the expected one")
    _check_audience(claims, rules.audiences)
    _check_scopes(claims.get(rules.scope_claim), rules.scope_claim)
    name = principal_name(claims, rules.name_claim)
    return Authenticated(Principal.user(name), int(expires * 1000))


def principal_name(claims: Claims, claim: str) -> str:
    """Return the name in a claim, without the surrounding blanks that Kafka removes.

    A name with other blanks around it, such as U+00A0, is refused, because it looks like the name
    of another principal. A name with half of a surrogate pair, which JSON allows, is refused, too.

    Raises:
        TokenRefused: the claim is missing, or is not a name.
    """
    value = claims.get(claim)
    name = value.strip(_BLANKS) if isinstance(value, str) else ""
    if not name or name != name.strip() or _SURROGATE.search(name):
        raise TokenRefused(f"the claim {claim} of the token is not a name")
    return name


def seconds(claims: Claims, name: str) -> float:
    """Return a claim that is a time, in seconds since 1970.

    Raises:
        TokenRefused: the claim is missing, or is not a time.
    """
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"the claim {name} of the token is not a time")
    if not 0 <= value <= _LATEST:  # also refuses NaN; `math.isfinite` raises for a long integer
        raise TokenRefused(f"the claim {name} of the token is out of range")
    return value


def json_object(text: bytes) -> dict[str, object]:
    """Return the object that a JSON text describes.

    Raises:
        TokenRefused: the text is not JSON, is not an object, or has a name twice.
    """
    try:
        found = json.loads(text.decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise TokenRefused("a part of the token is not JSON") from None
    if not isinstance(found, dict):
        raise TokenRefused("a part of the token is not a JSON object")
    return found


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object; refuse duplicate names, because parsers differ in which value they take."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _check_audience(claims: Claims, expected: tuple[str, ...]) -> None:
    if "aud" not in claims:
        if expected:
            raise TokenRefused("the token has no audience")
        return
    audience = claims["aud"]
    found = audience if isinstance(audience, list) else [audience]
    if not all(isinstance(one, str) for one in found):
        raise TokenRefused("the audience of the token is malformed")
    if not any(one in expected for one in found):
        raise TokenRefused("the token is for another audience")


def _check_scopes(value: object, claim: str) -> None:
    scopes = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    names = [scope.strip() for scope in scopes if isinstance(scope, str)]
    if len(names) < len(scopes) or "" in names or len(set(names)) < len(names):
        raise TokenRefused(f"the claim {claim} of the token is malformed")
