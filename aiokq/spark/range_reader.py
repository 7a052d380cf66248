"""Reader of offset ranges in a worker: fetches ahead on the event loop, and decodes in the task.

Batches come in the order of the ranges, so that a repeated task returns equal rows in equal order.
Up to WINDOW ranges are fetched at the same time. The bytes that are fetched but not decoded are
bounded.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aiokq import Cluster, PartitionRecords
from aiokq.errors import OffsetOutOfRange
from aiokq.spark.data_loss import Losses
from aiokq.spark.options import ReadOptions
from aiokq.spark.planning import OffsetRange
from aiokq.spark.schema import Projection
from aiokq.spark.security import named_as_options
from aiokq.spark.worker import WorkerClient, worker_client

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]


__all__ = ["read_ranges"]

FETCH_BYTES: Final = 1024 * 1024
"""Default of ``max.partition.fetch.bytes``."""
COLUMNS_BYTES: Final = 8 * FETCH_BYTES
"""Decompressed bytes of records at which an Arrow batch is complete.

The limit is needed because fetched bytes may decompress to a thousand times their size.
"""
WINDOW: Final = 4
"""Maximum number of ranges that are fetched at the same time."""
RANGE_BYTES: Final = 4 * FETCH_BYTES
"""Bytes of one range, fetched but not decoded, at which fetching of the range pauses."""
AHEAD_BYTES: Final = 16 * FETCH_BYTES
"""Bytes of all ranges of a task, fetched but not decoded, at which fetching pauses.

Fetching of the range that the task is reading does not pause at this limit.
"""
END_OF_LOG_WAIT_MS: Final = 500
"""Milliseconds for which a broker may delay the response to a fetch at the end of the log."""
AGAIN: Final = 0.1
"""Seconds between two fetches of an offset that the broker should have but reports out of range."""


def read_ranges(
    ranges: Sequence[OffsetRange], options: ReadOptions, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges, as batches in the schema of the projection.

    Raises:
        DataLoss: records of a range are gone, and ``failOnDataLoss`` is true.
        CorruptRecord: a checksum is wrong, or a batch cannot be decoded.
        KafkaError: a request to the cluster failed.
    """
    if not ranges:
        return
    with named_as_options(options.kafka):
        readahead = _Readahead(worker_client(options.kafka), ranges, options)
        try:
            for records in readahead:
                cursor = records.cursor()
                # `columns` also stops before a corrupt batch; the next call raises the error.
                while True:
                    columns = cursor.columns(projection.columns, COLUMNS_BYTES)
                    if len(columns):
                        yield projection.batch(columns.to_arrow())
                    if cursor.exhausted:
                        break
        finally:
            readahead.close()


@dataclass
class _RangeBuffer:
    """Records of one range that are fetched, and that the task has not taken yet."""

    number: int
    range: OffsetRange
    fetched: deque[PartitionRecords] = field(default_factory=deque)
    bytes: int = 0
    ended: bool = False


class _Readahead:
    """Records fetched ahead on the loop thread; `_changed` guards the state that threads share."""

    def __init__(
        self, client: WorkerClient, ranges: Sequence[OffsetRange], options: ReadOptions
    ) -> None:
        self._buffers = [_RangeBuffer(number, part) for number, part in enumerate(ranges)]
        self._next = iter(self._buffers)
        self._head = 0
        self._bytes = 0
        self._changed = threading.Condition()
        self._waiting = False
        self._room = asyncio.Event()
        self._failure: BaseException | None = None
        self._loop = client.thread
        self._fetching = _Fetching(client.cluster, options)
        self._pumps = [client.submit(self._pump()) for _ in range(min(WINDOW, len(ranges)))]

    def __iter__(self) -> Iterator[PartitionRecords]:
        for buffer in self._buffers:
            while (records := self._take(buffer)) is not None:
                yield records

    def _take(self, buffer: _RangeBuffer) -> PartitionRecords | None:
        with self._changed:
            self._head = buffer.number
            while not buffer.fetched:
                if self._failure is not None:
                    raise self._failure
                if buffer.ended:
                    return None
                self._wake()
                self._changed.wait()
            records = buffer.fetched.popleft()
            buffer.bytes -= records.size
            self._bytes -= records.size
            self._wake()
            return records

    def _wake(self) -> None:
        if self._waiting:
            self._waiting = False
            self._loop.call(self._room.set)

    def close(self) -> None:
        """Cancel the fetches that have not finished."""
        for pump in self._pumps:
            pump.cancel()

    async def _pump(self) -> None:
        """Fetch unfetched ranges, one after another, until all are fetched or a fetch fails."""
        try:
            for buffer in self._next:
                await self._may_fetch(buffer)
                async for records in self._fetching.batches(buffer.range):
                    with self._changed:
                        buffer.fetched.append(records)
                        buffer.bytes += records.size
                        self._bytes += records.size
                        self._changed.notify_all()
                    await self._may_fetch(buffer)
                    if self._failure is not None:
                        return
                with self._changed:
                    buffer.ended = True
                    self._changed.notify_all()
        except BaseException as error:
            # The iterating thread raises the error; other pumps end after their next batch.
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()
            self._room.set()
            if not isinstance(error, Exception):
                raise

    async def _may_fetch(self, buffer: _RangeBuffer) -> None:
        while True:
            with self._changed:
                # AHEAD_BYTES does not limit the range that the task is reading, because other
                # ranges may occupy all of these bytes.
                if self._failure is not None or (
                    buffer.bytes < RANGE_BYTES
                    and (buffer.number <= self._head or self._bytes < AHEAD_BYTES)
                ):
                    return
                self._waiting = True
                self._room.clear()
            await self._room.wait()


class _Fetching:
    """Fetches of single ranges, with detection of lost records."""

    def __init__(self, cluster: Cluster, options: ReadOptions) -> None:
        self._cluster = cluster
        self._losses = Losses(options.fail_on_data_loss)
        self._timeout = options.poll_timeout_ms / 1000
        self._isolation_level = options.isolation_level
        self._max_bytes = int(options.kafka.get("max.partition.fetch.bytes", FETCH_BYTES))

    async def batches(self, part: OffsetRange) -> AsyncGenerator[PartitionRecords, None]:
        """Yield the records of a range, fetch by fetch, up to its end offset."""
        position = part.start
        now = asyncio.get_running_loop().time
        moved = now()
        while position < part.stop:
            try:
                records = await self._cluster.fetch(
                    part.topic_partition,
                    position,
                    self._max_bytes,
                    isolation_level=self._isolation_level,
                    max_wait_ms=END_OF_LOG_WAIT_MS,
                    stop=part.stop,
                    timeout=self._timeout,
                )
            except OffsetOutOfRange:
                after = await self._after_loss(part, position)
                if after == position:
                    # The log has the offset now, although the leader reported it as out of range.
                    if now() - moved > self._timeout:
                        self._losses.unreadable(part.topic_partition, position, part.stop)
                        return
                    await asyncio.sleep(AGAIN)
                position = after
                continue
            if self._replaced(part):
                return
            if records.next_offset > position:
                position = records.next_offset
                yield records
                # The timeout is restarted here, because Spark may take minutes to process a batch,
                # and only the wait for the broker counts.
                moved = now()
            elif now() - moved > self._timeout:
                # The log ends before the range does, and no records arrive.
                self._losses.unreadable(part.topic_partition, position, part.stop)
                return

    def _replaced(self, part: OffsetRange) -> bool:
        """Report and return whether the topic was recreated since the range was planned."""
        if part.topic_id is None:
            return False
        topic = self._cluster.metadata.topic(part.topic)
        if topic is None or not topic.topic_id.int or topic.topic_id == part.topic_id:
            return False
        self._losses.topic_recreated(part.topic, part.topic_id, topic.topic_id)
        return True

    async def _after_loss(self, part: OffsetRange, position: int) -> int:
        """Return the next offset to fetch after OFFSET_OUT_OF_RANGE.

        The result is `position` if the log has this offset now: the error can be temporary, because
        a new leader may briefly report a lower end than the previous leader.
        """
        tp = part.topic_partition
        first = await self._cluster.offsets(tp, "earliest", timeout=self._timeout)
        last = await self._cluster.offsets(
            tp, "latest", isolation_level=self._isolation_level, timeout=self._timeout
        )
        assert first is not None
        assert last is not None
        if position < first.offset:
            self._losses.start_reset(tp, position, first.offset)
            return min(first.offset, part.stop)
        if position <= last.offset:
            return position
        self._losses.changed(tp, position, last.offset)
        return part.stop
