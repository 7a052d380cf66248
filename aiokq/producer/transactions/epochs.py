"""Epochs: the producer id and epoch of a transactional producer, and when it needs others.

Source: KIP-360, KIP-890, Kafka ``TransactionManager.java``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokq.core.errors import InvalidTxnState, KafkaError
from aiokq.producer.idempotence import ProducerId, ProducerIdentity
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
        max_block: seconds within which the epoch of the next transaction has to be given.

    Attributes:
        identity: the producer id and epoch that batches are numbered with.
        addition_lost: whether the coordinator may know of the transaction, because a request that
            failed may be carried out.
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
        """Whether the producer needs a new epoch before the next transaction (version below 2)."""
        self._ended_by: int | None = None
        """The version by which the last transaction ended; None before the first one."""

    @property
    def producer(self) -> ProducerId:
        """The current producer id and epoch."""
        producer = self.identity.current
        assert producer is not None, "the producer has an id from its start to its end"
        return producer

    async def initialize(self) -> None:
        """Get the producer's id and epoch, which fences earlier producers of the transactional id.

        Raises:
            KafkaError: see `TransactionRequests.initialize`.
        """
        self._take(await self._requests.initialize(None))

    def need(self) -> None:
        """Note that the next transaction needs another epoch; from version 2 on it has one."""
        self._bump = self._bump or not self._state.bumps_epochs

    def lose_addition(self) -> None:
        """Note that a request may begin a transaction after this one has ended."""
        if not self._state.bumps_epochs:
            self.addition_lost = self._bump = True

    async def prepare(self, version: int) -> None:
        """Get the epoch of the next transaction, which begins by `version`, if it needs one.

        Raises:
            KafkaError: it was refused, or not given within max_block_ms.
        """
        if version >= EPOCH_BUMP_VERSION and self._ended_by is not None:
            # A request of the last transaction may still be on its way, and would count for this
            # one: from version 2 on, it has an older epoch.
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
        """Get the next epoch, by which the broker ignores requests with the current one.

        Raises:
            KafkaError: see `CoordinatorRequests.send`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if self.addition_lost:
            # If the addition has begun a transaction, InitProducerId would abort it with an epoch
            # that nobody gets, and so fence this producer.
            try:
                await self._requests.end(
                    self.producer, committed=False, bumps=False, timeout=timeout
                )
            except InvalidTxnState:
                pass  # there is none
        left = deadline - loop.time()
        self._take(await self._requests.initialize(self.identity.current, timeout=left))
        self._bump = self.addition_lost = False

    def ended(self, after: tuple[int, int] | None) -> None:
        """Note that the coordinator ended the transaction.

        Args:
            after: the producer id and epoch that it returned; None if it returned none.
        """
        self._ended_by = self._state.version
        if after is not None:
            self._take(after)
        elif self._state.bumps_epochs:  # the coordinator answered an older version of EndTxn
            self._bump = True

    def _take(self, producer: tuple[int, int]) -> None:
        """Number batches with this producer id and epoch from now on."""
        self.identity.replace(*producer)
        self._state.delivery.restart_sequences()
