"""Finds the reasons why a gateway is not ready, and warnings for its operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.gateway.served import Problems
from aiokq.gateway.texts import path_text

if TYPE_CHECKING:
    from aiokq.gateway.served import Served

__all__ = ["problems"]


def problems(gateway: Served) -> Problems:
    """Return the problems of a gateway. A gateway can be ready while Kafka is unreachable."""
    reasons: list[str] = []
    warnings: list[str] = []
    if gateway.failed is not None:
        reasons.append(f"a part of the gateway has failed: {gateway.failed!r}")
    elif not gateway.accepting:
        reasons.append("the gateway is ending")
    for one in gateway.inputs:
        counts = one.counts()
        if gateway.accepting and not counts.running:
            reasons.append(f"the input {one.where} does not run")
        elif counts.connections >= one.socket.settings.max_connections:
            idle_ms = one.socket.settings.idle_when_full_ms
            until = f" or idle for {idle_ms / 1000:g} s" if idle_ms else ""
            warnings.append(
                f"the input {one.where} has max_connections ({counts.connections}) connections; "
                f"further ones wait until one is closed{until}"
            )
    if gateway.spool is not None and gateway.spool.error is not None:
        reasons.append(f"the spool cannot be used: {gateway.spool.error}")
    health = gateway.cluster.health()
    if not health.brokers_up:
        why = "" if health.metadata_error is None else f": {health.metadata_error}"
        where = "pool" if gateway.spool is None else "spool"
        warnings.append(f"no broker is reachable{why}; messages wait in the {where}")
    elif health.brokers_down:
        warnings.append(f"brokers that are not reachable: {len(health.brokers_down)}")
    if gateway.reload_error is not None:
        warnings.append(f"the configuration was not reloaded: {gateway.reload_error}")
    # A path in a text may contain any bytes.
    return Problems([*map(path_text, reasons)], [*map(path_text, warnings)])
