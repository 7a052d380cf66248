"""Results: sends the results of handlers, and tracks which results were not delivered."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import (
    BufferFull,
    Closed,
    KafkaError,
    ProducerFenced,
    RequestTimeout,
    TransactionAborted,
    UnknownTopicOrPartition,
)
from aiokq.fastpath.produce import Outgoing
from aiokq.producer.producer import enqueue_serialized, handler_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aiokq.client.process.backlog import Item, ItemQueue
    from aiokq.client.process.current_producer import CurrentProducer
    from aiokq.client.process.handler_calls import ItemHandler
    from aiokq.fastpath.produce import HandlerResults

__all__ = ["ResultRefused", "Results"]

ENDS: Final = (TransactionAborted, ProducerFenced, Closed, BufferFull, RequestTimeout)
"""Errors that concern the producer or the transaction, not a single result."""


class ResultRefused(Exception):
    """The producer did not accept a result; `cause` is the reason."""

    def __init__(self, item: Item, cause: Exception) -> None:
        super().__init__(cause)
        self.item = item
        self.cause = cause


class Results:
    """Sends the results of handlers, and keeps track of them until they are committed.

    Attributes:
        waits_for: the topic of a result that waits for buffer memory or for the topic's metadata;
            None if no result waits.
    """

    def __init__(self, producer: CurrentProducer) -> None:
        self._producer = producer
        self._sent: HandlerResults[Item] | None = None
        """The results of the next commit; None until the handler is called for that commit."""
        self._parted: HandlerResults[Item] | None = None
        """The results of the commit that was begun."""
        self._holds = False
        """Whether results are held until `release`."""
        self.waits_for: str | None = None

    @property
    def held_bytes(self) -> int:
        """The estimated memory of the held results."""
        return 0 if self._sent is None else self._sent.held_bytes

    def part(self, *, holds: bool) -> None:
        """Begin a commit: set its results apart, so that later results do not mix with them.

        Args:
            holds: whether the later results are sent only by `release`.
        """
        self._parted, self._sent = self._sent, None
        self._holds = holds

    def committed(self) -> int:
        """Forget the results of the commit that was begun; return their number."""
        parted, self._parted = self._parted, None
        return 0 if parted is None else len(parted)

    def forget(self) -> None:
        """Forget all results; later results are sent at once."""
        self._sent = self._parted = None
        self._holds = False

    async def release(self) -> None:
        """Send the held results, and from now on each result at once.

        Raises:
            ResultRefused, KafkaError: see `accept`.
        """
        self._holds = False
        if self._sent is not None:
            for item, output in self._sent.release():
                await self.accept(item, [output])

    def handle(
        self,
        handler: ItemHandler,
        queue: ItemQueue,
        most: int,
        seconds: float,
        ended: Callable[[], bool],
    ) -> tuple[int, object, BaseException | None]:
        """Call the handler for items without waiting, and accept its results.

        Args:
            most: the maximum number of items to handle; at most the length of `queue`.
            seconds, ended: see `HandlerResults.handle`.

        Returns:
            The number of completely handled items; the result of the next item if it is not
            accepted yet, else None; the error that the handler raised for the next item, else None.
        """
        start = queue.at
        reached, rest, error = self._now.handle(
            handler, queue.items, start, start + most, seconds, ended
        )
        return reached - start, rest, error

    async def accept(
        self, item: Item, outputs: list[Outgoing], *, serialized: bool = False
    ) -> None:
        """Accept results for sending; wait for buffer memory or metadata if necessary.

        Args:
            serialized: whether keys and values are serialized already, as in dead letters.

        Raises:
            ResultRefused: a result cannot be sent, for example because it is too large, or is not
                an `Outgoing`.
            TransactionAborted: the transaction can only be aborted.
            KafkaError: the producer cannot be used any more, or there was no buffer memory within
                max_block_ms.
        """
        sent, done = self._now, 0
        while (done := sent.append(item, outputs, done)) < len(outputs):
            await self._enqueue(sent, item, outputs[done], serialized)
            done += 1

    async def _enqueue(
        self, sent: HandlerResults[Item], item: Item, output: Outgoing, serialized: bool
    ) -> None:
        """Accept a result that must wait or be serialized first; refuse an invalid result."""
        if not isinstance(output, Outgoing):
            raise ResultRefused(
                item,
                TypeError(
                    "a handler returns None, an aiokq.Outgoing, or several in a list or an "
                    f"async iterator, not {type(output).__name__}"
                ),
            )
        self.waits_for = output.topic
        try:
            producer = self._producer.now
            enqueue = partial(enqueue_serialized, producer) if serialized else producer.enqueue
            delivery = await enqueue(
                output.topic,
                output.value,
                output.key,
                output.partition,
                output.timestamp_ms,
                output.headers,
            )
        except (KafkaError, TypeError, ValueError) as error:
            if isinstance(error, ENDS):
                raise
            raise ResultRefused(item, error) from error
        finally:
            self.waits_for = None
        sent.add(item, delivery)

    @property
    def _now(self) -> HandlerResults[Item]:
        if self._sent is None:
            self._sent = handler_results(self._producer.now, holds=self._holds)
        return self._sent

    def refusals(self) -> Iterator[tuple[Item, KafkaError]]:
        """Yield the items whose undelivered results would fail again, with the error of each."""
        for item, error in self.failures():
            # The producer has already waited for the topic to be created.
            if not error.retriable or isinstance(error, UnknownTopicOrPartition):
                yield item, error

    def failures(self) -> Iterator[tuple[Item, KafkaError]]:
        """Yield the items whose results were not delivered, with the error of each.

        Results that failed only because the transaction was aborted are left out.
        """
        every = [results for results in (self._parted, self._sent) if results is not None]
        for item, error in itertools.chain(*(results.failures() for results in every)):
            if isinstance(error, KafkaError) and not isinstance(error, TransactionAborted):
                yield item, error
