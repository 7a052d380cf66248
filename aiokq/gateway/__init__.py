"""The gateway: local programs write messages to a socket, and the gateway delivers them to Kafka.

    async with aiokq.gateway.Gateway("gateway.toml") as gateway:
        await gateway.run_until(stop)  # an asyncio.Event

`aiokq gateway` runs it as a process. `aiokq.gateway.client` is for Python programs that write
messages, and imports nothing else of aiokq. The names of this package are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.gateway.gateway import Gateway
    from aiokq.gateway.settings import GatewaySettings

__all__ = ["Gateway", "GatewaySettings"]

_HOMES = {
    "Gateway": "aiokq.gateway.gateway",
    "GatewaySettings": "aiokq.gateway.settings",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
