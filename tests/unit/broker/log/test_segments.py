"""The list of a log's segments: the segment that a read or a search starts with."""

from __future__ import annotations

import functools

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.index import OffsetIndex
from aiokq.broker.log.partition_log import PartitionLog
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import (
    NOW_MS,
    append,
    batch,
    fetched,
    open_partition,
    record_since,
    seen,
    values,
)


def of_segments(files: MemoryFiles, count: int) -> PartitionLog:
    """A log after a clean shutdown, with `count` finished segments of three batches each."""
    log = open_partition(files)
    for number in range(count):
        for part in range(3):
            append(log, batch(b"%d" % part, timestamp_ms=NOW_MS + 1000 * number + part))
        log.roll(NOW_MS)
    log.close()
    return open_partition(files, clean=True)


def test_a_search_by_time_reads_the_indexes_of_one_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: the search loaded the indexes of all earlier segments on the loop.

    For a terabyte that took 40 s and gigabytes of memory.
    """
    files = MemoryFiles()
    log = of_segments(files, 20)
    read: set[str] = set()
    read_bytes = files.read_bytes

    def noted(path: str) -> bytes:
        read.add(path)
        return read_bytes(path)

    monkeypatch.setattr(files, "read_bytes", noted)
    found = record_since(log, NOW_MS + 15_001)
    assert found is not None
    assert found[1] == 15 * 3 + 1
    base = log.segments[15].base_offset
    assert read == {
        file_names.segment_file(log.directory, base, kind)
        for kind in (file_names.INDEX, file_names.TIME_INDEX)
    }
    assert log.max_timestamp_ms() == NOW_MS + 19_002
    assert len(read) == 2


def test_a_read_goes_on_over_the_segments_it_began_with() -> None:
    """Retention may delete them while a response is sent, whose ranges keep the old files."""
    log = of_segments(MemoryFiles(), 3)
    ranges = log.read(0, 1 << 20).fragments
    log.delete_records(6)
    log.purge()
    assert len(b"".join(one.read() for one in ranges)) == sum(map(len, ranges))
    assert [offset for offset, _ in values(log, 6)] == [6, 7, 8]


def test_a_reader_is_known_by_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequential reads need no index, also across segments."""
    log = of_segments(MemoryFiles(), 3)
    one = len(fetched(log, 0, max_bytes=1))
    monkeypatch.setattr(OffsetIndex, "lookup", None)
    reads = [seen(functools.partial(log.read, offset, one)) for offset in range(9)]
    assert [read.fragments[0].position // one for read in reads] == [0, 1, 2] * 3
