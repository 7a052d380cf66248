"""The address of a broker as clients see it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BrokerEndpoint"]


class BrokerEndpoint(NamedTuple):
    """A live broker in answers to clients."""

    node_id: int
    host: str
    port: int
    rack: str | None
