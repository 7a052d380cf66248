"""InitProducerId (22), versions 0-5: return a producer id and epoch.

A request without a transactional id gets a new producer id, as in Kafka, even if the producer has
an id already. With a transactional id, the transaction coordinator first aborts an open
transaction. It then returns a producer id and epoch that fence earlier producers.

Errors: CLUSTER_AUTHORIZATION_FAILED, CONCURRENT_TRANSACTIONS (a transaction is being ended),
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST (an old id without its
epoch, or an epoch without an id; an empty transactional id, or one that is too long),
INVALID_TRANSACTION_TIMEOUT, KAFKA_STORAGE_ERROR, NOT_COORDINATOR, POLICY_VIOLATION (too many
transactional ids), PRODUCER_FENCED (the old id and epoch are those of an earlier producer;
INVALID_PRODUCER_EPOCH in request versions 0 to 3), TRANSACTIONAL_ID_AUTHORIZATION_FAILED. KIP-98,
KIP-360, KIP-588, KIP-679.

v2  flexible                                      v4  PRODUCER_FENCED
v3  a producer may name its old id and epoch      v5  TRANSACTION_ABORTABLE (not used)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, InvalidProducerEpoch, InvalidRequest, ProducerFenced
from aiokq.records.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from aiokq.wire.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import ProducerIds, Transactions
    from aiokq.broker.handlers.call import Call

FIRST_WITH_PRODUCER_FENCED: Final = 4


async def handle(
    producer_ids: ProducerIds,
    transactions: Transactions,
    request: InitProducerIdRequest,
    call: Call,
) -> InitProducerIdResponse:
    """Return a new producer id with epoch 0, or the producer of the transactional id."""
    transactional_id = request.transactional_id
    try:
        _authorize(call, transactional_id)
        has_id = request.producer_id != NO_PRODUCER_ID
        if has_id != (request.producer_epoch != NO_PRODUCER_EPOCH):
            raise InvalidRequest("a producer id without an epoch, or an epoch without an id")
        if transactional_id is None:
            producer = TransactionalProducer(await producer_ids.next(), 0)
        else:
            expected = None
            if has_id:
                expected = TransactionalProducer(request.producer_id, request.producer_epoch)
            producer = await transactions.initialize(
                transactional_id, request.transaction_timeout_ms, expected
            )
    except ProducerFenced as error:
        fenced = error if call.version >= FIRST_WITH_PRODUCER_FENCED else InvalidProducerEpoch
        return InitProducerIdResponse(error_code=fenced.code, producer_epoch=-1)
    except BrokerError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
    return InitProducerIdResponse(
        error_code=0, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch
    )


def _authorize(call: Call, transactional_id: str | None) -> None:
    """Check that the client may use the transactional id, or may write idempotently (KIP-679).

    A client that may write to at least one topic may also write idempotently.

    Raises:
        TransactionalIdAuthorization, ClusterAuthorization: the client lacks the permission.
    """
    if transactional_id is not None:
        call.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not call.permits_any(Operation.WRITE, ResourceType.TOPIC):
        call.authorize(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
