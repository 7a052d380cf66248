"""aiokq.broker.log.batch_reading: reading ranges of files while the log is appended to."""

from __future__ import annotations

import sys

import pytest

from aiokq.broker.log.batch_reading import NotCached, batch_records, read_batches, walk_headers
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import FileRange
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import NOW_MS, append, batch, open_partition


def test_all_batches_of_a_log_are_read_while_it_is_appended_to() -> None:
    """A coordinator loads its partition in an executor, and knows later records already."""
    size = len(batch(b"0"))
    log = open_partition(MemoryFiles(), segment_bytes=2 * size)
    for index in range(7):
        append(log, batch(b"%d" % index))
    read = log.read(0, sys.maxsize)
    append(log, batch(b"later"))
    found = [
        (header.base_offset, record.value)
        for header, data in read_batches(read.fragments)
        for record in batch_records(data, header)
    ]
    assert found == [(index, b"%d" % index) for index in range(7)]


def test_a_log_that_begins_later_is_read_from_there() -> None:
    """A coordinator does not need deleted or compacted records."""
    size = len(batch(b"0"))
    log = open_partition(MemoryFiles(), segment_bytes=2 * size)
    for index in range(5):
        append(log, batch(b"%d" % index))
    log.delete_records(3)
    read = log.read(log.log_start_offset, sys.maxsize)
    assert [header.base_offset for header, _ in read_batches(read.fragments)] == [3, 4]


def test_an_empty_log_has_no_batches() -> None:
    """A new internal topic has such a log."""
    log = open_partition(MemoryFiles())
    assert list(read_batches(log.read(0, sys.maxsize).fragments)) == []


def test_damage_is_an_error_not_an_end() -> None:
    """Loading half of a group's offsets would be worse than loading none."""
    files = MemoryFiles()
    log = open_partition(files)
    append(log, batch())
    file = log.segments[0].file
    file.pwritev([b"\xff" * 8], 8)
    with pytest.raises(CorruptRecord):
        list(read_batches([FileRange(file, 0, file.size())]))


def test_a_search_by_time_reads_on_in_the_next_segment() -> None:
    """The largest timestamp of the first segment may be that of a record before the log start."""
    size = len(batch(b"0"))
    log = open_partition(MemoryFiles(), segment_bytes=2 * size)
    for time in (500, 1, 2, 3, 600):
        append(log, batch(b"v", timestamp_ms=NOW_MS + time))
    first = log.search_timestamp(NOW_MS + 400, 1)
    assert first is not None
    assert first.run() is None
    second = log.search_timestamp(NOW_MS + 400, first.end_offset)
    assert second is not None
    found = second.run()
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (4, NOW_MS + 600)
    assert log.search_timestamp(NOW_MS + 601, 0) is None


@pytest.mark.parametrize("there", [0, 1, 17, 60])
def test_a_header_that_is_in_memory_in_part_only_waits_for_the_rest(there: int) -> None:
    """Regression: a header of which only the first bytes were cached was taken for the log end."""
    files = MemoryFiles()
    log = open_partition(files)
    append(log, batch(b"0"))
    file, size = log.segments[0].file, log.size_bytes

    class InPart:
        def pread_cached(self, length: int, position: int) -> bytes:
            return file.pread(min(length, there), position)

    with pytest.raises(NotCached):
        list(walk_headers(InPart(), 0, size, cached=True))
    assert [position for position, _ in walk_headers(file, 0, size, cached=True)] == [0]
