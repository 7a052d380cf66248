"""Calls the handler of `process()`, returns its results as a list, and builds dead letters."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from aiokq.client.process.backlog import records_of
from aiokq.fastpath.produce import Outgoing

if TYPE_CHECKING:
    from aiokq.client.process.backlog import Item
    from aiokq.consumer.batch import RecordBatch
    from aiokq.consumer.deserializers import MakeDeserializer
    from aiokq.fastpath.consume import Record

__all__ = [
    "BatchHandler",
    "Handler",
    "HandlerFailed",
    "HandlerResult",
    "ItemHandler",
    "RecordHandler",
    "call",
    "collected",
    "dead_letters",
    "deserializing",
    "failed",
]

HandlerResult: TypeAlias = Outgoing | Iterable[Outgoing] | AsyncIterable[Outgoing] | None
RecordHandler: TypeAlias = "Callable[[Record], HandlerResult | Awaitable[HandlerResult]]"
BatchHandler: TypeAlias = (
    "Callable[[RecordBatch[Record]], HandlerResult | Awaitable[HandlerResult]]"
)
Handler: TypeAlias = "RecordHandler | BatchHandler"
"""The type of the user's handler, which gets batches with ``batch=True``, otherwise records."""

ItemHandler: TypeAlias = "Callable[[Item], HandlerResult | Awaitable[HandlerResult]]"
"""The type of a `Handler` where code calls it with an `Item`, which is a record or a batch."""

ERROR_HEADER: Final = "aiokq.error"
SOURCE_HEADER: Final = "aiokq.source"
"""Header of dead letters with topic, partition and offset of the record.

``ERROR_HEADER`` is the header with the error.
"""

ERROR_BYTES: Final = 1024
"""Maximum bytes of the error in a header; a longer text could make the dead letter too large."""


class HandlerFailed(Exception):
    """The handler raised an error for an item; `cause` is that error."""

    def __init__(self, item: Item, cause: Exception) -> None:
        super().__init__(cause)
        self.item = item
        self.cause = cause


async def call(handler: ItemHandler, item: Item) -> list[Outgoing]:
    """Call the handler with an item, and return the results.

    Raises:
        HandlerFailed: the handler raised.
    """
    try:
        result = handler(item)
    except (Exception, asyncio.CancelledError) as error:
        raise failed(item, error) from error
    return await collected(item, result)


def failed(item: Item, error: BaseException) -> HandlerFailed:
    """Return the failure of an item whose handler raised `error`.

    A CancelledError from the handler is a failure, too: a task or future that the handler awaited
    was cancelled, not the call of `process()`.
    """
    if isinstance(error, Exception):
        return HandlerFailed(item, error)
    cause = RuntimeError(f"the handler raised {type(error).__name__}")
    cause.__cause__ = error
    return HandlerFailed(item, cause)


def deserializing(handler: ItemHandler, make: MakeDeserializer) -> ItemHandler:
    """Return a handler that deserializes a record and calls `handler` with the result.

    An error of a deserializer is thus handled like an error of `handler`. A dead letter has the key
    and the value as received.
    """
    deserialize = make(lambda record: None)

    def handle(record: Any) -> HandlerResult | Awaitable[HandlerResult]:
        return handler(cast("Record", deserialize(record)))

    return handle


def dead_letters(topic: str, item: Item, error: Exception) -> list[Outgoing]:
    """Return the dead letters of an item: its records, with `ERROR_HEADER` and `SOURCE_HEADER`."""
    return [_letter(topic, record, error) for record in records_of(item)]


def _letter(topic: str, record: Record, error: Exception) -> Outgoing:
    source = f"{record.topic}-{record.partition}@{record.offset}"
    return Outgoing(
        topic,
        record.value,
        record.key,
        [
            *record.headers,
            (SOURCE_HEADER, source.encode()),
            (ERROR_HEADER, _text(error)),
        ],
    )


def _text(error: Exception) -> bytes:
    text = f"{type(error).__name__}: {error}"
    return text.encode(errors="backslashreplace")[:ERROR_BYTES]


async def collected(item: Item, result: Any) -> list[Outgoing]:
    """Return the results of an item as a list; await or iterate `result` if necessary.

    Raises:
        HandlerFailed: the handler raised.
    """
    try:
        if inspect.isawaitable(result):
            result = await result
        if result is None:
            return []
        if isinstance(result, Outgoing):
            return [result]
        if isinstance(result, list):
            return result
        if isinstance(result, AsyncIterable):
            return [output async for output in result]
        if isinstance(result, Iterable):
            return list(result)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise failed(item, error) from error
    except Exception as error:
        raise failed(item, error) from error
    return [result]  # `Results.accept` refuses a result that is not an Outgoing
