"""ListTransactions (66), versions 0-2: list the transactional ids that this node coordinates.

Transactional ids that the client may not describe are left out. Regular expressions have the syntax
of RE2, as in subscriptions of groups.

Errors: COORDINATOR_LOAD_IN_PROGRESS (a shard is being loaded), COORDINATOR_NOT_AVAILABLE (a shard
cannot be used), INVALID_REGULAR_EXPRESSION. KIP-664, KIP-994, KIP-1152.

v1  filter by duration    v2  filter by transactional id

Source: Kafka ``TransactionStateManager.listTransactionStates``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.coordinator.transaction.states import TransactionState
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.list_transactions import (
    ListTransactionsResponse,
    ListTransactionsTransactionState,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiokq.broker.coordinator.transaction.transaction_metadata import TransactionMetadata
    from aiokq.broker.handlers.areas import Host, Transactions
    from aiokq.broker.handlers.call import Call
    from aiokq.wire.list_transactions import ListTransactionsRequest


async def handle(
    transactions: Transactions, host: Host, request: ListTransactionsRequest, call: Call
) -> ListTransactionsResponse:
    """List the transactional ids that pass all filters."""
    by_name = {state.kafka_name: state for state in TransactionState}
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in by_name]
    try:
        found = transactions.read_all(lambda shard: list(shard.transactions.values()))
        listed = list(_filtered(found, request, host.clock.timestamp_ms()))
    except BrokerError as error:
        return ListTransactionsResponse(error_code=error.code)
    permitted = await call.permitted_of_many(
        Operation.DESCRIBE,
        ResourceType.TRANSACTIONAL_ID,
        [metadata.transactional_id for metadata in listed],
    )
    return ListTransactionsResponse(
        error_code=0,
        unknown_state_filters=unknown,
        transaction_states=[
            ListTransactionsTransactionState(
                transactional_id=metadata.transactional_id,
                producer_id=metadata.producer_id,
                transaction_state=metadata.state.kafka_name,
            )
            for metadata in listed
            if metadata.transactional_id in permitted
        ],
    )


def _filtered(
    found: list[TransactionMetadata], request: ListTransactionsRequest, now_ms: int
) -> Iterator[TransactionMetadata]:
    """Yield the metadata that passes the filters of a request.

    Raises:
        InvalidRegularExpression: see `compile_re2`.
    """
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    duration_ms = request.duration_filter
    match = None
    if request.transactional_id_pattern:
        from aiokq.broker.coordinator.re2_expressions import compile_re2

        match = compile_re2(request.transactional_id_pattern, "TransactionalIdPattern")
    for metadata in found:
        if producer_ids and metadata.producer_id not in producer_ids:
            continue
        if states and metadata.state.kafka_name not in states:
            continue
        # As in Kafka, the start time -1 of an id without a transaction passes this filter.
        if duration_ms >= 0 and now_ms - metadata.started_ms <= duration_ms:
            continue
        if match is None or match(metadata.transactional_id):
            yield metadata
