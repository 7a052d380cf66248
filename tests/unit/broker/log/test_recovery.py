"""Opening a log: clean, killed, torn, corrupt, or with leftover files."""

from __future__ import annotations

import errno
import logging
import random
import struct

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.recovery import RecoveryProgress
from aiokq.core.errors import OutOfOrderSequence
from aiokq.fastpath import crc32c
from aiokq.records.header import TRANSACTIONAL_MASK
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    fetched,
    open_partition,
    record_since,
    values,
)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def path(base_offset: int = 0, suffix: str = file_names.LOG) -> str:
    return file_names.segment_file(DIRECTORY, base_offset, suffix)


def filled(files: MemoryFiles, count: int = 12, *, clean: bool = True, per_segment: int = 4) -> int:
    """Write a log of single-record batches, close or kill it; return the size of a batch."""
    data = batch(b"0" * 30)
    log = open_partition(files, segment_bytes=per_segment * len(data), index_interval_bytes=0)
    for index in range(count):
        append(log, batch(b"%030d" % index))
    if clean:
        log.close()
    files.crash()
    return len(data)


def write(files: MemoryFiles, name: str, data: bytes, position: int) -> None:
    file = files.open(name, create=True)
    file.pwritev([data], position)
    file.close()


def offsets(files: MemoryFiles, *, clean: bool = False) -> list[int]:
    return [offset for offset, _ in values(open_partition(files, clean=clean))]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_comes_back_as_it_was(files: MemoryFiles, clean: bool) -> None:
    """A kill loses nothing that was written, because it is in the page cache."""
    filled(files, clean=clean)
    log = open_partition(files, clean=clean)
    assert [offset for offset, _ in values(log)] == list(range(12))
    assert append(log, batch()).base_offset == 12


def test_a_clean_stop_is_followed_by_no_scan(files: MemoryFiles) -> None:
    """A thousand partitions of gigabytes must open in two seconds."""
    size = filled(files, 400, per_segment=100)
    before = log_reads(files)
    open_partition(files)
    assert log_reads(files) - before < 3 * size


def log_reads(files: MemoryFiles) -> int:
    """Return the bytes read from .log files since the first call."""
    if not hasattr(files, "counted"):
        files.counted = 0  # type: ignore[attr-defined]
        opened = files.open

        def counting(name: str, **options: bool) -> object:
            file = opened(name, **options)
            if str(name).endswith(".log"):
                pread = file.pread

                def counted(length: int, position: int) -> bytes:
                    data = pread(length, position)
                    files.counted += len(data)  # type: ignore[attr-defined]
                    return data

                file.pread = counted  # type: ignore[method-assign]
            return file

        files.open = counting  # type: ignore[method-assign,assignment]
    return files.counted  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("cut", [1, 5, 12, 20, 61, 70])
def test_a_torn_tail_is_cut_with_a_warning(
    files: MemoryFiles, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The process died during a write, which was not acknowledged."""
    size = filled(files, 6, clean=False)
    file = files.open(path(4))
    file.truncate(2 * size - cut)
    with caplog.at_level(logging.WARNING, "aiokq.broker.log"):
        assert offsets(files) == list(range(5))
    assert "removing torn tail" in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert not kept(files)
    assert append(open_partition(files), batch()).base_offset == 5


def kept(files: MemoryFiles) -> list[str]:
    return [name for name in files.listdir(DIRECTORY) if file_names.CORRUPT in name]


@pytest.mark.parametrize(
    ("byte", "reason"),
    [
        (70, "CRC"),
        (17, "CRC"),
        (16, "magic"),
        (8, "batch of"),
        (11, ""),
        (7, "base offset 64, expected 1"),
    ],
)
def test_sound_batches_behind_a_bad_one_are_kept_aside(
    files: MemoryFiles, byte: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They were acknowledged: a gap in the offsets is not allowed, so they are moved to a file."""
    size = filled(files, 4, clean=False)
    original = files.read_bytes(path())
    files.corrupt(path(), size + byte, 0x41)
    broken = files.read_bytes(path())
    with caplog.at_level(logging.ERROR, "aiokq.broker.log"):
        log = open_partition(files, clean=False)
    assert [offset for offset, _ in values(log)] == [0]
    assert kept(files) == [f"{0:020d}.log.corrupt-{size}"]
    assert files.read_bytes(f"{DIRECTORY}/{kept(files)[0]}") == broken[size:]
    assert len(broken) == len(original)
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert "lost_offsets=1-3" in record.getMessage()
    assert reason in record.getMessage()
    assert append(log, batch()).base_offset == 1


def test_a_complete_last_batch_with_a_bad_crc_is_kept_aside(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have been acknowledged; only an incomplete batch cannot have been."""
    size = filled(files, 3, clean=False)
    files.corrupt(path(), 2 * size + 65)
    with caplog.at_level(logging.WARNING, "aiokq.broker.log"):
        assert offsets(files) == [0, 1]
    assert kept(files) == [f"{0:020d}.log.corrupt-{2 * size}"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_segments_behind_a_cut_are_kept_aside_too(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise records after a hole would be served as if nothing were missing."""
    size = filled(files, 12, clean=False)
    files.corrupt(path(4), size + 65)
    with caplog.at_level(logging.ERROR, "aiokq.broker.log"):
        assert offsets(files) == [0, 1, 2, 3, 4]
    assert kept(files) == [f"{4:020d}.log.corrupt-{size}", f"{8:020d}.log.corrupt-0"]
    assert len(files.read_bytes(f"{DIRECTORY}/{kept(files)[1]}")) == 4 * size
    messages = [record.getMessage() for record in caplog.records]
    assert ["lost_offsets=8-11" in messages[0], "lost_offsets=5-7" in messages[1]] == [True, True]
    assert not files.exists(path(8, file_names.INDEX))
    assert offsets(files) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("operation", ["rename", "remove", "sync_dir"])
@pytest.mark.parametrize("power", [True, False])
def test_a_recovery_that_is_interrupted_leaves_no_hole(
    files: MemoryFiles, operation: str, power: bool
) -> None:
    """If the damaged segment were truncated first, later ones would look sound after a gap."""
    size = filled(files, 12, clean=False)
    files.corrupt(path(4), size + 65)
    for base in (0, 4, 8):
        files.open(path(base)).sync()
    for directory in ("/", "/data", DIRECTORY):
        files.sync_dir(directory)
    files.fail(operation, errno.EIO, matches=lambda name: f"{8:020d}" in name or name == DIRECTORY)
    with pytest.raises(OSError, match="Input/output"):
        open_partition(files, clean=False)
    files.power_cut() if power else files.crash()
    assert offsets(files) == [0, 1, 2, 3, 4]
    assert [name for name in kept(files) if f"{8:020d}" in name] == [f"{8:020d}.log.corrupt-0"]


def test_garbage_behind_the_log_is_removed(files: MemoryFiles) -> None:
    """A broken file system may leave a block of another file."""
    size = filled(files, 3, clean=False)
    write(files, path(), random.Random(1).randbytes(5000), 3 * size)
    assert offsets(files) == [0, 1, 2]


def test_the_beginning_of_another_batch_is_kept_aside(files: MemoryFiles) -> None:
    """Its offset does not fit the log end, so it is no torn write and may be the only copy."""
    size = filled(files, 3, clean=False)
    write(files, path(), batch(b"0" * 30)[: size - 5], 3 * size)  # of offset 0
    assert offsets(files) == [0, 1, 2]
    assert kept(files)


def test_zeros_behind_the_log_are_removed_and_not_kept(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """A power cut or Kafka's preallocation leaves them after the last batch."""
    size = filled(files, 3, clean=False)
    write(files, path(), bytes(5000), 3 * size)
    with caplog.at_level(logging.WARNING, "aiokq.broker.log"):
        assert offsets(files) == [0, 1, 2]
    assert not kept(files)
    assert "removing zeros" in caplog.text


def test_offsets_that_go_back_are_corruption(files: MemoryFiles) -> None:
    """A batch that was written twice has a valid CRC and wrong offsets."""
    size = filled(files, 3, clean=False)
    write(files, path(), files.read_bytes(path())[:size], 3 * size)
    assert offsets(files) == [0, 1, 2]
    assert kept(files)


def test_offsets_that_overlap_are_corruption(files: MemoryFiles) -> None:
    """No CRC covers the base offset: readers would get two records with one offset."""
    log = open_partition(files)
    size = len(data := batch(b"a", b"b", b"c"))
    append(log, data)
    append(log, data)
    files.crash()
    write(files, path(), (1).to_bytes(8, "big"), size)
    assert offsets(files) == [0, 1, 2]
    assert kept(files)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [file_names.INDEX, file_names.TIME_INDEX, file_names.SNAPSHOT])
def test_missing_files_are_made_again(files: MemoryFiles, suffix: str, clean: bool) -> None:
    """Everything but the .log can be rebuilt from it."""
    filled(files, 12, clean=clean)
    before = {
        name: files.read_bytes(f"{DIRECTORY}/{name}")
        for name in files.listdir(DIRECTORY)
        if name.endswith(suffix)
    }
    assert before
    for name in before:
        files.remove(f"{DIRECTORY}/{name}")
    log = open_partition(files, clean=clean, index_interval_bytes=0)
    assert [offset for offset, _ in values(log)] == list(range(12))
    for offset in range(12):
        assert fetched(log, offset, 1)
        found = record_since(log, 0)
        assert found is not None
        assert found[1] == 0
    if suffix != file_names.SNAPSHOT and clean:
        log.close()
        for name, data in before.items():
            assert files.read_bytes(f"{DIRECTORY}/{name}") == data, name


@pytest.mark.parametrize("suffix", [file_names.INDEX, file_names.TIME_INDEX])
@pytest.mark.parametrize("damage", ["odd size", "unsorted", "beyond", "zeros"])
def test_indexes_that_do_not_fit_are_made_again(
    files: MemoryFiles, suffix: str, damage: str
) -> None:
    """A wrong index would send readers into the middle of a batch."""
    filled(files, 8, per_segment=8)
    entry = 8 if suffix == file_names.INDEX else 12
    data = files.read_bytes(path(0, suffix))
    damaged = {
        "odd size": data + b"\x01\x02\x03",
        "unsorted": data[entry:] + data[:entry] if len(data) > entry else b"\x7f" * entry,
        "beyond": data + b"\x7f" * entry,
        "zeros": data + bytes(10 * entry),
    }[damage]
    file = files.open(path(0, suffix))
    file.truncate(0)
    file.pwritev([damaged], 0)
    log = open_partition(files)
    for offset in range(8):
        assert fetched(log, offset, 1)
    assert log.log_end_offset == 8
    found = record_since(log, 0)
    assert found is not None


@pytest.mark.parametrize("left", [0, 3])
def test_an_older_index_that_a_power_cut_took_is_made_again_at_the_start(
    files: MemoryFiles, left: int
) -> None:
    """It was not synced; rebuilding it at the first read would block the loop."""
    filled(files, 8)
    before = files.read_bytes(path(0, file_names.INDEX))
    files.open(path(0, file_names.INDEX)).truncate(left)
    open_partition(files, index_interval_bytes=0)
    assert files.read_bytes(path(0, file_names.INDEX)) == before


@pytest.mark.parametrize("sizes", [(300,), (90, 300), (50, 50, 300)])
def test_an_empty_index_of_a_finished_segment_is_kept_if_it_never_had_an_entry(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture, sizes: tuple[int, ...]
) -> None:
    """Regression: such a segment was read, and its indexes were written again, at each start.

    The last batch alone may be larger than the interval of the index.
    """
    log = open_partition(files, index_interval_bytes=300)
    for size in sizes:
        append(log, batch(bytes(size)))
    log.roll(NOW_MS)
    append(log, batch(b"next"))
    log.close()
    assert not files.read_bytes(path(0, file_names.INDEX))
    assert files.stat_size(path(0)) > 300
    log = open_partition(files, index_interval_bytes=300)
    assert [offset for offset, _ in values(log)] == list(range(len(sizes) + 1))
    assert "rebuilding" not in caplog.text


def test_an_index_without_its_log_is_removed(files: MemoryFiles) -> None:
    """It is left from an interrupted deletion, and a later segment would take it for its own."""
    filled(files, 3)
    write(files, path(70, file_names.INDEX), b"\x00" * 8, 0)
    assert offsets(files, clean=True) == [0, 1, 2]
    assert not files.exists(path(70, file_names.INDEX))


def test_leftovers_of_deletion_and_cleaning_go(files: MemoryFiles) -> None:
    """A crash came between rename and removal."""
    filled(files, 3)
    for suffix in (file_names.DELETED, file_names.CLEANED, file_names.TEMPORARY):
        write(files, path(0) + suffix, b"junk", 0)
    assert offsets(files, clean=True) == [0, 1, 2]
    assert not [n for n in files.listdir(DIRECTORY) if n.endswith((".deleted", ".cleaned", ".tmp"))]


def test_an_interrupted_swap_is_finished(files: MemoryFiles) -> None:
    """The cleaner had completed the new segment and was about to replace two old ones."""
    size = filled(files, 12)
    merged = files.read_bytes(path(0))[:size] + files.read_bytes(path(4))
    write(files, path(0) + file_names.SWAP, merged, 0)
    write(files, path(0, file_names.INDEX) + file_names.SWAP, b"", 0)
    write(files, path(0, file_names.TIME_INDEX) + file_names.SWAP, b"", 0)
    assert offsets(files) == [0, 4, 5, 6, 7, 8, 9, 10, 11]
    assert not [name for name in files.listdir(DIRECTORY) if name.endswith(file_names.SWAP)]
    assert offsets(files) == [0, 4, 5, 6, 7, 8, 9, 10, 11]


def test_a_swap_with_cleaned_files_left_is_undone(files: MemoryFiles) -> None:
    """Several segments were being swapped and not all were renamed, so all originals exist."""
    size = filled(files, 12)
    write(files, path(0) + file_names.SWAP, files.read_bytes(path(0))[:size], 0)
    write(files, path(0) + file_names.CLEANED, b"", 0)
    assert offsets(files) == list(range(12))
    assert not [
        n for n in files.listdir(DIRECTORY) if n.endswith((file_names.SWAP, file_names.CLEANED))
    ]


def test_retries_are_recognised_after_a_restart(files: MemoryFiles) -> None:
    """The response was lost with the broker, and the producer resends to the new process."""
    for clean in (True, False):
        files = MemoryFiles()
        log = open_partition(files)
        sent = [
            batch(b"a", b"b", producer_id=9, producer_epoch=1, base_sequence=sequence)
            for sequence in range(0, 14, 2)
        ]
        for data in sent[:3]:
            append(log, data)
        log.roll(0)
        for data in sent[3:]:
            append(log, data)
        if clean:
            log.close()
        files.crash()
        log = open_partition(files, clean=clean)
        size = log.size_bytes
        for index in range(2, 7):
            result = append(log, sent[index])
            assert (result.base_offset, result.duplicate) == (2 * index, True)
        assert log.size_bytes == size
        with pytest.raises(OutOfOrderSequence):
            append(log, sent[1])
        append(log, batch(producer_id=9, producer_epoch=1, base_sequence=14))


def test_a_snapshot_of_records_that_were_cut_is_not_believed(files: MemoryFiles) -> None:
    """It has sequences of lost records, and the producer's next would look like a gap."""
    log = open_partition(files)
    data = [batch(producer_id=9, producer_epoch=0, base_sequence=i) for i in range(3)]
    for item in data:
        append(log, item)
    log.close()
    files.crash()
    file = files.open(path())
    file.truncate(2 * len(data[0]) + 5)
    log = open_partition(files, clean=False)
    assert append(log, data[2]).base_offset == 2
    assert not files.exists(path(3, file_names.SNAPSHOT))


def test_a_damaged_snapshot_is_made_again_from_the_log(files: MemoryFiles) -> None:
    """The log has the same state."""
    log = open_partition(files)
    data = batch(producer_id=9, producer_epoch=0, base_sequence=0)
    append(log, data)
    log.close()
    files.corrupt(path(1, file_names.SNAPSHOT), 12)
    assert append(open_partition(files), data).duplicate


@pytest.mark.parametrize("clean", [True, False])
def test_producers_of_deleted_segments_are_known_after_a_second_crash(
    files: MemoryFiles, clean: bool
) -> None:
    """The first start writes the snapshot of the segment that is left, if it is missing."""
    log = open_partition(files)
    sent = batch(producer_id=9, producer_epoch=0, base_sequence=0)
    append(log, sent)
    log.roll(NOW_MS)
    append(log, batch())
    if clean:
        log.close()
        for offset in (1, 2):
            files.remove(path(offset, file_names.SNAPSHOT))
    files.crash()
    log = open_partition(files, clean=clean)
    log.delete_records(1)
    log.purge()
    assert not files.exists(path(0))
    files.crash()
    log = open_partition(files, clean=False, log_start_offset=1)
    result = append(log, sent)
    assert (result.base_offset, result.duplicate) == (0, True)


def test_an_open_transaction_is_open_after_a_restart(files: MemoryFiles) -> None:
    """It may still be aborted."""
    for clean in (True, False):
        files = MemoryFiles()
        log = open_partition(files)
        append(log, batch())
        append(
            log,
            batch(producer_id=9, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL_MASK),
        )
        if clean:
            log.close()
        files.crash()
        assert open_partition(files, clean=clean).last_stable_offset == 1


def test_epochs_follow_from_the_log(files: MemoryFiles) -> None:
    """The checkpoint is not synced, so a power cut may lose it."""
    for content, clean in (
        (None, False),
        (None, True),
        (b"", True),
        (b"garbage", False),
        (b"garbage", True),
        (b"0\n1\n5 1\n", False),
    ):
        files = MemoryFiles()
        log = open_partition(files)
        for epoch in (0, 0, 3, 5):
            append(log, batch(), leader_epoch=epoch)
        if clean:
            log.close()
        name = f"{DIRECTORY}/{file_names.LEADER_EPOCHS}"
        files.remove(name)
        if content is not None:
            write(files, name, content, 0)
        log = open_partition(files, clean=clean)
        assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (3, 2), (5, 3)]


def test_epochs_follow_from_what_is_before_the_recovery_point_too(files: MemoryFiles) -> None:
    """Those records need no check, but nothing else has their epochs."""
    log = open_partition(files, segment_bytes=len(batch()))
    for epoch in (0, 0, 3, 5):
        append(log, batch(), leader_epoch=epoch)
    files.crash()
    files.remove(f"{DIRECTORY}/{file_names.LEADER_EPOCHS}")
    log = open_partition(files, clean=False, recovery_point=3)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (3, 2), (5, 3)]


def test_a_new_log_has_no_leader_epoch_file_until_its_first_record(files: MemoryFiles) -> None:
    """Its directory would have another file than those of earlier versions."""
    log = open_partition(files)
    assert files.listdir(DIRECTORY) == [f"{0:020d}.log"]
    append(log, batch(), leader_epoch=3)
    assert files.read_bytes(f"{DIRECTORY}/{file_names.LEADER_EPOCHS}") == b"0\n1\n3 0\n"


def test_a_log_whose_segments_are_lost_keeps_no_leader_epochs(files: MemoryFiles) -> None:
    """If the file stayed, the next start would find epochs of records that do not exist."""
    append(open_partition(files), batch(), leader_epoch=3)
    files.crash()
    files.remove(path())
    open_partition(files)
    files.crash()
    assert open_partition(files, clean=True).epochs.entries == ()


def test_an_epoch_without_records_survives_a_clean_stop(files: MemoryFiles) -> None:
    """Clients have seen it, and would ignore the broker's metadata if it had an older epoch."""
    filled(files, 2)
    log = open_partition(files)
    log.assign_epoch(4)
    log.close()
    assert open_partition(files).epochs.latest_epoch == 4


def test_an_epoch_whose_records_are_gone_is_still_known(files: MemoryFiles) -> None:
    """If it were used again, readers could not detect that the records differ (KIP-320)."""
    filled(files, 2)
    log = open_partition(files)
    append(log, batch(b"lost"), leader_epoch=7)
    files.sync_dir("/data")
    files.open(f"{DIRECTORY}/{file_names.LEADER_EPOCHS}").sync()
    files.sync_dir(DIRECTORY)
    files.power_cut()
    log = open_partition(files, clean=False)
    assert log.log_end_offset == 2
    assert log.epochs.latest_epoch == 7
    log.assign_epoch(8)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (8, 2)]


def test_the_log_start_comes_from_the_checkpoint(files: MemoryFiles) -> None:
    """Records deleted by DeleteRecords must not come back with a restart."""
    filled(files, 12)
    log = open_partition(files, log_start_offset=6)
    assert (log.log_start_offset, log.log_end_offset) == (6, 12)
    empty = open_partition(MemoryFiles(), log_start_offset=50)
    assert (empty.log_start_offset, empty.log_end_offset) == (50, 50)


def test_a_log_that_ends_before_its_start_begins_there(files: MemoryFiles) -> None:
    """A power cut removed the records; new ones must not get offsets that count as deleted."""
    filled(files, 3)
    for clean in (True, False):
        log = open_partition(files, clean=clean, log_start_offset=5)
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert append(log, batch(b"new")).base_offset == 5
    files.crash()
    assert values(open_partition(files, clean=False, log_start_offset=5), 5) == [(5, b"new")]


def interrupted_transaction(files: MemoryFiles) -> None:
    """Append 3 batches of a transaction; a clean shutdown left a snapshot at offset 2."""
    options = {"producer_id": 9, "producer_epoch": 0, "attributes": TRANSACTIONAL_MASK}
    log = open_partition(files)
    for sequence in range(2):
        append(log, batch(base_sequence=sequence, **options))
    log.close()
    log = open_partition(files)
    append(log, batch(base_sequence=2, **options))
    files.crash()
    assert files.exists(path(2, file_names.SNAPSHOT))


def assert_no_producer_is_left(files: MemoryFiles) -> None:
    log = open_partition(files, clean=False, log_start_offset=5)
    assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == (5, 5, 5)
    assert not list(log.producers)
    assert append(log, batch(producer_id=9, producer_epoch=0, base_sequence=7)).base_offset == 5


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_is_restarted_at_its_start_offset_has_no_producers(
    files: MemoryFiles, clean: bool
) -> None:
    """With the old snapshot, its next batch is refused and its transaction never ends."""
    interrupted_transaction(files)
    log = open_partition(files, clean=clean, log_start_offset=5)
    assert not list(log.producers)
    files.crash()
    assert_no_producer_is_left(files)


def test_a_log_without_segments_has_no_producers(files: MemoryFiles) -> None:
    """A kill between the removal of the segments and the new segment leaves the snapshots."""
    interrupted_transaction(files)
    files.remove(path(0))
    assert_no_producer_is_left(files)


@pytest.mark.parametrize("clean", [True, False])
def test_a_snapshot_before_the_first_segment_is_not_used(files: MemoryFiles, clean: bool) -> None:
    """A power cut may undo its removal; the batches between it and the segment are missing."""
    interrupted_transaction(files)
    snapshot = files.read_bytes(path(2, file_names.SNAPSHOT))
    log = open_partition(files, clean=False, log_start_offset=5)
    append(log, batch(producer_id=8, producer_epoch=0, base_sequence=0))
    files.crash()
    for base in (5, 6):
        if files.exists(path(base, file_names.SNAPSHOT)):
            files.remove(path(base, file_names.SNAPSHOT))
    write(files, path(2, file_names.SNAPSHOT), snapshot, 0)
    log = open_partition(files, clean=clean, log_start_offset=5)
    assert [entry.producer_id for entry in log.producers] == [8]
    assert log.last_stable_offset == 6
    assert not files.exists(path(2, file_names.SNAPSHOT))


def test_segments_before_the_recovery_point_are_not_checked(files: MemoryFiles) -> None:
    """They were synced completely; checking terabytes after each kill is needless."""
    size = filled(files, 12)
    files.corrupt(path(0), size + 65)
    log = open_partition(files, clean=False, recovery_point=8)
    assert log.log_end_offset == 12
    assert not kept(files)


@pytest.mark.parametrize(
    "tail", [bytes(64), b"\xff" * 64, b"\0" * 16 + b"\x07" * 48], ids=["zeros", "ones", "no magic"]
)
def test_a_tail_that_is_no_batch_is_cut_behind_the_recovery_point_too(
    files: MemoryFiles, tail: bytes
) -> None:
    """A power cut leaves such tails, so the broker must start with one."""
    size = filled(files, 9, per_segment=4)
    write(files, path(8), tail, size)
    log = open_partition(files, clean=False, recovery_point=9)
    assert [offset for offset, _ in values(log)] == list(range(9))
    assert append(log, batch()).base_offset == 9


def test_what_a_recovery_found_is_synced_by_the_next_clean_stop(files: MemoryFiles) -> None:
    """After a kill, records are in the page cache only, and the marker must not cover them."""
    filled(files, 6, clean=False)
    files.sync_dir("/data")
    open_partition(files, clean=False).close()
    files.power_cut()
    assert offsets(files, clean=True) == list(range(6))


def test_a_cut_is_synced_by_the_next_clean_stop(files: MemoryFiles) -> None:
    """Otherwise the removed tail would be back after a power cut, and be trusted."""
    size = filled(files, 3)
    write(files, path(), b"\xff" * 50, 3 * size)
    files.open(path()).sync()
    files.sync_dir("/data")
    open_partition(files, clean=False).close()
    files.power_cut()
    assert files.stat_size(path()) == 3 * size


def test_a_snapshot_lost_and_a_segment_damaged_after_a_clean_stop_are_recovered(
    files: MemoryFiles,
) -> None:
    """Producer state is rebuilt from batch headers, one of which may be damaged."""
    size = filled(files, 9, per_segment=4)
    for name in files.listdir(DIRECTORY):
        if name.endswith(file_names.SNAPSHOT):
            files.remove(f"{DIRECTORY}/{name}")
    files.corrupt(path(0), size + 16)
    log = open_partition(files, recovery_point=9)
    assert log.log_end_offset == 1
    assert len(kept(files)) == 3


def test_bytes_behind_the_last_batch_after_a_clean_stop_are_removed(files: MemoryFiles) -> None:
    """Records appended after them would be lost at the next scan."""
    size = filled(files, 3)
    write(files, path(), b"\0\0\0\0\0\0\0\x03\0\0\x10\0 torn", 3 * size)
    log = open_partition(files)
    append(log, batch(b"next"))
    assert values(log)[-1] == (3, b"next")
    log.close()
    assert values(open_partition(files, clean=False))[-1] == (3, b"next")


def test_bytes_kept_aside_before_are_not_overwritten(files: MemoryFiles) -> None:
    """They may be the only copy of acknowledged records."""
    size = filled(files, 3, clean=False)
    for value in (0x55, 0x66):
        files.corrupt(path(), 2 * size + 65, value)
        assert open_partition(files, clean=False).log_end_offset == 2
        files.crash()
        append(open_partition(files, clean=False), batch(b"again%024d" % value))
        files.crash()
    contents = {files.read_bytes(f"{DIRECTORY}/{name}") for name in kept(files)}
    assert len(contents) == 2


def test_progress_is_told(files: MemoryFiles) -> None:
    """Operators want to know how long the start takes."""
    size = filled(files, 12, clean=False)
    heard: list[RecoveryProgress] = []
    open_partition(files, clean=False, progress=heard.append)
    assert heard[-1].checked_bytes == heard[-1].total_bytes == 12 * size


def test_a_log_whose_newest_segment_is_damaged_after_a_clean_stop_is_recovered(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """The content of the disk contradicts the marker, and decides."""
    size = filled(files, 6)
    files.corrupt(path(4), size + 16)
    with caplog.at_level(logging.ERROR, "aiokq.broker.log"):
        log = open_partition(files)
    assert log.log_end_offset == 5
    assert "synced part of the log is damaged" in caplog.text


def test_legacy_entries_are_recovered_too(files: MemoryFiles) -> None:
    """A directory of an old Kafka may start with message formats 0 and 1."""
    from aiokq.records.legacy import Message, encode_message_set

    messages = [Message(i, 1000 + i, b"k", b"v%d" % i) for i in range(3)]
    data = encode_message_set(messages, 1) + encode_message_set(
        [Message(i, 1000 + i, b"k", b"v%d" % i) for i in range(3, 6)], 1, 1
    )
    files.mkdirs(DIRECTORY)
    write(files, path(), data, 0)
    log = open_partition(files, clean=False)
    assert log.log_end_offset == 6
    assert record_since(log, 1004) == (1004, 4, -1)
    assert fetched(log) == data
    assert crc32c(b"") == 0


def test_every_cut_of_a_log_recovers_a_prefix(files: MemoryFiles) -> None:
    """Whole batches up to the cut are kept, and appends continue after them."""
    size = filled(files, 3, clean=False)
    data = files.read_bytes(path())
    for length in range(0, len(data) + 1, 3):
        files = MemoryFiles()
        files.mkdirs(DIRECTORY)
        write(files, path(), data[:length], 0)
        log = open_partition(files, clean=False)
        assert [offset for offset, _ in values(log)] == list(range(length // size))
        assert append(log, batch()).base_offset == length // size


def test_a_log_ends_where_a_power_cut_has_left_a_hole(
    files: MemoryFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """A finished segment was not synced yet, while the kernel wrote all later ones."""
    size = filled(files, 12, clean=False)
    cut(files, path(4), 2 * size)
    with caplog.at_level(logging.ERROR):
        log = open_partition(files, clean=False)
    assert [offset for offset, _ in values(log)] == list(range(6))
    assert append(log, batch()).base_offset == 6
    assert f"{file_names.segment_file('', 8, file_names.LOG)[1:]}.corrupt-0" in kept(files)
    assert "gap between segments, log truncated partition=orders-0 lost_offsets=6-7" in caplog.text
    assert "lost_offsets=8-11" in caplog.text


def test_a_segment_that_is_missing_is_a_hole(files: MemoryFiles) -> None:
    """Its directory entry was not synced either."""
    filled(files, 12, clean=False)
    files.remove(path(4))
    assert offsets(files) == [0, 1, 2, 3]


@pytest.mark.parametrize("known", [{"recovery_point": 8}, {"gaps_before": 8}])
def test_gaps_that_compaction_may_have_left_are_no_holes(
    files: MemoryFiles, known: dict[str, int]
) -> None:
    """What was flushed or compacted cannot be lost by a power cut."""
    size = filled(files, 12, clean=False)
    cut(files, path(4), 2 * size)
    log = open_partition(files, clean=False, **known)
    assert [offset for offset, _ in values(log)] == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]


def test_a_log_damaged_before_its_recovery_point_keeps_its_gaps(files: MemoryFiles) -> None:
    """The log is checked from its beginning then, but the gap is as valid as before."""
    size = filled(files, 12, clean=False)
    cut(files, path(4), 2 * size)
    files.remove(f"{DIRECTORY}/{file_names.LEADER_EPOCHS}")
    log = open_partition(files, clean=False, recovery_point=8)
    assert [offset for offset, _ in values(log)] == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]


def cut(files: MemoryFiles, name: str, size: int) -> None:
    file = files.open(name)
    file.truncate(size)
    file.close()


def test_a_cut_is_durable_before_anything_is_written_behind_it(files: MemoryFiles) -> None:
    """Regression: the next power cut restored removed batches after newly appended ones."""
    size = filled(files, 4, clean=False)
    for directory in ("/", "/data", DIRECTORY):
        files.sync_dir(directory)
    files.corrupt(path(), size + 70)
    open_partition(files, clean=False)
    files.power_cut()
    assert files.stat_size(path()) == size


@pytest.mark.parametrize("offset", [12, 400, 2**31 - 1])
def test_the_offset_of_the_last_batch_is_checked_after_a_clean_stop(
    files: MemoryFiles, offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No checksum covers it, and no later batch contradicts it.

    Regression: the record was served with a wrong offset, and appends continued after a hole.
    """
    size = filled(files, 12, per_segment=4)
    path = f"{DIRECTORY}/{8:020d}{file_names.LOG}"
    write(files, path, struct.pack(">q", offset), 3 * size)
    log = open_partition(files, clean=True, recovery_point=12)
    assert [found for found, _ in values(log)] == list(range(11))
    assert "ends at" in caplog.text
    assert f"base offset {offset}, expected 11" in caplog.text
    assert append(log, batch()).base_offset == 11
    assert any(file_names.CORRUPT in name for name in files.listdir(DIRECTORY))


def test_a_clean_stop_that_wrote_no_end_is_believed(files: MemoryFiles) -> None:
    """Without a recorded end offset the log cannot be compared with it."""
    filled(files, 12, per_segment=4)
    before = log_reads(files)
    assert open_partition(files, clean=True).log_end_offset == 12
    assert log_reads(files) - before < 1000


def test_an_epoch_that_goes_on_in_what_is_checked_began_where_it_did(files: MemoryFiles) -> None:
    """An epoch that continues into the checked segments keeps its earlier start offset."""
    size = len(batch(b"x"))
    log = open_partition(files, segment_bytes=2 * size)
    for index in range(8):
        append(log, batch(b"x"), leader_epoch=index // 5)
    log.take_snapshot()
    files.crash()
    log = open_partition(files, clean=False, recovery_point=4, segment_bytes=2 * size)
    assert log.epochs.entries == ((0, 0), (1, 5))


def test_leader_epochs_are_durable_with_the_records_that_a_recovery_does_not_check() -> None:
    """A power cut may restore an older version of their file, which looks valid."""
    files = MemoryFiles()
    size = len(batch(b"x"))
    log = open_partition(files, segment_bytes=2 * size)
    for index in range(6):
        append(log, batch(b"x"), leader_epoch=index // 2)
        log.flush()
        for directory in (DIRECTORY, "/data", "/"):
            files.sync_dir(directory)
    files.power_cut()
    log = open_partition(files, clean=False, recovery_point=6, segment_bytes=2 * size)
    assert log.epochs.entries == ((0, 0), (1, 2), (2, 4))


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_power_cut_after_a_flush_leaves_no_older_version_of_a_finished_time_index(
    files: MemoryFiles, restarts: int
) -> None:
    """Its last entry is the largest timestamp of the segment, so searches skipped later records."""
    log = open_partition(files)
    append(log, batch())
    log.close()
    for name in files.listdir(DIRECTORY):
        files.open(f"{DIRECTORY}/{name}").sync()
    for directory in (DIRECTORY, "/data", "/"):
        files.sync_dir(directory)
    log = open_partition(files)
    append(log, batch(timestamp_ms=NOW_MS + 5))
    if restarts == 2:  # the clean shutdown writes the index, but does not sync it
        log.close()
        log = open_partition(files)
    log.roll(NOW_MS)
    append(log, batch(timestamp_ms=NOW_MS + 9))
    pending = log.begin_flush(None)
    assert pending is not None
    pending.sync(files)
    log.end_flush(pending)
    files.power_cut()
    log = open_partition(files, clean=False, recovery_point=2)
    assert record_since(log, NOW_MS + 5) == (NOW_MS + 5, 1, 0)
    assert log.segments[0].latest_timestamp_ms() == NOW_MS + 5
