"""FindCoordinator (10), versions 0-6: return the node that coordinates a group or a transaction.

The first request for a group creates `__consumer_offsets`; the first request for a transactional
id creates `__transaction_state`. The response has the node's address on the listener of the
connection.

Errors of a key: COORDINATOR_NOT_AVAILABLE (the key has no coordinator at present),
GROUP_AUTHORIZATION_FAILED, INVALID_REQUEST (another type of key),
TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

v1  key type                  v4  several keys in one request
v3  flexible                  v6  share groups (refused with INVALID_REQUEST)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, CoordinatorNotAvailable, InvalidRequest
from aiokq.wire.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Cluster, Groups, Transactions
    from aiokq.broker.handlers.call import Call

GROUP, TRANSACTION = 0, 1
FIRST_WITH_KEYS: Final = 4


async def handle(
    groups: Groups,
    transactions: Transactions,
    cluster: Cluster,
    request: FindCoordinatorRequest,
    call: Call,
) -> FindCoordinatorResponse:
    """Return the coordinator of each key, or its error."""
    if call.version >= FIRST_WITH_KEYS:
        coordinators = []
        for key in request.coordinator_keys:
            coordinators.append(
                await _find(groups, transactions, cluster, call, request.key_type, key)
            )
            if call.pace.spend():
                await call.pace.next()
        return FindCoordinatorResponse(coordinators=coordinators)
    found = await _find(groups, transactions, cluster, call, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message if found.error_code else "NONE",  # as Kafka
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(
    groups: Groups,
    transactions: Transactions,
    cluster: Cluster,
    call: Call,
    key_type: int,
    key: str,
) -> Coordinator:
    try:
        if key_type == TRANSACTION:
            call.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)
            node_id = await transactions.locate(key)
        elif key_type == GROUP:
            call.authorize(Operation.DESCRIBE, ResourceType.GROUP, key)
            node_id = await groups.locate(key)
        else:
            raise InvalidRequest(f"unknown coordinator key type {key_type}")
        for broker in cluster.brokers(call.connection.listener):
            if broker.node_id == node_id:
                return Coordinator(
                    key=key,
                    node_id=node_id,
                    host=broker.host,
                    port=broker.port,
                    error_code=0,
                    error_message="",
                )
        raise CoordinatorNotAvailable(f"the coordinator, node {node_id}, is not available")
    except BrokerError as error:
        return Coordinator(
            key=key,
            node_id=-1,
            host="",
            port=-1,
            error_code=error.code,
            error_message=error.message,
        )
