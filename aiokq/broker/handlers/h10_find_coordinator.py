"""FindCoordinator (10), versions 0-6: which node coordinates a group or a transaction.

v1  key type                  v4  several keys in one request
v3  flexible                  v6  share groups (refused here)
This node coordinates nothing, and says so for good: UNSUPPORTED_VERSION (35) for groups and
TRANSACTIONAL_ID_AUTHORIZATION_FAILED (53) for transactions, which librdkafka too takes as final.
Java, aiokafka and kafka-python raise them at once. COORDINATOR_NOT_AVAILABLE (15) would mean "ask
again": subscribing and closing would hang.
Version 2 is librdkafka's, and gets 15 for groups: it wants a group.id even of a consumer that
assigns its partitions, asks for that group's coordinator, and would hand a final error to a user
who has done nothing wrong. Nothing but a coordinator helps that consumer close at once if it
commits automatically: it holds its last commit back for session.timeout.ms (45 s). (To name this
node without serving OffsetFetch is no way out: librdkafka 2.x crashes then.)
The API is advertised because librdkafka decides by it whether the broker can do lz4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.core.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    TransactionalIdAuthorization,
    UnsupportedVersion,
)
from aiokq.wire.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.node import BrokerNode

GROUP, TRANSACTION = 0, 1
LIBRDKAFKA: Final = 2
"""The one version that librdkafka sends, and none of the other clients."""


async def handle(
    node: BrokerNode, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse:
    """One refusal per key."""
    if request.key_type == GROUP:
        refusal = CoordinatorNotAvailable if call.version == LIBRDKAFKA else UnsupportedVersion
        code, message = refusal.code, "this broker coordinates no groups"
    elif request.key_type == TRANSACTION:
        code = TransactionalIdAuthorization.code
        message = "this broker coordinates no transactions"
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
