"""aiokq.broker.log.truncation: removal of the end of a log and of all derived state."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest

from aiokq.broker.inspection.verifying import verify
from aiokq.broker.log import file_names
from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.producer_state import Origin
from aiokq.core.errors import KafkaStorage, OffsetOutOfRange
from aiokq.core.offload import InlineOffload
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker
from aiokq.records.header import TRANSACTIONAL_MASK, iter_headers, set_base_offset
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import (
    DIRECTORY,
    NOW_MS,
    TP,
    append,
    batch,
    config,
    fetched,
    open_partition,
    record_since,
    replica_of,
    values,
)
from tests.unit.broker.log.test_cleaner_crash import Crash, MortalFiles

SIZE = len(batch(b"0"))


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def filled(log: PartitionLog, count: int, *, committed: int = 0, first: int = 0) -> None:
    """Append batches of one record, each with its number as the value and a time of its own."""
    for number in range(first, first + count):
        data = batch(b"%d" % number, timestamp_ms=NOW_MS + number)
        log.append(memoryview(data), list(iter_headers(data)), leader_epoch=0, now_ms=NOW_MS)
    log.high_watermark = committed


async def truncate(log: PartitionLog, offset: int) -> int:
    return await log.truncate_to(offset, InlineOffload(), now_ms=NOW_MS)


def checkpointed(directory: LogDirectory) -> None:
    """Write the log start offset and the high watermark of each log."""
    directory.note_log_starts()
    directory.save(directory.checkpoints.log_starts)
    directory.note_high_watermarks()
    directory.save(directory.checkpoints.high_watermarks)


def all_values(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    return values(log, log.log_start_offset)


async def test_nothing_is_left_from_the_offset_on(files: MemoryFiles) -> None:
    log = open_partition(files, segment_bytes=3 * SIZE, index_interval_bytes=0)
    filled(log, 10, committed=2)
    assert await truncate(log, 4) == 4
    assert values(log) == [(number, b"%d" % number) for number in range(4)]
    assert (log.high_watermark, log.log_end_offset, len(log.segments)) == (2, 4, 2)
    assert record_since(log, NOW_MS + 3) == (NOW_MS + 3, 3, 0)
    assert record_since(log, NOW_MS + 4) is None
    assert log.max_timestamp_ms() == NOW_MS + 3
    append(log, batch(b"larger" * 5, timestamp_ms=NOW_MS + 4))
    filled(log, 3, first=5)
    assert values(log)[-1] == (7, b"7")
    log.close()
    log.purge()
    files.open(f"/data/{file_names.CLEAN_SHUTDOWN}", create=True).close()
    assert not verify(files, DIRECTORY, crc32c=crc32c).findings
    assert values(open_partition(files), 0)[-1] == (7, b"7")


@pytest.mark.parametrize("offset", [3, 5, 6, 9])
async def test_an_offset_at_the_end_of_a_batch_or_a_segment_cuts_just_there(files, offset) -> None:
    log = open_partition(files, segment_bytes=3 * SIZE)
    filled(log, 10)
    assert await truncate(log, offset) == offset
    assert values(log)[-1][0] == offset - 1


async def test_a_batch_that_holds_the_offset_goes_as_a_whole(files: MemoryFiles) -> None:
    log = open_partition(files)
    for _ in range(3):
        append(log, batch(b"a", b"b", b"c"))
    log.high_watermark = 3
    assert await truncate(log, 5) == 3
    assert [offset for offset, _ in values(log)] == [0, 1, 2]
    append(log, batch(b"a", b"b", b"c"))
    log.high_watermark = 4  # as of a leader with other batches
    with pytest.raises(OffsetOutOfRange, match="begins before 4"):
        await truncate(log, 5)
    assert log.log_end_offset == 6
    append(log, batch())


async def test_what_is_committed_is_never_cut_off(files: MemoryFiles) -> None:
    log = open_partition(files)
    filled(log, 5, committed=3)
    with pytest.raises(OffsetOutOfRange, match="below the high watermark 3"):
        await truncate(log, 2)
    assert log.log_end_offset == 5
    assert await truncate(log, 3) == 3


async def test_an_offset_behind_the_end_cuts_epochs_only(files: MemoryFiles) -> None:
    """An epoch that begins at the end has no records; the leader's may differ."""
    log = open_partition(files)
    filled(log, 3)
    log.assign_epoch(7)
    assert log.epochs.latest_epoch == 7
    assert await truncate(log, 3) == 3
    assert log.epochs.latest_epoch == 0
    assert await truncate(log, 9) == 3


async def test_epochs_end_where_the_log_ends(files: MemoryFiles) -> None:
    log = open_partition(files)
    for number in range(6):
        append(log, batch(), leader_epoch=number // 2)
    log.high_watermark = 0
    await truncate(log, 3)
    assert log.epochs.entries == ((0, 0), (1, 2))
    assert files.read_bytes(f"{DIRECTORY}/{file_names.LEADER_EPOCHS}") == b"0\n2\n0 0\n1 2\n"
    await truncate(log, 2)
    assert log.epochs.entries == ((0, 0),)


async def test_producers_are_as_they_were_at_the_cut(files: MemoryFiles) -> None:
    """A removed batch is no duplicate when it is sent again; earlier batches are."""
    log = open_partition(files, segment_bytes=2 * SIZE + 20)
    sent = [batch(b"%d" % n, producer_id=7, producer_epoch=0, base_sequence=n) for n in range(6)]
    for data in sent:
        append(log, data)
    log.take_snapshot()
    log.high_watermark = 1
    await truncate(log, 3)
    found = [name for name in files.listdir(DIRECTORY) if name.endswith(file_names.SNAPSHOT)]
    assert found == [f"{2:020d}.snapshot"]
    assert append(log, sent[2]).duplicate
    again = append(log, sent[3])
    assert (again.duplicate, again.base_offset) == (False, 3)


def transact(log: PartitionLog, producer_id: int, sequence: int) -> int:
    data = batch(
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        attributes=TRANSACTIONAL_MASK,
    )
    return append(log, data).base_offset


def end_transaction(log: PartitionLog, producer_id: int, kind: ControlType) -> int:
    data = encode_marker(
        EndTransactionMarker(kind, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=NOW_MS,
        crc32c=crc32c,
    )
    return append(log, bytes(data), origin=Origin.COORDINATOR).base_offset


async def test_a_transaction_whose_marker_is_cut_off_is_open_again(files: MemoryFiles) -> None:
    """If the removed abort marker still counted, its records would be hidden for ever."""
    log = open_partition(files)
    transact(log, 7, 0)
    end_transaction(log, 7, ControlType.ABORT)
    first = transact(log, 8, 0)
    marker = end_transaction(log, 8, ControlType.ABORT)
    append(log, batch())
    log.high_watermark = first + 1
    await truncate(log, marker)
    found = log.aborted_transactions(0, log.log_end_offset)
    assert [one.producer_id for one in found] == [7]
    log.high_watermark = log.log_end_offset
    assert log.last_stable_offset == first
    end_transaction(log, 8, ControlType.COMMIT)
    assert [one.producer_id for one in log.aborted_transactions(0, 9)] == [7]
    log.close()
    assert [one.producer_id for one in open_partition(files).aborted_transactions(0, 9)] == [7]


async def test_a_transaction_decided_above_the_high_watermark_stays_undecided(files) -> None:
    """Its marker is not committed, although a producer snapshot has its effect."""
    log = open_partition(files)
    first = transact(log, 7, 0)
    append(log, batch())
    end_transaction(log, 7, ControlType.COMMIT)
    log.roll(NOW_MS)
    append(log, batch())
    append(log, batch())
    log.high_watermark = 2
    assert log.last_stable_offset == first
    await truncate(log, 4)
    assert log.last_stable_offset == first


async def test_a_replica_forgets_the_appends_that_are_cut_off(files: MemoryFiles) -> None:
    at = replica_of(open_partition(files), replicas=(0, 1))
    heard: list[int] = []
    at.high_watermark_listeners.append(heard.append)
    data = batch()
    for _ in range(4):
        at.append(memoryview(data), list(iter_headers(data)), now_ms=NOW_MS)
    at.replica_fetched(1, 1)
    await truncate(at.log, 2)
    at.append(memoryview(data), list(iter_headers(data)), now_ms=NOW_MS)
    at.replica_fetched(1, 3)
    assert (at.high_watermark, sum(heard)) == (3, 3 * len(data))


# --- Crashes


def directory_of(files: MemoryFiles) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open(
        files, "/data", crc32c=crc32c, random=random.Random(1), now=lambda: 0.0
    )
    directory.begin()
    settings = config(segment_bytes=3 * SIZE, index_interval_bytes=0)
    return directory, directory.open_partition(TP, None, settings, now_ms=NOW_MS)


@pytest.mark.parametrize("end", ["kill", "names", "pages"])
async def test_a_crash_before_each_operation_leaves_the_old_end_or_an_earlier_one(end: str) -> None:
    """There is no hole: later appends do not follow records that were removed."""
    for operations in range(100):
        files = MortalFiles()
        directory, log = directory_of(files)
        filled(log, 11, committed=3)
        log.flush()
        for path in (DIRECTORY, "/data", "/"):
            files.sync_dir(path)
        directory.note_recovery_points()
        directory.save(directory.checkpoints.recovery_points)
        directory.checkpoints.cleaned_offsets.note(TP, 10)
        directory.save(directory.checkpoints.cleaned_offsets)
        files.done, files.ends_at = 0, operations
        died = False
        try:
            await truncate(log, 4)
        except Crash:
            died = True
        files.ends_at = None
        if end == "kill":
            files.crash()
        else:
            files.power_cut(random.Random(operations) if end == "pages" else None)
        directory, log = directory_of(files)
        found = values(log)
        assert found == [(number, b"%d" % number) for number in range(len(found))]
        assert 4 <= len(found) <= 11
        if not died:
            assert len(found) == 4
        cut = len(found) < 11
        for checkpoint in (
            directory.checkpoints.recovery_points,
            directory.checkpoints.cleaned_offsets,
        ):
            assert (checkpoint.get(TP) or 0) <= (len(found) if cut else 11)
        append(log, batch(b"other"))
        files.crash()
        assert values(directory_of(files)[1]) == [*found, (len(found), b"other")]
        if not died:
            break
    assert operations > 10


@pytest.mark.parametrize("end", ["kill", "names", "pages"])
async def test_a_crash_leaves_no_leader_epoch_of_removed_records(end: str) -> None:
    """Recovery keeps the newest epoch of the file, and a follower takes no records of older ones.

    The epochs are therefore cut in the file before the segments behind the cut are removed.
    """
    removed = 0
    for operations in range(100):
        files = MortalFiles()
        directory, log = directory_of(files)
        for number in range(11):
            append(log, batch(b"%d" % number), leader_epoch=number // 3)
        log.high_watermark = 3
        log.flush()
        for path in (DIRECTORY, "/data", "/"):
            files.sync_dir(path)
        directory.note_recovery_points()
        directory.save(directory.checkpoints.recovery_points)
        files.done, files.ends_at = 0, operations
        died = False
        try:
            await truncate(log, 4)
        except Crash:
            died = True
        files.ends_at = None
        if end == "kill":
            files.crash()
        else:
            files.power_cut(random.Random(operations) if end == "pages" else None)
        _, log = directory_of(files)
        count = log.log_end_offset
        removed += 4 < count < 11
        assert log.epochs.entries == tuple((n // 3, n) for n in range(0, count, 3))
        data = bytearray(batch(b"other"))
        set_base_offset(data, count, (count - 1) // 3)
        log.append_as_follower(
            memoryview(data),
            list(iter_headers(data)),
            leader_epoch=(count - 1) // 3,
            now_ms=NOW_MS,
        )
        if not died:
            break
    assert (count, operations > 10) == (4, True)
    assert removed


@pytest.mark.parametrize("end", ["kill", "names", "pages"])
async def test_a_truncation_into_a_gap_of_compaction_lowers_log_start_and_high_watermark(
    end: str,
) -> None:
    """No record is left between the new end and the offset, so the log ends below its start."""
    for operations in range(100):
        files = MortalFiles()
        directory, log = directory_of(files)
        for base in (0, 8):
            data = bytearray(batch(b"%d" % base))
            set_base_offset(data, base, 0)
            log.append_as_follower(
                memoryview(data), list(iter_headers(data)), leader_epoch=0, now_ms=NOW_MS
            )
        log.flush()
        for path in (DIRECTORY, "/data", "/"):
            files.sync_dir(path)
        log.high_watermark = 6
        log.delete_records(5)
        checkpointed(directory)
        files.done, files.ends_at = 0, operations
        died = False
        try:
            assert await truncate(log, 7) == 1
        except Crash:
            died = True
        files.ends_at = None
        if end == "kill":
            files.crash()
        else:
            files.power_cut(random.Random(operations) if end == "pages" else None)
        directory, log = directory_of(files)
        found, start = all_values(log), log.log_end_offset
        assert (found, start) in (([(8, b"8")], 9), ([], 5), ([], 1))
        assert died or start == 1
        append(log, batch(b"other"))
        committed = log.high_watermark
        files.crash()
        _, log = directory_of(files)
        assert all_values(log) == [*found, (start, b"other")]
        assert log.high_watermark <= max(committed, log.log_start_offset)
        if not died:
            assert (log.log_start_offset, log.high_watermark) == (1, 1)
            break
    assert operations > 8


async def test_segments_behind_the_cut_go_from_the_newest_on(files: MemoryFiles) -> None:
    """Otherwise a crash in between could leave a hole, after which everything is lost."""
    log = open_partition(files, segment_bytes=SIZE)
    filled(log, 5)
    renamed: list[str] = []
    rename = files.rename
    files.rename = lambda src, dst: (renamed.append(str(src)), rename(src, dst))[1]  # type: ignore[method-assign,func-returns-value,return-value]
    await truncate(log, 1)
    logs = [path for path in renamed if path.endswith(file_names.LOG)]
    assert logs == [file_names.segment_file(DIRECTORY, base, file_names.LOG) for base in (4, 3, 2)]
    log.purge()
    assert not [name for name in files.listdir(DIRECTORY) if name.endswith(file_names.DELETED)]


# --- A log that is restarted at an offset


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(4, id="inside a segment"),
        pytest.param(3, id="at the base offset of a segment"),
        pytest.param(20, id="behind the end"),
    ],
)
async def test_a_log_that_is_started_again_is_empty_at_the_offset(files, offset: int) -> None:
    log = open_partition(files, segment_bytes=3 * SIZE)
    filled(log, 10, committed=2)
    log.assign_epoch(4)
    await log.start_at(offset, InlineOffload(), now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (offset,) * 3
    assert (log.epochs.entries, len(log.producers), log.size_bytes) == ((), 0, 0)
    assert all_values(log) == []
    append(log, batch(b"other"))
    log.purge()
    assert not [name for name in files.listdir(DIRECTORY) if name.endswith(file_names.DELETED)]
    files.crash()
    assert all_values(open_partition(files, clean=False)) == [(offset, b"other")]


async def test_a_log_with_records_is_not_started_again_below_its_high_watermark(files) -> None:
    log = open_partition(files)
    filled(log, 4, committed=3)
    with pytest.raises(OffsetOutOfRange, match="offset 2 is below the high watermark 3"):
        await log.start_at(2, InlineOffload(), now_ms=NOW_MS)
    assert len(all_values(log)) == 4


@pytest.mark.parametrize("offset", [3, 20])
@pytest.mark.parametrize("end", ["kill", "names", "pages"])
async def test_a_crash_while_a_log_is_started_again_leaves_old_records_or_none(
    end: str, offset: int
) -> None:
    for operations in range(100):
        files = MortalFiles()
        directory, log = directory_of(files)
        filled(log, 11, committed=3)
        log.flush()
        for path in (DIRECTORY, "/data", "/"):
            files.sync_dir(path)
        directory.note_recovery_points()
        directory.save(directory.checkpoints.recovery_points)
        files.done, files.ends_at = 0, operations
        died = False
        try:
            await log.start_at(offset, InlineOffload(), now_ms=NOW_MS)
        except Crash:
            died = True
        files.ends_at = None
        if end == "kill":
            files.crash()
        else:
            files.power_cut(random.Random(operations) if end == "pages" else None)
        directory, log = directory_of(files)
        found = all_values(log)
        assert found == [(number, b"%d" % number) for number in range(len(found))]
        next_offset = log.log_end_offset
        if not died:
            assert (found, next_offset) == ([], offset)
        elif found:
            assert next_offset == len(found)
        else:
            assert next_offset in (0, offset)
        recovery_point = directory.checkpoints.recovery_points.get(TP) or 0
        assert recovery_point <= max(next_offset, 3)
        append(log, batch(b"other"))
        files.crash()
        assert all_values(directory_of(files)[1]) == [*found, (next_offset, b"other")]
        if not died:
            break
    assert operations > 10


@pytest.mark.parametrize("end", ["kill", "names"])
async def test_records_that_a_crash_leaves_of_a_restarted_log_keep_epochs_and_producers(
    end: str,
) -> None:
    """Recovery does not read the records before the recovery point, nor those deleted."""
    for operations in range(100):
        files = MortalFiles()
        directory, log = directory_of(files)
        append(log, batch(producer_id=7, producer_epoch=0, base_sequence=0), leader_epoch=5)
        for _ in range(10):
            append(log, batch(), leader_epoch=5)
        log.delete_records(4)
        directory.write_log_starts()
        log.flush()
        for path in (DIRECTORY, "/data", "/"):
            files.sync_dir(path)
        directory.note_recovery_points()
        directory.save(directory.checkpoints.recovery_points)
        files.done, files.ends_at = 0, operations
        died = False
        try:
            await log.start_at(20, InlineOffload(), now_ms=NOW_MS)
        except Crash:
            died = True
        files.ends_at = None
        if end == "kill":
            files.crash()
        else:
            files.power_cut()
        _, log = directory_of(files)
        left = range(log.log_start_offset, log.log_end_offset)
        assert [log.epoch_for_offset(offset) for offset in left] == [5] * len(left)
        if left and end == "kill":  # snapshots are not synced
            assert [entry.producer_id for entry in log.producers] == [7]
        if not died:
            break
    assert (operations > 10, list(left), log.epochs.entries) == (True, [], ())


def emptied(files: MemoryFiles) -> tuple[LogDirectory, PartitionLog]:
    """A durable log of eight records, all deleted and committed according to its checkpoints."""
    directory, log = directory_of(files)
    filled(log, 8, committed=8)
    log.flush()
    for path in (DIRECTORY, "/data", "/"):
        files.sync_dir(path)
    directory.note_recovery_points()
    directory.save(directory.checkpoints.recovery_points)
    log.delete_records(8)
    checkpointed(directory)
    return directory, log


@pytest.mark.parametrize("end", ["kill", "names", "pages"])
async def test_a_crash_while_an_emptied_log_is_started_again_below_its_start_loses_nothing(
    end: str,
) -> None:
    """Deleted records stay deleted, and new records are not taken for deleted ones."""
    for operations in range(100):
        files = MortalFiles()
        _, log = emptied(files)
        files.done, files.ends_at = 0, operations
        died = False
        try:
            await log.start_at(3, InlineOffload(), now_ms=NOW_MS)
        except Crash:
            died = True
        files.ends_at = None
        if end == "kill":
            files.crash()
        else:
            files.power_cut(random.Random(operations) if end == "pages" else None)
        _, log = directory_of(files)
        start = log.log_start_offset
        assert all_values(log) == []
        assert start == log.log_end_offset
        assert start in ((3, 8) if died else (3,))
        append(log, batch(b"other"))
        log.high_watermark = start
        files.crash()
        _, log = directory_of(files)
        assert all_values(log) == [(start, b"other")]
        assert (log.log_start_offset, log.high_watermark) == (start, start)
        if not died:
            break
    assert operations > 10


async def test_records_after_a_restart_below_the_log_start_are_neither_deleted_nor_committed(
    files: MemoryFiles,
) -> None:
    _, log = emptied(files)
    await log.start_at(3, InlineOffload(), now_ms=NOW_MS)
    append(log, batch(b"3"))
    append(log, batch(b"4"))
    files.crash()
    _, log = directory_of(files)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 3, 5)
    assert all_values(log) == [(3, b"3"), (4, b"4")]


@pytest.mark.parametrize("what", ["truncation", "kill"])
async def test_producers_from_before_a_restart_at_a_higher_offset_do_not_come_back(
    files: MemoryFiles, what: str
) -> None:
    """No older snapshot is left that a later truncation or a recovery could use."""
    _, log = directory_of(files)
    append(log, batch(producer_id=7, producer_epoch=0, base_sequence=0))
    log.take_snapshot()
    log.high_watermark = 0
    await log.start_at(6, InlineOffload(), now_ms=NOW_MS)
    append(log, batch())
    append(log, batch())
    log.high_watermark = 6
    if what == "truncation":
        await truncate(log, 7)
    else:
        files.crash()
        _, log = directory_of(files)
    assert [entry.producer_id for entry in log.producers] == []


async def test_a_checkpoint_noted_but_not_written_meanwhile_is_written_by_the_truncation(
    files: MemoryFiles,
) -> None:
    """The loop notes lower offsets while a thread truncates; the files have the higher ones."""
    directory, log = emptied(files)

    class Noting(InlineOffload):
        async def run(self, fn, *args):  # type: ignore[no-untyped-def]
            directory.note_log_starts()
            directory.note_recovery_points()
            directory.note_high_watermarks()
            return fn(*args)

    await log.start_at(3, Noting(), now_ms=NOW_MS)
    append(log, batch(b"3"))
    files.crash()
    directory, log = directory_of(files)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (3, 3, 4)
    assert (directory.checkpoints.recovery_points.get(TP) or 0) <= 3


async def test_a_restart_that_the_disk_refused_is_finished_by_the_next_call(files) -> None:
    log = open_partition(files, segment_bytes=3 * SIZE)
    filled(log, 10, committed=1)
    files.fail("sync_dir", errno.EMFILE)
    with pytest.raises(KafkaStorage, match="not truncated"):
        await log.start_at(3, InlineOffload(), now_ms=NOW_MS)
    with pytest.raises(KafkaStorage, match="being truncated"):
        append(log, batch())
    await log.start_at(3, InlineOffload(), now_ms=NOW_MS)
    append(log, batch(b"3"))
    files.crash()
    assert all_values(open_partition(files, clean=False)) == [(3, b"3")]


# --- I/O errors


async def test_without_a_descriptor_it_is_finished_by_the_next_call(files: MemoryFiles) -> None:
    """Until then nothing is appended, because old records are still after the new end."""
    log = open_partition(files, segment_bytes=3 * SIZE)
    filled(log, 10, committed=1)
    files.fail("sync_dir", errno.EMFILE)
    with pytest.raises(KafkaStorage, match="not truncated"):
        await truncate(log, 4)
    assert (log.is_truncating, log.log_end_offset) == (True, 4)
    with pytest.raises(KafkaStorage, match="being truncated"):
        append(log, batch())
    assert await truncate(log, 3) == 3
    append(log, batch(b"3"))
    files.crash()
    log = open_partition(files, clean=False)
    assert values(log) == [(number, b"%d" % number) for number in range(4)]


class NoThread(InlineOffload):
    """An executor that cannot start a thread for call number `at`, counted from 0."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    async def run(self, fn, *args):  # type: ignore[no-untyped-def]
        self.at -= 1
        if self.at == -1:
            raise RuntimeError("can't start new thread")
        return await super().run(fn, *args)


async def test_without_a_thread_to_read_the_log_it_is_as_it_was(files: MemoryFiles) -> None:
    log = open_partition(files)
    filled(log, 3)
    with pytest.raises(RuntimeError, match="new thread"):
        await log.truncate_to(1, NoThread(0), now_ms=NOW_MS)
    append(log, batch(b"3"))
    assert len(values(log)) == 4


async def test_without_a_thread_to_cut_the_files_it_is_finished_by_the_next_call(files) -> None:
    """Regression: only an error of the disk was expected; the log took no appends any more."""
    log = open_partition(files, segment_bytes=3 * SIZE)
    filled(log, 10, committed=1)
    with pytest.raises(RuntimeError, match="new thread"):
        await log.truncate_to(4, NoThread(1), now_ms=NOW_MS)
    with pytest.raises(KafkaStorage, match="being truncated"):
        append(log, batch())
    with pytest.raises(RuntimeError, match="new thread"):
        await log.truncate_to(4, NoThread(0), now_ms=NOW_MS)  # which finishes the first
    assert await truncate(log, 4) == 4
    append(log, batch(b"4"))
    with pytest.raises(RuntimeError, match="new thread"):
        await log.start_at(20, NoThread(0), now_ms=NOW_MS)
    await log.start_at(20, InlineOffload(), now_ms=NOW_MS)
    append(log, batch(b"20"))
    files.crash()
    assert all_values(open_partition(files, clean=False, log_start_offset=20)) == [(20, b"20")]


async def test_a_log_that_is_not_cut_whole_is_not_closed_clean(files: MemoryFiles) -> None:
    log = open_partition(files)
    filled(log, 3)
    files.fail("truncate", errno.EMFILE)
    with pytest.raises(KafkaStorage):
        await truncate(log, 1)
    with pytest.raises(KafkaStorage, match="being truncated"):
        log.close()


async def test_a_log_that_cannot_be_read_is_as_it_was(files: MemoryFiles) -> None:
    log = open_partition(files)
    filled(log, 3)
    log.segments[-1].release()
    files.fail("open", errno.EMFILE)
    with pytest.raises(KafkaStorage):
        await truncate(log, 1)
    assert (log.is_truncating, log.log_end_offset) == (False, 3)
    append(log, batch(b"3"))
    assert len(fetched(log)) == 4 * SIZE


async def test_a_log_deleted_while_it_is_truncated_takes_no_directory_offline(files) -> None:
    log = open_partition(files, segment_bytes=SIZE)
    filled(log, 3)

    class Deleting(InlineOffload):
        async def run(self, fn, *args):  # type: ignore[no-untyped-def]
            if log.log_end_offset == 1:
                log.retire()
                files.rename(DIRECTORY, f"{DIRECTORY}-delete")
            return fn(*args)

    with pytest.raises(KafkaStorage, match="closed"):
        await log.truncate_to(1, Deleting(), now_ms=NOW_MS)
    assert not log.failed


async def test_a_log_whose_replica_becomes_the_leader_meanwhile_is_not_truncated(files) -> None:
    """Consumers may have read up to the high watermark of the new leader."""
    log = open_partition(files)
    filled(log, 5)

    class Electing(InlineOffload):
        async def run(self, fn, *args):  # type: ignore[no-untyped-def]
            found = fn(*args)
            log.high_watermark = 5
            return found

    with pytest.raises(OffsetOutOfRange):
        await log.truncate_to(3, Electing(), now_ms=NOW_MS)
    assert (log.is_truncating, log.high_watermark, log.log_end_offset) == (False, 5, 5)
    append(log, batch(b"5"))
    assert len(all_values(log)) == 6


@pytest.mark.parametrize("call", [PartitionLog.truncate_to, PartitionLog.start_at])
async def test_a_refused_truncation_whose_caller_is_cancelled_is_not_logged(files, call, caplog):
    """A follower that stops fetching is no error of the node."""
    log = open_partition(files)
    filled(log, 3)
    caller = asyncio.ensure_future(call(log, 1, InlineOffload(), now_ms=NOW_MS))
    await asyncio.sleep(0)
    log.high_watermark = 3
    caller.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await caller
    assert isinstance(caught.value.__cause__, OffsetOutOfRange)
    assert "failed while being cancelled" not in caplog.text
