"""Clients of the gateway, which write messages to its socket without waiting for Kafka.

    from aiokq.gateway.client import GatewayClient

    with GatewayClient(unix_datagram="/run/aiokq/gateway.sock") as client:
        client.send("orders", b'{"n": 1}', key=b"u7")

`GatewayClient` blocks, `AsyncGatewayClient` is for asyncio. The package needs only the standard
library and imports no other part of aiokq, so that short programs start fast. Programs in C and C++
include `aiokq_gateway.h`, which is in the directory that `get_include` returns.

A gateway never answers. A message that was sent is in the kernel's socket buffer; the gateway's
reports show whether Kafka has the message.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aiokq.gateway.client.blocking import GatewayClient
from aiokq.gateway.client.counts import Counts
from aiokq.gateway.client.errors import (
    ClientClosed,
    GatewayAway,
    GatewayClientError,
    GatewayUnavailable,
    InvalidMessage,
    MessageTooLarge,
    PathTooLong,
    QueueFull,
    TopicTooLarge,
    WrongType,
)
from aiokq.gateway.client.message import encode

if TYPE_CHECKING:
    from aiokq.gateway.client.asynchronous import AsyncGatewayClient

__all__ = [
    "AsyncGatewayClient",
    "ClientClosed",
    "Counts",
    "GatewayAway",
    "GatewayClient",
    "GatewayClientError",
    "GatewayUnavailable",
    "InvalidMessage",
    "MessageTooLarge",
    "PathTooLong",
    "QueueFull",
    "TopicTooLarge",
    "WrongType",
    "encode",
    "get_include",
]


def get_include() -> str:
    """Return the directory of `aiokq_gateway.h`, the header for programs in C and C++.

    Example: `cc -I$(python3 -c "import aiokq.gateway.client as c; print(c.get_include())") log.c`
    """
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "include")


def __getattr__(name: str) -> object:
    # asyncio is imported only for programs that use it.
    if name == "AsyncGatewayClient":
        from aiokq.gateway.client.asynchronous import AsyncGatewayClient

        globals()[name] = AsyncGatewayClient
        return AsyncGatewayClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
