"""`aiokq log verify` on producer snapshots, aborted transactions and missing segments."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokq.broker.inspection.findings import Finding
from aiokq.broker.inspection.verifying import verify
from aiokq.broker.log import file_names
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.producer_snapshot import decode_snapshot, encode_snapshot
from aiokq.broker.log.producer_state import ProducerEntry
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import DIRECTORY, NOW_MS, append, batch, open_partition
from tests.unit.broker.log.test_transaction_index import end, send, three_transactions

Change = Callable[[dict[int, ProducerEntry]], object]


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def path(base_offset: int, suffix: str = file_names.SNAPSHOT) -> str:
    return file_names.segment_file(DIRECTORY, base_offset, suffix)


def check(files: MemoryFiles, *, clean: bool = True) -> list[Finding]:
    if clean:
        files.open(f"/data/{file_names.CLEAN_SHUTDOWN}", create=True).close()
    return list(verify(files, DIRECTORY, crc32c=crc32c).findings)


def found(files: MemoryFiles) -> list[tuple[str, str]]:
    """Return severity and file of each finding."""
    return [
        (one.severity.value, one.path.removeprefix(f"{DIRECTORY}/")[-13:]) for one in check(files)
    ]


def idempotent(log: PartitionLog, producer_id: int, sequence: int, count: int = 1) -> None:
    options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    append(log, batch(*[b"v"] * count, **options))


def two_segments(files: MemoryFiles) -> PartitionLog:
    """Producer 1 ends at offsets 2 and 6, producer 2 at 4 and has an open transaction from 5."""
    log = open_partition(files)
    idempotent(log, 1, 0, 3)  # 0-2
    idempotent(log, 2, 0, 2)  # 3-4
    send(log, 3, 0)  # 5
    log.roll(NOW_MS)
    idempotent(log, 1, 3)  # 6
    append(log, batch(b"plain"))  # 7
    log.close()
    return log


def rewrite(files: MemoryFiles, offset: int, change: Change) -> None:
    """Change a snapshot and write it with a valid checksum, as a broker with a bug would."""
    file = files.open(path(offset))
    data = file.pread(file.size(), 0)
    entries = {one.producer_id: one for one in decode_snapshot(data, crc32c, 0)}
    change(entries)
    changed = encode_snapshot(entries.values(), crc32c)
    file.truncate(0)
    file.pwritev([changed], 0)


def test_snapshots_and_transactions_of_a_sound_log_are_not_complained_about(
    files: MemoryFiles,
) -> None:
    """False reports of damage make users ignore true ones."""
    two_segments(files)
    assert found(files) == []
    other = MemoryFiles()
    log = open_partition(other)
    three_transactions(log, roll=True)
    send(log, 4, 0)
    log.close()
    assert found(other) == []


def shift_sequence(entries: dict[int, ProducerEntry]) -> None:
    last = entries[1].batches.pop()
    entries[1].batches.append(last._replace(last_sequence=last.last_sequence + 1))


def shift_offset(entries: dict[int, ProducerEntry]) -> None:
    last = entries[1].batches.pop()
    entries[1].batches.append(last._replace(last_offset=4))


def other_epoch(entries: dict[int, ProducerEntry]) -> None:
    entries[1].producer_epoch = 1


def forget_last_batch(entries: dict[int, ProducerEntry]) -> None:
    entries[1].batches.pop()


def forget_transaction(entries: dict[int, ProducerEntry]) -> None:
    entries[3].transaction_first_offset = None


def begin_transaction_elsewhere(entries: dict[int, ProducerEntry]) -> None:
    entries[3].transaction_first_offset = 3


def forget_open_producer(entries: dict[int, ProducerEntry]) -> None:
    del entries[3]


LIES = [
    shift_sequence,
    shift_offset,
    other_epoch,
    forget_last_batch,
    forget_transaction,
    begin_transaction_elsewhere,
    forget_open_producer,
]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("offset", [6, 8])
def test_a_snapshot_that_says_what_the_log_does_not_is_an_error(
    files: MemoryFiles, offset: int, lie: Change
) -> None:
    """It could make a retry a duplicate or an error, or lose a transaction, unnoticed."""
    two_segments(files)
    rewrite(files, offset, lie)
    complaints = found(files)
    assert complaints
    assert set(complaints) == {("error", f"{offset:04d}.snapshot")}


def test_a_producer_that_is_missing_is_told_where_older_ones_are_there(files: MemoryFiles) -> None:
    """Brokers expire idle producers first, so the last writer cannot be missing alone."""
    two_segments(files)
    rewrite(files, 6, lambda entries: entries.pop(2))
    assert found(files) == [("warning", "0006.snapshot")]
    [finding] = check(files)
    assert "producer 2" in finding.message


def test_producers_that_were_silent_may_be_forgotten(files: MemoryFiles) -> None:
    """They expire after `producer.id.expiration.ms`, which is no damage."""
    two_segments(files)
    rewrite(files, 8, lambda entries: entries.pop(2))
    assert found(files) == []


def test_aborted_transactions_that_no_index_has_are_an_error(files: MemoryFiles) -> None:
    """Without its `.txnindex` a segment's aborted records would be read as committed."""
    log = open_partition(files)
    three_transactions(log, roll=True)
    log.close()
    assert found(files) == []
    files.remove(path(0, file_names.TXN_INDEX))
    assert found(files) == [("error", "0000.txnindex")]
    message = check(files)[0].message
    assert "producer 1" in message
    assert "0..4" in message


def test_the_newest_index_of_a_running_broker_may_be_behind(files: MemoryFiles) -> None:
    """Its entries are in memory, and a recovery rebuilds them."""
    log = open_partition(files)
    send(log, 1, 0)
    end(log, 1, ControlType.ABORT)
    assert check(files, clean=False) == []


def test_a_segment_that_is_gone_is_an_error(files: MemoryFiles) -> None:
    """A file was deleted by hand from the middle, so its records are missing."""
    log = open_partition(files)
    for _ in range(3):
        append(log, batch(b"v", b"v"))
        log.roll(NOW_MS)
    log.close()
    assert found(files) == []
    for suffix in (file_names.LOG, file_names.INDEX, file_names.TIME_INDEX):
        files.remove(path(2, suffix))
    errors = [one for one in check(files) if one.severity.value == "error"]
    assert [(one.path, "offsets 2-3 are missing" in one.message) for one in errors] == [
        (path(4, file_names.LOG), True)
    ]


def test_gaps_that_compaction_leaves_are_none(files: MemoryFiles) -> None:
    """Apache Kafka's cleaner removes the last batches of a segment as well."""
    log = open_partition(files)
    for _ in range(3):
        append(log, batch(b"v", b"v"))
        log.roll(NOW_MS)
    log.close()
    for suffix in (file_names.LOG, file_names.INDEX, file_names.TIME_INDEX):
        files.remove(path(2, suffix))
    checkpoint = files.open(f"/data/{file_names.CLEANED_OFFSETS}", create=True)
    checkpoint.pwritev([b"0\n1\norders 0 6\n"], 0)
    assert [one.message for one in check(files) if one.severity.value == "error"] == []
