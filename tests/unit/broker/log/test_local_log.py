"""LocalLog: the files of a log, and I/O errors of an append, a roll, a read or a close."""

from __future__ import annotations

import errno

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.appending import prepare_append
from aiokq.broker.log.producer_state import Origin
from aiokq.core.errors import KafkaStorage
from aiokq.fastpath import crc32c
from aiokq.records.header import read_header
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    fetched,
    open_partition,
    seen,
    values,
)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def test_a_log_holds_no_more_files_open_than_it_uses(files: MemoryFiles) -> None:
    """A thousand idle partitions, or a thousand segments of one, must not use up descriptors."""
    size = len(batch(b"0"))
    log = open_partition(files, segment_bytes=2 * size)
    for index in range(9):
        append(log, batch(b"%d" % index))
    assert [segment.is_open for segment in log.segments] == [False] * 4 + [True]
    sent = log.read(0, 10 * size).fragments
    log.roll(NOW_MS)
    assert b"".join(fragment.read() for fragment in sent) == fetched(log, 0, 10 * size)
    log.close()
    for clean in (True, False):
        log = open_partition(files, clean=clean, segment_bytes=2 * size)
        assert not any(segment.is_open for segment in log.segments)
        assert [offset for offset, _ in values(log)] == list(range(9))


@pytest.mark.parametrize("written", [0, 10, 60, 200])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_append_leaves_no_trace(files: MemoryFiles, number: int, written: int) -> None:
    """With a full disk half a batch must not stay in front of the next append."""
    log = open_partition(files)
    append(log, batch(b"before"))
    files.fail("pwritev", number, written=written)
    data = batch(b"x" * 300, producer_id=4, producer_epoch=0, base_sequence=0)
    with pytest.raises(KafkaStorage) as caught:
        append(log, data)
    assert caught.value.code == 56
    assert log.log_end_offset == 1
    assert len(log.producers) == 0
    assert log.failed
    with pytest.raises(KafkaStorage, match="offline until the broker restarts"):
        append(log, data)
    assert files.stat_size(f"{DIRECTORY}/{0:020d}.log") == log.size_bytes
    log.close(clean=False)
    again = open_partition(files, clean=False)
    assert append(again, data).base_offset == 1
    assert values(again) == [(0, b"before"), (1, b"x" * 300)]


def test_what_a_failed_append_left_behind_goes_at_the_next_start(files: MemoryFiles) -> None:
    """With unknown bytes after the log end, another append would be unreadable."""
    log = open_partition(files)
    append(log, batch(b"before"))
    files.fail("pwritev", errno.EIO, written=30)
    files.fail("truncate", errno.EIO)
    with pytest.raises(KafkaStorage):
        append(log, batch(b"lost"))
    assert log.failed
    for _ in range(2):
        with pytest.raises(KafkaStorage, match="offline until the broker restarts"):
            append(log, batch(b"more"))
    assert values(log) == [(0, b"before")]  # reads still work
    with pytest.raises(KafkaStorage):
        log.close()
    files.crash()
    again = open_partition(files, clean=False)
    assert values(again) == [(0, b"before")]
    append(again, batch(b"after"))
    assert [value for _, value in values(again)] == [b"before", b"after"]


def test_a_roll_that_fails_fails_the_append_and_nothing_else(files: MemoryFiles) -> None:
    """The old segment is sealed and the new one missing; the next start continues the log."""
    data = batch(b"x" * 100)
    log = open_partition(files, segment_bytes=2 * len(data))
    append(log, data)
    append(log, data)
    files.fail("open", errno.ENOSPC, matches=lambda path: path.endswith("2.log"))
    with pytest.raises(KafkaStorage, match="new segment"):
        append(log, data)
    log.close(clean=False)
    log = open_partition(files, clean=False, segment_bytes=2 * len(data))
    assert append(log, data).base_offset == 2
    assert [offset for offset, _ in values(log)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [
        ("read_bytes", file_names.TIME_INDEX),
        ("pread_cached", file_names.LOG),
        ("pwritev", file_names.LEADER_EPOCHS),
    ],
)
def test_what_can_fail_fails_before_the_write(
    files: MemoryFiles, operation: str, suffix: str
) -> None:
    """A producer resends a record whose append failed, so the record must not be in the log.

    The first append after a start also accesses other files, and must do so before its write.
    """
    log = open_partition(files)
    append(log, batch(b"before"))
    log.close()
    log = open_partition(files)
    files.fail(operation, errno.EIO, matches=lambda path: suffix in path)
    try:
        append(log, batch(b"after"), leader_epoch=7)
        files.heal()  # the second append reads nothing more
    except KafkaStorage:
        assert values(log) == [(0, b"before")]
        log.close(clean=False)
        log = open_partition(files, clean=False)
        append(log, batch(b"after"), leader_epoch=7)
    assert values(log) == [(0, b"before"), (1, b"after")]
    assert log.end_offset_for_epoch(7) == (7, 2)


def test_every_refusal_of_the_disk_is_a_storage_error(files: MemoryFiles) -> None:
    """Callers do not handle errno: a read, a deletion and a new epoch all raise KafkaStorage."""
    data = batch(b"x" * 100)
    log = open_partition(files, segment_bytes=2 * len(data), index_interval_bytes=0)
    for _ in range(5):
        append(log, data)
    for operation, call in (
        ("open", lambda: seen(lambda: log.search_timestamp(NOW_MS, 0))),
        ("pread_cached", lambda: log.read(1, 100)),
        ("rename", lambda: log.delete_records(3)),
        ("pwritev", lambda: log.assign_epoch(5)),
    ):
        files.fail(operation, errno.EIO)
        with pytest.raises(KafkaStorage):
            call()
        files.heal()


def test_what_a_flush_left_undone_is_the_next_ones(files: MemoryFiles) -> None:
    """The flush failed at another log of its directory, and this log must be synced later."""
    log = open_partition(files, segment_bytes=2 * len(batch()))
    log.durability.is_new = True
    for _ in range(5):
        append(log, batch())
    first = log.begin_flush(None)
    assert first is not None
    # three segments, the indexes of two, the snapshots of two rolls, and the leader epochs
    assert len(first.files) == 10
    assert len(first.directories) == 2
    log.redo_flush(first)
    again = log.begin_flush(None)
    assert again is not None
    assert [file.path for file in again.files] == [file.path for file in first.files]
    assert again.directories == first.directories


def test_a_swap_is_of_the_logs_own_segments(files: MemoryFiles) -> None:
    """Retention deleted one of the copied segments, whose records the copy would restore."""
    log = open_partition(files, segment_bytes=2 * len(batch()))
    for _ in range(8):
        append(log, batch())
    originals = log.segments[:2]
    log.delete_records(2)
    left = log.segments
    assert not log.swap_segments(originals[1], originals)
    assert log.segments == left
    assert not log.swap_segments(left[0], left)  # the newest segment cannot be replaced either
    assert log.segments == left


def test_a_closed_log_takes_no_appends(files: MemoryFiles) -> None:
    """A request may still be waiting when the broker stops."""
    log = open_partition(files)
    log.close()
    log.close()
    with pytest.raises(KafkaStorage, match="closed"):
        append(log, batch())


def test_what_is_written_or_read_too_late_is_no_trouble_of_the_disk(files: MemoryFiles) -> None:
    """A topic may be deleted while its records are checked or read off the loop.

    Regression: records were appended to a deleted file, or the whole directory went offline.
    """
    log = open_partition(files)
    data = batch(b"0")
    append(log, data)
    prepared = prepare_append(
        data, [read_header(data)], log.config, now_ms=NOW_MS, origin=Origin.CLIENT, crc32c=crc32c
    )
    log.retire()
    with pytest.raises(KafkaStorage, match="is closed"):
        log.append_prepared(prepared, leader_epoch=0)
    assert log.log_end_offset == 1
    error = log.read_refused(OSError(errno.EIO, "Input/output error"))
    assert "is closed" in error.message
    assert not log.failed
