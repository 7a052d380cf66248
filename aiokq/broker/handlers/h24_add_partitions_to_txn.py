"""AddPartitionsToTxn (24), versions 0-5: add partitions to a transaction, all or none.

The first partitions begin the transaction. From ``transaction.version`` 2 on, clients need not
send the request: Produce adds the partitions. Requests of versions 4 and 5 are for brokers, which
send them to the transaction coordinator before they append a transactional batch. Such a request
has several transactions, needs the permission CLUSTER_ACTION, and may name partitions of internal
topics. With `verify_only`, the request adds no partitions, and checks that the partitions are in
the transaction. This node sends no such request, because it has its own coordinator.

Errors of the whole request, from version 4 on: CLUSTER_AUTHORIZATION_FAILED.

Errors of a partition: CONCURRENT_TRANSACTIONS (the markers of the last transaction are being
written), COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING,
INVALID_REQUEST (an empty transactional id), NOT_COORDINATOR, OPERATION_NOT_ATTEMPTED (another
partition was refused), PRODUCER_FENCED (INVALID_PRODUCER_EPOCH in request versions 0 and 1),
TOPIC_AUTHORIZATION_FAILED (also for internal topics), TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
TRANSACTION_ABORTABLE (with `verify_only`, the partition is not in the transaction),
UNKNOWN_SERVER_ERROR (the record is larger than the coordinator's log accepts),
UNKNOWN_TOPIC_OR_PARTITION.

v2  PRODUCER_FENCED    v3  flexible    v4  for brokers: several transactions, verification

Source: Kafka ``KafkaApis.handleAddPartitionsToTxnRequest``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.handlers.decisions import Decisions
from aiokq.broker.metadata.image.topic_names import INTERNAL_TOPICS
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
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiokq.broker.handlers.areas import Topics, Transactions
    from aiokq.broker.handlers.call import Call

FIRST_WITH_PRODUCER_FENCED: Final = 2
FIRST_BETWEEN_BROKERS: Final = 4
VERSION_OF_BROKERS: Final = 2
"""The ``transaction.version`` that a request of a broker implies."""


async def handle(
    topics: Topics, transactions: Transactions, request: AddPartitionsToTxnRequest, call: Call
) -> AddPartitionsToTxnResponse:
    """Handle a request of a client (versions 0-3) or of a broker (later versions)."""
    if call.version >= FIRST_BETWEEN_BROKERS:
        return await _between_brokers(topics, transactions, request, call)
    transactional_id = request.v3_and_below_transactional_id
    wanted = dict.fromkeys(await _partitions(request.v3_and_below_topics, call), 0)
    try:
        call.authorize(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    except BrokerError as error:
        return await _response(dict.fromkeys(wanted, error.code), call)
    permits = Decisions(call, Operation.WRITE, ResourceType.TOPIC)
    refused = False
    for tp in wanted:
        if call.pace.spend():
            await call.pace.next()
        try:
            if tp.topic in INTERNAL_TOPICS:
                raise TopicAuthorization()
            permits.check(tp.topic)
            partition = topics.partition(tp.topic, tp.partition)
            if partition is None:
                raise UnknownTopicOrPartition()
        except BrokerError as error:
            wanted[tp] = error.code
            refused = True
    if refused:
        other = OperationNotAttempted.code
        return await _response({tp: code or other for tp, code in wanted.items()}, call)
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
        return await _response(dict.fromkeys(wanted, fenced.code), call)
    except BrokerError as error:
        return await _response(dict.fromkeys(wanted, error.code), call)
    return await _response(wanted, call)


async def _between_brokers(
    topics: Topics, transactions: Transactions, request: AddPartitionsToTxnRequest, call: Call
) -> AddPartitionsToTxnResponse:
    """Add or verify the partitions of several transactions, independently of each other."""
    try:
        call.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    except BrokerError as error:
        return AddPartitionsToTxnResponse(error_code=error.code)
    results = []
    for transaction in request.transactions:
        codes = await _of_transaction(topics, transactions, transaction, call)
        results.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=await _topic_results(codes, call),
            )
        )
        if call.pace.spend():
            await call.pace.next()
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _of_transaction(
    topics: Topics,
    transactions: Transactions,
    transaction: AddPartitionsToTxnTransaction,
    call: Call,
) -> dict[TopicPartition, int]:
    """Add or verify the partitions of one transaction; return their error codes."""
    wanted = list(await _partitions(transaction.topics, call))
    missing = {
        tp async for tp in call.each(wanted) if topics.partition(tp.topic, tp.partition) is None
    }
    if missing:
        unknown, other = UnknownTopicOrPartition.code, OperationNotAttempted.code
        return {tp: unknown if tp in missing else other for tp in wanted}
    producer = TransactionalProducer(transaction.producer_id, transaction.producer_epoch)
    try:
        if transaction.verify_only:
            found = transactions.verify(transaction.transactional_id, producer, wanted)
            return {tp: 0 if error is None else error.code for tp, error in found.items()}
        await transactions.add_partitions(
            transaction.transactional_id, producer, wanted, client_version=VERSION_OF_BROKERS
        )
    except BrokerError as error:
        return dict.fromkeys(wanted, error.code)
    return dict.fromkeys(wanted, 0)


async def _partitions(
    topics: Iterable[AddPartitionsToTxnTopic], call: Call
) -> dict[TopicPartition, None]:
    """Return the partitions of a transaction, each once, in order."""
    partitions: dict[TopicPartition, None] = {}
    for topic in topics:
        async for index in call.each(topic.partitions):
            partitions[TopicPartition(topic.name, index)] = None
    return partitions


async def _response(codes: Mapping[TopicPartition, int], call: Call) -> AddPartitionsToTxnResponse:
    results = await _topic_results(codes, call)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _topic_results(
    codes: Mapping[TopicPartition, int], call: Call
) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    async for tp, code in call.each(codes.items()):
        topic = topics.setdefault(tp.topic, AddPartitionsToTxnTopicResult(name=tp.topic))
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(
                partition_index=tp.partition, partition_error_code=code
            )
        )
    return list(topics.values())
