"""Buffers: fetched data that was not delivered yet, and the memory that it occupies.

A chunk is one partition's part of a fetch response. All chunks of a response share one frame. The
memory of a frame counts as used until its last chunk is released.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aiokq.consumer.batch_checks import (
    RecordOffsets,
    SoundPrefix,
    corrupt_batch,
    count_remaining,
    sound_prefix,
)
from aiokq.consumer.batch_progress import BatchProgress
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import TopicPartition
from aiokq.fastpath.consume import Cursor

if TYPE_CHECKING:
    from aiokq.consumer.batch_progress import TakenChunk
    from aiokq.core.errors import KafkaError
    from aiokq.fastpath.consume import Codecs

__all__ = ["Buffers", "Chunk", "Extent", "Frame", "Whole", "extent"]

_LENGTH: Final = struct.Struct(">i").unpack_from
_HEAD: Final = struct.Struct(">qiib").unpack_from
_LAST_DELTA: Final = struct.Struct(">i").unpack_from
_OVERHEAD: Final = 12
_LEAST_HEADER: Final = 17


class Extent(NamedTuple):
    """The end of fetched batches, according to the header of the last complete batch."""

    end_offset: int
    """The offset after the last complete batch.

    -1 if there is no complete batch, or if the last complete batch is shorter than a batch header.
    """
    leader_epoch: int
    """The leader epoch of that batch; -1 if unknown."""


def from_offset(data: memoryview, offset: int) -> memoryview:
    """Return `data` without the leading complete batches whose offsets are all before `offset`."""
    position, end = 0, len(data)
    while end - position >= _LEAST_HEADER:
        size = _OVERHEAD + _LENGTH(data, position + 8)[0]
        if size <= _LEAST_HEADER or position + size > end:
            break
        last, _ = extent(data[position : position + size])
        if last < 0 or last > offset:
            break
        position += size
    return data[position:]


def extent(data: memoryview) -> Extent:
    """Return the end offset and the leader epoch of the last complete batch in `data`."""
    # Hot path, once per batch; measured by benchmarks/micro/consumer.py.
    position, last, end = 0, -1, len(data)
    while end - position >= _LEAST_HEADER:
        size = _OVERHEAD + _LENGTH(data, position + 8)[0]
        if size <= _LEAST_HEADER or position + size > end:
            break
        last = position
        position += size
    if last < 0:
        return Extent(-1, -1)
    base_offset, _, epoch, magic = _HEAD(data, last)
    if magic < 2:
        return Extent(base_offset + 1, -1)
    if position - last < 61:
        return Extent(-1, -1)
    return Extent(base_offset + _LAST_DELTA(data, last + 23)[0] + 1, epoch)


class Whole(NamedTuple):
    """The part of a chunk that can be delivered as one batch."""

    data: memoryview
    """The chunk's batches, which may include batches before the position."""
    next_offset: int
    """The position after the part; the chunk's position if the part is empty."""
    stop: int | None
    """The offset at which cursors must stop; None to read to the end of `data`."""
    records: int | None
    """The number of records; None if the part has records that were not counted."""
    checked: bool
    """Whether the checksums were verified."""
    error: KafkaError | None
    """The error of the data after the part; None if the part ends with the chunk."""


class Frame:
    """The memory of one response, or of a copy. It counts as used until its last chunk is released.

    Attributes:
        size: the size of the batches in bytes.
        chunks: the number of chunks that are not released.
        own: whether the frame is a copy of one chunk, or of parts of one chunk.
        offsets: the offsets of the records, if the frame is a copy whose records were counted; else
            None.
    """

    __slots__ = ("chunks", "offsets", "own", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.chunks = 0
        self.own = False
        self.offsets: RecordOffsets | None = None


class Chunk:
    """One partition's part of a response, and the cursor that reads it.

    Attributes:
        data: batches; the last batch may be truncated.
        size: the length of `data` in bytes.
        end_offset: the position after the last complete batch; if the chunk is `cut`, the position
            at which it ends.
        cut: whether the chunk is an unread part of a delivered batch whose reading stopped at an
            error. A cut chunk ends at `end_offset`, within its data, and its records have already
            been counted as received.
        checked: whether the checksums were verified.
        cursor: reads the data. While the chunk is the first in the queue and no delivered batch is
            unfinished, the position of the cursor is the position of the partition.
        failed: the offset of the next record and the exception of its deserializer, if that
            exception was not raised to the reader yet; else None.
    """

    __slots__ = (
        "aborted",
        "checked",
        "cursor",
        "cut",
        "data",
        "end_offset",
        "failed",
        "frame",
        "size",
    )

    def __init__(
        self,
        frame: Frame,
        data: memoryview,
        cursor: Cursor,
        end_offset: int,
        aborted: list[tuple[int, int]] | None,
        *,
        cut: bool = False,
        checked: bool = False,
    ) -> None:
        self.frame = frame
        self.end_offset = end_offset
        self.data = data
        self.size = len(data)
        self.cursor = cursor
        self.aborted = aborted
        self.cut = cut
        self.checked = checked
        self.failed: tuple[int, BaseException] | None = None
        frame.chunks += 1

    @property
    def received(self) -> int:
        """The number of records that the cursor has delivered and that were not counted yet."""
        return 0 if self.cut else self.cursor.handed

    @property
    def stop(self) -> int | None:
        """The offset at which cursors must stop; None to read to the end of the data."""
        return self.end_offset if self.cut else None


class Buffers:
    """All chunks of a consumer, and the memory they use.

    Args:
        limit: the number of used bytes at which the buffers are full. While the buffers are full, a
            partition is fetched only if it has nothing buffered and a reader waits.

    Attributes:
        used: bytes of the frames that are not released.
        full: whether the limit was reached and `used` has not fallen to three quarters of the limit
            since. Without this hysteresis, fetching would start and stop with each chunk that is
            read.
    """

    def __init__(self, limit: int, *, codecs: Codecs, check_crcs: bool) -> None:
        self.used = 0
        self.full = False
        self._limit = limit
        self._reopen = limit - limit // 4
        self._codecs = codecs
        self._check_crcs = check_crcs

    @property
    def room(self) -> int:
        """The number of bytes that may still be fetched; at least 0."""
        return max(0, self._limit - self.used)

    def frame(self, size: int) -> Frame:
        """Return a new frame of `size` bytes, and count these bytes as used."""
        self._use(size)
        return Frame(size)

    def _use(self, size: int) -> None:
        self.used += size
        self.full = self.full or self.used >= self._limit

    def chunk(
        self,
        frame: Frame,
        topic: str,
        partition: int,
        data: memoryview,
        start_offset: int,
        end_offset: int,
        aborted: list[tuple[int, int]] | None,
    ) -> Chunk:
        cursor = self.cursor(topic, partition, data, start_offset, aborted)
        return Chunk(frame, data, cursor, end_offset, aborted)

    def cursor(
        self,
        topic: str,
        partition: int,
        data: memoryview,
        start_offset: int,
        aborted: list[tuple[int, int]] | None,
        *,
        stop_offset: int | None = None,
        checked: bool = False,
    ) -> Cursor:
        """Return a cursor over fetched batches, with the settings of this consumer.

        Args:
            stop_offset: the offset at which to stop; None to read to the end of the data.
            checked: whether the checksums were verified.
        """
        return Cursor(
            topic,
            partition,
            data,
            start_offset=start_offset,
            stop_offset=stop_offset,
            codecs=self._codecs,
            check_crcs=self._check_crcs and not checked,
            aborted=aborted,
        )

    def sound_prefix(self, chunk: Chunk) -> SoundPrefix:
        """Return the undamaged batches of a chunk, with the number of their unread records."""
        return sound_prefix(chunk.data, chunk.cursor.position, check_crcs=self._check_crcs)

    def whole(self, chunk: Chunk) -> Whole:
        """Return the part of a chunk that can be delivered as one batch."""
        if chunk.cut:
            return _left(chunk)
        good = self.sound_prefix(chunk)
        data, end, stop, records = chunk.data, chunk.end_offset, None, good.records
        cursor = chunk.cursor
        error: KafkaError | None = None
        if good.beyond >= 0:
            tp = TopicPartition(cursor.topic, cursor.partition)
            data, end = data[: good.size], good.next_offset
            error = corrupt_batch(tp, end, good.beyond)
        if records is None or chunk.aborted:
            counted = count_remaining(
                self.again(chunk, cursor.position, data, checked=good.checked)
            )
            records = counted.records
            if counted.error is not None:
                end = stop = counted.next_offset
                error = counted.error
        return Whole(data, end, stop, records, good.checked, error)

    def again(
        self,
        chunk: Chunk,
        position: int,
        data: memoryview | None = None,
        *,
        checked: bool = False,
    ) -> Cursor:
        """Return a new cursor over a chunk. The cursor starts at `position`.

        Args:
            data: a part of the chunk; all of it by default.
        """
        cursor = chunk.cursor
        return self.cursor(
            cursor.topic,
            cursor.partition,
            chunk.data if data is None else data,
            position,
            chunk.aborted,
            stop_offset=chunk.stop,
            checked=checked or chunk.checked,
        )

    def move(self, chunk: Chunk, position: int) -> int:
        """Set a chunk's position; return the number of its delivered records not counted yet."""
        received = chunk.received
        chunk.cursor = self.again(chunk, position)
        return received

    def cursor_of(self, taken: TakenChunk, position: int, stop: int | None) -> Cursor:
        """Return a new cursor over a chunk that was delivered as a batch.

        Args:
            stop: the offset at which to stop; None for the chunk's own end.
        """
        known = taken.progress.at(position)
        if known is not None:
            return known.fork(stop)
        return self.cursor(
            *taken.tp,
            taken.data,
            position,
            taken.aborted,
            stop_offset=taken.stop if stop is None else stop,
            checked=taken.checked,
        )

    def count(self, taken: TakenChunk, position: int, stop: int | None) -> int:
        """Return the number of decodable records of a delivered batch from `position` on.

        The record offsets of a copied frame are decoded once and kept, because a reader may request
        the count again after each error.

        Args:
            stop: the offset at which to stop; None for the chunk's own end.
        """
        frame = taken.frame
        if not frame.own:
            return count_remaining(self.cursor_of(taken, position, stop)).records
        offsets = frame.offsets
        if offsets is None or not offsets.cover(position):
            offsets = RecordOffsets(self.cursor_of(taken, position, None))
            frame.offsets = offsets
        end = taken.next_offset if taken.stop is None else taken.stop
        return offsets.count(position, end if stop is None else min(stop, end))

    def take_back(self, taken: TakenChunk, pieces: Sequence[tuple[int, int]]) -> list[Chunk]:
        """Return chunks for the unread parts of a batch, in memory of their own.

        The data is copied, except if its frame is a copy already.
        """
        # The cursor needs the batches before the unread part to know which transactions are
        # aborted.
        data = taken.data if taken.aborted else from_offset(taken.data, pieces[0][0])
        frame = taken.frame
        if not frame.own:
            data = memoryview(bytes(data))
            frame = self.frame(len(data))
            frame.own = True
            taken = taken._replace(
                data=data, progress=BatchProgress(taken.position, taken.next_offset)
            )
        elif not frame.chunks:
            self._use(frame.size)
        chunks = []
        for first, end in pieces:
            cursor = self.cursor_of(taken, first, end)
            chunk = Chunk(frame, data, cursor, end, taken.aborted, cut=True, checked=taken.checked)
            chunks.append(chunk)
        return chunks

    def release(self, chunk: Chunk) -> bool:
        """Release a chunk that was read or discarded; return whether there is room again."""
        chunk.failed = None  # breaks a cycle: the traceback's stack frames refer to the chunk
        frame = chunk.frame
        frame.chunks -= 1
        if not frame.chunks:
            self.used -= frame.size
            if self.full and self.used <= self._reopen:
                self.full = False
                return True
        return False

    def discard(self, frame: Frame) -> None:
        """Release `frame` if it has no chunks."""
        if not frame.chunks:
            self.used -= frame.size
            self.full = self.full and self.used > self._reopen

    def detach(self, chunk: Chunk) -> bool:
        """Copy a chunk into a frame of its own, and keep the position of the chunk.

        Used for a chunk that will stay buffered for a long time, so that the memory of the shared
        frame can be released.

        Returns:
            Whether the buffers have room again.
        """
        chunk.data = memoryview(bytes(chunk.data))
        own = self.frame(chunk.size)
        own.own = True
        chunk.cursor = self.again(chunk, chunk.cursor.position)
        opened = self.release(chunk)
        chunk.frame = own
        own.chunks += 1
        return opened


def _left(chunk: Chunk) -> Whole:
    """Return the readable part of a `cut` chunk; the part may be empty.

    The records are not counted, because counting would decode all of them again after each error.
    """
    records: int | None = None
    error: KafkaError | None = None
    try:
        if not chunk.cursor.more():
            records = 0
    except KafkaError as problem:
        records, error = 0, problem
    end = chunk.end_offset if error is None else chunk.cursor.position
    return Whole(chunk.data, end, end, records, chunk.checked, error)
