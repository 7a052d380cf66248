"""The sparse indexes: Kafka's format, lookups, and damaged files."""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from aiokq.broker.log.index import IndexCorrupt, OffsetIndex, TimeIndex
from tests.sim.harness.files import MemoryFiles

PATH = "/i"


def offset_index(files: MemoryFiles, *, base: int = 100, max_bytes: int = 80) -> OffsetIndex:
    return OffsetIndex(files, PATH, base, max_bytes)


def time_index(files: MemoryFiles, *, base: int = 100, max_bytes: int = 120) -> TimeIndex:
    return TimeIndex(files, PATH, base, max_bytes)


def test_offset_entries_are_kafkas_eight_bytes() -> None:
    """Other tools read the directory, and Kafka may be started on it."""
    files = MemoryFiles()
    index = offset_index(files)
    index.create()
    index.append(104, 500)
    index.append(109, 1000)
    index.flush()
    assert files.read_bytes(PATH) == struct.pack(">iiii", 4, 500, 9, 1000)
    index.append(120, 2000)
    index.flush()
    again = offset_index(files)
    again.load(5000)
    assert again.entries() == [(104, 500), (109, 1000), (120, 2000)]


def test_offset_lookups_find_the_batch_that_ends_before() -> None:
    """A later batch would skip the offset; an earlier one would only take longer."""
    index = offset_index(MemoryFiles())
    index.create()
    assert (index.lookup(100), index.floor_position(10**6), index.last_position) == (0, 0, 0)
    for offset, position in ((104, 500), (109, 1000), (120, 2000)):
        index.append(offset, position)
    for offset, position in ((100, 0), (103, 0), (104, 500), (108, 500), (109, 1000), (999, 2000)):
        assert index.lookup(offset) == position
    for limit, position in ((0, 0), (499, 0), (500, 500), (999, 500), (2000, 2000), (9999, 2000)):
        assert index.floor_position(limit) == position
    assert index.last_position == 2000


def test_offset_index_is_full_at_its_limit() -> None:
    """The segment rolls before an entry is lost."""
    index = offset_index(MemoryFiles(), max_bytes=17)
    index.create()
    index.append(101, 1)
    assert not index.is_full
    index.append(102, 2)
    assert index.is_full


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"123", "multiple of 8"),
        (struct.pack(">iiii", 4, 500, 9, 500), "positions"),
        (struct.pack(">iiii", 9, 500, 4, 600), "offsets"),
        (struct.pack(">ii", 4, 5000), "points to position 5000"),
    ],
)
def test_offset_files_that_do_not_fit_are_refused(content: bytes, complaint: str) -> None:
    """Otherwise readers would start in the middle of a batch."""
    files = MemoryFiles()
    files.write_atomic(PATH, content)
    with pytest.raises(IndexCorrupt, match=complaint):
        offset_index(files).load(5000)


def test_missing_files_are_refused() -> None:
    """A missing file has lost its entries, an empty one never had any."""
    with pytest.raises(IndexCorrupt, match="missing"):
        offset_index(MemoryFiles()).load(10)
    with pytest.raises(IndexCorrupt, match="missing"):
        time_index(MemoryFiles()).load(10)


def test_zeros_behind_the_entries_are_no_entries() -> None:
    """Kafka preallocates ten megabytes for the newest segment."""
    files = MemoryFiles()
    files.write_atomic(PATH, struct.pack(">ii", 4, 500) + bytes(800))
    index = offset_index(files)
    index.load(5000)
    assert index.entries() == [(104, 500)]
    files.write_atomic(PATH, struct.pack(">qi", 7000, 4) + bytes(1200))
    times = time_index(files)
    times.load(200)
    assert times.entries() == [(7000, 104)]


def test_time_entries_are_kafkas_twelve_bytes_and_rise() -> None:
    """An entry is added only for a later time than the last entry's."""
    files = MemoryFiles()
    index = time_index(files)
    index.create()
    for time, offset in (
        (-1, 100),
        (7000, 104),
        (7000, 109),
        (6000, 110),
        (8000, 104),
        (9000, 120),
    ):
        index.maybe_append(time, offset)
    index.flush()
    assert files.read_bytes(PATH) == struct.pack(">qiqi", 7000, 4, 9000, 20)
    assert index.last == (9000, 120)
    again = time_index(files)
    again.load(200)
    assert again.entries() == [(7000, 104), (9000, 120)]


def test_time_lookups_never_skip_a_record_of_that_time() -> None:
    """The first record of the wanted time may precede the entry with that time."""
    index = time_index(MemoryFiles())
    index.create()
    index.maybe_append(7000, 104)
    index.maybe_append(9000, 120)
    for time, offset in ((0, 100), (7000, 100), (7001, 104), (9000, 104), (9001, 120)):
        assert index.lookup(time) == offset


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"123", "multiple of 12"),
        (struct.pack(">qiqi", 7000, 4, 7000, 5), "entries that do not increase"),
        (struct.pack(">qiqi", 7000, 4, 8000, 4), "entries that do not increase"),
        (struct.pack(">qi", 7000, 500), "points to"),
        (struct.pack(">qi", 7000, -5), "points to"),
    ],
)
def test_time_files_that_do_not_fit_are_refused(content: bytes, complaint: str) -> None:
    """Otherwise a lookup by time would start after the record it looks for."""
    files = MemoryFiles()
    files.write_atomic(PATH, content)
    with pytest.raises(IndexCorrupt, match=complaint):
        time_index(files).load(200)


def test_a_flush_without_changes_writes_nothing() -> None:
    """A clean shutdown flushes a thousand indexes, most of them unchanged."""
    files = MemoryFiles()
    for index in (offset_index(files), time_index(files)):
        index.flush()  # it was never loaded
        assert not files.exists(PATH)
        index.create()
        index.flush()
        files.fail("open", times=None)
        index.flush()
        files.heal()
        files.remove(PATH)


def test_a_full_time_index_leaves_no_memory_behind() -> None:
    """Regression: for each of a hundred rolls `struct` cached a format of 17 MB for the index."""
    files = MemoryFiles()
    index = time_index(files, max_bytes=12 * 20_001)
    index.create()
    for n in range(20_000):
        index.maybe_append(7000 + n, 100 + n)
    tracemalloc.start()
    try:
        index.flush()
        again = time_index(files, max_bytes=12 * 20_001)
        again.load(100 + 20_000)
        assert again.entries() == index.entries()
        del index, again
        files.remove(PATH)
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
