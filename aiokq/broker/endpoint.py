"""The address of a broker as clients see it."""

from __future__ import annotations

from aiokq.core.named_tuple import NamedTuple

__all__ = ["BrokerEndpoint"]


class BrokerEndpoint(NamedTuple):
    """A broker, with the address that clients of one listener connect to."""

    node_id: int
    host: str
    port: int
    rack: str | None
