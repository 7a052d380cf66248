"""Producer state after a restart: a snapshot, and the batches after it."""

from __future__ import annotations

import pytest

from aiokq.broker.log import file_names
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import DIRECTORY, NOW_MS, append, batch, open_partition


def path(offset: int) -> str:
    return file_names.segment_file(DIRECTORY, offset, file_names.SNAPSHOT)


@pytest.mark.parametrize("point", [0, 4])
def test_a_snapshot_in_the_middle_of_a_segment_is_followed_by_what_is_behind_it(
    point: int,
) -> None:
    """Regression: a stop wrote it, a power cut lost later ones, and a retry was out of sequence."""
    files = MemoryFiles()
    sent = [batch(producer_id=9, producer_epoch=1, base_sequence=n) for n in range(4)]
    log = open_partition(files)
    for data in sent[:2]:
        append(log, data)
    log.close()
    log = open_partition(files)
    for data in sent[2:]:
        append(log, data)
    log.roll(NOW_MS)
    append(log, batch())
    log.close()
    for offset in (4, 5):
        files.remove(path(offset))
    assert files.exists(path(2))
    log = open_partition(files, clean=not point, recovery_point=point)
    result = append(log, sent[3])
    assert (result.base_offset, result.duplicate) == (3, True)
