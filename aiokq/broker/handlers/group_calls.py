"""What the handlers of groups have in common: who asks, and which group may be asked for.

Owns no group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.coordinator.group.group import Caller
from aiokq.core.errors import InvalidGroupId

if TYPE_CHECKING:
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.node import BrokerNode
    from aiokq.core.errors import BrokerError

__all__ = ["caller_of", "check_group_id", "counted"]


def caller_of(call: Call) -> Caller:
    """The sender of a request as group members are known."""
    return Caller(call.client_id or "", f"/{call.connection.peer_host}", call.version)


def check_group_id(group_id: str) -> None:
    """Refuse a group without a name; only offsets may be kept under it, as they always could.

    Raises:
        InvalidGroupId: it is empty.
    """
    if not group_id:
        raise InvalidGroupId("the group id is empty")


def counted(node: BrokerNode, error: BrokerError) -> int:
    """The error's code, counted."""
    node.counters.errors[error.name] += 1
    return error.code
