"""`SignedTokens`: validates the JSON Web Tokens that an authorization server has signed.

PyJWT, which comes with ``pip install 'aiokq[oauthbearer]'``, verifies the signatures. A broker
imports this module only if a listener has OAUTHBEARER with keys.

Source: RFC 7515, RFC 7518, RFC 8725; Kafka ``BrokerJwtValidator.java``,
``JwksFileVerificationKeyResolver.java``.
Tests: ``tests/unit/broker/security/authentication/test_signed_tokens.py``.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import jwt

from aiokq.broker.security.authentication.claims import (
    MAX_TOKEN_BYTES,
    ClaimRules,
    authenticated,
    json_object,
)
from aiokq.broker.security.authentication.oauthbearer import TokenRefused

if TYPE_CHECKING:
    from aiokq.broker.security.authentication.exchange import Authenticated
    from aiokq.broker.security.authentication.token_keys import TokenKeys
    from aiokq.connection.request_context import RequestContext
    from aiokq.core.clock import Clock

__all__ = ["SignedTokens"]

KEY_TYPES: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The accepted algorithms, with the type and the curve of their keys.

All of them are asymmetric: with HMAC, a token could be signed with the public key.
"""

MAX_KEY_ID: Final = 1000
"""Length of the longest key id that is looked up, as in Kafka."""

MAX_TRIED_KEYS: Final = 8
"""Number of keys that are tried for one token, which matters for tokens without a key id.

Anybody can send tokens, and each attempt costs the broker the check of a signature.
"""


class SignedTokens:
    """The validator of tokens that are signed.

    Args:
        keys: the keys of the authorization server.
        rules: the rules for the claims.
        clock: the clock with which the times in tokens are compared.
    """

    def __init__(self, keys: TokenKeys, rules: ClaimRules, clock: Clock) -> None:
        self._keys = keys
        self._rules = rules
        self._clock = clock
        self._signatures = jwt.PyJWS(algorithms=list(KEY_TYPES))

    async def __call__(self, connection: RequestContext, token: str) -> Authenticated:
        """Return the principal of a token.

        Raises:
            TokenRefused: the token is malformed or is not signed with one of the keys, or its
                claims are wrong.
        """
        algorithm, key_id = _header(token)
        keys = await self._keys.find(key_id, *KEY_TYPES[algorithm])
        for key in keys[:MAX_TRIED_KEYS]:
            try:
                found = self._signatures.decode_complete(token, key, algorithms=[algorithm])
            except (jwt.PyJWTError, ValueError, TypeError):
                continue
            return authenticated(
                json_object(found["payload"]), self._rules, self._clock.timestamp_ms() / 1000
            )
        if len(keys) > MAX_TRIED_KEYS:
            raise TokenRefused(
                f"the signature of the token is not of one of the first {MAX_TRIED_KEYS} keys, and "
                "its key id does not select one"
            )
        raise TokenRefused("the signature of the token is not of one of the keys")


def _header(token: str) -> tuple[str, str | None]:
    """Return the algorithm and the key id that a token names.

    The token's own keys and addresses of keys (`jwk`, `jku`, `x5u`, `x5c`) are never used.

    Raises:
        TokenRefused: the header is malformed, or needs an algorithm or extension that is not
            supported.
    """
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenRefused(f"the token has {len(token)} bytes")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("the token has not three parts")
    try:
        text = base64.b64decode(
            parts[0] + "=" * (-len(parts[0]) % 4), altchars=b"-_", validate=True
        )
    except ValueError:  # `binascii.Error`, or a character that is not ASCII
        raise TokenRefused("the header of the token is not base64") from None
    header = json_object(text)
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in KEY_TYPES:
        raise TokenRefused("the algorithm of the token is not accepted")
    if "crit" in header or header.get("b64") is False:
        raise TokenRefused("the token demands an extension of its format")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > MAX_KEY_ID):
        raise TokenRefused("the key id of the token is malformed")
    return algorithm, key_id
