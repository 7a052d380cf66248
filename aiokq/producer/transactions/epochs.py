"""Epochs: requests the producer id and the epochs of a transactional producer.

Source: KIP-360, KIP-890, Kafka ``TransactionManager.java``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokq.core.errors import InvalidTxnState, KafkaError
from aiokq.producer.idempotence import ProducerId, ProducerIdentity
from aiokq.producer.transactions import refusals
from aiokq.producer.transactions.error_kinds import kind_of
from aiokq.producer.transactions.phases import Phase
from aiokq.producer.transactions.transaction_state import DEAD_ENDS
from aiokq.records.header import EPOCH_BUMP_VERSION

if TYPE_CHECKING:
    from aiokq.producer.transactions.transaction_requests import TransactionRequests
    from aiokq.producer.transactions.transaction_state import TransactionState

__all__ = ["Epochs"]


class Epochs:
    """The producer id and epoch of one producer.

    Args:
        max_block: seconds that `prepare` may take.

    Attributes:
        identity: the producer id and epoch that batches are numbered with.
        addition_lost: whether a failed request may have added partitions or offsets to the
            transaction, or may still add them.
    """

    def __init__(
        self, state: TransactionState, requests: TransactionRequests, max_block: float
    ) -> None:
        self._state = state
        self._requests = requests
        self._max_block = max_block
        self.identity = ProducerIdentity()
        self.addition_lost = False
        self._bump = False
        """Whether the producer has to request a new epoch before the next transaction."""
        self._ended_by: int | None = None
        """The `transaction.version` of the last ended transaction; None before the first end."""

    @property
    def producer(self) -> ProducerId:
        """The current producer id and epoch."""
        producer = self.identity.current
        assert producer is not None, "the producer has an id from its start to its end"
        return producer

    async def initialize(self) -> None:
        """Request the producer id and epoch, and fence earlier producers of the transactional id.

        Raises:
            KafkaError: see `TransactionRequests.initialize`.
        """
        try:
            found = await self._requests.initialize(None)
        except KafkaError as error:
            raise refusals.not_started(error) from error
        self._take(found)

    def need(self) -> None:
        """Record that a new epoch has to be requested before the next transaction.

        From `transaction.version` 2 on, the call does nothing: each end of a transaction bumps the
        epoch.
        """
        self._bump = self._bump or not self._state.bumps_epochs

    def lose_addition(self) -> None:
        """Record that a failed request may still add partitions or offsets to the transaction.

        If the coordinator carries out the request after the end of the transaction, another
        transaction begins. From `transaction.version` 2 on, the call does nothing, because late
        requests have an older epoch.
        """
        if not self._state.bumps_epochs:
            self.addition_lost = self._bump = True

    async def prepare(self, version: int) -> None:
        """Request a new epoch, if the next transaction needs a new epoch.

        Args:
            version: the `transaction.version` of the next transaction.

        Raises:
            Closed: the producer was closed.
            KafkaError: the request was refused, or not answered within max_block_ms.
        """
        if version >= EPOCH_BUMP_VERSION and self._ended_by is not None:
            # A late request of the last transaction must not count for the next transaction, so it
            # must have an older epoch. If the last transaction used `transaction.version` 0 or 1,
            # its end did not bump the epoch, so a new epoch has to be requested.
            self._bump = self._bump or self._ended_by < EPOCH_BUMP_VERSION
        if not self._bump:
            return
        state = self._state
        state.move(Phase.BEGINNING)
        try:
            await self.bump(self._max_block)
        except KafkaError as error:
            if kind_of("InitProducerId", error) in DEAD_ENDS:
                raise state.finish(error) from error
            raise
        finally:
            if state.phase is Phase.BEGINNING:
                state.move(Phase.READY)
        state.check_not_closed()

    async def bump(self, timeout: float) -> None:
        """Request the next epoch; after that, brokers refuse requests with the previous epoch.

        Raises:
            KafkaError: see `CoordinatorRequests.send`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if self.addition_lost:
            # The lost request may have begun a transaction. InitProducerId would bump the epoch to
            # abort that transaction, but would not return the new epoch, and would thus fence this
            # producer. Therefore EndTxn ends the transaction first. If the lost request arrives
            # between EndTxn and InitProducerId, this producer is fenced nevertheless, as Java's
            # producer is. If no addition was acknowledged, Java's producer sends InitProducerId
            # without EndTxn, and is fenced whenever the lost request has arrived.
            try:
                await self._requests.end(
                    self.producer, committed=False, bumps=False, timeout=timeout
                )
            except InvalidTxnState:
                pass  # no transaction has begun
        left = deadline - loop.time()
        self._take(await self._requests.initialize(self.identity.current, timeout=left))
        self._bump = self.addition_lost = False

    def ended(self, after: tuple[int, int] | None) -> None:
        """Record that the coordinator ended the transaction.

        Args:
            after: the producer id and epoch in the response of EndTxn; None if the response
                contains no producer id, or if `transaction.version` is below 2.
        """
        self._ended_by = self._state.version
        if after is not None:
            self._take(after)
        elif self._state.bumps_epochs:  # the coordinator used an older version of EndTxn
            self._bump = True

    def _take(self, producer: tuple[int, int]) -> None:
        """Use this producer id and epoch from now on, with sequence numbers from 0."""
        self.identity.replace(*producer)
        self._state.delivery.restart_sequences()
