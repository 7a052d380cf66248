"""PartitionAdditions: adds partitions to a transaction, by AddPartitionsToTxn requests.

It sends requests only below `transaction.version` 2: from version 2 on, the partition leaders add
the partitions. A request has all partitions that wait to be added.

Source: Kafka `TransactionManager.java`, AddPartitionsToTxnHandler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from aiokq.core.errors import KafkaError

if TYPE_CHECKING:
    from aiokq.core.types import TopicPartition
    from aiokq.producer.idempotence import ProducerId
    from aiokq.producer.transactions.transaction_requests import TransactionRequests

__all__ = ["AdditionsOwner", "PartitionAdditions"]


class AdditionsOwner(Protocol):
    """The methods of `Transactions` that PartitionAdditions calls."""

    @property
    def producer(self) -> ProducerId:
        """The current producer id and epoch."""

    @property
    def takes_partitions(self) -> bool:
        """Whether partitions may be added to the transaction."""

    def partitions_added(self) -> None:
        """Offer the queues to their senders, because partitions were added or refused."""

    def addition_refused(self, error: KafkaError) -> None:
        """Process the refusal of partitions: the transaction cannot be committed."""

    def addition_lost(self) -> None:
        """Record that the coordinator may still carry out a request that failed."""

    def started(self) -> None:
        """Record that the transaction has begun at the coordinator."""


class PartitionAdditions:
    """The partitions that were added to the current transaction, or wait to be added.

    Args:
        spawn: starts a task that belongs to the producer.
    """

    def __init__(
        self,
        requests: TransactionRequests,
        owner: AdditionsOwner,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._requests = requests
        self._owner = owner
        self._spawn = spawn
        self._added: set[TopicPartition] = set()
        self._wanted: dict[TopicPartition, None] = {}
        self._adding: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Forget the partitions of the last transaction."""
        self._added.clear()
        self._wanted.clear()

    def has(self, partition: TopicPartition) -> bool:
        """Return whether a partition was added; if not, request to add it."""
        if partition in self._added:
            return True
        self._wanted[partition] = None
        if self._adding is None:
            self._adding = self._spawn(self._add(), "add partitions to transaction")
            # `_ended` is a callback, because the task's own code would not run if the task is
            # cancelled before its first step.
            self._adding.add_done_callback(self._ended)
        return False

    @property
    def in_progress(self) -> bool:
        """Whether a request is in flight."""
        return self._adding is not None

    async def settled(self) -> None:
        """Wait until no request is in flight."""
        while self._adding is not None:
            await asyncio.wait([self._adding])

    async def _add(self) -> None:
        """Add the partitions that wait, until none waits or the transaction takes no more."""
        owner = self._owner
        while self._wanted and owner.takes_partitions:
            wanted = list(self._wanted)
            try:
                await self._requests.add_partitions(
                    owner.producer, wanted, on_lost=owner.addition_lost
                )
            except KafkaError as error:
                owner.addition_refused(error)
                return
            owner.started()
            for partition in wanted:
                del self._wanted[partition]
            self._added.update(wanted)
            owner.partitions_added()

    def _ended(self, _: object) -> None:
        self._adding = None
        self._owner.partitions_added()
