"""Results: sends what handlers return, and knows which records' results were not delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiokq.client.process.outgoing import Outgoing
from aiokq.core.errors import (
    BufferFull,
    Closed,
    KafkaError,
    ProducerFenced,
    RequestTimeout,
    TransactionAborted,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aiokq.client.process.backlog import Item
    from aiokq.client.process.current_producer import CurrentProducer
    from aiokq.fastpath.produce import Delivery

__all__ = ["ResultRefused", "Results"]

ENDS: Final = (TransactionAborted, ProducerFenced, Closed, BufferFull, RequestTimeout)
"""Errors that concern the producer or the transaction, not a single result."""


class ResultRefused(Exception):
    """The producer did not accept a result; `cause` says why."""

    def __init__(self, item: Item, cause: Exception) -> None:
        super().__init__(cause)
        self.item = item
        self.cause = cause


class Results:
    """The results of the records since the last commit.

    Attributes:
        waits_for: the topic for which a result waits: for room in the buffer, or for its metadata.
    """

    def __init__(self, producer: CurrentProducer) -> None:
        self._producer = producer
        self._deliveries: list[tuple[Item, Delivery]] = []
        self.waits_for: str | None = None

    @property
    def count(self) -> int:
        """The number of results."""
        return len(self._deliveries)

    def forget(self) -> None:
        """Start again with no results."""
        self._deliveries.clear()

    async def accept(self, item: Item, outputs: Iterable[Outgoing]) -> None:
        """Accept results for sending; wait for buffer memory if necessary.

        Raises:
            ResultRefused: a result cannot be sent: it is too large, or is no `Outgoing`.
            TransactionAborted: the transaction can only be aborted.
            KafkaError: the producer cannot go on, or there was no room within max_block_ms.
        """
        # hot: benchmarks/suites/transactions.py
        send, note = self._producer.now.send_nowait, self._deliveries.append
        for output in outputs:
            if not isinstance(output, Outgoing):
                raise ResultRefused(
                    item,
                    TypeError(
                        "a handler returns None, an aiokq.Outgoing, or several in a list or an "
                        f"async iterator, not {type(output).__name__}"
                    ),
                )
            arguments = (
                output.topic,
                output.value,
                output.key,
                output.partition,
                output.timestamp_ms,
                output.headers,
            )
            try:
                try:
                    delivery = send(*arguments)
                except (BufferFull, UnknownTopicOrPartition):
                    self.waits_for = output.topic
                    delivery = await self._producer.now.enqueue(*arguments)
            except (KafkaError, TypeError, ValueError) as error:
                if isinstance(error, ENDS):
                    raise
                raise ResultRefused(item, error) from error
            finally:
                self.waits_for = None
            note((item, delivery))

    def refusals(self) -> Iterator[tuple[Item, KafkaError]]:
        """Yield the items whose results will fail again, with the error of each."""
        for item, error in self.failures():
            # The producer has already waited until the topic might have been created.
            if not error.retriable or isinstance(error, UnknownTopicOrPartition):
                yield item, error

    def failures(self) -> Iterator[tuple[Item, KafkaError]]:
        """Yield the items whose results were not delivered, with the error of each."""
        for item, delivery in self._deliveries:
            error = delivery.exception() if delivery.done() else None
            if isinstance(error, KafkaError) and not isinstance(error, TransactionAborted):
                yield item, error
