"""Transactions: the transactions of one producer, one after the other.

It decides when records are accepted and sent, and when transactions begin and end. Batches travel
as those of an idempotent producer do; `admits` lets them out. transaction_requests.py has the
requests, and refusals.py the errors.

Source: KIP-98, KIP-360, KIP-447, KIP-890, Kafka ``TransactionManager.java``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiokq.core.errors import (
    Closed,
    ConfigError,
    InvalidTxnState,
    KafkaError,
    RequestTimeout,
    UnknownProducerId,
    copy_error,
)
from aiokq.producer.idempotence import ProducerId, ProducerIdentity
from aiokq.producer.transactions import refusals
from aiokq.producer.transactions.error_kinds import ErrorKind, kind_of
from aiokq.producer.transactions.offset_arguments import offsets_and_member
from aiokq.producer.transactions.partition_additions import PartitionAdditions
from aiokq.producer.transactions.phases import MOVES, Phase
from aiokq.producer.transactions.transaction import P, Transaction, TransactionOutcome
from aiokq.producer.transactions.transaction_requests import TransactionRequests

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
    from aiokq.producer.partition_queue import PartitionQueue
    from aiokq.producer.transactions.transaction import OffsetSource
    from aiokq.producer.values import ProducerValues

__all__ = ["RecordDelivery", "Transactions"]

logger = logging.getLogger("aiokq.producer")

TRANSACTION_VERSION: Final = "transaction.version"
EPOCH_BUMP_VERSION: Final = 2
"""The level of `transaction.version` from which each end of a transaction bumps the epoch."""

PRODUCE_WITHOUT_ADDITION: Final = 11
"""The newest version of Produce that does not add partitions to the transaction."""

_DEAD_ENDS: Final = (ErrorKind.FINISHED, ErrorKind.INVALID)


class RecordDelivery(Protocol):
    """The delivery of the producer's records, as transactions control it."""

    def accept(self, refusal: KafkaError | None) -> None:
        """Accept records, or refuse them with this error, also those whose calls wait."""

    async def settle(self) -> None:
        """Wait until each accepted record is delivered or has failed, without lingering."""

    def fail_unsent(self, error: KafkaError) -> None:
        """Fail the records that are not in flight."""

    async def answered(self) -> None:
        """Wait until each record that was in a batch is delivered or has failed."""

    def offer_all(self) -> None:
        """Offer the queues that have batches to their senders."""

    def restart_sequences(self) -> None:
        """Number all batches from 0 again, because the epoch has changed."""

    def forget_failures(self) -> None:
        """Forget the failures that nobody observed, because the transaction reports them."""


class Transactions:
    """The transactions of one producer.

    Args:
        spawn: starts a task that belongs to the producer.

    Attributes:
        identity: the producer id and epoch that batches are numbered with.
        delivery: the delivery of the producer's records.
        current: the transaction that is open or being ended, else the last one.
        phase: what the producer does.
    """

    def __init__(
        self,
        settings: ProducerValues,
        engine: ClusterEngine,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        assert settings.transactional_id is not None
        self.transactional_id = settings.transactional_id
        self.phase = Phase.NEW
        self.current: Transaction | None = None
        self.delivery: RecordDelivery
        self.identity = ProducerIdentity()
        self._settings = settings
        self._engine = engine
        self._spawn = spawn
        self._requests = TransactionRequests(settings, engine)
        self._additions = PartitionAdditions(self._requests, self, spawn)
        self._version = 0
        """The level of `transaction.version` by which the current transaction began and ends."""
        self._ended_by: int | None = None
        """The version by which the last transaction ended; None before the first one."""
        self._started = False
        """Whether the coordinator knows of the transaction."""
        self._addition_lost = False
        """Whether the coordinator may know of it, because a failed request may be carried out."""
        self._cause: KafkaError | None = None
        """Why the transaction can only be aborted, or the producer only be closed."""
        self._bump = False
        """Whether the producer needs a new epoch before the next transaction (version below 2)."""
        self._ending: asyncio.Future[None] | None = None
        self._commits = False
        """Whether the last call to end the transaction was a commit."""
        self._commit_lost = False
        """Whether a request to commit the current transaction was not answered."""
        self._settling: asyncio.Task[None] | None = None
        self._sending_offsets: set[asyncio.Future[KafkaError | None]] = set()
        self._closed = False

    # -- the producer's life

    async def initialize(self) -> None:
        """Get the producer's id and epoch, which fences earlier producers of the transactional id.

        Raises:
            RequestTimeout: no coordinator answered within max_block_ms.
            KafkaError: the transactional id cannot be used.
        """
        self._take(await self._requests.initialize(None))
        self._check_not_closed()
        self._move(Phase.READY)
        self.delivery.accept(refusals.outside())

    @property
    def newest_produce_version(self) -> int | None:
        """The newest version of Produce to use; None if every version may be used."""
        return None if self._version >= EPOCH_BUMP_VERSION else PRODUCE_WITHOUT_ADDITION

    @property
    def is_finished(self) -> bool:
        """Whether the producer can only be closed."""
        return self.phase is Phase.FINISHED

    def need(self) -> None:
        """Do nothing: the producer has an id from its start to its end."""

    async def close(self) -> None:
        """Abort an open transaction, or wait for the end of one that is being ended."""
        self._closed = True
        current = self.current
        if current is not None and self.phase in (Phase.OPEN, Phase.FAILED):
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
        elif self._ending is not None:
            await asyncio.wait([self._ending])

    def abandon(self) -> None:
        """Fail everybody who waits for the end of a transaction, because the producer is closed."""
        self._closed = True
        if self._ending is not None:
            closed = Closed("the producer was closed")
            if self._commits and self.phase is Phase.COMMITTING:
                self._settle_end(TransactionOutcome.UNKNOWN, refusals.unknown(closed))
            else:
                self._settle_end(self._outcome_without_commit(), refusals.aborted(closed))
        elif self.current is not None and self.current.outcome_now is None:
            self.current.outcome_now = TransactionOutcome.ABORTED

    # -- transactions

    def new_transaction(self, check_open: Callable[[], None]) -> Transaction:
        """Return a transaction that has not begun; `check_open` raises if it cannot be used."""
        return Transaction(self, check_open)

    async def begin(self, transaction: Transaction) -> None:
        """Open a transaction; wait for the end of the one before.

        Raises:
            ConfigError: a transaction is open, or this object was used before.
            CommitOutcomeUnknown, ProducerFenced, KafkaError: the producer cannot begin another one.
        """
        if transaction.has_begun:
            raise ConfigError("a transaction begins once: call producer.transaction() again")
        await self._last_ended()
        self._check_usable()
        if self.phase is not Phase.READY:
            raise ConfigError(
                "a transaction is open: commit or abort it first; transactions cannot be nested"
            )
        level = self._engine.finalized_level(TRANSACTION_VERSION)
        if level >= EPOCH_BUMP_VERSION and self._ended_by is not None:
            # A request of the last transaction may still be on its way, and would count for this
            # one: from version 2 on, it has an older epoch.
            self._bump = self._bump or self._ended_by < EPOCH_BUMP_VERSION
        if self._bump:
            await self._begin_epoch()
        self._move(Phase.OPEN)
        transaction.has_begun = True
        self._version = level
        self.current = transaction
        self._additions.begin()
        self._started = self._addition_lost = self._commit_lost = False
        self._cause = None
        self.delivery.accept(None)

    async def end(self, transaction: Transaction | None, *, committed: bool) -> None:
        """Commit or abort; if the call is cancelled, the end goes on.

        Args:
            transaction: the transaction; None for the current one.

        Raises:
            TransactionAborted: the transaction was to be committed, and was aborted.
            CommitOutcomeUnknown: nobody answered within max_block_ms whether it is committed.
            ProducerFenced: another producer with the transactional id was started.
            ConfigError: there is no open transaction, or it is being ended in the other way.
            RequestTimeout: the abort was not answered within max_block_ms.
            WrongLoop: another event loop than the producer's, or a forked process.
        """
        self._engine.check_loop()
        wanted = self.current if transaction is None else transaction
        if wanted is None or wanted is not self.current or self._is_over(committed):
            raise ConfigError("there is no open transaction: begin one first")
        ending = self._ending
        if ending is not None and self._commits is not committed:
            raise ConfigError(
                f"the transaction is being {'committed' if self._commits else 'aborted'}"
            )
        if transaction is None:
            wanted.ended_by_call = True
        if ending is None:
            ending = self._begin_end(committed)
        try:
            await asyncio.shield(ending)
        except KafkaError as error:
            raise copy_error(error) from error.__cause__

    def forbid_commit(self, transaction: Transaction, cause: KafkaError) -> None:
        """See `transaction.forbid_commit`."""
        if transaction is self.current:
            self._fail(cause)

    async def outcome(self, transaction: Transaction) -> TransactionOutcome:
        """See `Transaction.outcome`."""
        self._engine.check_loop()
        if transaction is self.current and self._ending is not None:
            await asyncio.wait([self._ending])
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
        self._check_open(transaction)
        wanted, member = offsets_and_member(offsets, group)
        if not wanted:
            return
        sent: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        task = self._spawn(self._commit_offsets(wanted, member, sent), "offsets of a transaction")
        self._sending_offsets.add(sent)

        def ended(_: object) -> None:
            self._sending_offsets.discard(sent)
            if not sent.done():  # the task was cancelled, possibly before its first step
                sent.set_result(Closed("the producer was closed"))

        task.add_done_callback(ended)
        try:
            refusal = await asyncio.shield(sent)
        except asyncio.CancelledError:
            self._fail(KafkaError("send_offsets() was cancelled, and may have taken effect"))
            raise
        if refusal is not None:
            raise refusal from refusal.__cause__

    # -- records, called by the queues

    @property
    def refusal(self) -> KafkaError | None:
        """The error with which batches that are not sent yet fail; None if they may be sent."""
        # hot: once per batch, benchmarks/micro/producer.py
        if self._cause is None and (self.phase is Phase.OPEN or self.phase is Phase.COMMITTING):
            return None
        if self.is_finished:
            assert self._cause is not None
            return refusals.finished(self._cause, self.transactional_id)
        return refusals.aborted(self._cause)

    def admits(self, queue: PartitionQueue) -> bool:
        """Return whether the next batch of a partition may be sent now.

        A batch that may never be sent fails soon. A partition that the coordinator does not know
        yet is added to the transaction, and its queue is offered again.
        """
        # hot: once per batch, benchmarks/micro/producer.py
        refusal = self.refusal
        if refusal is not None:
            asyncio.get_running_loop().call_soon(queue.fail_unsent, refusal)
            return False
        if self._version >= EPOCH_BUMP_VERSION:
            self._started = True
            return True
        return self._additions.has(queue.topic_partition)

    def sequence_lost(self) -> None:
        """Note that a batch with sequence numbers of this epoch failed, so that they have a gap."""
        self._need_epoch()

    def record_failed(self, error: KafkaError) -> None:
        """Note that records of the transaction failed, so that it cannot be committed."""
        if error.may_have_been_written:
            # The batch may arrive late: a new epoch keeps it out of the next transaction.
            self._need_epoch()
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            self._refused("Produce", error)

    # -- AdditionsOwner

    @property
    def producer(self) -> ProducerId:
        """The current producer id and epoch."""
        producer = self.identity.current
        assert producer is not None, "the producer has an id from its start to its end"
        return producer

    @property
    def takes_partitions(self) -> bool:
        return self.refusal is None

    def partitions_added(self) -> None:
        self.delivery.offer_all()

    def addition_refused(self, error: KafkaError) -> None:
        self._refused("AddPartitionsToTxn", error)

    def addition_lost(self) -> None:
        """Note that a request may begin a transaction after this one has ended."""
        if self._version < EPOCH_BUMP_VERSION:
            self._addition_lost = self._bump = True

    def started(self) -> None:
        self._started = True

    # -- offsets

    async def _commit_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        member: GroupMetadata,
        sent: asyncio.Future[KafkaError | None],
    ) -> None:
        adds = self._version >= EPOCH_BUMP_VERSION
        self._started = self._started or adds
        try:
            if not adds:
                await self._requests.add_offsets(
                    self.producer, member.group_id, on_lost=self.addition_lost
                )
                self._started = True
            await self._requests.commit_offsets(
                self.producer, offsets, member, adds=adds, on_lost=self.addition_lost
            )
        except KafkaError as error:
            sent.set_result(self._refused("TxnOffsetCommit", error))
        else:
            sent.set_result(None)

    # -- errors

    def _refused(self, api: str, error: KafkaError) -> KafkaError:
        """Enter the phase that follows an error; return the error for the caller."""
        if isinstance(error, UnknownProducerId):
            self._need_epoch()
        if kind_of(api, error) in _DEAD_ENDS:
            return self._finish(error)
        self._fail(error)
        return refusals.aborted(self._cause)

    def _fail(self, cause: KafkaError) -> None:
        """Note why the transaction can only be aborted."""
        if self.phase not in (Phase.OPEN, Phase.FAILED, Phase.COMMITTING, Phase.ABORTING):
            return
        if self._cause is None:
            self._cause = cause
        if self.phase is Phase.OPEN:
            self._move(Phase.FAILED)
            self.delivery.accept(refusals.aborted(self._cause))
        self._fail_unsent_soon()

    def _finish(self, cause: KafkaError) -> KafkaError:
        """Note why the producer can only be closed; return the error for whoever calls it."""
        if not self.is_finished:
            self._cause = cause
            self._move(Phase.FINISHED)
            self.delivery.accept(refusals.finished(cause, self.transactional_id))
            self._fail_unsent_soon()
            logger.error(
                "transactional producer cannot go on: transactional_id=%s error=%s",
                self.transactional_id,
                cause,
            )
        assert self._cause is not None
        return refusals.finished(self._cause, self.transactional_id)

    def _fail_unsent_soon(self) -> None:
        """Fail the records that will not be sent, and end the wait for them.

        Not at once, because a queue may be reporting the failure of a batch.
        """
        transaction = self.current

        def fail() -> None:
            if self.current is transaction and (refusal := self.refusal) is not None:
                self.delivery.fail_unsent(refusal)
                if self._settling is not None:
                    self._settling.cancel()

        asyncio.get_running_loop().call_soon(fail)

    def _need_epoch(self) -> None:
        """Note that the next transaction needs another epoch; from version 2 on it has one."""
        self._bump = self._bump or self._version < EPOCH_BUMP_VERSION

    def _check_not_closed(self) -> None:
        if self._closed:
            raise Closed("this producer is closed: create a new one")

    def _check_usable(self) -> None:
        self._check_not_closed()
        if self.phase is Phase.FINISHED:
            assert self._cause is not None
            raise refusals.finished(self._cause, self.transactional_id)
        if self.phase is Phase.UNKNOWN:
            assert self._cause is not None
            refused = refusals.unknown if self._commits else refusals.not_aborted_yet
            raise refused(self._cause)

    def _check_open(self, transaction: Transaction) -> None:
        self._check_usable()
        if transaction is not self.current:
            raise ConfigError("the transaction is not open")
        if self.phase is Phase.FAILED:
            raise refusals.aborted(self._cause)
        if self.phase is not Phase.OPEN:
            raise ConfigError("the transaction is not open")

    def _is_over(self, committed: bool) -> bool:
        """Whether the current transaction cannot be ended in this way any more."""
        if self.phase is Phase.FINISHED:
            return self.current is None or self.current.outcome_now is not None
        if self.phase is Phase.UNKNOWN:
            return self._commits is not committed
        return self.phase in (Phase.NEW, Phase.READY, Phase.BEGINNING)

    # -- the end of a transaction

    def _begin_end(self, committed: bool) -> asyncio.Future[None]:
        self._commits = committed
        if self.phase is not Phase.FINISHED:  # else only the batches in flight are waited for
            if self.phase is Phase.UNKNOWN and committed:
                self._cause = None  # it was that nobody answered
            # A transaction that failed is aborted, and whoever wanted to commit it gets the reason.
            commit = committed and self.phase is not Phase.FAILED
            self._move(Phase.COMMITTING if commit else Phase.ABORTING)
            self.delivery.accept(refusals.being_ended(commits=committed))
        ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ending = ending
        try:
            self._spawn(self._run_end(), f"end transaction {self.transactional_id}")
        except BaseException:
            self._ending = None
            raise
        return ending

    async def _run_end(self) -> None:
        """End the transaction, and tell whoever waits."""
        try:
            outcome, error = await self._end()
        except BaseException as bug:
            if self._ending is not None:
                cause = Closed(f"the producer failed: {bug!r}")
                self._settle_end(TransactionOutcome.UNKNOWN, refusals.unknown(cause))
            raise
        if self._ending is not None:
            self._settle_end(outcome, error)

    def _settle_end(self, outcome: TransactionOutcome, error: KafkaError | None) -> None:
        ending, self._ending = self._ending, None
        assert ending is not None
        assert self.current is not None
        self.current.outcome_now = outcome
        if self.phase is Phase.READY:
            self.delivery.accept(refusals.outside())
        elif self.phase is Phase.UNKNOWN:
            assert self._cause is not None
            refused = refusals.unknown if self._commits else refusals.not_aborted_yet
            self.delivery.accept(refused(self._cause))
        self.delivery.forget_failures()
        if error is None:
            ending.set_result(None)
        else:
            ending.set_exception(error)
            ending.exception()  # mark as retrieved: the callers may have been cancelled

    async def _last_ended(self) -> None:
        """Wait for the end of the last transaction; abort it again if that was not answered."""
        while self._ending is not None:
            await asyncio.wait([self._ending])
        if self.phase is Phase.UNKNOWN and not self._commits:
            self._check_not_closed()
            await self.end(self.current, committed=False)

    async def _end(self) -> tuple[TransactionOutcome, KafkaError | None]:
        """Return how the transaction ended, and the error for whoever wanted to end it."""
        if self.phase is Phase.COMMITTING:
            if self._sending_offsets:
                await asyncio.wait(self._sending_offsets)
            await self._settle()
            await self._additions.settled()
            if self._cause is None:
                return await self._commit()
            if self.phase is Phase.COMMITTING:
                self._move(Phase.ABORTING)
        return await self._abort()

    async def _settle(self) -> None:
        """Deliver the records, or return early if one of them fails."""
        if self._cause is not None:
            return
        self._settling = self._spawn(self.delivery.settle(), "deliver the records")
        settling = self._settling
        try:
            await asyncio.wait([settling])
        finally:
            settling.cancel()
            self._settling = None
        if not settling.cancelled():
            settling.result()

    async def _commit(self) -> tuple[TransactionOutcome, KafkaError | None]:
        try:
            await self._request_end(committed=True, timeout=self._settings.max_block)
        except KafkaError as error:
            if self._cause is not None and not self._commit_lost:  # `forbid_commit`
                self._move(Phase.ABORTING)
                return await self._abort()
            kind = kind_of("EndTxn", error)
            if kind is ErrorKind.ABORT:
                self._cause = error
                self._move(Phase.ABORTING)
                return await self._abort()
            if kind not in _DEAD_ENDS:
                self._cause = error
                self._move(Phase.UNKNOWN)
                return TransactionOutcome.UNKNOWN, refusals.unknown(error)
            finished = self._finish(error)
            if self._commit_lost:  # the request that was not answered may have committed
                return TransactionOutcome.UNKNOWN, refusals.unknown(error)
            return TransactionOutcome.ABORTED, finished
        self._move(Phase.READY)
        return TransactionOutcome.COMMITTED, None

    async def _abort(self) -> tuple[TransactionOutcome, KafkaError | None]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.max_block
        refusal = refusals.aborted(self._cause)
        try:
            # A batch in flight must not reach the broker behind the abort.
            async with asyncio.timeout_at(deadline):
                if not self.is_finished:
                    self.delivery.fail_unsent(refusal)
                if self._sending_offsets:
                    await asyncio.wait(self._sending_offsets)
                await self.delivery.answered()
                await self._additions.settled()
            if not self.is_finished:
                await self._request_end(committed=False, timeout=deadline - loop.time())
        except (KafkaError, TimeoutError) as failure:
            error = failure
            if not isinstance(error, KafkaError):
                error = RequestTimeout("records in flight were not answered within max_block_ms")
            # Java: an abort that is refused with an abortable error is fatal.
            if kind_of("EndTxn", error) in (*_DEAD_ENDS, ErrorKind.ABORT):
                self._finish(error)
            elif not self.is_finished:
                self._cause = self._cause or error
                self._commits = False
                self._move(Phase.UNKNOWN)
                return self._outcome_without_commit(), error
        if self.is_finished:
            assert self._cause is not None
            if self._commit_lost:
                return TransactionOutcome.UNKNOWN, refusals.unknown(self._cause)
            finished = refusals.finished(self._cause, self.transactional_id)
            return TransactionOutcome.ABORTED, finished
        self._move(Phase.READY)
        return TransactionOutcome.ABORTED, refusal if self._commits else None

    def _outcome_without_commit(self) -> TransactionOutcome:
        """Return the outcome of a transaction that will not be committed from now on."""
        return TransactionOutcome.UNKNOWN if self._commit_lost else TransactionOutcome.ABORTED

    async def _request_end(self, *, committed: bool, timeout: float) -> None:
        """End the transaction at the coordinator, if it may know of it; take over its epoch.

        Raises:
            KafkaError: see `CoordinatorRequests.send`.
        """
        if self._started:
            bumps = self._version >= EPOCH_BUMP_VERSION
            after = await self._requests.end(
                self.producer,
                committed=committed,
                bumps=bumps,
                timeout=timeout,
                on_lost=self._end_lost,
                attempting=self._check_attempt,
            )
            self._ended_by = self._version
            if after is not None:
                self._take(after)
            elif bumps:  # the coordinator answered an older version of EndTxn
                self._bump = True
        elif self._addition_lost:
            await self._bump_epoch(timeout)

    def _check_attempt(self) -> None:
        """Check that EndTxn may be sent now.

        Raises:
            TransactionAborted: the commit was forbidden before the coordinator could know of it.
        """
        if self.phase is Phase.COMMITTING and self._cause is not None and not self._commit_lost:
            raise refusals.aborted(self._cause)

    def _end_lost(self) -> None:
        """Note that EndTxn may have been carried out although that was not answered."""
        self._commit_lost = self._commit_lost or self.phase is Phase.COMMITTING
        # Below version 2, the request may arrive late and end the next transaction.
        self._need_epoch()

    async def _begin_epoch(self) -> None:
        """Get the epoch of the next transaction.

        Raises:
            KafkaError: it was refused, or not given within max_block_ms.
        """
        self._move(Phase.BEGINNING)
        try:
            await self._bump_epoch(self._settings.max_block)
        except KafkaError as error:
            if kind_of("InitProducerId", error) in _DEAD_ENDS:
                raise self._finish(error) from error
            raise
        finally:
            if self.phase is Phase.BEGINNING:
                self._move(Phase.READY)
        self._check_not_closed()

    async def _bump_epoch(self, timeout: float) -> None:
        """Get the next epoch, by which the broker ignores requests with the current one.

        Raises:
            KafkaError: see `CoordinatorRequests.send`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if self._addition_lost:
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
        self._bump = self._addition_lost = False

    def _take(self, producer: tuple[int, int]) -> None:
        """Number batches with this producer id and epoch from now on."""
        self.identity.replace(*producer)
        self.delivery.restart_sequences()

    def _move(self, to: Phase) -> None:
        assert to in MOVES[self.phase], f"{self.phase.name} to {to.name}"
        self.phase = to
