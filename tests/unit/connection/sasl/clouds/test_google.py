"""Tokens for Google's service, with credentials in the place of google-auth's."""

from __future__ import annotations

import base64
import json
import sys
from datetime import UTC, datetime

import pytest

from aiokq.connection.sasl.clouds import cloud_tokens
from aiokq.connection.sasl.clouds.google import ManagedKafkaTokens
from aiokq.connection.sasl.jwt_lifetime import lifetime_of
from aiokq.core.clock import SystemClock
from aiokq.core.errors import AuthenticationFailed, ConfigError
from aiokq.core.offload import InlineOffload


class Credentials:
    """Credentials that are refreshed to a token that ends at noon, in UTC."""

    service_account_email = "shop@example.com"
    token: str | None = None
    expiry: datetime | None = None

    def refresh(self, request: object) -> None:
        if request is None:
            raise RuntimeError("no transport")
        self.token = "ya29.secret"
        self.expiry = datetime(2026, 1, 1, 12)


def source(request: object) -> ManagedKafkaTokens:
    return ManagedKafkaTokens(
        offload=InlineOffload(), clock=SystemClock(), credentials=Credentials(), request=request
    )


async def test_the_access_token_is_in_an_envelope() -> None:
    token = await source(object()).fetch()
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
    assert token.expires_at == noon
    assert lifetime_of(token.value)[1] == noon
    header, claims, access = (
        base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in token.value.split(".")
    )
    assert json.loads(header) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    told = json.loads(claims)
    assert told.pop("iat") > noon - 1e9
    assert told == {"exp": noon, "iss": "Google", "scope": "kafka", "sub": "shop@example.com"}
    assert access == b"ya29.secret"
    assert "secret" not in repr(token)


class OfUser(Credentials):
    service_account_email = None  # type: ignore[assignment]  # credentials of users have no account


class OfMachine(Credentials):
    service_account_email = "default"


@pytest.mark.parametrize("kind", [OfUser, OfMachine])
async def test_the_environment_names_an_account_that_credentials_do_not(
    kind: type[Credentials],
) -> None:
    variables: dict[str, str] = {}
    tokens = ManagedKafkaTokens(
        offload=InlineOffload(),
        clock=SystemClock(),
        credentials=kind(),
        request=object(),
        environ=variables.get,
    )
    with pytest.raises(AuthenticationFailed, match="GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL") as raised:
        await tokens.fetch()
    assert "ya29" not in str(raised.value)
    variables["GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL"] = "me@example.com"
    token = await tokens.fetch()
    claims = token.value.split(".")[1]
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "me@example.com"


async def test_an_error_of_the_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth.transport.requests", None)
    with pytest.raises(AuthenticationFailed, match="there is no token of Google: "):
        await source(None).fetch()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(ConfigError, match=r"pip install 'aiokq\[gcp\]'"):
        cloud_tokens("google_managed_kafka", "h", offload=InlineOffload(), clock=SystemClock())
