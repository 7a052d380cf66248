"""EndTxn (26), versions 0-5: commit or abort the transaction of a transactional id.

When the response is sent, the decision to commit or abort is in the log. The markers are written
next. If no write has to wait, the markers are written before the node handles the client's next
request. Version 5 implies ``transaction.version`` 2 (KIP-890): the epoch is bumped, and the
response has the producer id and epoch of the next transaction.

Errors: CONCURRENT_TRANSACTIONS (the markers of the last transaction are being written),
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING,
INVALID_REQUEST (an empty transactional id), INVALID_TXN_STATE (no transaction is open, or the
opposite decision was made), NOT_COORDINATOR, PRODUCER_FENCED (INVALID_PRODUCER_EPOCH in request
versions 0 and 1), TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

v2  PRODUCER_FENCED    v3  flexible    v4  TRANSACTION_ABORTABLE (not used)    v5  KIP-890
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, InvalidProducerEpoch, ProducerFenced
from aiokq.wire.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Transactions
    from aiokq.broker.handlers.call import Call

FIRST_WITH_PRODUCER_FENCED: Final = 2
FIRST_WITH_EPOCH_BUMP: Final = 5


async def handle(transactions: Transactions, request: EndTxnRequest, call: Call) -> EndTxnResponse:
    """Commit or abort the transaction; return the producer of the next transaction."""
    transactional_id = request.transactional_id
    try:
        call.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        after = await transactions.end(
            transactional_id,
            TransactionalProducer(request.producer_id, request.producer_epoch),
            committed=request.committed,
            client_version=2 if call.version >= FIRST_WITH_EPOCH_BUMP else 0,
        )
    except ProducerFenced as error:
        fenced = error if call.version >= FIRST_WITH_PRODUCER_FENCED else InvalidProducerEpoch
        return EndTxnResponse(error_code=fenced.code)
    except BrokerError as error:
        return EndTxnResponse(error_code=error.code)
    if call.version < FIRST_WITH_EPOCH_BUMP:
        return EndTxnResponse(error_code=0)
    return EndTxnResponse(
        error_code=0, producer_id=after.producer_id, producer_epoch=after.producer_epoch
    )
