"""Owns what was fetched and not handed over: chunks with their cursors, and their bytes, counted.

A chunk is one partition's part of one fetch response. All chunks of a response lie in one frame,
which is freed with the last of them: that is what is counted.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.consumer.batch_checks import SoundPrefix, corrupt_batch, count_remaining, sound_prefix
from aiokq.consumer.batch_progress import BatchProgress
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
    """What the headers of fetched batches say, without a look at the records."""

    end_offset: int
    """Where to go on fetching; -1 if there is no whole batch, or its header makes no sense."""
    leader_epoch: int
    """Of the last batch; -1 if unknown."""


def from_offset(data: memoryview, offset: int) -> memoryview:
    """Without the whole batches at the start of `data` that end before an offset."""
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
    """How far the whole batches in `data` reach.

    # hot: once per batch, benchmarks/micro/consumer.py
    """
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
    """What of a chunk can be handed over as a whole."""

    data: memoryview
    """Its batches, and perhaps those that were read before."""
    next_offset: int
    """The position behind it; where nothing can be handed over, that of the chunk."""
    stop: int | None
    """The same, if it ends amid its batches."""
    records: int | None
    """How many it has, by its headers where these tell; None if it has some, not counted."""
    checked: bool
    """Its checksums were verified."""
    error: KafkaError | None
    """Why it ends there, if what follows cannot be read."""


class Frame:
    """The memory of one response; it lives as long as one of its chunks does.

    Attributes:
        size: bytes of records.
        chunks: how many still live.
        own: it is a copy, of one chunk or what that is divided into.
    """

    __slots__ = ("chunks", "own", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.chunks = 0
        self.own = False


class Chunk:
    """One partition's part of a response, and the cursor that hands it over.

    Attributes:
        data: batches, the last one perhaps cut off.
        size: bytes of `data`.
        end_offset: the position behind its last whole batch, or where it is to end before that.
        cut: it was taken back: it ends there, amid its batches, and its records were counted as
            received before.
        checked: its checksums were verified.
        cursor: made when the chunk is; its position is the partition's while it comes first.
        failed: the offset of the next record, and what its deserializer raised: still to be raised.
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
        """Records that the cursor has handed over and nobody has counted."""
        return 0 if self.cut else self.cursor.handed

    @property
    def stop(self) -> int | None:
        """Where its cursors have to stop; None at the end of the bytes."""
        return self.end_offset if self.cut else None


class Buffers:
    """All chunks of a consumer, counted.

    Args:
        limit: bytes from which no partition is fetched further that has something waiting.

    Attributes:
        used: bytes of the frames that live.
        full: the limit was reached, and not yet left well behind: without that distance every
            chunk that is read would open and close the gate once.
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
        """Bytes that may still come, at least 0."""
        return max(0, self._limit - self.used)

    def frame(self, size: int) -> Frame:
        """Account for a response with so many bytes of records."""
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
        """One partition's part of a frame."""
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
        """A cursor over fetched batches, as this consumer reads them.

        Args:
            stop_offset: where to end, if not at the end of the bytes.
            checked: their checksums were verified.
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
        """How much of what is left of a chunk has the right checksums."""
        return sound_prefix(chunk.data, chunk.cursor.position, check_crcs=self._check_crcs)

    def whole(self, chunk: Chunk) -> Whole:
        """What is left of a chunk, as far as it can be handed over as a whole."""
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
        """A new cursor over a chunk, that begins amid it.

        Args:
            data: not all of the chunk.
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
        """Reading a chunk goes on there. Returns the records that it handed over before."""
        received = chunk.received
        chunk.cursor = self.again(chunk, position)
        return received

    def cursor_of(self, taken: TakenChunk, position: int, stop: int | None) -> Cursor:
        """A new cursor over what was handed over as a whole.

        Args:
            stop: where to end, if before its own end.
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

    def take_back(self, taken: TakenChunk, pieces: Sequence[tuple[int, int]]) -> list[Chunk]:
        """Chunks of what was handed over as a whole and not read, in memory of their own.

        That is copied once: a reader that fails at each record takes back as many times.
        """
        # What was aborted is known from the batches before.
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
        """A chunk was read, or thrown away. Returns whether that opened the gate again."""
        chunk.failed = None  # its traceback has frames that have the chunk
        frame = chunk.frame
        frame.chunks -= 1
        if not frame.chunks:
            self.used -= frame.size
            if self.full and self.used <= self._reopen:
                self.full = False
                return True
        return False

    def discard(self, frame: Frame) -> None:
        """None of a frame's bytes were kept."""
        if not frame.chunks:
            self.used -= frame.size
            self.full = self.full and self.used > self._reopen

    def detach(self, chunk: Chunk) -> bool:
        """Copy a chunk that will stay for long out of its frame; what is read of it stays read.

        Returns whether that opened the gate again.
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
    """What is left of a chunk that was taken back: all, unless it begins with what cannot be read.

    Its records are not counted: that would decode them each time that its reader fails.
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
