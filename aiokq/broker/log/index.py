"""Sparse indexes of a segment: offset to position, and timestamp to offset.

Entries are kept in memory, so an append costs one write instead of three. `flush` writes them, for
example at a roll and at a clean shutdown. After a kill, recovery rebuilds the indexes of the
segments that it checks. The index of a finished segment is loaded at its first lookup, not when the
log is opened.

Source: Kafka ``OffsetIndex.java``, ``TimeIndex.java``.
Tests: ``tests/unit/broker/log/test_index.py``.
"""

from __future__ import annotations

import operator
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import ClassVar, Final, Self

from aiokq.core.files import File, Files

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_POSITION: Final = 0xFFFFFFFF
_TIME_ENTRY: Final = struct.Struct(">qi")
_LITTLE: Final = sys.byteorder == "little"
_HIGH: Final = 1 if _LITTLE else 0
"""Index of the high word among the two 32-bit words of a 64-bit integer in memory."""


class IndexCorrupt(Exception):
    """An index file is missing or damaged; the index has to be rebuilt from the log."""


class _SparseIndex:
    """Sparse index of one segment: entries in memory, and the file that holds them.

    Args:
        max_bytes: size of the index file at which the segment rolls.
    """

    ENTRY: ClassVar[int]
    """Bytes of an entry in the file."""
    _TYPE: ClassVar[str]
    """Type code of the array `_column`."""

    __slots__ = (
        "_base",
        "_column",
        "_files",
        "_max_entries",
        "_stale",
        "_synced",
        "_written",
        "path",
    )

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self._files = files
        self._base = base_offset
        self._max_entries = max_bytes // self.ENTRY
        # The numbers by which entries are found, in ascending order. In an `OffsetIndex`, each
        # number combines an offset and a position. In a `TimeIndex`, each number is a timestamp.
        # None until loaded.
        self._column: array[int] | None = None
        self._written = 0
        self._stale = False
        # False: the file has to be synced. True: a sync of it has begun. None: the file was not
        # written yet, or was durable when it was loaded.
        self._synced: bool | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the entries are in memory."""
        return self._column is not None

    def create(self) -> None:
        """Begin without entries; the next flush replaces the content of the file."""
        self._column = array(self._TYPE)
        self._written = 0
        self._stale = True

    def load(self, end: int) -> None:
        """Read the file unless the entries are in memory.

        Args:
            end: every entry must point below this limit, which is the size of the ``.log`` in bytes
                for an offset index, and the segment's next offset for a time index.

        Raises:
            IndexCorrupt: the file is missing or ends inside an entry, or its entries are not sorted
                or point outside the log.
        """
        if self._column is not None:
            return
        try:
            data = self._files.read_bytes(self.path)
        except FileNotFoundError:
            raise IndexCorrupt(f"{self.path} is missing") from None
        if len(data) % self.ENTRY:
            raise IndexCorrupt(f"{self.path} has {len(data)} bytes, not a multiple of {self.ENTRY}")
        column = self._decode(data, end)
        self._written = len(column)
        self._column = column

    def flush(self) -> None:
        """Write the entries that the file lacks, and cut off entries that were removed."""
        if self._column is None or not self._stale:
            return
        position, data = self._written * self.ENTRY, self._encode(self._column, self._written)
        file = self._files.open(self.path, create=True)
        try:
            if data:
                file.pwritev([data], position)
            if file.size() != position + len(data):
                file.truncate(position + len(data))
        finally:
            file.close()
        self._written = len(self._column)
        self._stale = False
        self._synced = False

    @property
    def needs_sync(self) -> bool:
        """Whether the file has to be synced."""
        return self._synced is False

    def begin_sync(self) -> list[File]:
        """Return the files to sync: the open file, or none if it does not need a sync.

        From now on the file counts as synced; ``redo_sync`` undoes this. Without the sync, a power
        cut could bring back an older version of the file, which would look valid.

        Raises:
            OSError: the file cannot be opened; it still has to be synced.
        """
        if not self.needs_sync:
            return []
        file = self._files.open(self.path)
        self._synced = True
        return [file]

    def sync(self) -> None:
        """Sync the file, unless it does not need a sync. Raises OSError."""
        for file in self.begin_sync():
            file.sync()
            file.close()

    def redo_sync(self) -> None:
        """Mark the file for another sync, because the last one may have failed."""
        if self._synced:
            self._synced = False

    def note_unsynced(self) -> None:
        """Record that the file may not be durable, because an earlier process did not sync it."""
        self._synced = False

    def _first(self, column: array[int], entries: int) -> Self:
        """Return an index of the first `entries` entries; its next flush writes the whole file."""
        index = type(self)(self._files, self.path, self._base, self._max_entries * self.ENTRY)
        index._column, index._stale = column[:entries], True
        return index

    def _decode(self, data: bytes, end: int) -> array[int]:
        raise NotImplementedError

    def _encode(self, column: array[int], start: int) -> bytes:
        raise NotImplementedError


class OffsetIndex(_SparseIndex):
    """Positions of some batches.

    An entry in the file has 8 bytes: an int32 relative offset and an int32 position. The offset is
    the *last* offset of the batch at the position. In memory an entry is one integer,
    with the offset in the high bits and the position in the low bits, so that a list of entries is
    sorted by offset and position, and can be searched in C.
    """

    ENTRY = 8
    _TYPE = "Q"

    __slots__ = ()

    # `is_full` is read at each append. It is not in the base class, because the interpreter
    # specializes an access for one class only: a property that both classes share would be slower.
    @property
    def is_full(self) -> bool:
        """Whether the segment has to roll before the next entry."""
        return self._column is not None and len(self._column) >= self._max_entries

    def append(self, offset: int, position: int) -> None:
        """Add the batch that begins at `position` and ends with `offset`."""
        assert self._column is not None
        self._column.append((offset - self._base) << 32 | position)
        self._stale = True

    def lookup(self, offset: int) -> int:
        """Return the position of the last indexed batch that ends at or before `offset`.

        Returns 0 if there is none. The batch with `offset` is at or after this position.
        """
        assert self._column is not None
        at = bisect_right(self._column, (offset - self._base) << 32 | _POSITION)
        return self._column[at - 1] & _POSITION if at else 0

    def floor_position(self, position: int) -> int:
        """Return the last indexed position at or before `position`, 0 if there is none."""
        assert self._column is not None
        at = bisect_right(self._column, position, key=_position_of)
        return self._column[at - 1] & _POSITION if at else 0

    def cut(self, position: int) -> OffsetIndex:
        """Return an index of the batches before `position`; its file is not written yet."""
        assert self._column is not None
        return self._first(self._column, bisect_left(self._column, position, key=_position_of))

    @property
    def last_position(self) -> int:
        """Position of the last entry; 0 if there is none."""
        assert self._column is not None
        return self._column[-1] & _POSITION if self._column else 0

    def entries(self) -> list[tuple[int, int]]:
        """Return all entries as (offset, position)."""
        assert self._column is not None
        return [((entry >> 32) + self._base, entry & _POSITION) for entry in self._column]

    def _decode(self, data: bytes, log_size: int) -> array[int]:
        entries = array("Q", data)
        if _LITTLE:
            entries.byteswap()
        # Kafka preallocates the newest index files: until a roll, zeros follow the entries.
        while entries and entries[-1] == 0:
            entries.pop()
        if entries:
            words = array("I", entries.tobytes())
            if not _rises(words[1 - _HIGH :: 2]):
                raise IndexCorrupt(f"{self.path} has positions that do not increase")
            if not _rises(words[_HIGH::2]):
                raise IndexCorrupt(f"{self.path} has offsets that do not increase")
            last = entries[-1] & _POSITION
            if last >= log_size:
                raise IndexCorrupt(
                    f"{self.path} points to position {last}, but the log has {log_size} bytes"
                )
        return entries

    def _encode(self, column: array[int], start: int) -> bytes:
        new = column[start:]
        if _LITTLE:
            new.byteswap()
        return new.tobytes()


class TimeIndex(_SparseIndex):
    """Sparse index of timestamps: each entry has the largest timestamp so far.

    An entry in the file has 12 bytes: an int64 timestamp and an int32 offset. The offset is
    the last offset of the batch that holds the timestamp, relative to the segment's base offset.
    Timestamps and offsets rise strictly.
    """

    ENTRY = 12
    _TYPE = "q"

    __slots__ = ("_offsets",)

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(files, path, base_offset, max_bytes)
        self._offsets: array[int] = array("i")

    def create(self) -> None:
        """Begin without entries; the next flush replaces the content of the file."""
        super().create()
        self._offsets = array("i")

    @property
    def is_full(self) -> bool:
        """Whether the segment has to roll, because only the entry that the roll adds still fits."""
        return self._column is not None and len(self._column) >= self._max_entries - 1

    def peek(self, next_offset: int) -> int | None:
        """Return the timestamp of the last entry without loading the index; None if unknown.

        The timestamp is unknown if the index has no entries, if its file is missing or ends inside
        an entry, or if the last entry is invalid.

        Args:
            next_offset: the segment's next offset.
        """
        if self._column is not None:
            return self._column[-1] if self._column else None
        try:
            file = self._files.open(self.path, writable=False)
        except FileNotFoundError:
            return None
        try:
            size = file.size()
            if not size or size % self.ENTRY:
                return None
            timestamp, offset = _TIME_ENTRY.unpack(file.pread(self.ENTRY, size - self.ENTRY))
        finally:
            file.close()
        known = timestamp > 0 and self._base <= offset + self._base < next_offset
        return timestamp if known else None

    @property
    def last(self) -> tuple[int, int] | None:
        """The last entry as (timestamp, offset); None without entries."""
        assert self._column is not None
        if not self._column:
            return None
        return self._column[-1], self._offsets[-1] + self._base

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry if the timestamp and the offset are larger than in the last entry.

        Args:
            timestamp_ms: the largest timestamp so far; nothing is added if it is negative.
            offset: the offset of the record with this timestamp, or a later offset.
        """
        assert self._column is not None
        if timestamp_ms < 0:
            return
        if self._column and (
            timestamp_ms <= self._column[-1] or offset - self._base <= self._offsets[-1]
        ):
            return
        self._column.append(timestamp_ms)
        self._offsets.append(offset - self._base)
        self._stale = True

    def cut(self, end_offset: int) -> TimeIndex:
        """Return an index of the offsets before `end_offset`; its file is not written yet."""
        assert self._column is not None
        kept = bisect_left(self._offsets, end_offset - self._base)
        index = self._first(self._column, kept)
        index._offsets = self._offsets[:kept]
        return index

    def lookup(self, timestamp_ms: int) -> int:
        """Return an offset before which all records have earlier timestamps than `timestamp_ms`."""
        assert self._column is not None
        at = bisect_right(self._column, timestamp_ms)
        # An entry's timestamp is the largest up to the entry's offset. If it equals `timestamp_ms`,
        # the first record with this timestamp may come before the offset: use the previous entry.
        if at and self._column[at - 1] == timestamp_ms:
            at -= 1
        return self._offsets[at - 1] + self._base if at else self._base

    def entries(self) -> list[tuple[int, int]]:
        """Return all entries as (timestamp, offset)."""
        assert self._column is not None
        return [(t, o + self._base) for t, o in zip(self._column, self._offsets, strict=True)]

    def _decode(self, data: bytes, next_offset: int) -> array[int]:
        times, offsets = _columns(data)
        while times and times[-1] == 0 and offsets[-1] == 0:
            times.pop()
            offsets.pop()
        for column in (times, offsets):
            if not _rises(column):
                raise IndexCorrupt(f"{self.path} has entries that do not increase")
        if offsets and not self._base <= offsets[-1] + self._base < next_offset:
            raise IndexCorrupt(
                f"{self.path} points to offset {offsets[-1] + self._base}, which is outside the "
                "segment"
            )
        self._offsets = offsets
        return times

    def _encode(self, column: array[int], start: int) -> bytes:
        return _time_entries(column[start:], self._offsets[start:])


def _rises(column: array[int]) -> bool:
    """Whether the numbers rise strictly. Runs in C, because an index may have a million entries."""
    return all(map(operator.lt, column, column[1:]))


def _position_of(entry: int) -> int:
    return entry & _POSITION


# The next two functions convert all entries by slices of arrays, which run in C. A `struct` format
# for all entries would stay in the cache of `struct`, and take megabytes for a full index.


def _columns(data: bytes) -> tuple[array[int], array[int]]:
    """Return the times and relative offsets of a time index's entries."""
    words = array("I", data)
    if _LITTLE:
        words.byteswap()
    pairs = array("I", bytes(len(words) // 3 * 8))
    pairs[_HIGH::2], pairs[1 - _HIGH :: 2] = words[0::3], words[1::3]
    return array("q", pairs.tobytes()), array("i", words[2::3].tobytes())


def _time_entries(times: array[int], offsets: array[int]) -> bytes:
    """Return the bytes of a time index's entries."""
    pairs = array("I", times.tobytes())
    words = array("I", bytes(len(times) * TimeIndex.ENTRY))
    words[0::3], words[1::3] = pairs[_HIGH::2], pairs[1 - _HIGH :: 2]
    words[2::3] = array("I", offsets.tobytes())
    if _LITTLE:
        words.byteswap()
    return words.tobytes()
