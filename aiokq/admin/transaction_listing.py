"""Listing the transactional ids of a cluster: each broker lists the ids that it coordinates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiokq.admin.broker_listings import BrokerListings, from_all_brokers
from aiokq.admin.transaction_types import TransactionListing, TransactionState
from aiokq.cluster.engine import ClusterEngine
from aiokq.core import limits
from aiokq.core.arguments import list_argument, str_argument, str_list_argument
from aiokq.core.errors import UnsupportedVersion, error_for
from aiokq.wire.list_transactions import ListTransactionsRequest

__all__ = ["TransactionListings", "list_transactions"]

DURATION_SINCE: Final = 1
"""First ListTransactions version that filters by duration (KIP-994)."""
PATTERN_SINCE: Final = 2
"""First ListTransactions version that filters by a pattern (KIP-1152)."""


class TransactionListings(BrokerListings[TransactionListing]):
    """The transactional ids of the cluster, sorted, and the errors of brokers that failed.

    Attributes:
        errors: errors of the brokers that failed, by node id; the transactional ids that these
            brokers coordinate are missing.
    """

    __slots__ = ()


async def list_transactions(
    engine: ClusterEngine,
    *,
    states: Iterable[str],
    producer_ids: Iterable[int],
    longer_than_ms: int | None,
    pattern: str | None,
    timeout: float | None,
) -> TransactionListings:
    """Implement `Admin.list_transactions`."""
    request = ListTransactionsRequest(
        state_filters=[
            TransactionState.wanted(state)
            for state in str_list_argument(states, "states", "['Ongoing', 'PrepareCommit']")
        ],
        producer_id_filters=[
            limits.whole(each, "producer_ids", 0, limits.INT64_MAX)
            for each in list_argument(producer_ids, "producer_ids", "[1000, 1001]")
        ],
        duration_filter=-1
        if longer_than_ms is None
        else limits.whole(longer_than_ms, "longer_than_ms", 0, limits.INT64_MAX),
        transactional_id_pattern=str_argument(pattern, "pattern") if pattern else None,
    )

    async def ask(node: int, seconds: float) -> list[TransactionListing]:
        response = await engine.router.request(
            lambda version: _checked(request, version),
            ListTransactionsRequest,
            node,
            timeout=seconds,
        )
        if response.error_code:
            raise error_for(response.error_code, api="ListTransactions", node=node)
        return [
            TransactionListing(
                each.transactional_id,
                each.producer_id,
                TransactionState.of(each.transaction_state),
                node,
            )
            for each in response.transaction_states
        ]

    found, errors = await from_all_brokers(engine, ask, api="ListTransactions", timeout=timeout)
    by_id = {each.transactional_id: each for each in found}
    return TransactionListings({name: by_id[name] for name in sorted(by_id)}, errors)


def _checked(request: ListTransactionsRequest, version: int) -> ListTransactionsRequest:
    """Return the request if the version has all filters that the request uses.

    Raises:
        UnsupportedVersion: the version lacks a filter that the request uses.
    """
    if version < DURATION_SINCE and request.duration_filter >= 0:
        raise UnsupportedVersion(
            "the broker is older than 3.8: it cannot list by duration", api="ListTransactions"
        )
    if version < PATTERN_SINCE and request.transactional_id_pattern is not None:
        raise UnsupportedVersion(
            "the broker is older than 4.1: it cannot list by a pattern", api="ListTransactions"
        )
    return request
