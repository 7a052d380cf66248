"""Transactions: begins and ends the transactions of one producer, one after the other.

The class also decides when records are accepted and sent. Once `admits` returns True for a queue,
its batches are sent as by an idempotent producer without transactions.

    transaction_state.py        the phase of the producer, and the error that limits it
    epochs.py                   the producer id and epoch
    sent_offsets.py             offsets that are part of a transaction
    partition_additions.py      AddPartitionsToTxn, below `transaction.version` 2
    transaction_end.py          commit and abort
    transaction_requests.py     creates and sends the requests

Source: KIP-98, KIP-360, KIP-447, KIP-890, Kafka ``TransactionManager.java``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiokq.core.errors import ConfigError, KafkaError, UnknownProducerId
from aiokq.producer.transactions import refusals
from aiokq.producer.transactions.epochs import Epochs
from aiokq.producer.transactions.offset_arguments import offsets_and_member
from aiokq.producer.transactions.partition_additions import PartitionAdditions
from aiokq.producer.transactions.phases import Phase
from aiokq.producer.transactions.sent_offsets import GroupOffsets, SentOffsets
from aiokq.producer.transactions.transaction import P, Transaction, TransactionOutcome
from aiokq.producer.transactions.transaction_end import TransactionEnd
from aiokq.producer.transactions.transaction_requests import TransactionRequests
from aiokq.producer.transactions.transaction_state import TransactionState
from aiokq.records.header import EPOCH_BUMP_VERSION

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
    from aiokq.producer.idempotence import ProducerId, ProducerIdentity
    from aiokq.producer.partition_queue import PartitionQueue
    from aiokq.producer.transactions.record_delivery import RecordDelivery
    from aiokq.producer.transactions.transaction import OffsetSource
    from aiokq.producer.transactions.transaction_end import Ending
    from aiokq.producer.values import ProducerValues

__all__ = ["Transactions"]

logger = logging.getLogger("aiokq.producer")

TRANSACTION_VERSION: Final = "transaction.version"

_SENDING: Final = (Phase.OPEN, Phase.COMMITTING)
"""The phases in which batches may be sent."""

PRODUCE_WITHOUT_ADDITION: Final = 11
"""The newest version of Produce that does not add partitions to the transaction."""


class Transactions:
    """The transactions of one producer.

    Args:
        delivery: accepts, sends and fails the records of the producer.
        spawn: starts a task that belongs to the producer.
    """

    def __init__(
        self,
        settings: ProducerValues,
        engine: ClusterEngine,
        delivery: RecordDelivery,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        assert settings.transactional_id is not None
        self._engine = engine
        self._state = state = TransactionState(settings.transactional_id, delivery)
        requests = TransactionRequests(settings, engine)
        self._epochs = Epochs(state, requests, settings.max_block)
        self._additions = PartitionAdditions(requests, self, spawn)
        self._offsets = SentOffsets(
            state, self._epochs, requests, settings.max_block, self._refused, spawn
        )
        self._end = TransactionEnd(
            state,
            self._epochs,
            requests,
            self._additions,
            self._offsets,
            settings.max_block,
            spawn,
            engine.counters.transactions_ended,
        )

    async def initialize(self) -> None:
        """Request the producer id and epoch, and fence earlier producers of the transactional id.

        Raises:
            RequestTimeout: no coordinator answered within max_block_ms.
            Closed: the producer was closed during the call.
            KafkaError: the coordinator refused the request.
        """
        state = self._state
        await self._epochs.initialize()
        state.check_not_closed()
        state.move(Phase.READY)
        state.delivery.accept(refusals.outside())

    @property
    def transactional_id(self) -> str:
        """The transactional id of the producer."""
        return self._state.transactional_id

    @property
    def identity(self) -> ProducerIdentity:
        """The producer id and epoch that batches are numbered with."""
        return self._epochs.identity

    @property
    def newest_produce_version(self) -> int | None:
        """The newest version of Produce to use; None if every version may be used."""
        return None if self._state.bumps_epochs else PRODUCE_WITHOUT_ADDITION

    def need(self) -> None:
        """Do nothing, because the producer has an id from its start until it is closed."""

    async def close(self) -> None:
        """Abort the open transaction, or wait until a commit or abort in progress has ended."""
        state = self._state
        state.closed = True
        current = state.current
        if current is not None and state.phase in (Phase.OPEN, Phase.FAILED):
            logger.warning(
                "transaction is aborted, because the producer is closed: transactional_id=%s",
                self.transactional_id,
            )
            try:
                await self.end(current, committed=False)
            except KafkaError as error:
                logger.warning(
                    "transaction was not aborted and ends by its timeout: transactional_id=%s "
                    "error=%s",
                    self.transactional_id,
                    error,
                )
        else:
            await self._not_ending()

    def abandon(self) -> None:
        """Fail the calls that wait for the end of a transaction, because the producer is closed."""
        self._state.closed = True
        self._end.abandon()
        self._state.stop()

    def new_transaction(self, check_open: Callable[[], None]) -> Transaction:
        """Return a new transaction; its `__aenter__` and `send_offsets` call `check_open` first."""
        return Transaction(self, check_open)

    async def begin(self, transaction: Transaction) -> None:
        """Begin a transaction after the end of the last transaction.

        Raises:
            ConfigError: a transaction is open, or `transaction` has begun before.
            CommitOutcomeUnknown: the commit of the last transaction was not answered.
            ProducerFenced: the producer can only be closed.
            Closed: the producer was closed.
            KafkaError: the last transaction was not aborted, or a new epoch was not returned.
        """
        if transaction.has_begun:
            raise ConfigError("a transaction begins once: call producer.transaction() again")
        await self._last_ended()
        state = self._state
        state.check_usable()
        if state.phase is not Phase.READY:
            raise ConfigError(
                "a transaction is open: commit or abort it first; transactions cannot be nested"
            )
        level = self._engine.finalized_level(TRANSACTION_VERSION)
        await self._epochs.prepare(level)
        state.move(Phase.OPEN)
        transaction.has_begun = True
        state.version = level
        state.current = transaction
        self._additions.begin()
        self._end.reset()
        state.started = self._epochs.addition_lost = False
        state.cause = None
        state.delivery.accept(None)

    async def end(self, transaction: Transaction | None, *, committed: bool) -> None:
        """Commit or abort a transaction; if the call is cancelled, the commit or abort continues.

        Args:
            transaction: the transaction; None for the current one.

        Raises:
            TransactionAborted: the commit failed, and the transaction was or is being aborted; or a
                commit is called after an abort that was not answered.
            CommitOutcomeUnknown: the commit was sent, and not answered within max_block_ms; or an
                abort is called after such a commit.
            ProducerFenced, BrokerError: the producer can only be closed.
            ConfigError: no transaction is open; or a commit is called during an abort; or an abort
                is called during a commit.
            RequestTimeout: the abort was not answered within max_block_ms.
            WrongLoop: the call was made outside of the producer's event loop, or after a fork.
        """
        await self._begin_end(transaction, committed=committed)

    def _begin_end(
        self,
        transaction: Transaction | None,
        *,
        committed: bool,
        offsets: GroupOffsets | None = None,
    ) -> Ending:
        """Begin to commit or abort a transaction, or return the end in progress; see `end`."""
        self._engine.check_loop()
        state = self._state
        wanted = state.current if transaction is None else transaction
        if wanted is None or wanted is not state.current or state.is_over(committed):
            raise state.nothing_to_end()
        ending = self._end.now
        if ending is not None and state.commits is not committed:
            raise ConfigError(
                f"the transaction is being {'committed' if state.commits else 'aborted'}"
            )
        if transaction is None:
            wanted.ended_by_call = True
        if ending is None:
            ending = self._end.begin(committed, offsets)
        return ending

    def forbid_commit(self, transaction: Transaction, cause: KafkaError) -> None:
        """See `transaction.forbid_commit`."""
        if transaction is self._state.current:
            self._state.fail(cause)

    async def outcome(self, transaction: Transaction) -> TransactionOutcome:
        """See `Transaction.outcome`."""
        self._engine.check_loop()
        while (
            transaction is self._state.current
            and (ending := self._end.now) is not None
            and transaction.outcome_now in (None, TransactionOutcome.UNKNOWN)
        ):
            await ending.wait()
        if transaction.outcome_now is None:
            raise ConfigError(
                "the transaction is open: commit or abort it first"
                if transaction.has_begun
                else "the transaction has not begun"
            )
        return transaction.outcome_now

    async def send_offsets(
        self,
        transaction: Transaction,
        offsets: OffsetSource | Mapping[P, int | OffsetAndMetadata],
        group: GroupMetadata | str | None,
    ) -> None:
        """See `Transaction.send_offsets`."""
        self._state.check_open(transaction)
        wanted, member = offsets_and_member(offsets, group)
        if not wanted:
            return
        sent = self._offsets.begin(GroupOffsets(wanted, member))
        try:
            refusal = await asyncio.shield(sent)
        except asyncio.CancelledError:
            self._state.fail(KafkaError("send_offsets() was cancelled, and may have taken effect"))
            raise
        if refusal is not None:
            raise refusal from refusal.__cause__

    def commit_with_offsets(
        self,
        transaction: Transaction,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: GroupMetadata,
    ) -> Ending:
        """See `transaction.commit_with_offsets`."""
        self._state.check_open(transaction)
        return self._begin_end(
            transaction, committed=True, offsets=GroupOffsets(offsets, member) if offsets else None
        )

    async def _last_ended(self) -> None:
        """Wait for the end of the last transaction; repeat an abort that was not answered."""
        await self._not_ending()
        state = self._state
        if state.phase is Phase.UNKNOWN and not state.commits:
            state.check_not_closed()
            await self.end(state.current, committed=False)

    async def _not_ending(self) -> None:
        """Wait until no transaction is being ended."""
        while (ending := self._end.now) is not None:
            await ending.wait()

    @property
    def refusal(self) -> KafkaError | None:
        """The error that unsent batches fail with; None if batches may be sent."""
        return self._state.refusal

    def admits(self, queue: PartitionQueue) -> bool:
        """Return whether the next batch of a partition may be sent now.

        If batches must not be sent at all, the unsent batches of the queue fail soon. Below
        `transaction.version` 2, a partition that is not in the transaction yet is added, and then
        its queue is offered again.
        """
        # Hot path, once per batch; measured by benchmarks/micro/producer.py.
        state = self._state
        if state.cause is not None or state.phase not in _SENDING:
            refusal = state.refusal
            assert refusal is not None
            asyncio.get_running_loop().call_soon(queue.fail_unsent, refusal)
            return False
        if state.version >= EPOCH_BUMP_VERSION:
            state.started = True
            return True
        return self._additions.has(queue.topic_partition)

    def sequence_lost(self) -> None:
        """Record that a batch with sequence numbers of this epoch failed and may leave a gap."""
        self._epochs.need()

    def batch_refused(self) -> None:
        """Record that an attempt to send a batch failed."""
        self._offsets.may_overlap = False

    def request_answered(self) -> None:
        """If every record now has an outcome, continue the commit that waits for the records."""
        state = self._state
        if state.delivery.is_settled:
            state.advanced()

    def record_failed(self, error: KafkaError) -> None:
        """Record that a batch failed: the transaction can no longer be committed."""
        if error.may_have_been_written:
            # The batch may arrive late: a new epoch keeps it out of the next transaction.
            self._epochs.need()
        if self._state.phase in (Phase.OPEN, Phase.COMMITTING):
            self._refused("Produce", error)

    def _refused(self, api: str, error: KafkaError) -> KafkaError:
        """Process an error of an API; return the error for the caller (see `TransactionState`)."""
        if isinstance(error, UnknownProducerId):
            self._epochs.need()
        return self._state.refused(api, error)

    # `PartitionAdditions` uses the following members; see `AdditionsOwner`.

    @property
    def producer(self) -> ProducerId:
        """The current producer id and epoch."""
        return self._epochs.producer

    @property
    def takes_partitions(self) -> bool:
        return self._state.refusal is None

    def partitions_added(self) -> None:
        self._state.delivery.offer_all()
        self._state.advanced()

    def addition_refused(self, error: KafkaError) -> None:
        self._refused("AddPartitionsToTxn", error)

    def addition_lost(self) -> None:
        self._epochs.lose_addition()

    def started(self) -> None:
        self._state.started = True
