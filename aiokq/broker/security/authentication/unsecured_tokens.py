"""`UnsecuredTokens`: validates unsigned tokens, for development: a client can take any name.

Source: Kafka ``OAuthBearerUnsecuredValidatorCallbackHandler.java``, ``OAuthBearerUnsecuredJws``.
Tests: ``tests/unit/broker/security/authentication/test_unsecured_tokens.py``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aiokq.broker.security.authentication.claims import (
    MAX_TOKEN_BYTES,
    json_object,
    principal_name,
    seconds,
)
from aiokq.broker.security.authentication.exchange import Authenticated
from aiokq.broker.security.authentication.oauthbearer import TokenRefused
from aiokq.connection.principal import Principal
from aiokq.core.errors import ConfigError
from aiokq.core.numbers import parse_number

if TYPE_CHECKING:
    from aiokq.connection.request_context import RequestContext
    from aiokq.core.clock import Clock

__all__ = ["UnsecuredTokens"]

_PREFIX: Final = "unsecuredValidator"


class UnsecuredTokens:
    """The validator of tokens that are not signed.

    Args:
        options: options of the login module: `unsecuredValidatorPrincipalClaimName`,
            `unsecuredValidatorScopeClaimName`, `unsecuredValidatorRequiredScope` and
            `unsecuredValidatorAllowableClockSkewMs`.
        clock: the clock with which the times in tokens are compared.

    Raises:
        ConfigError: the allowed clock skew is not a number.
    """

    def __init__(self, options: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self._name_claim = options.get(f"{_PREFIX}PrincipalClaimName", "").strip() or "sub"
        self._scope_claim = options.get(f"{_PREFIX}ScopeClaimName", "").strip() or "scope"
        self._required = options.get(f"{_PREFIX}RequiredScope", "").split()
        skew = options.get(f"{_PREFIX}AllowableClockSkewMs", "").strip() or "0"
        try:
            self._skew = parse_number(skew, 2**31 - 1) / 1000
        except ValueError as error:
            raise ConfigError(f"{_PREFIX}AllowableClockSkewMs: {error}") from None

    async def __call__(self, connection: RequestContext, token: str) -> Authenticated:
        """Return the principal that a token names.

        Raises:
            TokenRefused: the token is malformed or signed, is not valid at this time, or lacks a
                required scope.
        """
        claims = _claims(token)
        now = self._clock.timestamp_ms() / 1000
        name = principal_name(claims, self._name_claim)
        expires = seconds(claims, "exp")
        if "iat" in claims:
            issued = seconds(claims, "iat")
            # `now` is in whole milliseconds, so `issued` is rounded down, too: the token may have
            # been issued within the current millisecond.
            if int(issued * 1000) / 1000 - self._skew > now or expires <= issued:
                raise TokenRefused("the time at which the token was issued is wrong")
        if expires + self._skew <= now:
            raise TokenRefused("the token has expired")
        scopes = claims.get(self._scope_claim)
        given = scopes.split() if isinstance(scopes, str) else scopes
        if self._required and not (
            isinstance(given, list) and all(scope in given for scope in self._required)
        ):
            raise TokenRefused("the token lacks a scope", scope=" ".join(self._required))
        return Authenticated(Principal.user(name), int(expires * 1000))


def _claims(token: str) -> dict[str, object]:
    parts = token.split(".")
    if len(token) > MAX_TOKEN_BYTES or len(parts) != 3 or parts[2]:
        raise TokenRefused("the token is too long, or is signed")
    header, claims = (json_object(_decoded(part)) for part in parts[:2])
    if header.get("alg") != "none":
        raise TokenRefused("the algorithm of the token is not none")
    return claims


def _decoded(part: str) -> bytes:
    try:
        return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except ValueError:  # `binascii.Error`, or a character that is not ASCII
        raise TokenRefused("a part of the token is not base64") from None
