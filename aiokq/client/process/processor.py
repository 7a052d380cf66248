"""Processor: the loop of `process()`: read, handle, send, commit.

Records are read into a backlog, from which handlers take a prefix of each partition. A commit
begins when no handler runs; it covers what was handed over, except the backlog. `Lanes` runs
handlers side by side, `Results` sends what they return.

Source: KIP-447, Kafka Streams `StreamThread.java`, `TaskExecutor.java`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

from aiokq.client.process.backlog import (
    Backlog,
    Item,
    Suspect,
    first_offset,
    place,
    record_count,
)
from aiokq.client.process.handler_calls import HandlerFailed, call, call_now, dead_letters
from aiokq.client.process.lanes import Lanes
from aiokq.client.process.options import HANDLER_SHARE, ProcessOptions, ProcessReport
from aiokq.client.process.results import ResultRefused, Results
from aiokq.cluster.events import DeadLettered, ProcessAborted
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import (
    BufferFull,
    CommitFailed,
    CommitOutcomeUnknown,
    DeliveryFailed,
    KafkaError,
    ProducerFenced,
    RequestTimeout,
    TransactionAborted,
)
from aiokq.core.supervisor import Supervisor
from aiokq.core.types import OffsetAndMetadata, TopicPartition
from aiokq.producer.transactions.transaction import TransactionOutcome

if TYPE_CHECKING:
    import random
    from collections.abc import Hashable, Mapping

    from aiokq.client.process.handler_calls import Handler
    from aiokq.client.process.outgoing import Outgoing
    from aiokq.cluster.events import Event
    from aiokq.consumer.consumer import Consumer
    from aiokq.core.counters import ClientCounters
    from aiokq.core.types import GroupMetadata
    from aiokq.producer.producer import Producer
    from aiokq.producer.transactions.transaction import Transaction

__all__ = ["Processor"]

logger = logging.getLogger("aiokq.client")

IDLE_SECONDS: Final = 0.5
"""Longest wait for records."""

FIRST_CHUNK: Final = 256
"""Records that are read at a time at first; the number follows the speed of the handler."""

TURN_SECONDS: Final = 0.01
"""After this time, other tasks get a turn although handlers never wait."""

ABORTS: Final = (TransactionAborted, CommitFailed, DeliveryFailed, BufferFull)
"""Errors after which records are read again."""


class Processor:
    """One call of `process()`.

    Args:
        consumer: reads the records; it does not commit by itself.
        producer: sends the results; transactional with `exactly_once`.
        stop: set when the call is to end after the records that are being handled.
        announce: called with events.
    """

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        handler: Handler,
        options: ProcessOptions,
        stop: asyncio.Event,
        rng: random.Random,
        group_id: str,
        timestamp_ms: Callable[[], int],
        counters: ClientCounters,
        announce: Callable[[Event], None],
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._handler = handler
        self._options = options
        self._stop = stop
        self._group_id = group_id
        self._timestamp_ms = timestamp_ms
        self._counters = counters
        self._announce = announce
        self._transactional = options.guarantee == "exactly_once"
        self._random = rng
        self._pauses = Backoff(
            options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000, rng
        )
        """The pauses after aborts that follow each other."""
        self._working = asyncio.Lock()
        """Held while records are handled or committed: a rebalance waits for it."""
        self._backlog = Backlog()
        self._results = Results(producer)
        self._transaction: Transaction | None = None
        self._ending = False
        """Whether a commit was begun whose outcome is not known."""
        self._unaborted = False
        """Whether an abort by the producer itself was not answered."""
        self._opened_at = 0.0
        self._taken = self._handled = 0
        """Records since the last commit: given to handlers; with their results accepted."""
        self._chunk = min(FIRST_CHUNK, options.max_records)
        self._hurry = 0
        """How many rebalances wait for the commit."""
        self._doomed: str | None = None
        """Why the open transaction has to be aborted."""
        self._paused: frozenset[TopicPartition] = frozenset()
        self._failure: BaseException | None = None
        """An error in a rebalance that ends the call."""
        self._offsets: dict[TopicPartition, int] = {}
        """What was committed last."""
        self._reading: asyncio.Timeout | None = None
        self._handling: asyncio.Timeout | None = None
        self._supervisor = Supervisor("process")
        self._now = asyncio.get_running_loop().time
        self.records = self.outputs = self.commits = self.aborts = self.dead_letters = 0

    async def run(self) -> ProcessReport:
        """Process records until `stop` is set; return what was done.

        Raises:
            Exception: what the handler raised after all retries, without a dead-letter topic.
            KafkaError: an error that cannot be retried.
        """
        try:
            await self._supervisor.start()
            self._supervisor.spawn(self._watch_stop(), name="stop")
            while not self._stop.is_set():
                read = await self._read()
                async with self._working:
                    pause = await self._round(idle=not read)
                if pause:
                    await self._sleep(pause)
            async with self._working:
                await self._round(idle=False)
        except BaseException:
            await self._give_up()
            raise
        finally:
            await self._supervisor.close()
        return ProcessReport(
            self.records, self.outputs, self.commits, self.aborts, self.dead_letters
        )

    # -- rebalances; the consumer awaits these before it gives partitions up

    async def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Commit what was done, before another member takes the partitions."""
        self._hurry += 1
        try:
            async with self._working:
                await self._round(idle=False)
        except asyncio.CancelledError:
            self._doomed = "a rebalance did not wait for the commit"
            self._wake()
            raise
        except Exception as error:  # noqa: BLE001 - raised by run()
            self._failure = error
            self._wake()
        finally:
            self._hurry -= 1
            self.lost(partitions)

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Abort: another member may already have handled the records of the partitions."""
        amid = partitions & self._backlog.taken.keys()
        self._backlog.give_up(partitions)
        for tp in partitions:
            self._offsets.pop(tp, None)
        if amid:
            self._doom(amid)
            if self._handling is not None:
                self._handling.reschedule(self._now())
            self._wake()

    # -- one round

    async def _read(self) -> bool:
        """Add the next records to the backlog; return whether there were any.

        Waits while there is nothing else to do: for records, the next commit, or the next retry.
        """
        backlog = self._backlog
        timeout = IDLE_SECONDS
        if self._taken:
            timeout = min(self._due_at() - self._now(), timeout)
        if backlog.suspects:
            for suspect in backlog.blocked().values():
                timeout = min(suspect.ready_at - self._now(), timeout)
        if backlog.queues and backlog.open_partitions():
            timeout = 0.0
        if self._doomed or self._ending or self._failure is not None:
            timeout = 0.0
        timeout = max(timeout, 0.0)
        if backlog.suspects or self._paused:
            self._pause_blocked()
        if self._options.batch:
            return await self._read_batches(timeout)
        most = max(self._chunk - backlog.count(), 1)
        found: Mapping[TopicPartition, list[Any]] = {}
        try:
            async with asyncio.timeout(None) as self._reading:
                found = await self._consumer.getmany(timeout=timeout, max_records=most)
        except TimeoutError:  # `_wake`
            pass
        finally:
            self._reading = None
        for tp, records in found.items():
            backlog.extend(tp, records)
        return bool(found)

    def _pause_blocked(self) -> None:
        """Read no further in partitions whose next record waits to be handled alone."""
        owned = self._consumer.assignment()
        blocked = frozenset(self._backlog.blocked()) & owned
        self._consumer.resume(*(self._paused & owned - blocked))
        self._consumer.pause(*blocked)
        self._paused = blocked

    async def _read_batches(self, timeout: float) -> bool:
        """Add batches to the backlog, at least one for each handler if they are there."""
        read = False
        batches = self._consumer.batches()
        while self._backlog.count() < self._options.concurrency or not read:
            try:
                async with asyncio.timeout(timeout) as self._reading:
                    batch = await anext(batches)
            except TimeoutError:
                break
            finally:
                self._reading = None
            self._backlog.extend(TopicPartition(batch.topic, batch.partition), (batch,))
            read, timeout = True, 0.0
        return read

    async def _round(self, *, idle: bool) -> float:
        """Handle records, and commit if it is time; return how long to wait before the next round.

        Raises:
            Exception: the call ends with this error.
        """
        if self._failure is not None:
            raise self._failure
        try:
            if self._ending:
                await self._learn_outcome()
            self._check_doomed()
            if not self._is_hurried():
                await self._handle()
            if self._is_due() or (idle and not self._taken and self._moved()):
                await self._commit()
            if self._backlog.suspects and not self._is_hurried():
                await self._handle_suspects()
        except ABORTS as error:
            if isinstance(error.__cause__, ProducerFenced | CommitOutcomeUnknown):
                raise error.__cause__ from error
            await self._abort(error)
            return self._pauses.next()
        return 0.0

    def _is_hurried(self) -> bool:
        return self._hurry > 0 or self._stop.is_set()

    def _due_at(self) -> float:
        return self._opened_at + self._options.commit_interval_ms / 1000

    def _is_due(self) -> bool:
        """Whether enough was done for a commit, or long enough ago."""
        if not self._taken:
            return False
        return (
            self._taken >= self._options.max_records
            or self._is_hurried()
            or self._now() >= self._due_at()
            or bool(self._backlog.suspects and self._ready_suspects())
        )

    def _doom(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Note that partitions were lost whose records are in the open transaction."""
        lost = ", ".join(map(str, sorted(partitions)))
        self._doomed = f"partitions with unfinished records were lost: {lost}"

    def _check_doomed(self) -> None:
        """Raise TransactionAborted if the transaction has to be aborted."""
        if self._doomed is not None:
            raise TransactionAborted(self._doomed)

    async def _begin(self) -> None:
        """Begin a transaction, unless one is open."""
        if not self._taken:
            self._opened_at = self._now()
        if self._transactional and self._transaction is None:
            self._transaction = await self._producer.begin_transaction()

    async def _handle(self) -> None:
        """Call the handler for records of the backlog, until the transaction is due.

        Raises:
            RequestTimeout: the handlers took longer than the transaction may.
            TransactionAborted: partitions were lost meanwhile, or results were refused.
        """
        backlog = self._backlog
        if not (backlog.queues and backlog.open_partitions()):
            return
        await self._begin()
        before = self._taken
        async with self._limit():
            if self._options.concurrency == 1:
                await self._handle_in_order()
            else:
                lanes = Lanes(
                    backlog,
                    self._handle_one,
                    self._is_due,
                    self._lane_of,
                    self._options.concurrency,
                    self._supervisor,
                )
                await lanes.run()
        self._check_doomed()
        if backlog.queues and not backlog.suspects:
            self._chunk = max(self._taken - before, 1)
        elif not backlog.queues:
            self._chunk = min(self._chunk * 2, self._options.max_records)

    @contextlib.asynccontextmanager
    async def _limit(self) -> AsyncGenerator[None]:
        """Cancel the handlers when the transaction takes too long, or has to be aborted."""
        until = None
        if self._transactional:
            until = self._opened_at + self._options.transaction_timeout_ms / 1000 * HANDLER_SHARE
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                self._handling = limit
                yield
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._check_doomed()
            topic = self._results.waits_for
            doing = "the handlers of a transaction took"
            if topic is not None:
                doing = f"results for {topic!r} waited for room in the buffer, or for its metadata,"
            raise RequestTimeout(
                f"{doing} longer than {HANDLER_SHARE:.0%} of transaction_timeout_ms="
                f"{self._options.transaction_timeout_ms}: raise it, or do less in the handler"
            ) from error
        finally:
            self._handling = None

    async def _handle_in_order(self) -> None:
        # hot: benchmarks/suites/transactions.py
        backlog, accept, handler, now = (
            self._backlog,
            self._results.accept,
            self._handler,
            self._now,
        )
        turn = now() + TURN_SECONDS
        for tp in backlog.open_partitions():
            while not self._is_due():
                item = backlog.take(tp)
                if item is None:
                    break
                self._taken += record_count(item)
                try:
                    result = call_now(handler, item)
                    outputs = result if isinstance(result, list) else await result
                    if outputs:
                        await accept(item, outputs)
                except (HandlerFailed, ResultRefused) as error:
                    self._note_failure(item, error)
                    break
                self._handled += record_count(item)
                if now() > turn:
                    await asyncio.sleep(0)
                    turn = now() + TURN_SECONDS
            backlog.rotate(tp)

    async def _handle_one(self, item: Item) -> None:
        self._taken += record_count(item)
        try:
            outputs = await call(self._handler, item)
            await self._results.accept(item, outputs)
        except (HandlerFailed, ResultRefused) as error:
            self._note_failure(item, error)
        else:
            self._handled += record_count(item)

    @property
    def _lane_of(self) -> Callable[[Item], Hashable] | None:
        if self._options.order_by == "key":
            # Records without a key have no order to keep.
            return lambda item: (
                (item.topic, item.partition, getattr(item, "offset", None))
                if getattr(item, "key", None) is None
                else getattr(item, "key", None)
            )
        return None

    # -- records that fail

    def _note_failure(self, item: Item, failure: HandlerFailed | ResultRefused) -> None:
        """Put an item back, to be handled alone after what was done is committed.

        Raises:
            TransactionAborted: the transaction has results of this record or of later ones, which
                must not be committed.
        """
        refused = isinstance(failure, ResultRefused)
        self._suspect(item, failure.cause, attempts=0 if refused else 1, refused=refused)
        self._taken -= record_count(item)
        amid = self._options.order_by == "key" and self._options.concurrency > 1
        if amid or refused:
            error = TransactionAborted(f"{place(item)} failed: {type(failure.cause).__name__}")
            raise error from (failure.cause if isinstance(failure.cause, KafkaError) else None)
        self._backlog.put_back(item)
        if not self._taken:
            self._backlog.taken.clear()

    def _suspect(self, item: Item, error: Exception, *, attempts: int, refused: bool) -> Suspect:
        options = self._options
        known = self._backlog.suspect_of(item)
        if known is not None and known.refused:
            refused = True
        attempts += 0 if known is None else known.attempts
        pause = 0.0
        if not refused and 0 < attempts <= options.retries:
            backoff = Backoff(
                options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000, self._random
            )
            backoff.failures = attempts - 1
            pause = backoff.next()
            self._counters.process_retries += 1
            logger.warning(
                "handler failed and is called again: record=%s attempt=%d pause=%.3gs error=%s",
                place(item),
                attempts,
                pause,
                type(error).__name__,
            )
        suspect = Suspect(error, attempts=attempts, refused=refused, ready_at=self._now() + pause)
        self._backlog.suspect(item, suspect)
        return suspect

    def _ready_suspects(self) -> list[TopicPartition]:
        """Return the partitions whose first record is to be handled alone now."""
        now = self._now()
        return [tp for tp, suspect in self._backlog.blocked().items() if suspect.ready_at <= now]

    async def _handle_suspects(self) -> None:
        """Handle the failed records whose time has come, each in a transaction of its own."""
        for tp in self._ready_suspects():
            if self._taken:
                await self._commit()
            suspect = self._backlog.blocked().get(tp)
            if suspect is not None and not self._is_hurried():
                await self._handle_alone(tp, suspect)

    async def _handle_alone(self, tp: TopicPartition, suspect: Suspect) -> None:
        """Call the handler once more, or write the dead letters; commit.

        Raises:
            Exception: the error of the record, when there is nothing left to try.
        """
        backlog = self._backlog
        item = backlog.queues[tp][0]
        letters = suspect.refused or suspect.attempts > self._options.retries
        if letters:
            outputs = self._letters(item, suspect.error)
        else:
            try:
                # No transaction is open meanwhile.
                self._opened_at = self._now()
                async with self._limit():
                    outputs = await call(self._handler, item)
            except HandlerFailed as failure:
                self._suspect(item, failure.cause, attempts=1, refused=False)
                return
            if tp not in backlog.queues or backlog.queues[tp][0] is not item:
                return  # the partition was lost
        await self._begin()
        backlog.take_alone(tp)
        self._taken += record_count(item)
        try:
            await self._results.accept(item, outputs)
            self._handled += record_count(item)
            await self._commit()
        except ResultRefused as refusal:
            if letters:
                raise refusal.cause from None
            self._suspect(item, refusal.cause, attempts=0, refused=True)
            raise TransactionAborted(f"results of {place(item)} were refused") from None
        except ABORTS:
            refused = next((error for _, error in self._results.refusals()), None)
            if refused is not None:
                if letters:
                    raise refused from None
                self._suspect(item, refused, attempts=0, refused=True)
            raise
        if letters:
            count = record_count(item)
            self.dead_letters += count
            self._counters.process_dead_letters += count
            self._announce(
                DeadLettered(
                    tp.topic,
                    tp.partition,
                    first_offset(item),
                    self._group_id,
                    self._options.dead_letter_topic or "",
                    type(suspect.error).__name__,
                )
            )
        backlog.cleared(item)

    def _letters(self, item: Item, error: Exception) -> list[Outgoing]:
        topic = self._options.dead_letter_topic
        if topic is None:
            error.add_note(f"raised for {place(item)}")
            raise error
        logger.error(
            "record is sent to the dead-letter topic: record=%s topic=%s error=%s",
            place(item),
            topic,
            type(error).__name__,
        )
        return dead_letters(topic, item, error)

    # -- the end of a transaction

    def _committable(self) -> tuple[dict[TopicPartition, OffsetAndMetadata], GroupMetadata]:
        """Return the offsets behind the records that were handled, and the member."""
        handed, member = self._consumer.offsets_for_transaction()
        owned = self._consumer.assignment()
        taken = self._backlog.taken
        gone = taken.keys() - owned
        if gone:
            self._doom(gone)
            self._check_doomed()
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
                    del offsets[tp]  # nothing of it was handled
        return offsets, member

    def _moved(self) -> bool:
        """Whether positions passed the ends of transactions behind the last record."""
        return not self._offsets.keys().isdisjoint(self._committable()[0])

    async def _commit(self) -> None:
        """Commit the records that were handled, and their results.

        Raises:
            TransactionAborted, CommitFailed, DeliveryFailed: nothing was committed.
            KafkaError: the outcome is unknown, or the producer cannot go on.
        """
        self._check_doomed()
        offsets, member = self._committable()
        await self._begin()
        if self._transaction is None:
            await self._producer.flush()
            for _, error in self._results.failures():
                raise TransactionAborted("results were not delivered") from error
            if offsets:
                await self._consumer.commit(offsets)
        else:
            await self._transaction.send_offsets(offsets, member)
            self._check_doomed()
            self._ending = True
            try:
                await self._producer.commit_transaction()
            except RequestTimeout as error:
                # It could not be committed, and its abort was not answered.
                self._ending, self._unaborted = False, True
                raise TransactionAborted("the transaction could not be committed") from error
        self._committed()
        self._offsets.update({tp: offset.offset for tp, offset in offsets.items()})

    def _committed(self) -> None:
        self.commits += 1
        self._counters.process_commits += 1
        self.records += self._handled
        self._counters.process_records += self._handled
        self.outputs += self._results.count
        self._backlog.taken.clear()
        self._pauses.reset()
        self._forget()

    async def _learn_outcome(self) -> None:
        """Learn how a commit ended that a rebalance did not wait for.

        Raises:
            TransactionAborted: it was aborted.
            CommitOutcomeUnknown: nobody knows.
        """
        assert self._transaction is not None
        outcome = await self._transaction.outcome()
        if outcome is TransactionOutcome.UNKNOWN:
            await self._producer.commit_transaction()
        elif outcome is TransactionOutcome.ABORTED:
            raise TransactionAborted("the transaction was aborted")
        self._doomed = None
        self._committed()

    def _forget(self) -> None:
        self._transaction = None
        self._ending = False
        self._taken = self._handled = 0
        self._results.forget()

    async def _abort(self, error: KafkaError) -> None:
        """Abort, and read the records that were not committed again."""
        logger.warning(
            "records are processed again: records=%d error=%s", self._taken, type(error).__name__
        )
        await self._end_transaction(repeat=True)
        for item, cause in self._results.refusals():
            if self._backlog.suspect_of(item) is None:
                # One refused record fails its whole batch: each is tried alone.
                self._suspect(item, cause, attempts=0, refused=False)
        self.aborts += 1
        self._counters.process_aborts += 1
        self._announce(
            ProcessAborted(self._group_id, self._taken, type(error).__name__, self._timestamp_ms())
        )
        self._doomed = None
        self._forget()
        owned = self._consumer.assignment()
        for tp, first in self._backlog.rewind().items():
            if tp in owned:
                self._consumer.seek(tp, first)  # this is the committed offset

    async def _end_transaction(self, *, repeat: bool) -> None:
        """Abort the transaction if it is open.

        Args:
            repeat: whether to repeat it until it is answered, unless somebody waits for the end.

        Raises:
            ProducerFenced: another producer with the transactional id was started.
            KafkaError: the transaction cannot be aborted.
        """
        transaction = self._transaction
        if transaction is None:
            return
        if transaction.outcome_now is not None and not self._unaborted:
            return
        while True:
            try:
                await self._producer.abort_transaction()
            except RequestTimeout as error:
                if not repeat or self._is_hurried():
                    raise
                logger.warning("abort was not answered and is repeated: error=%s", error)
            else:
                self._unaborted = False
                return

    async def _give_up(self) -> None:
        """Abort the open transaction, because the call ends with an error; commit nothing."""
        try:
            if not self._ending:
                await self._end_transaction(repeat=False)
        except KafkaError as error:
            logger.debug("abort: %s", error)
        finally:
            self._backlog = Backlog()
            self._forget()

    # -- waiting

    async def _watch_stop(self) -> None:
        await self._stop.wait()
        self._wake()

    def _wake(self) -> None:
        """End a wait for records."""
        if self._reading is not None:
            self._reading.reschedule(self._now())

    async def _sleep(self, seconds: float) -> None:
        """Wait, but not for longer than until `stop` is set."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass
