"""FindCoordinator (10), versions 0-6: which node coordinates a group or a transaction.

v1  key type                  v4  several keys in one request
v3  flexible                  v6  share groups (refused here)
This node coordinates nothing yet: it says so with COORDINATOR_NOT_AVAILABLE (15), which clients
take for a passing state and ask again. (To name this node without serving OffsetFetch is no way
out: librdkafka 2.x crashes then.) The API is advertised because librdkafka decides by it whether
the broker can do lz4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.core.errors import CoordinatorNotAvailable, InvalidRequest
from aiokq.wire.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.node import BrokerNode

GROUP, TRANSACTION = 0, 1


async def handle(
    node: BrokerNode, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse:
    """One refusal per key."""
    if request.key_type == GROUP:
        code, message = CoordinatorNotAvailable.code, "this broker coordinates no groups"
    elif request.key_type == TRANSACTION:
        code, message = CoordinatorNotAvailable.code, "this broker coordinates no transactions"
    else:
        code, message = InvalidRequest.code, f"unknown coordinator key type {request.key_type}"
    if call.version < 4:
        return FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message
            )
            for key in request.coordinator_keys
        ]
    )
