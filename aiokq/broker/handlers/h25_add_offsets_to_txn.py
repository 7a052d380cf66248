"""AddOffsetsToTxn (25), versions 0-4: add the offsets of a group to a transaction.

The partition of `__consumer_offsets` that coordinates the group is added to the transaction. From
``transaction.version`` 2 on, clients need not send the request: TxnOffsetCommit adds the partition.

Errors: CONCURRENT_TRANSACTIONS (the markers of the last transaction are being written),
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (also if `__consumer_offsets` cannot be
created), GROUP_AUTHORIZATION_FAILED, INVALID_PRODUCER_ID_MAPPING, INVALID_REQUEST (an empty
transactional id), NOT_COORDINATOR, PRODUCER_FENCED (INVALID_PRODUCER_EPOCH in request versions 0
and 1), TRANSACTIONAL_ID_AUTHORIZATION_FAILED.

v2  PRODUCER_FENCED    v3  flexible    v4  TRANSACTION_ABORTABLE (not used)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError, InvalidProducerEpoch, ProducerFenced
from aiokq.wire.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Groups, Transactions
    from aiokq.broker.handlers.call import Call

FIRST_WITH_PRODUCER_FENCED: Final = 2


async def handle(
    transactions: Transactions, groups: Groups, request: AddOffsetsToTxnRequest, call: Call
) -> AddOffsetsToTxnResponse:
    """Add the partition that coordinates the group to the transaction."""
    try:
        call.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        call.authorize(Operation.READ, ResourceType.GROUP, request.group_id)
        await transactions.add_partitions(
            request.transactional_id,
            TransactionalProducer(request.producer_id, request.producer_epoch),
            [await groups.partition_of(request.group_id)],
            client_version=0,
        )
    except ProducerFenced as error:
        fenced = error if call.version >= FIRST_WITH_PRODUCER_FENCED else InvalidProducerEpoch
        return AddOffsetsToTxnResponse(error_code=fenced.code)
    except BrokerError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    return AddOffsetsToTxnResponse(error_code=0)
