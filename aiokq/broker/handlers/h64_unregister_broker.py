"""UnregisterBroker (64), version 0: remove the registration of another broker.

Errors: CLUSTER_AUTHORIZATION_FAILED, BROKER_ID_NOT_REGISTERED, INVALID_REQUEST (the broker is this
node), KAFKA_STORAGE_ERROR. KIP-631.

Source: Kafka ``ReplicationControlManager.unregisterBroker``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Quorum
    from aiokq.broker.handlers.call import Call


async def handle(
    quorum: Quorum, request: UnregisterBrokerRequest, call: Call
) -> UnregisterBrokerResponse:
    """Remove the broker's registration, and remove the broker from the ISR of partitions.

    If the broker is the last in-sync replica of a partition, it may stay in that ISR; see
    `unregistration`.
    """
    try:
        call.authorize(Operation.ALTER, ResourceType.CLUSTER)
        await quorum.unregister_broker(request.broker_id)
    except BrokerError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse(error_code=0, error_message=None)
