"""Producer state after a restart: a snapshot, and the batches after it."""

from __future__ import annotations

import errno
import random

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.core.errors import KafkaStorage
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


SENT = batch(producer_id=9, producer_epoch=0, base_sequence=0)


def rolled(files: MemoryFiles) -> PartitionLog:
    """Return a log whose first segment has the only batch of a producer."""
    log = open_partition(files)
    append(log, SENT)
    log.roll(NOW_MS)
    return log


def flushed(log: PartitionLog, files: MemoryFiles) -> None:
    pending = log.begin_flush(None)
    assert pending is not None
    pending.sync(files)
    log.end_flush(pending)


def without_the_first_segment(log: PartitionLog, files: MemoryFiles) -> None:
    """Delete the first segment durably."""
    log.delete_records(1)
    log.purge()
    for directory in (DIRECTORY, "/data", "/"):
        files.sync_dir(directory)


def is_known(files: MemoryFiles) -> bool:
    """Return whether the log recognizes a retry of the deleted batch after an unclean shutdown."""
    log = open_partition(files, clean=False, log_start_offset=1, recovery_point=1)
    return append(log, SENT).duplicate


@pytest.mark.parametrize("seed", [None, *range(6)])
@pytest.mark.parametrize("end", ["killed", "closed", "closed empty", "closed without a flush"])
def test_producers_of_deleted_segments_are_known_after_a_power_cut(
    seed: int | None, end: str
) -> None:
    """Regression: snapshots were not synced, and the retried batch was appended twice."""
    files = MemoryFiles()
    log = rolled(files)
    if end != "closed empty":
        append(log, batch())
    if end != "closed without a flush":
        flushed(log, files)
    without_the_first_segment(log, files)
    if end != "killed":
        log.close()
    files.power_cut(None if seed is None else random.Random(seed))
    assert is_known(files)


@pytest.mark.parametrize("seed", [None, *range(6)])
def test_a_close_that_fails_does_not_damage_a_durable_snapshot(seed: int | None) -> None:
    """The newest segment is empty, so that its snapshot is also that of the log end."""
    files = MemoryFiles()
    log = rolled(files)
    flushed(log, files)
    without_the_first_segment(log, files)
    files.fail("sync", errno.EIO, matches=lambda name: name == path(1))
    with pytest.raises(KafkaStorage):
        log.close()
    files.power_cut(None if seed is None else random.Random(seed))
    assert is_known(files)


@pytest.mark.parametrize("seed", [None, *range(6)])
def test_snapshots_that_a_recovery_writes_are_durable(seed: int | None) -> None:
    """The log may delete the older segments before the next flush."""
    files = MemoryFiles()
    append(rolled(files), batch())
    files.crash()
    log = open_partition(files, clean=False)
    without_the_first_segment(log, files)
    files.power_cut(None if seed is None else random.Random(seed))
    assert is_known(files)


def test_a_snapshot_that_was_not_synced_is_synced_by_the_next_flush() -> None:
    """Without a descriptor for it, the recovery point does not advance, as in Kafka."""
    files = MemoryFiles()
    log = rolled(files)
    files.fail("open", errno.EMFILE, matches=lambda name: name == path(1))
    with pytest.raises(KafkaStorage):
        log.begin_flush(None)
    assert log.recovery_point == 0
    pending = log.begin_flush(None)
    assert pending is not None
    log.redo_flush(pending)  # a sync has failed
    flushed(log, files)
    assert log.recovery_point == 1
    without_the_first_segment(log, files)
    files.power_cut()
    assert is_known(files)


@pytest.mark.parametrize("removed", [True, False])
def test_a_flush_skips_snapshots_that_were_removed(removed: bool) -> None:
    """Their records were deleted or cut off since the roll."""
    files = MemoryFiles()
    log = rolled(files)
    if removed:
        files.remove(path(1))
    pending = log.begin_flush(None)
    assert pending is not None
    assert (path(1) in [file.path for file in pending.files]) is not removed
