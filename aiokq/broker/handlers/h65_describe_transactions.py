"""DescribeTransactions (65), version 0: describe transactional ids and their transactions.

Topics that the client may not describe are left out.

Errors of a transactional id: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
INVALID_REQUEST (an empty id), NOT_COORDINATOR, TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
TRANSACTIONAL_ID_NOT_FOUND. KIP-664.

Source: Kafka ``TransactionCoordinator.handleDescribeTransactions``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.describe_transactions import (
    DescribeTransactionsResponse,
    DescribeTransactionsTopicData,
    DescribeTransactionsTransactionState,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Transactions
    from aiokq.broker.handlers.call import Call
    from aiokq.wire.describe_transactions import DescribeTransactionsRequest


async def handle(
    transactions: Transactions, request: DescribeTransactionsRequest, call: Call
) -> DescribeTransactionsResponse:
    """Describe each transactional id, or return its error."""
    states = []
    for transactional_id in request.transactional_ids:
        state = _described(transactions, call, transactional_id)
        states.append(state)
        if call.pace.spend(1 + len(state.topics)):
            await call.pace.next()
    names = {topic.topic for state in states for topic in state.topics}
    permitted = await call.permitted_of_many(Operation.DESCRIBE, ResourceType.TOPIC, names)
    for state in states:
        state.topics = [topic for topic in state.topics if topic.topic in permitted]
    return DescribeTransactionsResponse(transaction_states=states)


def _described(
    transactions: Transactions, call: Call, transactional_id: str
) -> DescribeTransactionsTransactionState:
    """Describe a transactional id with all topics of its transaction, or return its error."""
    try:
        call.authorize(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        found = transactions.describe(transactional_id)
    except BrokerError as error:
        return DescribeTransactionsTransactionState(
            transactional_id=transactional_id, error_code=error.code
        )
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(found.partitions):
        topics.setdefault(topic, []).append(partition)
    return DescribeTransactionsTransactionState(
        error_code=0,
        transactional_id=transactional_id,
        transaction_state=found.state.kafka_name,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[
            DescribeTransactionsTopicData(topic=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )
