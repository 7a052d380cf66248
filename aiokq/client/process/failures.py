"""Failures: handles the records whose handler raised an error, or whose results were refused.

Such a record gets a commit of its own, so that the other records can be committed. The handler is
called again for the record. After all retries, or if the results cannot be written, the record is
instead written to the dead-letter topic. Without a dead-letter topic, the error is raised.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from aiokq.client.process.backlog import Suspect, first_offset, place, record_count
from aiokq.client.process.commits import ABORTS
from aiokq.client.process.handler_calls import HandlerFailed, call, dead_letters
from aiokq.client.process.results import ResultRefused
from aiokq.cluster.events import DeadLettered
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import KafkaError, TransactionAborted

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokq.client.process.backlog import Backlog, Item
    from aiokq.client.process.commits import Commits
    from aiokq.client.process.handler_calls import ItemHandler
    from aiokq.client.process.handler_limit import HandlerLimit
    from aiokq.client.process.options import ProcessOptions
    from aiokq.client.process.results import Results
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath.produce import Outgoing

__all__ = ["Failures"]

logger = logging.getLogger("aiokq.client")


class Failures:
    """The failed records of one call of `process()`.

    Attributes:
        dead_letters: see `ProcessReport`.
    """

    def __init__(
        self,
        backlog: Backlog,
        results: Results,
        commits: Commits,
        limit: HandlerLimit,
        handler: ItemHandler,
        options: ProcessOptions,
        engine: ClusterEngine,
        group_id: str,
        is_hurried: Callable[[], bool],
    ) -> None:
        self._backlog = backlog
        self._results = results
        self._commits = commits
        self._limit = limit
        self._handler = handler
        self._options = options
        self._engine = engine
        self._group_id = group_id
        self._is_hurried = is_hurried
        self._now = asyncio.get_running_loop().time
        self._refused = False
        """Whether a result was refused since the last call of `note_refusals`."""
        self.dead_letters = 0

    def note(self, item: Item, failure: HandlerFailed | ResultRefused) -> None:
        """Put a failed item back, to handle it alone after the handled records are committed.

        Raises:
            TransactionAborted: the transaction may have results of this item or of later items, and
                must not be committed.
        """
        refused = isinstance(failure, ResultRefused)
        self._suspect(item, failure.cause, attempts=0 if refused else 1, refused=refused)
        self._commits.taken -= record_count(item)
        amid = self._options.order_by == "key" and self._options.concurrency > 1
        if amid or refused:
            error = TransactionAborted(f"{place(item)} failed: {type(failure.cause).__name__}")
            raise error from (failure.cause if isinstance(failure.cause, KafkaError) else None)
        self._backlog.put_back(item)
        if not self._commits.taken:
            self._backlog.taken.clear()

    def note_refusals(self) -> bool:
        """Store a suspect for each item whose results a broker refused; called after each abort.

        A broker refuses a whole produce batch because of one record. Therefore each item that has a
        result in a refused produce batch is handled again, alone. Then the broker refuses only the
        results that caused a refusal.

        Returns:
            Whether a result was refused since the previous call of this method.
        """
        for item, cause in self._results.refusals():
            if self._backlog.suspect_of(item) is None:
                self._suspect(item, cause, attempts=0, refused=False)
        refused, self._refused = self._refused, False
        return refused

    def ready(self) -> list[TopicPartition]:
        """Return the partitions whose first item must be handled alone, and is due."""
        now = self._now()
        return [tp for tp, suspect in self._backlog.blocked().items() if suspect.ready_at <= now]

    async def handle(self) -> None:
        """Handle the failed items that are due, each with a commit of its own.

        Raises:
            Exception: the error of an item that is not retried any more, if there is no dead-letter
                topic, or the error of a dead letter that was refused.
            KafkaError: see `Commits.commit`.
        """
        for tp in self.ready():
            if self._commits.taken:
                await self._commits.commit()
            suspect = self._backlog.blocked().get(tp)
            if suspect is not None and not self._is_hurried():
                await self._handle_alone(tp, suspect)

    def _suspect(self, item: Item, error: Exception, *, attempts: int, refused: bool) -> None:
        known = self._backlog.suspect_of(item)
        if known is not None and known.refused:
            refused = True
        if not attempts:
            self._refused = True
        attempts += 0 if known is None else known.attempts
        pause = 0.0
        if not refused and 0 < attempts <= self._options.retries:
            pause = self._pause(attempts)
            self._engine.counters.process_retries += 1
            logger.warning(
                "handler failed and is called again: record=%s attempt=%d pause=%.3gs error=%s",
                place(item),
                attempts,
                pause,
                type(error).__name__,
            )
        ready_at = self._now() + pause
        self._backlog.suspect(
            item, Suspect(error, attempts=attempts, refused=refused, ready_at=ready_at)
        )

    def _pause(self, attempts: int) -> float:
        """Return the seconds before the next call of the handler."""
        options = self._options
        backoff = Backoff(
            options.retry_backoff_ms / 1000,
            options.retry_backoff_max_ms / 1000,
            self._engine.environment.random,
        )
        backoff.failures = attempts - 1
        return backoff.next()

    async def _handle_alone(self, tp: TopicPartition, suspect: Suspect) -> None:
        """Call the handler once more, or write the dead letters; then commit.

        Raises:
            Exception: see `handle`.
        """
        backlog, commits = self._backlog, self._commits
        item = backlog.queues[tp].first
        letters = suspect.refused or suspect.attempts > self._options.retries
        if letters:
            outputs = self._letters(item, suspect.error)
        else:
            try:
                # The transaction has no records yet, so the time limit of the handler begins now.
                commits.opened_at = self._now()
                async with self._limit.over():
                    outputs = await call(self._handler, item)
            except HandlerFailed as failure:
                self._suspect(item, failure.cause, attempts=1, refused=False)
                return
            if tp not in backlog.queues or backlog.queues[tp].first is not item:
                return  # the partition was lost
        if not await commits.begin():
            return
        backlog.take_alone(tp)
        commits.taken += record_count(item)
        try:
            await self._results.accept(item, outputs, serialized=letters)
            commits.handled += record_count(item)
            await commits.commit()
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
            self._announce(tp, item, suspect.error)
        backlog.cleared(item)

    def _announce(self, tp: TopicPartition, item: Item, error: Exception) -> None:
        count = record_count(item)
        self.dead_letters += count
        self._engine.counters.process_dead_letters += count
        topic = self._options.dead_letter_topic or ""
        self._engine.store.announce(
            DeadLettered(
                tp.topic,
                tp.partition,
                first_offset(item),
                self._group_id,
                topic,
                type(error).__name__,
            )
        )

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
