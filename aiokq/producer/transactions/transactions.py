"""Transactions: the transactions of one producer, one after the other.

It decides when records are accepted and sent, and sends the requests that begin, extend and end
transactions. Batches travel as those of an idempotent producer do; `admits` lets them out.

Source: KIP-98, KIP-360, KIP-447, KIP-890, Kafka ``TransactionManager.java``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from aiokq.cluster.partition_arguments import checked_offsets
from aiokq.core.errors import (
    Closed,
    CommitOutcomeUnknown,
    ConfigError,
    KafkaError,
    ProducerFenced,
    RequestTimeout,
    TransactionAborted,
    copy_error,
)
from aiokq.core.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokq.producer.idempotence import ProducerIdentity
from aiokq.producer.transactions.error_kinds import ErrorKind, kind_of
from aiokq.producer.transactions.phases import MOVES, Phase
from aiokq.producer.transactions.transaction import P, Transaction, TransactionOutcome
from aiokq.producer.transactions.transaction_requests import TransactionRequests

if TYPE_CHECKING:
    from aiokq.cluster.engine import ClusterEngine
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

NEXT_STEPS: Final = "create a new producer, and read the committed offsets before it writes"


_SENDING: Final = frozenset({Phase.OPEN, Phase.COMMITTING})
"""The phases in which batches are sent."""


class RecordDelivery(Protocol):
    """The delivery of the producer's records, as transactions control it."""

    def accept(self, refusal: KafkaError | None) -> None:
        """Accept records, or refuse them with this error."""

    async def settle(self) -> None:
        """Wait until each accepted record is delivered or has failed, without lingering."""

    def fail_unsent(self, error: KafkaError) -> None:
        """Fail the records that are not in flight."""

    async def answered(self) -> None:
        """Wait until each accepted record is delivered or has failed."""

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
        self._settings = settings
        self._engine = engine
        self.identity = ProducerIdentity()
        self._spawn = spawn
        self._requests = TransactionRequests(settings, engine)
        self._version = 0
        self._ended_by: int | None = None
        """The version by which the last transaction ended; None before the first one."""
        self._added: set[TopicPartition] = set()
        self._to_add: dict[TopicPartition, None] = {}
        self._adding: asyncio.Task[None] | None = None
        self._started = False
        """Whether the coordinator may know of the transaction."""
        self._cause: KafkaError | None = None
        """Why the transaction can only be aborted, or the producer only be closed."""
        self._bump = False
        """Whether the producer needs a new epoch before the next transaction (version below 2)."""
        self._ending: asyncio.Future[None] | None = None
        self._commits = False
        self._commit_lost = False
        """Whether a request to commit the current transaction was not answered."""
        self._sending_offsets: set[asyncio.Future[None]] = set()

    # -- the producer's life

    async def initialize(self) -> None:
        """Get the producer's id and epoch, which fences earlier producers of the transactional id.

        Raises:
            RequestTimeout: no coordinator answered within max_block_ms.
            KafkaError: the transactional id cannot be used.
        """
        self._take(await self._requests.initialize(None))
        self._move(Phase.READY)
        self.delivery.accept(self._outside())

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
        current = self.current
        if current is not None and self.phase in (Phase.OPEN, Phase.FAILED):
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
        if self._ending is not None and not self._ending.done():
            self._settle_end(
                TransactionOutcome.UNKNOWN if self._commits else TransactionOutcome.ABORTED,
                self._unknown(Closed("the producer was closed")) if self._commits else None,
            )

    # -- transactions

    async def begin(self, transaction: Transaction) -> None:
        """Open a transaction; wait for the end of the one before.

        Raises:
            ConfigError: a transaction is open.
            CommitOutcomeUnknown, ProducerFenced, KafkaError: the producer cannot begin another one.
        """
        while self._ending is not None:
            await asyncio.wait([self._ending])
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
            await self._bump_epoch()
        self._move(Phase.OPEN)
        self._version = level
        self.current = transaction
        self._added.clear()
        self._to_add.clear()
        self._started = self._commit_lost = False
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
        """
        transaction = self.current if transaction is None else transaction
        if transaction is None or transaction is not self.current or self._is_over(committed):
            raise ConfigError("there is no open transaction: begin one first")
        ending = self._ending
        if ending is None:
            ending = self._begin_end(transaction, committed)
        elif self._commits is not committed:
            raise ConfigError(
                f"the transaction is being {'committed' if self._commits else 'aborted'}"
            )
        try:
            await asyncio.shield(ending)
        except KafkaError as error:
            raise copy_error(error) from error.__cause__

    def _is_over(self, committed: bool) -> bool:
        """Whether the current transaction cannot be ended in this way any more."""
        if self.phase is Phase.FINISHED:
            return self.current is None or self.current.outcome_now is not None
        if self.phase is Phase.UNKNOWN:
            return self._commits is not committed
        return self.phase in (Phase.NEW, Phase.READY)

    async def outcome(self, transaction: Transaction) -> TransactionOutcome:
        """See `Transaction.outcome`."""
        if transaction is self.current and self._ending is not None:
            await asyncio.wait([self._ending])
        if transaction.outcome_now is None:
            raise ConfigError("the transaction is open: commit or abort it first")
        return transaction.outcome_now

    async def send_offsets(
        self,
        transaction: Transaction,
        offsets: OffsetSource | Mapping[P, int | OffsetAndMetadata],
        group: GroupMetadata | str | None,
    ) -> None:
        """See `Transaction.send_offsets`."""
        self._check_open(transaction)
        wanted, member = _offsets_and_member(offsets, group)
        if not wanted:
            return
        self._started = self._started or self._version >= EPOCH_BUMP_VERSION
        sending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sending_offsets.add(sending)
        producer = self.identity.current
        assert producer is not None
        try:
            if self._version < EPOCH_BUMP_VERSION:
                await self._requests.add_offsets(producer, member.group_id)
                self._started = True
            await self._requests.commit_offsets(
                producer, wanted, member, adds=self._version >= EPOCH_BUMP_VERSION
            )
        except KafkaError as error:
            raise self._refused(error.api or "TxnOffsetCommit", error) from error
        except BaseException:
            self._fail(KafkaError("send_offsets() was cancelled, and may have taken effect"))
            raise
        finally:
            self._sending_offsets.discard(sending)
            sending.set_result(None)

    # -- records

    def admits(self, queue: PartitionQueue) -> bool:
        """Return whether the next batch of a partition may be sent now.

        A batch that may never be sent fails soon. A partition that the coordinator does not know
        yet is added to the transaction, and its queue is offered again.
        """
        # hot: once per batch, benchmarks/micro/producer.py
        if self._cause is not None or self.phase not in _SENDING:
            error = self._aborted()
            asyncio.get_running_loop().call_soon(queue.fail_unsent, error)
            return False
        if self._version >= EPOCH_BUMP_VERSION:
            self._started = True
            return True
        tp = queue.topic_partition
        if tp in self._added:
            return True
        self._to_add[tp] = None
        if self._adding is None:
            self._adding = self._spawn(self._add_partitions(), "add partitions to transaction")
        return False

    def record_failed(self, error: KafkaError) -> None:
        """Note that records of the transaction failed, so that it cannot be committed."""
        if self.phase in (Phase.OPEN, Phase.COMMITTING):
            self._refused("Produce", error)

    async def _add_partitions(self) -> None:
        """Add the partitions that have batches, until there are no more."""
        try:
            while self._to_add and self.phase in (Phase.OPEN, Phase.COMMITTING):
                wanted = list(self._to_add)
                producer = self.identity.current
                assert producer is not None
                try:
                    await self._requests.add_partitions(producer, wanted)
                except KafkaError as error:
                    self._started = self._started or error.may_have_been_written
                    self._refused("AddPartitionsToTxn", error)
                    return
                self._started = True
                for tp in wanted:
                    del self._to_add[tp]
                self._added.update(wanted)
                self.delivery.offer_all()
        finally:
            self._adding = None
            self.delivery.offer_all()

    # -- errors

    def _refused(self, api: str, error: KafkaError) -> KafkaError:
        """Enter the phase that follows an error; return the error for the caller."""
        kind = kind_of(api, error)
        if kind in (ErrorKind.FINISHED, ErrorKind.INVALID):
            self._finish(error)
            return self._finished()
        self._fail(error)
        return self._aborted()

    def _fail(self, cause: KafkaError) -> None:
        """Note why the transaction can only be aborted."""
        if self._cause is None:
            self._cause = cause
        self._bump = self._bump or self._version < EPOCH_BUMP_VERSION
        if self.phase is Phase.OPEN:
            self._move(Phase.FAILED)
            self.delivery.accept(self._aborted())
            self.delivery.offer_all()  # the records that were not sent fail

    def _finish(self, cause: KafkaError) -> None:
        """Note why the producer can only be closed."""
        if self.phase is Phase.FINISHED:
            return
        self._cause = cause
        self._move(Phase.FINISHED)
        self.delivery.accept(self._finished())
        self.delivery.fail_unsent(self._finished())
        logger.error(
            "transactional producer cannot go on: transactional_id=%s error=%s",
            self.transactional_id,
            cause,
        )

    def _aborted(self) -> TransactionAborted:
        if self.phase is Phase.FINISHED:
            error = TransactionAborted(f"the producer cannot go on: {self._cause}; {NEXT_STEPS}")
        elif self._cause is None:
            error = TransactionAborted("the transaction was aborted; begin another one")
        else:
            error = TransactionAborted(
                f"the transaction cannot be committed: {self._cause}; abort it, and begin another"
                " one"
            )
        error.__cause__ = self._cause
        return error

    def _finished(self) -> KafkaError:
        cause = self._cause
        assert cause is not None
        if getattr(cause, "code", 0) in (47, 49, 90):
            error: KafkaError = ProducerFenced(
                f"another producer with the transactional id {self.transactional_id!r} was "
                f"started, or its id has expired: {NEXT_STEPS}"
            )
            error.__cause__ = cause
            return error
        return copy_error(cause)

    def _unknown(self, cause: KafkaError) -> CommitOutcomeUnknown:
        error = CommitOutcomeUnknown(
            "nobody answered whether the transaction was committed: commit it again, or close this "
            f"producer, {NEXT_STEPS[:1].lower()}{NEXT_STEPS[1:]}"
        )
        error.__cause__ = cause
        return error

    @staticmethod
    def _outside() -> ConfigError:
        return ConfigError(
            "no transaction is open: send records inside `async with producer.transaction()`"
        )

    def _check_usable(self) -> None:
        if self.phase is Phase.FINISHED:
            raise self._finished()
        if self.phase is Phase.UNKNOWN:
            assert self._cause is not None
            if self._commits:
                raise self._unknown(self._cause)
            raise RequestTimeout("the last transaction is not aborted yet: abort it again")

    def _check_open(self, transaction: Transaction) -> None:
        self._check_usable()
        if self.phase is Phase.FAILED:
            raise self._aborted()
        if self.phase is not Phase.OPEN or transaction is not self.current:
            raise ConfigError("the transaction is not open")

    # -- the end of a transaction

    def _begin_end(self, transaction: Transaction, committed: bool) -> asyncio.Future[None]:
        if self.phase is Phase.FINISHED:
            transaction.outcome_now = TransactionOutcome.ABORTED
            raise self._finished()
        self._commits = committed
        if self.phase is Phase.UNKNOWN and committed:
            self._cause = None  # the timeout of the last attempt
        # A transaction that failed is aborted, and whoever wanted to commit it gets the reason.
        commit = committed and self.phase is not Phase.FAILED
        self._move(Phase.COMMITTING if commit else Phase.ABORTING)
        verb = "committed" if committed else "aborted"
        self.delivery.accept(ConfigError(f"the transaction is being {verb}: begin another one"))
        ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ending = ending
        try:
            self._spawn(self._run_end(transaction), f"end transaction {self.transactional_id}")
        except BaseException:
            self._ending = None
            raise
        return ending

    async def _run_end(self, transaction: Transaction) -> None:
        """End the transaction, and tell whoever waits."""
        try:
            outcome, error = await self._end(transaction)
        except BaseException as bug:
            ending = self._ending
            if ending is not None and not ending.done():
                self._settle_end(
                    TransactionOutcome.UNKNOWN,
                    self._unknown(Closed(f"the producer failed: {bug!r}")),
                )
            raise
        self._settle_end(outcome, error)

    def _settle_end(self, outcome: TransactionOutcome, error: KafkaError | None) -> None:
        ending, self._ending = self._ending, None
        assert ending is not None
        assert self.current is not None
        self.current.outcome_now = outcome
        if self.phase is Phase.READY:
            self.delivery.accept(self._outside())
        self.delivery.forget_failures()
        if error is None:
            ending.set_result(None)
        else:
            ending.set_exception(error)
            ending.exception()  # mark as retrieved: the callers may have been cancelled

    async def _end(self, transaction: Transaction) -> tuple[TransactionOutcome, KafkaError | None]:
        """Return how the transaction ended, and the error for whoever wanted to end it."""
        if self._sending_offsets:
            await asyncio.wait(self._sending_offsets)
        if self.phase is Phase.COMMITTING:
            await self.delivery.settle()
            await self._added_all()
            if self._cause is None:
                return await self._commit()
            if self.phase is Phase.COMMITTING:
                self._move(Phase.ABORTING)
        return await self._abort()

    async def _added_all(self) -> None:
        """Wait until no partition is being added."""
        while self._adding is not None:
            await asyncio.wait([self._adding])

    async def _commit(self) -> tuple[TransactionOutcome, KafkaError | None]:
        try:
            await self._request_end(committed=True)
        except KafkaError as error:
            kind = kind_of("EndTxn", error)
            if kind is ErrorKind.ABORT:
                self._cause = error
                self._move(Phase.ABORTING)
                return await self._abort()
            if kind in (ErrorKind.RETRY, ErrorKind.FIND):
                self._cause = error
                self._move(Phase.UNKNOWN)
                return TransactionOutcome.UNKNOWN, self._unknown(error)
            self._finish(error)
            if self._commit_lost:  # the request that was not answered may have committed
                return TransactionOutcome.UNKNOWN, self._unknown(error)
            return TransactionOutcome.ABORTED, self._finished()
        self._move(Phase.READY)
        return TransactionOutcome.COMMITTED, None

    async def _abort(self) -> tuple[TransactionOutcome, KafkaError | None]:
        if self.is_finished:
            return TransactionOutcome.ABORTED, self._finished()
        aborted = self._aborted()
        self.delivery.fail_unsent(aborted)
        try:
            # A batch in flight must not reach the broker behind the abort.
            async with asyncio.timeout(self._settings.max_block):
                await self.delivery.answered()
                await self._added_all()
            if self.is_finished:
                return TransactionOutcome.ABORTED, self._finished()
            await self._request_end(committed=False)
        except (KafkaError, TimeoutError) as failure:
            error = failure
            if not isinstance(error, KafkaError):
                error = RequestTimeout(
                    "records in flight were not answered within max_block_ms", origin="client"
                )
            kind = kind_of("EndTxn", error)
            if kind in (ErrorKind.FINISHED, ErrorKind.INVALID):
                self._finish(error)
                return TransactionOutcome.ABORTED, self._finished()
            self._cause = self._cause or error
            self._commits = False
            self._move(Phase.UNKNOWN)
            return TransactionOutcome.ABORTED, error
        self._move(Phase.READY)
        return TransactionOutcome.ABORTED, aborted if self._commits else None

    async def _request_end(self, *, committed: bool) -> None:
        """Send EndTxn if the coordinator may know of the transaction; take over the next epoch.

        Raises:
            KafkaError: see `CoordinatorRequests.send`.
        """
        if self._started:
            producer = self.identity.current
            assert producer is not None
            bumps = self._version >= EPOCH_BUMP_VERSION
            after = await self._requests.end(
                producer, committed=committed, bumps=bumps, on_lost=self._lost
            )
            self._ended_by = self._version
            if after is not None:
                self._take(after)
        if self._bump:
            try:
                await self._bump_epoch()
            except KafkaError as error:
                # The transaction has ended; the next one begins with another try.
                if kind_of("InitProducerId", error) in (ErrorKind.FINISHED, ErrorKind.INVALID):
                    self._finish(error)
                logger.debug("epoch is bumped later: error=%s", error)

    def _lost(self) -> None:
        """Note that EndTxn may have been carried out although nothing was answered."""
        self._commit_lost = self._commit_lost or self.phase is Phase.COMMITTING
        # Below version 2, the request may arrive late and end the next transaction.
        self._bump = self._bump or self._version < EPOCH_BUMP_VERSION

    async def _bump_epoch(self) -> None:
        """Get the next epoch, by which the broker ignores requests with the current one.

        Raises:
            KafkaError: see `CoordinatorRequests.send`.
        """
        self._take(await self._requests.initialize(self.identity.current))
        self._bump = False

    def _take(self, producer: tuple[int, int]) -> None:
        """Number batches with this producer id and epoch from now on."""
        self.identity.replace(*producer)
        self.delivery.restart_sequences()

    def _move(self, to: Phase) -> None:
        assert to in MOVES[self.phase], f"{self.phase.name} to {to.name}"
        self.phase = to


def _offsets_and_member(
    offsets: OffsetSource | Mapping[P, int | OffsetAndMetadata],
    group: GroupMetadata | str | None,
) -> tuple[Mapping[TopicPartition, OffsetAndMetadata], GroupMetadata]:
    """Return the offsets and the member of the arguments of `Transaction.send_offsets`.

    Raises:
        ConfigError, TypeError: an argument is missing, or has the wrong type.
    """
    if not isinstance(offsets, Mapping):
        source = getattr(offsets, "offsets_for_transaction", None)
        if source is None:
            raise TypeError(
                "send_offsets() takes a consumer, or offsets by partition and the consumer's "
                f"group_metadata(), not {offsets!r}"
            )
        if group is not None:
            raise TypeError("send_offsets(consumer) takes no second argument")
        found: tuple[Mapping[TopicPartition, OffsetAndMetadata], GroupMetadata] = source()
        return found
    if isinstance(group, str):
        group = GroupMetadata(group)
    if not isinstance(group, GroupMetadata) or not group.group_id:
        raise TypeError(
            "send_offsets(offsets, group_metadata) needs the consumer's group_metadata(), or the "
            "id of a group without members"
        )
    return checked_offsets(offsets), group
