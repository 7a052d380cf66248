"""AddPartitionsToTxn (24), versions 0-3: add partitions to a transaction, all or none.

The first partitions begin the transaction. From ``transaction.version`` 2 on, clients need not
send the request: Produce adds the partitions. Versions 4 and 5, which brokers send to each other,
are not advertised, because this node asks its own coordinator.

Errors of a partition: CONCURRENT_TRANSACTIONS (the markers of the last transaction are being
written), COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING,
INVALID_REQUEST (an empty transactional id), NOT_COORDINATOR, OPERATION_NOT_ATTEMPTED (another
partition was refused), PRODUCER_FENCED (before version 2 INVALID_PRODUCER_EPOCH),
TOPIC_AUTHORIZATION_FAILED (also for internal topics), TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
UNKNOWN_TOPIC_OR_PARTITION.

v2  PRODUCER_FENCED    v3  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.handlers.decisions import Decisions
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import (
    BrokerError,
    InvalidProducerEpoch,
    OperationNotAttempted,
    ProducerFenced,
    TopicAuthorization,
    UnknownTopicOrPartition,
)
from aiokq.core.types import TopicPartition
from aiokq.wire.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokq.broker.handlers.areas import Topics, Transactions
    from aiokq.broker.handlers.call import Call

FIRST_WITH_PRODUCER_FENCED: Final = 2


async def handle(
    topics: Topics, transactions: Transactions, request: AddPartitionsToTxnRequest, call: Call
) -> AddPartitionsToTxnResponse:
    """Add the partitions to the transaction."""
    transactional_id = request.v3_and_below_transactional_id
    wanted = {
        TopicPartition(topic.name, index): 0
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    }
    try:
        call.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    except BrokerError as error:
        return _response(dict.fromkeys(wanted, error.code))
    permits = Decisions(call, Operation.WRITE, ResourceType.TOPIC)
    refused = False
    for tp in wanted:
        try:
            permits.check(tp.topic)
            partition = topics.partition(tp.topic, tp.partition)
            if partition is None:
                raise UnknownTopicOrPartition()
            if partition.topic.limits.is_internal:
                raise TopicAuthorization()
        except BrokerError as error:
            wanted[tp] = error.code
            refused = True
    if refused:
        return _response({tp: code or OperationNotAttempted.code for tp, code in wanted.items()})
    try:
        await transactions.add_partitions(
            transactional_id,
            TransactionalProducer(
                request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
            ),
            wanted.keys(),
            client_version=0,
        )
    except ProducerFenced as error:
        fenced = error if call.version >= FIRST_WITH_PRODUCER_FENCED else InvalidProducerEpoch
        return _response(dict.fromkeys(wanted, fenced.code))
    except BrokerError as error:
        return _response(dict.fromkeys(wanted, error.code))
    return _response(wanted)


def _response(codes: Mapping[TopicPartition, int]) -> AddPartitionsToTxnResponse:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for tp, code in codes.items():
        topic = topics.setdefault(tp.topic, AddPartitionsToTxnTopicResult(name=tp.topic))
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(
                partition_index=tp.partition, partition_error_code=code
            )
        )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=list(topics.values()))
