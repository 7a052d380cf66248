"""Calls of the handler of `process()`: its results as a list, retries, dead letters."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from aiokq.client.process.outgoing import Outgoing
from aiokq.connection.backoff import Backoff
from aiokq.core.errors import KafkaError

if TYPE_CHECKING:
    import random

    from aiokq.client.process.options import ProcessOptions
    from aiokq.consumer.batch import RecordBatch
    from aiokq.fastpath.consume import Record

__all__ = ["Handler", "HandlerCalls", "HandlerResult", "Item"]

logger = logging.getLogger("aiokq.client")

Item: TypeAlias = "Record | RecordBatch[Record]"
"""What a handler takes: a record, or a batch with ``batch=True``."""

HandlerResult: TypeAlias = Outgoing | Iterable[Outgoing] | AsyncIterable[Outgoing] | None
Handler: TypeAlias = Callable[[Any], HandlerResult | Awaitable[HandlerResult]]

ERROR_HEADER: Final = "aiokq.error"
SOURCE_HEADER: Final = "aiokq.source"
"""Headers of dead letters: the error, and topic, partition and offset of the record."""


class HandlerCalls:
    """Calls a handler for each item, with the retries and dead letters of the options.

    Attributes:
        dead_letters: records for which dead letters were made.
    """

    def __init__(self, handler: Handler, options: ProcessOptions, rng: random.Random) -> None:
        self._handler = handler
        self._options = options
        self._random = rng
        self._failures: dict[tuple[str, int, int], int] = {}
        self.dead_letters = 0

    def call_now(self, item: Item) -> list[Outgoing] | Awaitable[list[Outgoing]]:
        """Return the outputs of an item; an awaitable if the handler is one, or has failed."""
        # hot: benchmarks/suites/transactions.py
        try:
            result = self._handler(item)
        except Exception as error:  # noqa: BLE001 - the policy decides
            return self._failed(item, error, 1)
        if result is None:
            return []
        if type(result) is Outgoing:
            return [result]
        if isinstance(result, list):
            return result
        return self._collected(item, result)

    async def call(self, item: Item) -> list[Outgoing]:
        """Return the outputs of an item.

        Raises:
            Exception: what the handler raised, after all retries and without a dead-letter topic.
        """
        outputs = self.call_now(item)
        return outputs if isinstance(outputs, list) else await outputs

    async def refused(self, item: Item, error: KafkaError) -> list[Outgoing]:
        """Return what replaces the outputs of an item that a broker or the producer refused.

        Raises:
            KafkaError: the error, without a dead-letter topic.
        """
        return self._letters(item, error)

    async def _collected(self, item: Item, result: Any) -> list[Outgoing]:
        try:
            return await _outputs(result)
        except Exception as error:  # noqa: BLE001 - the policy decides
            return await self._failed(item, error, 1)

    async def _failed(self, item: Item, error: Exception, attempt: int) -> list[Outgoing]:
        """Call the handler again after a pause, or return the dead letters of the item."""
        options = self._options
        backoff = Backoff(
            options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000, self._random
        )
        while attempt <= options.retries:
            logger.warning(
                "handler failed and is called again: record=%s attempt=%d error=%r",
                _place(item),
                attempt,
                error,
            )
            await asyncio.sleep(backoff.next())
            attempt += 1
            try:
                return await _outputs(self._handler(item))
            except Exception as again:  # noqa: BLE001 - the policy decides
                error = again
        return self._letters(item, error)

    def _letters(self, item: Item, error: Exception) -> list[Outgoing]:
        topic = self._options.dead_letter_topic
        if topic is None:
            error.add_note(f"raised for {_place(item)}")
            raise error
        records: list[Any] = list(cast("Any", item)) if self._options.batch else [item]
        logger.error(
            "record is sent to the dead-letter topic: record=%s topic=%s error=%r",
            _place(item),
            topic,
            error,
        )
        self.dead_letters += len(records)
        return [_letter(topic, record, error) for record in records]


def _letter(topic: str, record: Any, error: Exception) -> Outgoing:
    source = f"{record.topic}-{record.partition}@{record.offset}"
    return Outgoing(
        topic,
        record.value,
        record.key,
        [
            *record.headers,
            (SOURCE_HEADER, source.encode()),
            (ERROR_HEADER, f"{type(error).__name__}: {error}".encode()),
        ],
    )


async def _outputs(result: Any) -> list[Outgoing]:
    """Return a handler's result as a list.

    Raises:
        TypeError: the result is of another type.
    """
    if inspect.isawaitable(result):
        result = await result
    if result is None:
        return []
    if isinstance(result, Outgoing):
        return [result]
    if isinstance(result, AsyncIterable):
        found = [output async for output in result]
    elif isinstance(result, Iterable):
        found = list(result)
    else:
        found = [result]
    for output in found:
        if not isinstance(output, Outgoing):
            raise TypeError(
                "a handler returns None, an aiokq.Outgoing, or several in a list or an async "
                f"iterator, not {output!r}"
            )
    return found


def _place(item: Any) -> str:
    offset = getattr(item, "offset", None)
    if offset is None:
        return f"{item.topic}-{item.partition} before offset {item.next_offset}"
    return f"{item.topic}-{item.partition}@{offset}"
