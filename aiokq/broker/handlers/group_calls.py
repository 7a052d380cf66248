"""Functions that the handlers of groups share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.coordinator.group.group import Caller
from aiokq.core.errors import InvalidGroupId

if TYPE_CHECKING:
    from aiokq.broker.handlers.call import Call

__all__ = ["caller_of", "check_group_id"]


def caller_of(call: Call) -> Caller:
    """Return the sender of a request as groups keep it for their members."""
    return Caller(call.client_id or "", f"/{call.connection.peer_host}", call.version)


def check_group_id(group_id: str) -> None:
    """Check that a group id is not empty. OffsetCommit and OffsetFetch accept it, as in Kafka.

    Raises:
        InvalidGroupId: the id is empty.
    """
    if not group_id:
        raise InvalidGroupId("the group id is empty")
