"""Processor: the loop of `process()`: read, handle, send, commit.

Records are read in chunks. All records of a chunk are handled and their results accepted before
the next chunk is read or a commit begins, so that the consumer's positions are those of finished
records whenever offsets are committed.

Source: KIP-447, Kafka Streams `StreamThread.java`, `TaskExecutor.java`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from aiokq.client.process.handler_calls import HandlerCalls
from aiokq.client.process.lanes import run_in_lanes
from aiokq.client.process.options import HANDLER_SHARE, ProcessReport
from aiokq.core.errors import (
    BufferFull,
    Closed,
    CommitFailed,
    KafkaError,
    ProducerFenced,
    RequestTimeout,
    TransactionAborted,
    UnknownTopicOrPartition,
)
from aiokq.core.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from aiokq.client.process.handler_calls import Handler, Item
    from aiokq.client.process.options import ProcessOptions
    from aiokq.client.process.outgoing import Outgoing
    from aiokq.consumer.consumer import Consumer
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath.produce import Delivery
    from aiokq.producer.producer import Producer
    from aiokq.producer.transactions.transaction import Transaction

__all__ = ["Processor"]

logger = logging.getLogger("aiokq.client")

IDLE_SECONDS: Final = 0.5
"""Longest wait for records, after which a request to stop is noticed at the latest."""

_REBALANCE: Final = "rebalance"


class Processor:
    """One call of `process()`.

    Args:
        consumer: reads the records; it does not commit by itself.
        producer: sends the results; transactional with `exactly_once`.
        stop: set when the call is to end after the records that are being handled.
    """

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        handler: Handler,
        options: ProcessOptions,
        stop: asyncio.Event,
        rng: Any,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._options = options
        self._stop = stop
        self._calls = HandlerCalls(handler, options, rng)
        self._transactional = options.guarantee == "exactly_once"
        self._working = asyncio.Lock()
        """Held while records are handled or committed: a rebalance waits for it."""
        self._transaction: Transaction | None = None
        self._opened_at = 0.0
        self._uncommitted = self._uncommitted_outputs = 0
        self._deliveries: list[tuple[Item, Delivery]] = []
        self._lost = False
        """Whether partitions were lost whose records are in the open transaction."""
        self._refused: dict[tuple[str, int, int], KafkaError] = {}
        """The error of each record whose results were refused, by topic, partition and offset."""
        self._alone = 0
        """How many records to handle in transactions of their own, to find the refused one."""
        self._supervisor = Supervisor("process")
        self.records = self.outputs = self.commits = self.aborts = 0

    async def run(self) -> ProcessReport:
        """Process records until `stop` is set; return what was done.

        Raises:
            Exception: what the handler raised after all retries, without a dead-letter topic.
            KafkaError: an error that cannot be retried.
        """
        try:
            await self._supervisor.start()
            while not self._stop.is_set():
                chunk = await self._read()
                async with self._working:
                    # No other task ran since the records were handed over.
                    await self._process(chunk)
            async with self._working:
                await self._commit()
        except BaseException:
            await self._give_up()
            raise
        finally:
            await self._supervisor.close()
        return ProcessReport(
            self.records, self.outputs, self.commits, self.aborts, self._calls.dead_letters
        )

    # -- rebalances; the consumer awaits these before it gives partitions up

    async def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Commit what was done, before another member takes the partitions."""
        async with self._working:
            await self._commit()

    async def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Abort: another member may already have handled the records of the partitions."""
        async with self._working:
            if self._uncommitted:
                await self._abort(TransactionAborted(f"partitions were lost: {sorted(partitions)}"))

    # -- one round

    async def _read(self) -> list[Item]:
        """Return the next records; [] if none arrived before the next commit is due."""
        timeout = IDLE_SECONDS
        if self._uncommitted:
            due = self._opened_at + self._options.commit_interval_ms / 1000
            timeout = min(max(due - _now(), 0.0), timeout)
        if self._options.batch:
            return await self._read_batch(timeout)
        most = self._options.max_records - self._uncommitted
        if self._alone:
            most = 1
        found = await self._consumer.getmany(timeout=timeout, max_records=max(most, 1))
        return [record for records in found.values() for record in records]

    async def _read_batch(self, timeout: float) -> list[Item]:
        try:
            async with asyncio.timeout(timeout):
                async for batch in self._consumer.batches():
                    return [batch]
        except TimeoutError:
            pass
        return []

    async def _process(self, chunk: list[Item]) -> None:
        """Handle records, and commit if it is time."""
        try:
            if chunk:
                await self._begin()
                await self._handle(chunk)
            if self._is_due() or self._alone:
                await self._commit()
                self._alone = max(self._alone - 1, 0)
        except (TransactionAborted, CommitFailed, BufferFull) as error:
            if isinstance(error.__cause__, ProducerFenced):
                raise error.__cause__ from error
            await self._abort(error)

    def _is_due(self) -> bool:
        """Whether enough was done for a commit, or long enough ago."""
        if not self._uncommitted:
            return False
        if self._uncommitted >= self._options.max_records or self._stop.is_set():
            return True
        return _now() >= self._opened_at + self._options.commit_interval_ms / 1000

    async def _begin(self) -> None:
        if self._uncommitted:
            return
        self._opened_at = _now()
        if self._transactional:
            self._transaction = await self._producer.begin_transaction()

    async def _handle(self, chunk: Sequence[Item]) -> None:
        """Call the handler for each record, and accept its results.

        Raises:
            RequestTimeout: the handlers took longer than the transaction may.
        """
        self._uncommitted += _count(chunk)
        limit = asyncio.timeout(None)
        if self._transactional:
            seconds = self._options.transaction_timeout_ms / 1000 * HANDLER_SHARE
            limit = asyncio.timeout_at(self._opened_at + seconds)
        try:
            async with limit:
                if self._options.concurrency == 1:
                    await self._handle_in_order(chunk)
                else:
                    await run_in_lanes(
                        chunk,
                        self._lane_of(),
                        self._handle_one,
                        self._options.concurrency,
                        self._supervisor,
                    )
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise RequestTimeout(
                "the handlers of a transaction took longer than "
                f"{HANDLER_SHARE:.0%} of transaction_timeout_ms="
                f"{self._options.transaction_timeout_ms}: raise it, make max_records smaller, or "
                "do less in the handler"
            ) from error

    async def _handle_in_order(self, chunk: Sequence[Item]) -> None:
        # hot: benchmarks/suites/transactions.py
        call, accept = self._calls.call_now, self._accept
        for item in chunk:
            if self._refused and _key(item) in self._refused:
                outputs = await self._calls.refused(item, self._refused.pop(_key(item)))
            else:
                result = call(item)
                outputs = result if isinstance(result, list) else await result
            for output in outputs:
                await accept(item, output)

    async def _handle_one(self, item: Item) -> None:
        refusal = self._refused.pop(_key(item), None)
        if refusal is not None:
            outputs = await self._calls.refused(item, refusal)
        else:
            outputs = await self._calls.call(item)
        for output in outputs:
            await self._accept(item, output)

    def _lane_of(self) -> Callable[[Any], Hashable]:
        if self._options.order_by == "key":
            # Records without a key have no order to keep.
            return lambda record: record.offset if record.key is None else record.key
        return lambda item: (item.topic, item.partition)

    async def _accept(self, item: Item, output: Outgoing) -> None:
        """Accept a result for sending; wait for buffer memory if necessary."""
        arguments = (
            output.topic,
            output.value,
            output.key,
            output.partition,
            output.timestamp_ms,
            output.headers,
        )
        try:
            delivery = self._producer.send_nowait(*arguments)
        except (BufferFull, UnknownTopicOrPartition):
            delivery = await self._producer.enqueue(*arguments)
        except (KafkaError, TypeError, ValueError) as error:
            if isinstance(error, TransactionAborted | Closed):
                raise
            for letter in await self._calls.refused(item, _kafka_error(error)):
                await self._producer.enqueue(
                    letter.topic, letter.value, letter.key, headers=letter.headers
                )
            return
        self._deliveries.append((item, delivery))
        self._uncommitted_outputs += 1

    # -- the end of a transaction

    async def _commit(self) -> None:
        """Commit the records that were handled, and their results.

        Raises:
            TransactionAborted, CommitFailed: nothing was committed.
            KafkaError: the outcome is unknown, or the producer cannot go on.
        """
        if not self._uncommitted:
            return
        if self._transaction is None:
            await self._commit_offsets()
        else:
            await self._transaction.send_offsets(self._consumer)
            await self._producer.commit_transaction()
            self._transaction = None
        self.commits += 1
        self.records += self._uncommitted
        self.outputs += self._uncommitted_outputs
        self._forget()

    async def _commit_offsets(self) -> None:
        """Wait until the results are delivered, then commit the offsets: at least once."""
        await self._producer.flush()
        for item, delivery in self._deliveries:
            error = delivery.exception()
            if error is not None:
                self._note_refusal(item, error)
                raise TransactionAborted("results were not delivered") from error
        await self._consumer.commit()

    async def _abort(self, error: KafkaError) -> None:
        """Abort, and read the records that were not committed again."""
        logger.warning("records are processed again: records=%d error=%s", self._uncommitted, error)
        if self._transaction is not None:
            self._transaction = None
            try:
                await self._producer.abort_transaction()
            except KafkaError as failure:
                if isinstance(failure, ProducerFenced):
                    raise
                logger.debug("abort: %s", failure)  # it was aborted already
        refusals = 0
        for item, delivery in self._deliveries:
            cause = delivery.exception() if delivery.done() else None
            if cause is not None and not isinstance(cause, TransactionAborted):
                refusals += 1
                self._note_refusal(item, cause)
        if refusals:
            # Until the refused records are found again, each record gets a transaction of its own.
            self._alone = self._uncommitted
        self.aborts += 1
        self._forget()
        owned = self._consumer.assignment()
        if owned:
            await self._consumer.seek_to_committed(*owned)

    def _note_refusal(self, item: Item, error: BaseException) -> None:
        if isinstance(error, KafkaError) and not error.retriable:
            self._refused[_key(item)] = error

    def _forget(self) -> None:
        self._uncommitted = self._uncommitted_outputs = 0
        self._deliveries.clear()

    async def _give_up(self) -> None:
        """Abort the open transaction, because the call ends with an error; commit nothing."""
        self._forget()
        if self._transaction is not None:
            self._transaction = None
            try:
                await self._producer.abort_transaction()
            except KafkaError as error:
                logger.debug("abort: %s", error)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _count(chunk: Sequence[Any]) -> int:
    return sum(len(item) if hasattr(item, "next_offset") else 1 for item in chunk)


def _key(item: Any) -> tuple[str, int, int]:
    offset = getattr(item, "offset", None)
    return item.topic, item.partition, item.next_offset if offset is None else offset


def _kafka_error(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    made = KafkaError(f"{type(error).__name__}: {error}")
    made.__cause__ = error
    return made
