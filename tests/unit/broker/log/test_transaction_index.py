"""Aborted transactions: recorded, written, read, and rebuilt from the log."""

from __future__ import annotations

import struct

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.index import IndexCorrupt
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.producer_state import Origin
from aiokq.broker.log.transaction_index import AbortedTransaction, TransactionIndex
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker
from aiokq.records.header import TRANSACTIONAL_MASK
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import DIRECTORY, NOW_MS, append, batch, open_partition

ENTRY = struct.Struct(">hqqqq")


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def path(base_offset: int = 0, suffix: str = file_names.TXN_INDEX) -> str:
    return file_names.segment_file(DIRECTORY, base_offset, suffix)


def send(log: PartitionLog, producer_id: int, sequence: int, count: int = 1) -> int:
    """Append records of a transaction; return the first offset."""
    data = batch(
        *[b"v"] * count,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        attributes=TRANSACTIONAL_MASK,
    )
    return append(log, data).base_offset


def end(log: PartitionLog, producer_id: int, kind: ControlType) -> int:
    """Append the marker that ends a transaction; return its offset."""
    data = encode_marker(
        EndTransactionMarker(kind, 1),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=NOW_MS,
        crc32c=crc32c,
    )
    return append(log, data, origin=Origin.COORDINATOR).base_offset


def aborted(log: PartitionLog, offset: int = 0, max_bytes: int = 2**31) -> list[tuple[int, ...]]:
    read = log.read(offset, max_bytes, upper_bound=log.last_stable_offset, read_committed=True)
    return [tuple(transaction) for transaction in read.aborted_transactions]


def three_transactions(log: PartitionLog, *, roll: bool = False) -> None:
    """1 aborts (0-2, marker 4), 2 is open from 3 until its abort at 6, 3 commits."""
    send(log, 1, 0, 3)
    send(log, 2, 0)
    end(log, 1, ControlType.ABORT)
    if roll:
        log.roll(NOW_MS)
    send(log, 3, 0)
    end(log, 2, ControlType.ABORT)
    end(log, 3, ControlType.COMMIT)
    append(log, batch(b"plain"))


ABORTED = [(1, 0, 4, 3), (2, 3, 6, 5)]


def test_a_reader_of_committed_records_learns_what_was_aborted(files: MemoryFiles) -> None:
    """The records are in the log like others; without the list they would be delivered."""
    log = open_partition(files)
    three_transactions(log)
    assert aborted(log) == ABORTED
    assert log.read(0, 1000).aborted_transactions == ()
    assert aborted(log, 5) == ABORTED[1:]
    assert aborted(log, 7) == []


def test_a_small_read_lists_what_it_reaches(files: MemoryFiles) -> None:
    """A consumer far from the end must not get every later abort with each response."""
    log = open_partition(files)
    three_transactions(log)
    assert aborted(log, 0, 1) == ABORTED[:1]


def test_the_list_goes_on_through_segments_while_transactions_are_open(
    files: MemoryFiles,
) -> None:
    """A transaction may be aborted many segments after its records."""
    log = open_partition(files)
    three_transactions(log, roll=True)
    assert aborted(log) == ABORTED
    assert aborted(log, 3, 1) == ABORTED
    assert [segment.transactions.entries() for segment in log.segments] == [
        ABORTED[:1],
        ABORTED[1:],
    ]


def test_the_file_is_kafkas(files: MemoryFiles) -> None:
    """Version, producer, first, last, last stable offset; no file without an abort."""
    log = open_partition(files)
    three_transactions(log, roll=True)
    log.roll(NOW_MS)
    append(log, batch())
    log.close()
    assert files.read_bytes(path()) == ENTRY.pack(0, *ABORTED[0])
    assert files.read_bytes(path(5)) == ENTRY.pack(0, *ABORTED[1])
    assert not files.exists(path(9))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("roll", [True, False])
def test_aborts_are_known_after_a_restart(files: MemoryFiles, clean: bool, roll: bool) -> None:
    """After a kill they are rebuilt from the markers in the log."""
    log = open_partition(files)
    three_transactions(log, roll=roll)
    if clean:
        log.close()
    files.crash()
    log = open_partition(files, clean=clean)
    assert aborted(log) == ABORTED
    send(log, 1, 3)
    end(log, 1, ControlType.ABORT)
    assert aborted(log, 7) == [(1, 9, 10, 11)]


def test_a_transaction_begun_before_the_recovery_point_is_aborted_behind_it(
    files: MemoryFiles,
) -> None:
    """Only the last segment is checked; the start of the transaction is in the one before."""
    log = open_partition(files)
    three_transactions(log, roll=True)
    files.crash()
    log = open_partition(files, clean=False, recovery_point=5)
    assert aborted(log) == ABORTED


@pytest.mark.parametrize("damage", [b"\0", ENTRY.pack(1, 1, 0, 4, 3), ENTRY.pack(0, 1, 9, 4, 3)])
@pytest.mark.parametrize("base_offset", [0, 5])
def test_a_damaged_index_is_made_again(files: MemoryFiles, damage: bytes, base_offset: int) -> None:
    """With the damaged index a reader would get records that were never committed."""
    log = open_partition(files)
    three_transactions(log, roll=True)
    log.close()
    before = files.read_bytes(path(base_offset))
    file = files.open(path(base_offset))
    file.truncate(0)
    file.pwritev([damage], 0)
    log = open_partition(files)
    assert aborted(log) == ABORTED
    assert files.read_bytes(path(base_offset)) == before


@pytest.mark.parametrize("roll", [True, False])
def test_a_power_cut_after_a_clean_stop_leaves_the_index(files: MemoryFiles, roll: bool) -> None:
    """A lost index would not be noticed, because most logs have none."""
    log = open_partition(files)
    three_transactions(log, roll=roll)
    log.close()
    files.sync_dir("/")
    files.sync_dir("/data")
    files.power_cut()
    assert aborted(open_partition(files)) == ABORTED


def test_what_is_appended_during_a_sync_is_written_by_the_next(files: MemoryFiles) -> None:
    """The flusher's thread syncs while the loop appends."""
    files.mkdirs("/d")
    index = TransactionIndex(files, "/d/i", 0)
    index.create()
    first, second = AbortedTransaction(1, 0, 1, 2), AbortedTransaction(1, 2, 3, 4)
    index.append(first)
    opened = files.open

    def open_and_append(*args: object, **options: bool) -> object:
        if len(index) == 1:
            index.append(second)
        return opened(*args, **options)  # type: ignore[arg-type]

    files.open = open_and_append  # type: ignore[method-assign,assignment]
    index.sync()
    index.sync()
    again = TransactionIndex(files, "/d/i", 0)
    again.load()
    assert again.entries() == [first, second]


def test_offsets_must_rise(files: MemoryFiles) -> None:
    """Entries out of order make an index invalid."""
    files.mkdirs("/d")
    file = files.open("/d/i", create=True)
    file.pwritev([ENTRY.pack(0, 1, 0, 4, 3) + ENTRY.pack(0, 1, 0, 4, 3)], 0)
    with pytest.raises(IndexCorrupt, match="after offset 4"):
        TransactionIndex(files, "/d/i", 0).load()


@pytest.mark.parametrize("flushed_before", [True, False])
def test_a_flush_of_a_finished_segment_takes_the_index_along(
    files: MemoryFiles, flushed_before: bool
) -> None:
    """The recovery does not check anything before the recovery point."""
    log = open_partition(files)
    three_transactions(log)
    for last in (False, True):
        if last:
            log.roll(NOW_MS)
        if flushed_before or last:
            flush = log.begin_flush(log.segments[-1].base_offset if last else None)
            assert flush is not None
            flush.sync(files)
            log.end_flush(flush)
    assert log.recovery_point >= 9
    assert log.begin_flush(None) is None
    files.sync_dir("/")
    files.sync_dir("/data")
    files.power_cut()
    assert aborted(open_partition(files, clean=False, recovery_point=9)) == ABORTED
