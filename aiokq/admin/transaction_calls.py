"""TransactionCalls: the methods of Admin on transactions and producers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from aiokq.admin import producer_states, transactions
from aiokq.admin import transaction_listing as listings
from aiokq.admin.results import Results
from aiokq.admin.transaction_listing import TransactionListings
from aiokq.admin.transaction_types import (
    AbortTransactionSpec,
    FencedProducer,
    PartitionProducers,
    TransactionDescription,
)
from aiokq.cluster.engine import ClusterEngine
from aiokq.core import limits
from aiokq.core.arguments import list_argument, str_argument, str_list_argument
from aiokq.core.types import TopicPartition

__all__ = ["TransactionCalls"]


class TransactionCalls(ABC):
    """Methods of `Admin` on transactions and producers.

    Results, ``timeout`` and errors are as described in `Admin`.
    """

    @abstractmethod
    def _check(self, timeout: float | None) -> ClusterEngine:
        """Return the engine; raise Closed or WrongLoop if the object cannot be used."""

    async def list_transactions(
        self,
        *,
        states: str | Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> TransactionListings:
        """Return the transactional ids of the cluster, with their states (Kafka 3.0).

        A transactional id is listed until it expires, also while it has no transaction.

        Args:
            states: only transactional ids in these states, such as "Ongoing" or "Empty".
            producer_ids: only the transactional ids of these producer ids.
            longer_than_ms: only transactional ids whose last transaction, open or ended, began more
                than this many milliseconds ago, or that never had a transaction (Kafka 3.8). Add
                ``states="Ongoing"`` for transactions that are still open.
            pattern: only transactional ids that this regular expression in RE2's syntax matches as
                a whole (Kafka 4.1).
            raise_errors: raise the error of the first broker that failed. If False, errors are in
                ``.errors``, and the transactional ids of the failed brokers are missing.
        """
        found = await listings.list_transactions(
            self._check(timeout),
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=longer_than_ms,
            pattern=pattern,
            timeout=timeout,
        )
        return found.raise_for_errors() if raise_errors else found

    async def describe_transactions(
        self,
        transactional_ids: str | Iterable[str],
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, TransactionDescription]:
        """Describe transactional ids: state, producer, and the open transaction (Kafka 3.0).

        Returns:
            Results by transactional id; errors are TransactionalIdNotFound,
            TransactionalIdAuthorization ...
        """
        engine = self._check(timeout)
        results = await transactions.describe_transactions(
            engine, _ids(transactional_ids), timeout=timeout
        )
        return results.raise_for_errors() if raise_errors else results

    async def describe_producers(
        self,
        partitions: Iterable[tuple[str, int]],
        *,
        node_id: int | None = None,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[TopicPartition, PartitionProducers]:
        """Describe the producer states of partitions, including open transactions (Kafka 3.0).

        Args:
            node_id: the broker to ask about its replicas; None to ask the leaders.

        Returns:
            Results by partition; errors are UnknownTopicOrPartition, NotLeaderOrFollower (the
            broker has no replica) ...
        """
        engine = self._check(timeout)
        if node_id is not None:
            limits.count(node_id, "node_id", 0)
        results = await producer_states.describe_producers(
            engine,
            map(TopicPartition.of, list_argument(partitions, "partitions", "[('orders', 0)]")),
            node_id=node_id,
            timeout=timeout,
        )
        return results.raise_for_errors() if raise_errors else results

    async def abort_transaction(
        self, spec: AbortTransactionSpec, *, timeout: float | None = None
    ) -> None:
        """Abort the open transaction of a producer in one partition.

        Use this call only for a hanging transaction, which no coordinator will end. For any other
        transaction, use `terminate_transaction`. After `abort_transaction`, the coordinator would
        still count the partition as part of the transaction.

        Args:
            spec: the transaction, usually ``AbortTransactionSpec.of(partition, producer)`` with a
                result of `describe_producers`.

        Raises:
            InvalidProducerEpoch: the producer has another epoch in the partition.
            TransactionCoordinatorFenced: the coordinator epoch is too old.
            ClusterAuthorization: the principal lacks the operation ALTER on the cluster. Brokers
                before Kafka 3.8 require CLUSTER_ACTION instead.
            UnknownTopicOrPartition: the partition does not exist.
        """
        engine = self._check(timeout)
        if not isinstance(spec, AbortTransactionSpec):
            raise TypeError(f"spec is an AbortTransactionSpec, not {type(spec).__name__}")
        await producer_states.abort_transaction(engine, spec, timeout=timeout)

    async def terminate_transaction(
        self, transactional_id: str, *, timeout: float | None = None
    ) -> None:
        """Abort the open transaction of a transactional id and fence its producer.

        Java's name of the call is ``forceTerminateTransaction``. Like `fence_producers`, the call
        creates the transactional id if it does not exist.

        Raises:
            TransactionalIdAuthorization: the principal may not write with the transactional id.
        """
        engine = self._check(timeout)
        name = str_argument(transactional_id, "transactional_id")
        results = await transactions.fence_producers(engine, [name], timeout=timeout)
        results.raise_for_errors()

    async def fence_producers(
        self,
        transactional_ids: str | Iterable[str],
        *,
        timeout: float | None = None,
        raise_errors: bool = False,
    ) -> Results[str, FencedProducer]:
        """Fence the producers of transactional ids; their open transactions are aborted.

        The next request of a running producer fails with ProducerFenced.

        Returns:
            Results by transactional id, with the new producer id and epoch.
        """
        engine = self._check(timeout)
        results = await transactions.fence_producers(
            engine, _ids(transactional_ids), timeout=timeout
        )
        return results.raise_for_errors() if raise_errors else results


def _ids(transactional_ids: str | Iterable[str]) -> list[str]:
    return str_list_argument(transactional_ids, "transactional_ids", "['orders-1', 'orders-2']")
