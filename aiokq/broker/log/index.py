"""Owns the two sparse indexes of a segment: offset to position, and timestamp to offset.

Entries are kept in memory and written by ``flush`` (at a roll and a clean stop): after a kill
recovery builds them again from the log, so an append costs one write, not three. Both load
when first looked at, so that opening a thousand partitions reads none.

Source: Kafka ``OffsetIndex.java``, ``TimeIndex.java``.
Tests: ``tests/unit/broker/log/test_index.py``.
"""

from __future__ import annotations

import operator
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from aiokq.core.files import Files

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_POSITION: Final = 0xFFFFFFFF
_TIME_ENTRY: Final = struct.Struct(">qi")
_LITTLE: Final = sys.byteorder == "little"
_HIGH: Final = 1 if _LITTLE else 0
"""Which of the two words of a long is the high one."""


class IndexCorrupt(Exception):
    """What an index file says cannot be; the index is to be built again from the log."""


class OffsetIndex:
    """The positions of some batches: 8-byte entries, int32 relative offset, int32 position.

    An entry's offset is the *last* offset of the batch at its position.
    """

    ENTRY: Final = 8

    __slots__ = ("_base", "_entries", "_files", "_max_entries", "_stale", "_written", "path")

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self._files = files
        self._base = base_offset
        self._max_entries = max_bytes // self.ENTRY
        self._stale = False
        # One number per entry, offset above position: sorted by both, searched in C.
        self._entries: array[int] | None = None
        self._written = 0

    @property
    def is_loaded(self) -> bool:
        """Whether its entries are in memory."""
        return self._entries is not None

    @property
    def is_full(self) -> bool:
        """Whether the segment has to roll before the next entry."""
        return self._entries is not None and len(self._entries) >= self._max_entries

    def create(self) -> None:
        """Begin empty, whatever the file holds."""
        self._entries = array("Q")
        self._written = 0
        self._stale = True

    def load(self, log_size: int) -> None:
        """Read the file, if that was not done.

        Raises:
            IndexCorrupt: missing, or its entries are not sorted or lie outside the log.
        """
        if self._entries is not None:
            return
        try:
            data = self._files.read_bytes(self.path)
        except FileNotFoundError:
            raise IndexCorrupt(f"{self.path} is missing") from None
        if len(data) % self.ENTRY:
            raise IndexCorrupt(f"{self.path} has {len(data)} bytes, not a multiple of 8")
        entries = array("Q")
        entries.frombytes(data)
        if _LITTLE:
            entries.byteswap()
        # A running Kafka keeps its newest index files at full size, zeros behind the entries.
        while entries and entries[-1] == 0:
            entries.pop()
        if entries:
            words = array("I", entries.tobytes())
            if not _rises(words[1 - _HIGH :: 2]):
                raise IndexCorrupt(f"{self.path} has positions that do not rise")
            if not _rises(words[_HIGH::2]):
                raise IndexCorrupt(f"{self.path} has offsets that do not rise")
            last = entries[-1] & _POSITION
            if last >= log_size:
                raise IndexCorrupt(f"{self.path} points to {last} of {log_size} bytes")
        self._entries = entries
        self._written = len(entries)

    def append(self, offset: int, position: int) -> None:
        """The batch at ``position`` ends with ``offset``."""
        assert self._entries is not None
        self._entries.append((offset - self._base) << 32 | position)
        self._stale = True

    def lookup(self, offset: int) -> int:
        """Position of the last batch known to end at or before ``offset``; 0 if none is."""
        assert self._entries is not None
        at = bisect_right(self._entries, (offset - self._base) << 32 | _POSITION)
        return self._entries[at - 1] & _POSITION if at else 0

    def floor_position(self, position: int) -> int:
        """The last indexed position at or before ``position``; 0 if there is none."""
        assert self._entries is not None
        at = bisect_right(self._entries, position, key=_position_of)
        return self._entries[at - 1] & _POSITION if at else 0

    def cut(self, position: int) -> OffsetIndex:
        """An index of the batches before ``position``, whose next flush writes all of the file."""
        assert self._entries is not None
        index = OffsetIndex(self._files, self.path, self._base, self._max_entries * self.ENTRY)
        kept = bisect_left(self._entries, position, key=_position_of)
        index._entries, index._stale = self._entries[:kept], True
        return index

    @property
    def last_position(self) -> int:
        """Position of the last entry; 0 if there is none."""
        assert self._entries is not None
        return self._entries[-1] & _POSITION if self._entries else 0

    def entries(self) -> list[tuple[int, int]]:
        """All entries as (offset, position)."""
        assert self._entries is not None
        return [((entry >> 32) + self._base, entry & _POSITION) for entry in self._entries]

    def flush(self) -> None:
        """Write what is not in the file yet, and cut what is no longer there."""
        if self._entries is None or not self._stale:
            return
        new = self._entries[self._written :]
        if _LITTLE:
            new.byteswap()
        _write(self._files, self.path, self._written * self.ENTRY, new.tobytes())
        self._written = len(self._entries)
        self._stale = False


class TimeIndex:
    """The largest timestamp so far, now and then: 12-byte entries, int64 time, int32 offset.

    The offset, relative to the segment's, is the last of the batch that holds the timestamp.
    Both rise strictly.
    """

    ENTRY: Final = 12

    __slots__ = (
        "_base",
        "_files",
        "_max_entries",
        "_offsets",
        "_stale",
        "_times",
        "_written",
        "path",
    )

    def __init__(self, files: Files, path: str, base_offset: int, max_bytes: int) -> None:
        self.path = path
        self._files = files
        self._base = base_offset
        self._max_entries = max_bytes // self.ENTRY
        self._stale = False
        self._times: array[int] | None = None
        self._offsets: array[int] = array("i")
        self._written = 0

    @property
    def is_loaded(self) -> bool:
        """Whether its entries are in memory."""
        return self._times is not None

    @property
    def is_full(self) -> bool:
        """Whether the segment has to roll before the next entry; one is kept for the roll."""
        return self._times is not None and len(self._times) >= self._max_entries - 1

    def create(self) -> None:
        """Begin empty, whatever the file holds."""
        self._times = array("q")
        self._offsets = array("i")
        self._written = 0
        self._stale = True

    def load(self, next_offset: int) -> None:
        """Read the file, if that was not done.

        Raises:
            IndexCorrupt: missing, or its entries are not sorted or lie outside the log.
        """
        if self._times is not None:
            return
        try:
            data = self._files.read_bytes(self.path)
        except FileNotFoundError:
            raise IndexCorrupt(f"{self.path} is missing") from None
        if len(data) % self.ENTRY:
            raise IndexCorrupt(f"{self.path} has {len(data)} bytes, not a multiple of 12")
        times, offsets = _columns(data)
        while times and times[-1] == 0 and offsets[-1] == 0:
            times.pop()
            offsets.pop()
        for column in (times, offsets):
            if not _rises(column):
                raise IndexCorrupt(f"{self.path} has entries that do not rise")
        if offsets and not self._base <= offsets[-1] + self._base < next_offset:
            raise IndexCorrupt(f"{self.path} points to offset {offsets[-1] + self._base}")
        self._times, self._offsets = times, offsets
        self._written = len(times)

    def peek(self, next_offset: int) -> int | None:
        """The last timestamp in the file, where that is enough to know; loads nothing.

        None if the file does not say: it is missing, empty, not a finished one, or its last entry
        lies outside the segment, which ends before ``next_offset``.
        """
        if self._times is not None:
            return self._times[-1] if self._times else None
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
        """The last entry, (timestamp, offset)."""
        assert self._times is not None
        if not self._times:
            return None
        return self._times[-1], self._offsets[-1] + self._base

    def maybe_append(self, timestamp_ms: int, offset: int) -> None:
        """Note the largest timestamp so far, if it has grown since the last entry."""
        assert self._times is not None
        if timestamp_ms < 0:
            return
        if self._times and (
            timestamp_ms <= self._times[-1] or offset - self._base <= self._offsets[-1]
        ):
            return
        self._times.append(timestamp_ms)
        self._offsets.append(offset - self._base)
        self._stale = True

    def cut(self, end_offset: int) -> TimeIndex:
        """An index of the offsets before ``end_offset``; its next flush writes all of the file."""
        assert self._times is not None
        index = TimeIndex(self._files, self.path, self._base, self._max_entries * self.ENTRY)
        kept = bisect_left(self._offsets, end_offset - self._base)
        index._times, index._offsets = self._times[:kept], self._offsets[:kept]
        index._stale = True
        return index

    def lookup(self, timestamp_ms: int) -> int:
        """An offset before which no record is as late as ``timestamp_ms``: where to look from."""
        assert self._times is not None
        at = bisect_right(self._times, timestamp_ms)
        # Up to the entry's offset the largest time is the entry's. An entry of exactly the
        # wanted time says nothing of the first record of that time: take the one before.
        if at and self._times[at - 1] == timestamp_ms:
            at -= 1
        return self._offsets[at - 1] + self._base if at else self._base

    def entries(self) -> list[tuple[int, int]]:
        """All entries as (timestamp, offset)."""
        assert self._times is not None
        return [(t, o + self._base) for t, o in zip(self._times, self._offsets, strict=True)]

    def flush(self) -> None:
        """Write what is not in the file yet, and cut what is no longer there."""
        if self._times is None or not self._stale:
            return
        data = _time_entries(self._times[self._written :], self._offsets[self._written :])
        _write(self._files, self.path, self._written * self.ENTRY, data)
        self._written = len(self._times)
        self._stale = False


def _rises(column: array[int]) -> bool:
    """Whether each number is larger than the one before it; in C, as the loop may wait for it."""
    return all(map(operator.lt, column, column[1:]))


def _position_of(entry: int) -> int:
    return entry & _POSITION


# As columns of words, in C: a format for `struct` is as long as the index, and each is kept in its
# cache, 17 MB for a full one.


def _columns(data: bytes) -> tuple[array[int], array[int]]:
    """Times and relative offsets of the entries of a time index."""
    words = array("I", data)
    if _LITTLE:
        words.byteswap()
    pairs = array("I", bytes(len(words) // 3 * 8))
    pairs[_HIGH::2], pairs[1 - _HIGH :: 2] = words[0::3], words[1::3]
    return array("q", pairs.tobytes()), array("i", words[2::3].tobytes())


def _time_entries(times: array[int], offsets: array[int]) -> bytes:
    """The entries of a time index."""
    pairs = array("I", times.tobytes())
    words = array("I", bytes(len(times) * TimeIndex.ENTRY))
    words[0::3], words[1::3] = pairs[_HIGH::2], pairs[1 - _HIGH :: 2]
    words[2::3] = array("I", offsets.tobytes())
    if _LITTLE:
        words.byteswap()
    return words.tobytes()


def _write(files: Files, path: str, position: int, data: bytes) -> None:
    file = files.open(path, create=True)
    try:
        if data:
            file.pwritev([data], position)
        if file.size() != position + len(data):
            file.truncate(position + len(data))
    finally:
        file.close()
