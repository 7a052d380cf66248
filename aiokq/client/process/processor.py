"""Processor: runs the loop of `process()`: read, handle, commit.

Records are read into a backlog; handlers get the first records of each partition. A commit begins
when no handler runs. It covers the records that were read, except those in the backlog. With
``concurrency=1``, further records are handled while a transaction is being committed. `Reader`
reads records, `Lanes` runs handlers concurrently, `Results` sends their results, `Failures` handles
failed records, and `Commits` commits or aborts.

Source: KIP-447, Kafka Streams `StreamThread.java`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.client.process.backlog import Backlog, Item, record_count
from aiokq.client.process.commits import ABORTS, Commits
from aiokq.client.process.failures import Failures
from aiokq.client.process.handler_calls import HandlerFailed, call, collected, failed
from aiokq.client.process.handler_limit import HandlerLimit
from aiokq.client.process.lanes import Lanes
from aiokq.client.process.options import ProcessOptions, ProcessReport
from aiokq.client.process.reader import Reader
from aiokq.client.process.results import ResultRefused, Results
from aiokq.core.errors import CommitOutcomeUnknown, KafkaError, ProducerFenced
from aiokq.core.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aiokq.client.process.current_producer import CurrentProducer
    from aiokq.client.process.handler_calls import ItemHandler
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.consumer.consumer import Consumer
    from aiokq.core.types import TopicPartition
    from aiokq.producer.transactions.transaction_end import Ending

__all__ = ["Processor"]

IDLE_SECONDS: Final = 0.5
"""Maximum seconds of one wait for records."""

TURN_SECONDS: Final = 0.002
"""Seconds after which other tasks may run, even if the handlers never wait.

Full batches are sent then, so that the broker appends them while further records are handled.
"""


HELD_BYTES: Final = 1024 * 1024
"""If held results take this many estimated bytes, no further records are handled."""


class Processor:
    """One call of `process()`.

    Args:
        consumer: reads the records; must not commit automatically.
        producer: the producer of the results; transactional with `exactly_once`.
        stop: set when the call must end after the records that are being handled.
        engine: the engine of the consumer's cluster.
    """

    def __init__(
        self,
        consumer: Consumer,
        producer: CurrentProducer,
        handler: ItemHandler,
        options: ProcessOptions,
        stop: asyncio.Event,
        group_id: str,
        engine: ClusterEngine,
    ) -> None:
        self._handler = handler
        self._options = options
        self._stop = stop
        self._working = asyncio.Lock()
        """Locked while records are handled or committed; a rebalance waits for this lock."""
        self._backlog = backlog = Backlog()
        self._results = results = Results(producer)
        self._reader = Reader(consumer, backlog, options)
        self._commits = Commits(
            consumer, producer, backlog, results, options, engine, group_id, self._is_hurried
        )
        self._limit = HandlerLimit(options, self._commits, results, engine.suspended)
        self._failures = Failures(
            backlog,
            results,
            self._commits,
            self._limit,
            handler,
            options,
            engine,
            group_id,
            self._is_hurried,
        )
        self._hurry = 0
        """The number of rebalances that wait for a commit."""
        self._failure: BaseException | None = None
        """An error that occurred in a rebalance; `run` ends with this error."""
        self._ended = False
        """Whether `run` has ended: nothing is handled or committed any more."""
        self._supervisor = Supervisor("process")
        self._now = asyncio.get_running_loop().time

    async def run(self) -> ProcessReport:
        """Process records until `stop` is set.

        Raises:
            Exception: the handler's error after all retries, if there is no dead-letter topic.
            KafkaError: an error that cannot be retried.
        """
        try:
            await self._supervisor.start()
            self._supervisor.spawn(self._watch_stop(), name="stop")
            while not self._stop.is_set():
                read = self._is_due() or await self._reader.read(self._patience())
                async with self._working:
                    pause = await self._round(idle=not read)
                if pause:
                    await self._sleep(pause)
            async with self._working:
                await self._round(idle=False)
        except BaseException:
            await self._commits.give_up()
            raise
        finally:
            self._ended = True
            await self._supervisor.close()
        done = self._commits
        return ProcessReport(
            done.records, done.outputs, done.commits, done.aborts, self._failures.dead_letters
        )

    async def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Commit the handled records before another member gets the partitions."""
        if self._ended:
            return
        self._hurry += 1
        try:
            async with self._working:
                await self._round(idle=False)
        except asyncio.CancelledError:
            self._commits.doom("a rebalance did not wait for the commit")
            self._reader.expect_late_rebalance()
            self._reader.wake()
            raise
        except Exception as error:  # noqa: BLE001 - raised by run()
            self._failure = error
            self._reader.wake()
        finally:
            self._hurry -= 1
            self.lost(partitions)

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Remove partitions that another member may own.

        If handled records of these partitions are uncommitted, all uncommitted records are aborted.
        """
        if not self._ended and self._commits.lost(partitions):
            self._limit.end()
            self._reader.wake()

    def _patience(self) -> float:
        """Return the seconds to wait for records, at most until the next commit or retry."""
        backlog, commits, now = self._backlog, self._commits, self._now()
        if commits.presses or self._failure is not None:
            return 0.0
        if backlog.queues and backlog.open_partitions():
            return 0.0
        timeout = IDLE_SECONDS
        if commits.taken:
            timeout = min(self._due_at() - now, timeout)
        for suspect in backlog.blocked().values():
            timeout = min(suspect.ready_at - now, timeout)
        return max(timeout, 0.0)

    async def _round(self, *, idle: bool) -> float:
        """Handle records, and commit if a commit is due; return the seconds until the next round.

        Raises:
            Exception: `run` ends with this error.
        """
        if self._failure is not None:
            raise self._failure
        try:
            await self._handle_and_commit(idle)
        except (*ABORTS, ProducerFenced) as error:
            return await self._recover(error)
        return 0.0

    async def _handle_and_commit(self, idle: bool) -> None:
        commits = self._commits
        try:
            await commits.learn_outcome()
            commits.check()
            if not self._is_hurried():
                await self._handle(self._is_due)
            if self._is_due() or (idle and not commits.taken and commits.moved()):
                await commits.commit(self._handle_ahead)
            if self._backlog.suspects and not self._is_hurried():
                await self._failures.handle()
        except ResultRefused as refusal:  # a held result was refused when it was sent
            self._failures.note(refusal.item, refusal)

    async def _recover(self, error: KafkaError) -> float:
        """Abort the transaction, or replace a fenced producer; return the pause in seconds.

        Raises:
            CommitOutcomeUnknown, ProducerFenced: `run` ends with this error.
        """
        cause = error.__cause__
        if isinstance(cause, CommitOutcomeUnknown):
            raise cause from error
        if isinstance(cause, ProducerFenced):
            error = cause
        try:
            if not isinstance(error, ProducerFenced):
                return await self._commits.abort(error, self._failures.note_refusals)
        except ProducerFenced as fenced:
            error = fenced
        return await self._commits.renew(error, self._failures.note_refusals)

    def _is_hurried(self) -> bool:
        return self._hurry > 0 or self._stop.is_set()

    def _is_interrupted(self) -> bool:
        return self._stop.is_set() or self._results.held_bytes >= HELD_BYTES

    def _due_at(self) -> float:
        return self._commits.opened_at + self._options.commit_interval_ms / 1000

    def _is_due(self) -> bool:
        """Whether a commit is due.

        A commit is due after enough records, after enough time, or when a rebalance, the end of
        `run`, or the retry of a failed record waits for the commit.
        """
        taken = self._commits.taken
        if not taken:
            return False
        return (
            taken >= self._options.max_records
            or self._is_hurried()
            or self._now() >= self._due_at()
            or bool(self._backlog.suspects and self._failures.ready())
        )

    async def _handle_ahead(self, commit: Ending) -> None:
        """Call the handler for further records while a transaction is being committed.

        This happens only with ``concurrency=1``. The next transaction begins when no handler runs,
        so concurrent handlers would have to wait for the slowest handler.
        """
        if self._options.concurrency > 1 or self._backlog.suspects or self._is_hurried():
            return
        await asyncio.sleep(0)  # the requests of the commit are sent
        if not self._backlog.queues:
            await self._reader.read(0.0)
        await self._handle(
            lambda: commit.done or self._results.held_bytes >= HELD_BYTES or self._is_due()
        )

    async def _handle(self, ended: Callable[[], bool]) -> None:
        """Call the handler for records of the backlog, until `ended` returns True.

        Raises:
            RequestTimeout: see `HandlerLimit.over`.
            TransactionAborted: partitions were lost meanwhile, or results were refused.
        """
        backlog, commits = self._backlog, self._commits
        if not (backlog.queues and backlog.open_partitions()):
            return
        if not await commits.begin():
            return
        before = commits.taken
        async with self._limit.over():
            if self._options.concurrency == 1:
                await self._handle_in_order(ended)
            else:
                lanes = Lanes(
                    backlog,
                    self._handle_one,
                    ended,
                    self._lane_of,
                    self._options.concurrency,
                    self._supervisor,
                )
                await lanes.run()
        commits.check()
        self._reader.handled(commits.taken - before)

    async def _handle_in_order(self, ended: Callable[[], bool]) -> None:
        # Hot path, measured by benchmarks/suites/transactions.py.
        backlog, commits, results = self._backlog, self._commits, self._results
        turn = self._now() + TURN_SECONDS
        for tp in backlog.open_partitions():
            while not ended() and (queue := backlog.next_items(tp)) is not None:
                most = min(self._options.max_records - commits.taken, len(queue))
                if self._options.batch or tp in backlog.suspects:
                    most = 1
                left = min(turn, self._due_at()) - self._now()
                done, rest, error = results.handle(
                    self._handler, queue, most, left, self._is_interrupted
                )
                if done:
                    count = record_count(queue.first) if self._options.batch else done
                    backlog.remove(tp, queue, done)
                    commits.taken += count
                    commits.handled += count
                if rest is not None or error is not None:
                    item = backlog.take(tp)
                    assert item is not None
                    if not await self._finish(item, rest, error):
                        break
                # The second condition means that `handle` reached its time limit or was
                # interrupted. The first may miss the time limit, because the resolution of the
                # loop's clock may be a millisecond.
                if self._now() >= turn or (rest is None and error is None and done < most):
                    await asyncio.sleep(0)
                    turn = self._now() + TURN_SECONDS
            backlog.rotate(tp)

    async def _finish(self, item: Item, result: object, error: BaseException | None) -> bool:
        """Accept the handler's result for an item; return False if the item failed."""
        self._commits.taken += record_count(item)
        try:
            if error is not None:
                raise failed(item, error) from error
            await self._results.accept(item, await collected(item, result))
        except (HandlerFailed, ResultRefused) as failure:
            self._failures.note(item, failure)
            return False
        self._commits.handled += record_count(item)
        return True

    async def _handle_one(self, item: Item) -> None:
        self._commits.taken += record_count(item)
        try:
            outputs = await call(self._handler, item)
            if outputs:
                await self._results.accept(item, outputs)
        except (HandlerFailed, ResultRefused) as error:
            self._failures.note(item, error)
        else:
            self._commits.handled += record_count(item)

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

    async def _watch_stop(self) -> None:
        await self._stop.wait()
        self._reader.wake()

    async def _sleep(self, seconds: float) -> None:
        """Wait for `seconds`, or until `stop` is set."""
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass
