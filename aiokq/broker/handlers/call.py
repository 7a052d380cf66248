"""What a handler knows of a request beside its body."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aiokq.connection.request_context import RequestContext
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.errors import BrokerError

__all__ = ["Call"]


class Call(NamedTuple):
    """One request: its version, its sender, its connection and the metrics it is counted in."""

    version: int
    client_id: str | None
    connection: RequestContext
    counters: BrokerCounters

    def counted(self, error: BrokerError | type[BrokerError]) -> int:
        """Count `error` in the metrics and return its code."""
        self.counters.errors[error.name] += 1
        return error.code
