"""A segment: rebuilding of its indexes, and reads of data that is only on disk."""

from __future__ import annotations

import errno
import struct

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.disk_load import ColdRead
from aiokq.broker.log.segment import Segment
from aiokq.core.errors import CorruptRecord
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import NOW_MS, append, batch, open_partition


def damaged(offset: int) -> Segment:
    """A finished segment of ten batches, of which the fifth has a wrong base offset."""
    files = MemoryFiles()
    log = open_partition(files, index_interval_bytes=0)
    for part in range(10):
        append(log, batch(b"%d" % part))
    log.roll(NOW_MS)
    [segment, _] = log.segments
    position = segment.position_of(5)
    segment.file.pwritev([struct.pack(">q", offset)], position)
    return segment


@pytest.mark.parametrize("offset", [-(1 << 62), -1, 3, 1 << 31, 1 << 62])
def test_indexes_are_not_made_of_offsets_that_cannot_be(offset: int) -> None:
    """No checksum covers them: entries would not fit the file, or mislead readers."""
    segment = damaged(offset)
    before = (segment.size, segment.next_offset, segment.max_timestamp())
    with pytest.raises(CorruptRecord, match=r"last offset .* is outside"):
        segment.rebuild_indexes()
    assert (segment.size, segment.next_offset, segment.max_timestamp()) == before
    assert segment.position_of(9) is not None


def test_what_is_behind_the_last_batch_is_no_reason_to_forget_it() -> None:
    """Indexes rebuilt without it would hide that the log was damaged."""
    segment = damaged(5)
    segment.size += 5
    segment.file.pwritev([b"\0" * 5], segment.size - 5)
    with pytest.raises(CorruptRecord, match="5 bytes after"):
        segment.rebuild_indexes()
    assert segment.path(file_names.INDEX).endswith("0.index")


def on_disk() -> Segment:
    """A finished segment whose batches are only on disk, and are evicted again after a read."""
    files = MemoryFiles()
    log = open_partition(files, index_interval_bytes=10_000)
    for part in range(10):
        append(log, batch(b"%d" % part))
    log.roll(NOW_MS)
    [segment, _] = log.segments
    segment.on_loop = True
    files.chill_all("/", stays=True)
    return segment


def test_what_was_read_for_a_look_is_there_for_the_next_as_well() -> None:
    """Regression: an operation that waited for two reads lost the first during the second."""
    segment = on_disk()
    with pytest.raises(ColdRead) as cold:
        segment.position_of(5)
    [load] = cold.value.loads
    segment.loaded(load.what, load.outcome())
    position = segment.position_of(5)
    assert position
    assert segment.position_of(5) == position


def test_what_could_not_be_read_is_tried_again() -> None:
    """Regression: a moment without descriptors made a part of a log unreadable until a restart."""
    segment = on_disk()
    with pytest.raises(ColdRead) as cold:
        segment.position_of(5)
    [load] = cold.value.loads
    segment.loaded(load.what, OSError(errno.EMFILE, "Too many open files"))
    with pytest.raises(OSError, match="Too many"):
        segment.position_of(5)
    with pytest.raises(ColdRead):
        segment.position_of(5)
