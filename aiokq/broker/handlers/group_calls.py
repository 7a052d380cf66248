"""Shared by the handlers of groups: the caller, and validation of group ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.coordinator.group.group import Caller
from aiokq.core.errors import InvalidGroupId

if TYPE_CHECKING:
    from aiokq.broker.handlers.call import Call

__all__ = ["caller_of", "check_group_id"]


def caller_of(call: Call) -> Caller:
    """The sender of a request in the form that groups keep of their members."""
    return Caller(call.client_id or "", f"/{call.connection.peer_host}", call.version)


def check_group_id(group_id: str) -> None:
    """Refuse an empty group id. OffsetCommit and OffsetFetch accept it, as in Kafka.

    Raises:
        InvalidGroupId: it is empty.
    """
    if not group_id:
        raise InvalidGroupId("the group id is empty")
