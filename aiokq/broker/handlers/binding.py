"""`Areas` and `bind`: pass each handler the areas of the node that its parameters name.

Tests: ``tests/unit/broker/handlers/test_areas.py``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiokq.broker.handlers.areas import (
        Acls,
        Admission,
        Changes,
        ClientQuotas,
        Cluster,
        Configs,
        Credentials,
        Groups,
        Handler,
        Host,
        Login,
        Logs,
        Markers,
        ProducerIds,
        Quorum,
        Topics,
        Transactions,
    )
    from aiokq.connection.turn import Turn
    from aiokq.wire.struct import Response

__all__ = ["Areas", "bind"]


class Areas(NamedTuple):
    """The areas of one open node; the fields have the names of handlers' parameters."""

    topics: Topics
    changes: Changes
    groups: Groups
    transactions: Transactions
    admission: Admission
    markers: Markers
    logs: Logs
    cluster: Cluster
    configs: Configs
    acls: Acls
    producer_ids: ProducerIds
    quorum: Quorum
    client_quotas: ClientQuotas
    login: Login
    credentials: Credentials
    host: Host
    turn: Turn


def bind(handle: Callable[..., Awaitable[Response | None]], areas: Areas) -> Handler:
    """Bind the leading parameters of `handle` to the areas of the same names.

    Called for the first request of each version of an API.
    """
    code = handle.__code__
    names = code.co_varnames[: code.co_argcount - 2]  # all but request and call
    if not names:
        return handle
    return functools.partial(handle, *(getattr(areas, name) for name in names))
