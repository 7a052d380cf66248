"""Describing transactional ids and fencing their producers, at the transaction coordinators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokq.admin.coordinator_calls import per_group
from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import timeout_ms
from aiokq.admin.transaction_types import FencedProducer, TransactionDescription, TransactionState
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.targets import CoordinatorKind
from aiokq.core.errors import KafkaError, error_for, raise_for
from aiokq.core.types import TopicPartition
from aiokq.wire.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsTransactionState,
)
from aiokq.wire.init_producer_id import InitProducerIdRequest

__all__ = ["describe_transactions", "fence_producers"]


async def describe_transactions(
    engine: ClusterEngine, transactional_ids: Iterable[str], *, timeout: float | None
) -> Results[str, TransactionDescription]:
    """Implement `Admin.describe_transactions`."""

    async def ask(
        node: int, asked: Mapping[str, bool], remaining: float
    ) -> dict[str, TransactionDescription | KafkaError]:
        response = await engine.request(
            DescribeTransactionsRequest(transactional_ids=list(asked)), node=node, timeout=remaining
        )
        return {
            each.transactional_id: error_for(each.error_code, api="DescribeTransactions")
            if each.error_code
            else _description(node, each)
            for each in response.transaction_states
        }

    outcomes = await per_group(
        engine,
        dict.fromkeys(transactional_ids, True),
        ask,
        api="DescribeTransactions",
        timeout=timeout,
        kind=CoordinatorKind.TRANSACTION,
    )
    return results_of(outcomes, lambda name, error: TransactionDescription(name, error=error))


def _description(node: int, found: DescribeTransactionsTransactionState) -> TransactionDescription:
    started = found.transaction_start_time_ms
    return TransactionDescription(
        found.transactional_id,
        node,
        TransactionState.of(found.transaction_state),
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        None if started < 0 else started,
        tuple(
            sorted(
                TopicPartition(topic.topic, number)
                for topic in found.topics
                for number in topic.partitions
            )
        ),
    )


async def fence_producers(
    engine: ClusterEngine, transactional_ids: Iterable[str], *, timeout: float | None
) -> Results[str, FencedProducer]:
    """Implement `Admin.fence_producers`.

    InitProducerId without a producer id bumps the epoch. While an open transaction is aborted, the
    coordinator answers CONCURRENT_TRANSACTIONS, and the request is repeated.
    """

    async def ask(
        node: int, asked: Mapping[str, bool], remaining: float
    ) -> dict[str, FencedProducer | KafkaError]:
        (transactional_id,) = asked
        response = await engine.request(
            InitProducerIdRequest(
                transactional_id=transactional_id,
                # As in Java. A producer that uses the transactional id later sets its own timeout.
                transaction_timeout_ms=timeout_ms(engine, engine.settings.request_timeout),
                producer_id=-1,
                producer_epoch=-1,
            ),
            node=node,
            timeout=remaining,
        )
        raise_for(response.error_code, api="InitProducerId")
        fenced = FencedProducer(transactional_id, response.producer_id, response.producer_epoch)
        return {transactional_id: fenced}

    outcomes = await per_group(
        engine,
        dict.fromkeys(transactional_ids, True),
        ask,
        api="InitProducerId",
        timeout=timeout,
        batched=False,
        kind=CoordinatorKind.TRANSACTION,
    )
    return results_of(outcomes, lambda name, error: FencedProducer(name, error=error))
