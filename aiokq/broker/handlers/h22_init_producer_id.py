"""InitProducerId (22), versions 0-5: return a producer id for an idempotent producer.

Each request without a transactional id gets a new producer id, as in Kafka, even if the producer
has an id already. This node coordinates no transactions.

Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST (an old id without its epoch, or an epoch
without an id; an empty transactional id), TRANSACTIONAL_ID_AUTHORIZATION_FAILED (a transactional
id), KAFKA_STORAGE_ERROR. KIP-98, KIP-360, KIP-679.

v2  flexible                                      v4  PRODUCER_FENCED (not used)
v3  a producer may name its old id and epoch      v5  TRANSACTION_ABORTABLE (not used)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, InvalidRequest, TransactionalIdAuthorization
from aiokq.records.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from aiokq.wire.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import ProducerIds
    from aiokq.broker.handlers.call import Call


async def handle(
    producer_ids: ProducerIds, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse:
    """Return a new producer id with epoch 0."""
    try:
        _authorize(call, request.transactional_id)
    except BrokerError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return InitProducerIdResponse(error_code=InvalidRequest.code, producer_epoch=-1)
    if request.transactional_id is not None:
        refusal = TransactionalIdAuthorization if request.transactional_id else InvalidRequest
        return InitProducerIdResponse(error_code=refusal.code, producer_epoch=-1)
    try:
        producer_id = await producer_ids.next()
    except BrokerError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)


def _authorize(call: Call, transactional_id: str | None) -> None:
    """Check that the client may use the transactional id, or may write idempotently (KIP-679).

    Permission to write to any topic includes the permission to write idempotently.

    Raises:
        TransactionalIdAuthorization, ClusterAuthorization: the client lacks the permission.
    """
    if transactional_id is not None:
        call.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not call.permits_any(Operation.WRITE, ResourceType.TOPIC):
        call.authorize(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
