"""Commits: commits or aborts the records that one `process()` call has handled.

With `exactly_once`, this module owns the open transaction. The processor decides when to commit.

Source: KIP-447, Kafka Streams `TaskExecutor.java`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from aiokq.cluster.events import ProcessAborted
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import (
    BufferFull,
    CommitFailed,
    DeliveryFailed,
    KafkaError,
    ProducerFenced,
    RequestTimeout,
    TransactionAborted,
)
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import OffsetAndMetadata, TopicPartition
from aiokq.producer.producer import send_accepted
from aiokq.producer.transactions.transaction import (
    TransactionOutcome,
    commit_with_offsets,
    forbid_commit,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from collections.abc import Set as AbstractSet

    from aiokq.client.process.backlog import Backlog
    from aiokq.client.process.current_producer import CurrentProducer
    from aiokq.client.process.options import ProcessOptions
    from aiokq.client.process.results import Results
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.consumer.consumer import Consumer
    from aiokq.core.types import GroupMetadata
    from aiokq.producer.transactions.transaction import Transaction
    from aiokq.producer.transactions.transaction_end import Ending

__all__ = ["ABORTS", "Commits"]

logger = logging.getLogger("aiokq.client")

ABORTS: Final = (TransactionAborted, CommitFailed, DeliveryFailed, BufferFull)
"""Errors after which the results since the last commit are aborted, and the records read again."""


class Begun(NamedTuple):
    """A commit that was begun, and whose outcome is not known.

    Lost partitions are removed from both dicts.
    """

    offsets: dict[TopicPartition, int]
    """The offsets to commit."""
    taken: dict[TopicPartition, int]
    """The offset of the first handled record of each partition."""
    handled: int
    """The number of handled records."""


class Commits:
    """The commits of one call of `process()`: transactions, or offset commits (`at_least_once`).

    While a commit is in progress, handlers may be called for further records. These records belong
    to the next commit, and their results are held until the next transaction has begun.

    Attributes:
        opened_at: the loop's time at which the first record of the next commit was given to a
            handler.
        begun_at: the loop's time at which the last transaction began.
        taken: the number of records given to handlers, or written as dead letters, since the last
            commit was begun.
        handled: the number of these records whose results were accepted.
        records, outputs, commits, aborts: see `ProcessReport`.
    """

    def __init__(
        self,
        consumer: Consumer,
        producer: CurrentProducer,
        backlog: Backlog,
        results: Results,
        options: ProcessOptions,
        engine: ClusterEngine,
        group_id: str,
        is_hurried: Callable[[], bool],
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._backlog = backlog
        self._results = results
        self._transactional = options.guarantee == "exactly_once"
        self._engine = engine
        self._group_id = group_id
        self._is_hurried = is_hurried
        self._transaction: Transaction | None = None
        self._begun: Begun | None = None
        self._doomed: str | None = None
        """The reason to abort the handled records; None if they may be committed."""
        self._fenced: ProducerFenced | None = None
        """The error that fenced the producer; None if the producer need not be replaced."""
        self._offsets: dict[TopicPartition, int] = {}
        """The latest committed offset of each partition."""
        self._pauses = Backoff(
            options.retry_backoff_ms / 1000,
            options.retry_backoff_max_ms / 1000,
            engine.environment.random,
        )
        """The pauses after consecutive aborts."""
        self._now = asyncio.get_running_loop().time
        self.opened_at = self.begun_at = 0.0
        self.taken = self.handled = 0
        self.records = self.outputs = self.commits = self.aborts = 0

    @property
    def presses(self) -> bool:
        """Whether the next round must complete a commit, abort records or replace the producer."""
        return self._begun is not None or self._doomed is not None or self._fenced is not None

    def lost(self, partitions: AbstractSet[TopicPartition]) -> bool:
        """Remove revoked or lost partitions; return whether the handled records must be aborted.

        Records and offsets of these partitions are not committed any more, unless a request to
        commit them may already have reached the coordinator.
        """
        begun = self._begun or Begun({}, {}, 0)
        amid = partitions & (self._backlog.taken.keys() | begun.offsets.keys() | begun.taken.keys())
        self._backlog.give_up(partitions)
        for tp in partitions:
            for offsets in (self._offsets, begun.offsets, begun.taken):
                offsets.pop(tp, None)
        if amid:
            self._doom_lost(amid)
        return bool(amid)

    def doom(self, reason: str) -> None:
        """Forbid the commit of the handled records, so that they can only be aborted."""
        self._doomed = reason
        if self._transaction is not None:
            forbid_commit(self._transaction, KafkaError(reason))

    def check(self) -> None:
        """Check that the handled records may be committed.

        Raises:
            ProducerFenced: the fenced producer is not replaced yet, because the timeout of a
                rebalance cancelled the replacement.
            TransactionAborted: the handled records must be aborted.
        """
        if self._fenced is not None:
            raise self._fenced
        if self._doomed is not None:
            raise TransactionAborted(self._doomed)

    def _doom_lost(self, partitions: AbstractSet[TopicPartition]) -> None:
        names = ", ".join(map(str, sorted(partitions)))
        self.doom(f"partitions with unfinished records were lost: {names}")

    async def begin(self) -> bool:
        """Begin a transaction, unless one is open; return whether records can be handled.

        The producer may have to abort the previous transaction first. After a timeout, the method
        returns False if a rebalance or the end of `process()` is waiting; otherwise it tries again.
        With `at_least_once`, there is no transaction, and the result is True.

        Raises:
            ResultRefused: a held result cannot be sent; the transaction must be aborted.
            KafkaError: see `Results.accept`.
        """
        while self._transactional and self._transaction is None:
            try:
                self._transaction = await self._producer.now.begin_transaction()
            except RequestTimeout as error:
                if self._is_hurried():
                    return False
                logger.warning("transaction is not begun yet: error=%s", error)
            else:
                self.begun_at = self._now()
                await self._release()
        if not self.taken:
            self.opened_at = self._now()
        return True

    async def _release(self) -> None:
        """Send the held results."""
        try:
            await self._results.release()
        except BaseException:
            self.doom("a held result was not sent")
            raise

    def moved(self) -> bool:
        """Return whether the consumer's position in a partition differs from the committed offset.

        If no record was handled since the commit, the position passed offsets without records, such
        as those of transaction markers.
        """
        try:
            return not self._offsets.keys().isdisjoint(self._committable()[0])
        except CommitFailed:  # for example, the consumer is not a member of its group
            return False

    async def commit(self, meanwhile: Callable[[Ending], Awaitable[None]] | None = None) -> None:
        """Commit the results and offsets of the handled records.

        Nothing is committed if `begin` returns False.

        Args:
            meanwhile: called with the `Ending` of the transaction that is being committed; may
                handle further records. Its exception is raised after the end of the commit.

        Raises:
            TransactionAborted, CommitFailed, DeliveryFailed: the uncommitted records have to be
                aborted.
            KafkaError: the outcome is unknown, or the producer cannot be used any more.
            others: see `begin`.
        """
        self.check()
        if self.taken != self.handled:
            raise TransactionAborted(f"{self.taken - self.handled} records were not handled")
        if not await self.begin():
            return
        # The broker can append the accepted results while the commit is prepared.
        send_accepted(self._producer.now)
        offsets, member = self._committable()
        if self._transaction is None:
            self._part(offsets)
            await self._producer.now.flush()
            for _, error in self._results.failures():
                raise TransactionAborted("results were not delivered") from error
            self.check()
            if offsets:
                await self._consumer.commit(offsets)
            self._committed()
            return
        ending = commit_with_offsets(self._transaction, offsets, member)
        self._part(offsets)
        failure = None if meanwhile is None else await _failure_of(meanwhile(ending))
        await ending
        self._committed()
        if failure is not None:
            raise failure
        if self.taken:
            self.check()
            await self.begin()

    def _part(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Separate the records of the commit that was begun from records that are handled later."""
        self._begun = Begun(
            {tp: offset.offset for tp, offset in offsets.items()}, self._backlog.taken, self.handled
        )
        self._backlog.taken = {}
        self.taken = self.handled = 0
        self._results.part(holds=self._transactional)

    async def learn_outcome(self) -> None:
        """Wait for the outcome of a commit, if the timeout of a rebalance cancelled the first wait.

        If the commit was not answered, it is requested again.

        Raises:
            TransactionAborted: the transaction was aborted.
            CommitOutcomeUnknown: no coordinator answered whether the transaction is committed.
            KafkaError: see `Producer.commit_transaction`.
        """
        if self._begun is None or self._transaction is None:
            return
        outcome = await self._transaction.outcome()
        if outcome is TransactionOutcome.UNKNOWN:
            await self._producer.now.commit_transaction()
        elif outcome is TransactionOutcome.ABORTED:
            raise TransactionAborted("the transaction was aborted")
        self._committed()

    async def abort(self, error: KafkaError, aborted: Callable[[], bool]) -> float:
        """Abort the open transaction, if any, and read the uncommitted records again.

        Args:
            aborted: called after the abort, when the outcome of each result is known, and before
                the results are forgotten. It returns whether a result was refused.

        Returns:
            Seconds to wait before the records are read; 0 if a broker refused results, because the
            items with these results are handled alone next.

        Raises:
            KafkaError: see `_end_transaction`.
        """
        await self._end_transaction(repeat=True)
        return self._again(error, aborted)

    async def renew(self, error: ProducerFenced, aborted: Callable[[], bool]) -> float:
        """Replace the fenced producer, and read the uncommitted records again; see `abort`.

        Raises:
            ProducerFenced: this call of `process()` does not replace fenced producers.
            KafkaError: see `CurrentProducer.renew`.
        """
        self._fenced = error
        await self._producer.renew(error)
        self._fenced = None
        return self._again(error, aborted)

    def _again(self, error: KafkaError, aborted: Callable[[], bool]) -> float:
        records = self.taken
        if self._begun is not None:
            records += self._begun.handled
            self._backlog.taken |= self._begun.taken
        refused = aborted()
        name = type(error).__name__
        if records:
            logger.warning("records are processed again: records=%d error=%s", records, name)
        elif not refused:  # the error of a refused result is raised, or logged with a dead letter
            logger.warning("commit was aborted: error=%s", name)
        self.aborts += 1
        self._engine.counters.process_aborts += 1
        now_ms = self._engine.environment.clock.timestamp_ms()
        self._engine.store.announce(ProcessAborted(self._group_id, records, name, now_ms))
        self._forget()
        owned = self._consumer.assignment()
        for tp, first in self._backlog.rewind().items():
            if tp in owned:
                self._consumer.seek(tp, first)  # the first uncommitted record
        return 0.0 if refused else self._pauses.next()

    async def give_up(self) -> None:
        """Drop all records, because `process()` ends with an error.

        The open transaction is aborted, unless its commit has begun.
        """
        try:
            if self._begun is None:
                await self._end_transaction(repeat=False)
        except KafkaError as error:
            logger.debug("abort: %s", error)
        finally:
            self._backlog.clear()
            self._forget()

    def _committable(self) -> tuple[dict[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """Return the offsets after the handled records, and the group metadata.

        Raises:
            CommitFailed: see `Consumer.offsets_for_transaction`.
            TransactionAborted: records were handled whose partition is not assigned any more.
        """
        handed, member = self._consumer.offsets_for_transaction()
        owned = self._consumer.assignment()
        taken = self._backlog.taken
        gone = taken.keys() - owned
        if gone:
            self._doom_lost(gone)
            self.check()
        offsets = {
            tp: offset
            for tp, offset in handed.items()
            if tp in owned and offset.offset != self._offsets.get(tp)
        }
        for tp, first in self._backlog.heads().items():
            if tp in offsets:
                if taken.get(tp, first) < first:
                    offsets[tp] = OffsetAndMetadata(first, leader_epoch=offsets[tp].leader_epoch)
                else:
                    del offsets[tp]  # no record of the partition was handled
        return offsets, member

    def _committed(self) -> None:
        begun, self._begun, self._transaction = self._begun, None, None
        assert begun is not None
        counters = self._engine.counters
        self.commits += 1
        counters.process_commits += 1
        self.records += begun.handled
        counters.process_records += begun.handled
        self.outputs += self._results.committed()
        self._offsets.update(begun.offsets)
        self._pauses.reset()
        if not self.taken:
            self._doomed = None

    def _forget(self) -> None:
        self._transaction = self._begun = self._doomed = None
        self.taken = self.handled = 0
        self._results.forget()

    async def _end_transaction(self, *, repeat: bool) -> None:
        """Abort the transaction if it is open.

        Args:
            repeat: whether to repeat the abort after a timeout, unless a rebalance or the end of
                `process()` is waiting.

        Raises:
            ProducerFenced: the producer was fenced.
            KafkaError: the transaction cannot be aborted.
        """
        transaction = self._transaction
        if transaction is None:
            return
        if transaction.outcome_now is not None:
            return
        while True:
            try:
                await self._producer.now.abort_transaction()
            except RequestTimeout as error:
                if not repeat or self._is_hurried():
                    raise
                logger.warning("abort was not answered and is repeated: error=%s", error)
            else:
                return


async def _failure_of(work: Awaitable[None]) -> Exception | None:
    """Return the error that ended `work`, if there is one."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - raised by the caller
        return error
    return None
