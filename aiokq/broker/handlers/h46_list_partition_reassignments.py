"""ListPartitionReassignments (46), version 0: partitions that are on their way to other brokers.

On one node there are none: what AlterPartitionReassignments may ask for is done at once.
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
    """None, whichever topics are asked for; topics that do not exist are no error in Kafka."""
    try:
        call.authorize(Operation.DESCRIBE, ResourceType.CLUSTER)
    except BrokerError as error:
        return ListPartitionReassignmentsResponse(
            error_code=call.counted(error), error_message=error.message
        )
    return ListPartitionReassignmentsResponse(error_code=0, error_message=None)
