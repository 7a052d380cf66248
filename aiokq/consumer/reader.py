"""Owns the ways to read from an source: single records, many, and batches, deserialized or not."""

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
    """Records of a native stream, each deserialized as it is handed over."""

    def __init__(self, stream: AsyncIterator[Record], deserialize: Deserialize) -> None:
        self._stream = stream
        self._deserialize = deserialize

    def __aiter__(self) -> DeserializedStream:
        return self

    async def __anext__(self) -> Record:
        # To a type checker it is the record it stands for: deserializers are settings, not types.
        return cast("Record", self._deserialize(await self._stream.__anext__()))


class AckedStream:
    """Records of a stream, each noted as handed over; they are finished when they are acknowledged.

    It comes before the deserializers: a record that they raise for is handed over, too. No wait
    lies between the hand-over and the note: a cancelled one loses nothing.
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
    """Batches as they come; what `Consumer.batches()` gives.

    A batch is handed over when `__anext__` ends, so a cancelled wait loses nothing.
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
    """Reads from one source.

    Args:
        deserializer: what is made of each record, if anything.
        acks: told of all that is handed over, if it is finished only when acknowledged.
        check: raises where this is not the consumer's loop.
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
        """What `async for` iterates, one for all loops; one begins now."""
        self.check()
        self.source.reader_guard.begins()
        return self.records

    def next(self) -> Awaitable[Record]:
        """The next record, for a single await."""
        self.check()
        self.source.reader_guard.reads()
        return self.records.__anext__()

    async def one(self, wanted: Collection[TopicPartition]) -> Record:
        """The next record, of certain partitions if some are named.

        Raises:
            Closed: the consumer was closed.
            KafkaError: what went wrong with a partition.
        """
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
        """What is there, at most so many; waits for the first of it.

        Raises:
            Closed: the consumer was closed.
            KafkaError: what went wrong with a partition.
        """
        self.check()
        source = self.source
        with source.reading():
            if source.turn_due:
                await source.wait_for(())
            take = partial(source.take, limit, wanted, self._deserialize, self._handed)
            taken = take()
            if not taken and timeout <= 0:
                # Who polls in a loop would keep the loop from ever fetching anything.
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
        """The next batch that is not empty.

        Raises:
            StopAsyncIteration: the consumer was closed.
            KafkaError: what went wrong with a partition.
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
        # To a type checker a record is what it stands for: deserializers are settings, not types.
        return RecordBatch(
            *taken.tp,
            taken.position,
            size=len(taken.data),
            progress=taken.progress,
            cursor=partial(self._buffers.cursor_of, taken),
            records=taken.records,
            deserializer=cast("MakeRecord | None", self._deserializer),
        )


def _nothing(record: Record) -> None:
    """What a record's deserializer raises needs no note where records come one by one."""
