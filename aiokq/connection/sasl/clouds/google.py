"""Tokens for Google's Managed Service for Apache Kafka: access tokens in Google's own format.

The service accepts a text in the form of a JWT whose third part is the access token instead of a
signature.

Source: Google Cloud, "Managed Service for Apache Kafka: Configure SASL authentication"; its token
server and its Java login handler (repository ``googleapis/managedkafka``).
Tests: ``tests/unit/connection/sasl/clouds/test_google.py``.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from aiokq.connection.sasl.clouds.library import library, need, no_credentials
from aiokq.connection.sasl.oauth_token import OAuthToken
from aiokq.core.errors import AuthenticationFailed

if TYPE_CHECKING:
    from aiokq.core.clock import Clock
    from aiokq.core.offload import Offload

__all__ = ["ManagedKafkaTokens"]

_SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
_PRINCIPAL: Final = "GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL"


class ManagedKafkaTokens:
    """Tokens for Google's Managed Service for Apache Kafka.

    Args:
        offload: runs google-auth.
        clock: gives the issue time of the tokens.
        credentials: credentials of google-auth; the application default credentials if not given.
        request: the transport of google-auth.
        environ: returns the value of an environment variable. If the credentials do not name an
            account, the variable ``GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL`` names it.

    Raises:
        ConfigError: google-auth or requests is not installed.
    """

    def __init__(
        self,
        *,
        offload: Offload,
        clock: Clock,
        credentials: Any = None,
        request: Any = None,
        environ: Callable[[str], str | None] = os.environ.get,
    ) -> None:
        if credentials is None:
            need("google.auth", "gcp")
            need("requests", "gcp")
        self._offload = offload
        self._clock = clock
        self._credentials = credentials
        self._request = request
        self._environ = environ

    def __repr__(self) -> str:
        return "<ManagedKafkaTokens>"

    async def fetch(self) -> OAuthToken:
        """Return a new token.

        Raises:
            AuthenticationFailed: google-auth finds no credentials, or gets no token; or the
                account of the credentials is unknown.
        """
        return await self._offload.run(self._fetch)

    def _fetch(self) -> OAuthToken:
        try:
            if self._credentials is None:
                self._credentials, _ = library("google.auth").default(scopes=list(_SCOPES))
            if self._request is None:
                self._request = library("google.auth.transport.requests").Request()
            credentials = self._credentials
            credentials.refresh(self._request)
            # google-auth gives the time in UTC, but without a time zone.
            ends = credentials.expiry.replace(tzinfo=UTC).timestamp()
            # A machine's service account is called "default" until the metadata server is asked.
            email = getattr(credentials, "service_account_email", None)
            email = None if email == "default" else email
            token = credentials.token
        except Exception as error:
            raise no_credentials("Google", error) from error
        email = email or self._environ(_PRINCIPAL)
        if not email:
            raise AuthenticationFailed(
                "there is no token of Google: the credentials do not name an account, as those of "
                f"users do not: set the environment variable {_PRINCIPAL} to the account's address"
            )
        claims = {
            "exp": ends,
            "iat": self._clock.timestamp_ms() / 1000,
            "iss": "Google",
            "scope": "kafka",
            "sub": email,
        }
        header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
        parts = (json.dumps(header), json.dumps(claims), token)
        return OAuthToken(".".join(map(_base64, parts)), ends)


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
