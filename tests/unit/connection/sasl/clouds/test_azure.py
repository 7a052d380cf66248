"""Tokens for Azure Event Hubs, with a credential in the place of azure-identity's."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from aiokq.connection.sasl.clouds import cloud_tokens
from aiokq.connection.sasl.clouds.azure import EventHubsTokens
from aiokq.connection.sasl.oauth_token import OAuthToken
from aiokq.core.clock import SystemClock
from aiokq.core.errors import AuthenticationFailed, ConfigError
from aiokq.core.offload import InlineOffload

HOST = "shop.servicebus.windows.net"


async def test_the_scope_is_the_namespace() -> None:
    """A token for another scope is refused by Event Hubs."""
    asked = []

    def get_token(scope: str) -> SimpleNamespace:
        asked.append(scope)
        return SimpleNamespace(token="t", expires_on=5)

    credential = SimpleNamespace(get_token=get_token)
    source = EventHubsTokens(HOST, offload=InlineOffload(), credential=credential)
    assert await source.fetch() == OAuthToken("t", 5.0)
    assert asked == ["https://shop.servicebus.windows.net/.default"]


async def test_an_error_of_the_library_is_named() -> None:
    def get_token(scope: str) -> SimpleNamespace:
        raise RuntimeError("no identity")

    credential = SimpleNamespace(get_token=get_token)
    source = EventHubsTokens(HOST, offload=InlineOffload(), credential=credential)
    with pytest.raises(AuthenticationFailed, match="Microsoft Entra: RuntimeError: no identity"):
        await source.fetch()


@pytest.mark.parametrize("host", ["localhost", "servicebus.windows.net", "a.servicebus.b/../c"])
def test_another_host_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"NAMESPACE\.servicebus"):
        EventHubsTokens(host, offload=InlineOffload(), credential=object())


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure", None)
    with pytest.raises(ConfigError, match=r"pip install 'aiokq\[azure\]'"):
        cloud_tokens("azure_event_hubs", HOST, offload=InlineOffload(), clock=SystemClock())
