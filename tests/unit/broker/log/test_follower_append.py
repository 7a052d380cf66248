"""aiokq.broker.log.follower_append: the leader's batches are appended unchanged if they fit."""

from __future__ import annotations

import pytest

from aiokq.broker.log.partition_log import PartitionLog
from aiokq.core.errors import CorruptRecord, KafkaStorage
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker
from aiokq.records.header import TRANSACTIONAL_MASK, iter_headers, set_base_offset
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import NOW_MS, batch, fetched, open_partition, record_since


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def placed(offset: int, epoch: int = 0, data: bytes | None = None) -> bytes:
    """Return a batch as it is in the leader's log."""
    stored = bytearray(batch(b"a", b"b") if data is None else data)
    set_base_offset(stored, offset, epoch)
    return bytes(stored)


def follow(log: PartitionLog, *batches: bytes, epoch: int = 0) -> int:
    data = b"".join(batches)
    return log.append_as_follower(
        memoryview(data), list(iter_headers(data)), leader_epoch=epoch, now_ms=NOW_MS
    )


def test_offsets_epochs_and_bytes_are_the_leaders(files: MemoryFiles) -> None:
    log = open_partition(files)
    sent = [placed(0, 3), placed(2, 3), placed(7, 5)]
    assert follow(log, *sent, epoch=5) == 9
    assert fetched(log) == b"".join(sent)
    assert log.epochs.entries == ((3, 0), (5, 7))
    assert log.high_watermark == 0
    files.crash()
    assert fetched(open_partition(files, clean=False)) == b"".join(sent)


def test_a_replicas_log_is_the_leaders_byte_for_byte(files: MemoryFiles) -> None:
    """Producers, transactions, times and segments are derived from the same bytes."""
    leader = open_partition(files, segment_bytes=400)
    for number in range(9):
        data = batch(b"%d" % number, timestamp_ms=NOW_MS + number, codec=number % 2)
        leader.append(
            memoryview(data), list(iter_headers(data)), leader_epoch=number // 4, now_ms=NOW_MS
        )
    others = MemoryFiles()
    follower = open_partition(others, segment_bytes=400)
    assert follow(follower, fetched(leader), epoch=2) == 9
    assert fetched(follower) == fetched(leader)
    assert follower.epochs.entries == leader.epochs.entries
    assert len(follower.segments) > 1
    assert record_since(follower, NOW_MS + 5) == record_since(leader, NOW_MS + 5)


def test_producers_and_aborted_transactions_are_known(files: MemoryFiles) -> None:
    """A follower that becomes the leader must detect the duplicates that the leader would."""
    log = open_partition(files)
    sent = batch(
        b"a", producer_id=7, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL_MASK
    )
    follow(log, placed(0, data=sent))
    log.high_watermark = 1
    assert log.last_stable_offset == 0
    marker = encode_marker(
        EndTransactionMarker(ControlType.ABORT, 0),
        producer_id=7,
        producer_epoch=0,
        timestamp_ms=NOW_MS,
        crc32c=crc32c,
    )
    follow(log, placed(1, data=bytes(marker)))
    log.high_watermark = 2
    assert log.last_stable_offset == 2
    assert [one.first_offset for one in log.aborted_transactions(0, 2)] == [0]
    again = log.append(memoryview(sent), list(iter_headers(sent)), leader_epoch=1, now_ms=NOW_MS)
    assert (again.duplicate, again.base_offset) == (True, 0)


def test_a_marker_that_cannot_be_read_is_kept_as_it_is(files: MemoryFiles) -> None:
    """The leader has it; a follower that rejected it could never continue."""
    log = open_partition(files)
    odd = batch(b"", key=b"\0\0\0\1", producer_id=7, producer_epoch=0, attributes=0x30)
    assert follow(log, placed(0, data=odd)) == 1


@pytest.mark.parametrize(
    ("second", "epoch", "reason"),
    [
        (placed(1, 2), 2, "base offset 1, expected 2"),
        (placed(0, 2), 2, "base offset 0, expected 2"),
        (placed(2**31 + 5, 2), 2, ", expected 2"),
        (placed(2, 1), 2, "leader epoch 1 is outside 2..2"),
        (placed(2, 3), 2, "leader epoch 3 is outside 2..2"),
        (placed(2, 2)[:-1] + b"?", 2, "CRC mismatch"),
    ],
)
def test_what_does_not_follow_is_refused_and_nothing_is_written(
    files: MemoryFiles, second: bytes, epoch: int, reason: str
) -> None:
    log = open_partition(files)
    with pytest.raises(CorruptRecord, match=reason):
        follow(log, placed(0, 2), second, epoch=epoch)
    assert log.log_end_offset == 0
    assert log.epochs.entries == ()
    assert follow(log, placed(0, 2), epoch=2) == 2
    with pytest.raises(CorruptRecord, match=r"leader epoch 1 is outside 2\.\.9"):
        follow(log, placed(2, 1), epoch=9)


def test_more_than_a_segment_is_written_in_several(files: MemoryFiles) -> None:
    """The leader may have larger segments, or one batch may be larger than a segment here."""
    log = open_partition(files, segment_bytes=250)
    large = placed(2, data=batch(b"x" * 1000))
    assert follow(log, placed(0), large, placed(3), placed(5)) == 7
    assert [segment.base_offset for segment in log.segments] == [0, 2, 3]
    assert len(fetched(log)) == 3 * len(placed(0)) + len(large)


def test_a_disk_that_refuses_leaves_a_log_that_goes_on_where_it_ends(files: MemoryFiles) -> None:
    log = open_partition(files)
    files.fail("pwritev", 5, matches=lambda path: path.endswith(".log"))
    with pytest.raises(KafkaStorage):
        follow(log, placed(0))
    assert log.log_end_offset == 0
    with pytest.raises(KafkaStorage):
        follow(log, placed(0))
    files.crash()
    assert follow(open_partition(files, clean=False), placed(0)) == 2
