"""One segment: what is taken for sound, and what is left as it was where it is not."""

from __future__ import annotations

import struct

import pytest

from aiokq.broker.log import names
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
    """No checksum covers them: the entries fit no file, or send readers to the wrong batch."""
    segment = damaged(offset)
    before = (segment.size, segment.next_offset, segment.max_timestamp())
    with pytest.raises(CorruptRecord, match="was due"):
        segment.rebuild_indexes()
    assert (segment.size, segment.next_offset, segment.max_timestamp()) == before
    assert segment.position_of(9) is not None


def test_what_is_behind_the_last_batch_is_no_reason_to_forget_it() -> None:
    """Made again without it, the indexes would hide that the log is not what was written."""
    segment = damaged(5)
    segment.size += 5
    segment.file.pwritev([b"\0" * 5], segment.size - 5)
    with pytest.raises(CorruptRecord, match="5 bytes behind"):
        segment.rebuild_indexes()
    assert segment.path(names.INDEX).endswith("0.index")
