"""ListPartitionReassignments (46), version 0: list partitions that move to other brokers.

A cluster with one node has no such partitions: AlterPartitionReassignments completes immediately.

Errors: CLUSTER_AUTHORIZATION_FAILED. KIP-455.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.call import Call


async def handle(
    request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    """Return an empty list; as in Kafka, topics that do not exist cause no error."""
    try:
        call.authorize(Operation.DESCRIBE, ResourceType.CLUSTER)
    except BrokerError as error:
        return ListPartitionReassignmentsResponse(
            error_code=error.code, error_message=error.message
        )
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None)
