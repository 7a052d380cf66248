"""Tokens for Azure Event Hubs: tokens of Microsoft Entra for the namespace of the broker.

Source: Microsoft, "Authenticate an application with Microsoft Entra ID to access Event Hubs".
Tests: ``tests/unit/connection/sasl/clouds/test_azure.py``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from aiokq.connection.sasl.clouds.library import library, need, no_credentials
from aiokq.connection.sasl.oauth_token import OAuthToken
from aiokq.core.errors import ConfigError

if TYPE_CHECKING:
    from aiokq.core.offload import Offload

__all__ = ["EventHubsTokens"]

_HOST: Final = re.compile(r"[a-z0-9-]+\.servicebus\.[a-z0-9.-]+", re.IGNORECASE)


class EventHubsTokens:
    """Tokens for a namespace of Azure Event Hubs.

    Args:
        host: the host name of the namespace, such as "shop.servicebus.windows.net".
        offload: runs azure-identity.
        credential: the credential of azure-identity; `DefaultAzureCredential()` if not given.

    Raises:
        ConfigError: azure-identity is not installed, or the host is not a namespace of Event Hubs.
    """

    def __init__(self, host: str, *, offload: Offload, credential: Any = None) -> None:
        if _HOST.fullmatch(host) is None:
            raise ConfigError(
                f"{host!r} is not the host of an Event Hubs namespace: set bootstrap_servers to "
                "NAMESPACE.servicebus.windows.net:9093"
            )
        if credential is None:
            need("azure.identity", "azure")
        self._scope = f"https://{host}/.default"
        self._offload = offload
        self._credential = credential

    def __repr__(self) -> str:
        return f"<EventHubsTokens for {self._scope}>"

    async def fetch(self) -> OAuthToken:
        """Return a new token.

        Raises:
            AuthenticationFailed: azure-identity finds no credentials, or gets no token.
        """
        return await self._offload.run(self._fetch)

    def _fetch(self) -> OAuthToken:
        try:
            if self._credential is None:
                self._credential = library("azure.identity").DefaultAzureCredential()
            found = self._credential.get_token(self._scope)
        except Exception as error:
            raise no_credentials("Microsoft Entra", error) from error
        return OAuthToken(found.token, float(found.expires_on))
