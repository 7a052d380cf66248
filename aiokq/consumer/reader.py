"""Reader: reads single records, many records, or batches from one record source."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, cast

from aiokq.consumer.batch import RecordBatch
from aiokq.fastpath.consume import Record

if TYPE_CHECKING:
    from aiokq.consumer.acknowledgements import Acknowledgements
    from aiokq.consumer.batch_progress import TakenChunk
    from aiokq.consumer.buffers import Buffers
    from aiokq.consumer.deserializers import Deserialize, MakeDeserializer
    from aiokq.consumer.record_source import RecordSource
    from aiokq.core.types import TopicPartition

    MakeRecord = Callable[[Callable[[Record], None]], Callable[[Record], Record]]

__all__ = ["AckedStream", "BatchStream", "DeserializedStream", "Reader"]


class DeserializedStream:
    """The records of a stream, each deserialized when it is delivered."""

    def __init__(self, stream: AsyncIterator[Record], deserialize: Deserialize) -> None:
        self._stream = stream
        self._deserialize = deserialize

    def __aiter__(self) -> DeserializedStream:
        return self

    async def __anext__(self) -> Record:
        # Typed as Record, because deserializers are settings and unknown to a type checker.
        return cast("Record", self._deserialize(await self._stream.__anext__()))


class AckedStream:
    """The records of a stream, each registered as unacknowledged when it is delivered.

    A record is registered before it is deserialized, and therefore also if its deserializer raises.
    Nothing is awaited between delivery and registration, so a cancellation loses no record.
    """

    def __init__(self, stream: AsyncIterator[Record], handed: Callable[[Record], None]) -> None:
        self._stream = stream
        self._handed = handed

    def __aiter__(self) -> AckedStream:
        return self

    async def __anext__(self) -> Record:
        record = await self._stream.__anext__()
        self._handed(record)
        return record


class BatchStream:
    """The batches of a record source; returned by `Consumer.batches()`.

    A batch is delivered when `__anext__` ends, so a cancelled wait loses nothing.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __aiter__(self) -> BatchStream:
        self._reader.check()
        self._reader.source.reader_guard.begins()
        return self

    def __anext__(self) -> Awaitable[RecordBatch[Record]]:
        return self._reader.next_batch()


class Reader:
    """Reads from one record source.

    Args:
        deserializer: makes the deserializer of the records. If `deserializer` is None, records are
            delivered as received.
        acks: is notified of delivered records; None unless ``ack_mode="explicit"``.
        check: raises WrongLoop if it is called outside the consumer's event loop.
    """

    def __init__(
        self,
        source: RecordSource,
        buffers: Buffers,
        deserializer: MakeDeserializer | None,
        acks: Acknowledgements | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.source = source
        self._buffers = buffers
        self._deserializer = deserializer
        self._acks = acks
        self.check = check
        self._handed = None if acks is None else acks.handed
        self._deserialize: Deserialize | None = None
        self.records: AsyncIterator[Record] = cast("AsyncIterator[Record]", source.stream)
        if acks is not None:
            self.records = AckedStream(self.records, acks.handed)
        if deserializer is not None:
            self._deserialize = deserializer(_nothing)
            self.records = DeserializedStream(self.records, self._deserialize)

    def stream(self) -> AsyncIterator[Record]:
        """Start an `async for` loop, and return the iterator that all loops share."""
        self.check()
        self.source.reader_guard.begins()
        return self.records

    def next(self) -> Awaitable[Record]:
        """Return an awaitable of the next record."""
        self.check()
        self.source.reader_guard.reads()
        return self.records.__anext__()

    async def one(self, wanted: Collection[TopicPartition]) -> Record:
        """Return the next record of `wanted`, or of any partition if `wanted` is empty."""
        if not wanted:
            try:
                return await self.next()
            except StopAsyncIteration:
                raise self.source.closed_error() from None
        self.check()
        source = self.source
        with source.reading():
            while True:
                for records in source.take(1, wanted, self._deserialize, self._handed).values():
                    return records[0]
                await source.wait_for(wanted)

    async def many(
        self, wanted: Collection[TopicPartition], timeout: float, limit: int
    ) -> dict[TopicPartition, list[Record]]:
        """Return at most `limit` buffered records; wait at most `timeout` seconds for the first."""
        self.check()
        source = self.source
        with source.reading():
            if source.turn_due:
                await source.wait_for(())
            take = partial(source.take, limit, wanted, self._deserialize, self._handed)
            taken = take()
            if not taken and timeout <= 0:
                # Yield once: a loop that calls this method without a timeout would otherwise never
                # let the event loop fetch.
                await asyncio.sleep(0)
                taken = take()
            elif not taken:
                deadline = asyncio.timeout(timeout)
                try:
                    async with deadline:
                        while not taken:
                            await source.wait_for(wanted)
                            taken = take()
                except TimeoutError:
                    if not deadline.expired():
                        raise
            return taken

    async def next_batch(self) -> RecordBatch[Record]:
        """Return the next batch that has records.

        Raises: RuntimeError if another task is reading; the errors of `RecordSource.take_chunk`.
        """
        self.check()
        source = self.source
        with source.reading():
            while True:
                taken = source.take_chunk()
                if taken is None:
                    await source.wait_for(())
                    continue
                if taken.records == 0:
                    continue
                batch = self._batch(taken)
                if self._acks is not None:
                    self._acks.handed_batch(batch)
                return batch

    def _batch(self, taken: TakenChunk) -> RecordBatch[Record]:
        # Typed as Record, because deserializers are settings and unknown to a type checker.
        return RecordBatch(
            *taken.tp,
            taken.position,
            size=len(taken.data),
            progress=taken.progress,
            cursor=partial(self._buffers.cursor_of, taken),
            count=partial(self._buffers.count, taken),
            records=taken.records,
            deserializer=cast("MakeRecord | None", self._deserializer),
        )


def _nothing(record: Record) -> None:
    """Ignore a record whose deserializer raised an error; the reader receives the error."""
