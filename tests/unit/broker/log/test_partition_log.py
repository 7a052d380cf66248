"""PartitionLog: appends, rolls, reads at every offset, time lookups, deletes, failures."""

from __future__ import annotations

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.producer_state import Origin
from aiokq.core.errors import (
    InvalidProducerEpoch,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordBatchTooLarge,
    RecordTooLarge,
)
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker
from aiokq.records.header import LOG_APPEND_TIME, TRANSACTIONAL_MASK, iter_headers, read_header
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    config,
    fetched,
    open_partition,
    record_since,
    records,
    values,
)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def segment_names(files: MemoryFiles, suffix: str = file_names.LOG) -> list[str]:
    return [name for name in files.listdir(DIRECTORY) if name.endswith(suffix)]


def test_records_get_consecutive_offsets_and_come_back_as_they_were(files: MemoryFiles) -> None:
    """The log adds offsets only; any other change would be corruption."""
    log = open_partition(files)
    first, second = batch(b"a", b"b"), batch(b"c")
    assert append(log, first, leader_epoch=3).base_offset == 0
    result = append(log, second, leader_epoch=3)
    assert (result.base_offset, result.last_offset, result.log_append_time_ms) == (2, 2, -1)
    assert values(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    stored = fetched(log)
    assert stored[16 : len(first)] == first[16:]
    assert [(h.base_offset, h.leader_epoch) for h in iter_headers(stored)] == [(0, 3), (2, 3)]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (0, 3, 3)


def test_an_append_is_one_write(files: MemoryFiles) -> None:
    """One write per batch or per index would be too slow."""
    log = open_partition(files, index_interval_bytes=1)
    append(log, batch(b"first"))
    files.fail("pwritev", matches=lambda path: not path.endswith(".log"), times=None)
    for _ in range(10):
        append(log, batch(b"x" * 100))
    files.heal()
    writes: list[str] = []
    files.fail("pwritev", matches=lambda path: bool(writes.append(path)))
    several = batch(b"a") + batch(b"b") + batch(b"c")
    append(log, several, origin=Origin.REPLICATION)
    assert writes == [f"{DIRECTORY}/{0:020d}.log"]


def test_the_callers_buffer_is_left_alone(files: MemoryFiles) -> None:
    """The frame belongs to the connection, and changes in place would corrupt a retry."""
    log = open_partition(files, message_timestamp_type="LogAppendTime")
    data = batch(b"a")
    copy = bytes(data)
    append(log, data)
    assert data == copy


def test_log_append_time_is_stamped_and_the_crc_follows(files: MemoryFiles) -> None:
    """Every consumer would reject a stamped batch with the producer's CRC."""
    log = open_partition(files, message_timestamp_type="LogAppendTime")
    result = append(log, batch(b"a", b"b", timestamp_ms=5), now_ms=NOW_MS + 7)
    assert result.log_append_time_ms == NOW_MS + 7
    stored = fetched(log)
    assert read_header(stored).timestamp_type == LOG_APPEND_TIME
    assert [record.timestamp_ms for record in records(stored)] == [NOW_MS + 7] * 2


@pytest.mark.parametrize(("name", "codec"), [("gzip", 1), ("zstd", 4), ("uncompressed", 0)])
def test_a_topics_own_codec_replaces_the_producers(
    files: MemoryFiles, name: str, codec: int
) -> None:
    """A `compression.type` other than `producer` determines the codec on disk."""
    log = open_partition(files, compression_type=name)
    append(log, batch(b"a" * 1000, b"b", codec=2))
    stored = fetched(log)
    assert read_header(stored).codec == codec
    assert [record.value for record in records(stored)] == [b"a" * 1000, b"b"]


def test_a_batch_that_grows_above_the_limit_in_the_topics_codec_is_refused(
    files: MemoryFiles,
) -> None:
    """max.message.bytes limits what is stored, and so what followers must fetch."""
    data = batch(b"a" * 10_000, codec=4)
    log = open_partition(files, compression_type="uncompressed", max_message_bytes=5000)
    with pytest.raises(RecordTooLarge):
        append(log, data)


# --- Reading


def test_every_offset_gives_the_whole_batch_that_holds_it(files: MemoryFiles) -> None:
    """A fetch offset may be inside a batch, whose records after it must not be lost."""
    log = open_partition(files, segment_bytes=600, index_interval_bytes=150)
    bases: list[int] = []
    for index in range(40):
        data = batch(*[b"v%d" % index] * (1 + index % 3))
        bases += [append(log, data).base_offset] * (1 + index % 3)
    for offset in range(log.log_end_offset):
        header = read_header(fetched(log, offset))
        assert header.base_offset == bases[offset]
        assert header.last_offset >= offset


def test_reads_end_with_a_whole_batch_within_the_limit(files: MemoryFiles) -> None:
    """A partial batch at the end is allowed, but wastes bandwidth."""
    log = open_partition(files, index_interval_bytes=200)
    data = batch(b"x" * 50)
    for _ in range(30):
        append(log, data)
    size = len(data)
    for limit in (size, size + 1, 2 * size - 1, 2 * size, 10 * size + 3, 30 * size, 31 * size):
        assert len(fetched(log, 0, limit)) == min(limit // size, 30) * size
        assert len(fetched(log, 7, limit)) == min(limit // size, 23) * size


def test_a_batch_larger_than_the_limit_is_given_if_it_must_be(files: MemoryFiles) -> None:
    """Without it a consumer with a small limit would be stuck for ever (KIP-74)."""
    log = open_partition(files)
    data = batch(b"x" * 5000)
    append(log, data)
    append(log, data)
    assert len(fetched(log, 0, 10)) == len(data)
    assert len(fetched(log, 0, 0)) == len(data)
    assert fetched(log, 0, 10, at_least_one=False) == b""
    assert fetched(log, 0, -5, at_least_one=False) == b""


def test_reads_stop_at_the_upper_bound(files: MemoryFiles) -> None:
    """Records above the high watermark may still be lost, so consumers must not see them."""
    log = open_partition(files, index_interval_bytes=0)
    for _ in range(6):
        append(log, batch(b"a", b"b"))
    assert [r.offset for r in records(fetched(log, 0, upper_bound=8))][-1] == 7
    assert fetched(log, 8, upper_bound=8) == b""
    log.high_watermark = 4
    assert [r.offset for r in records(fetched(log, 0, upper_bound=None))][-1] == 3
    assert fetched(log, 9, upper_bound=None) == b""
    assert [r.offset for r in records(fetched(log, 0, upper_bound=99))][-1] == 11


def test_offsets_outside_the_log_are_refused(files: MemoryFiles) -> None:
    """Clients then reset their position; the log end offset itself is valid."""
    log = open_partition(files)
    append(log, batch())
    assert fetched(log, 1) == b""
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, 100)
    log.delete_records(1)
    with pytest.raises(OffsetOutOfRange):
        log.read(0, 100)


def test_a_consumer_that_reads_on_needs_no_index(files: MemoryFiles) -> None:
    """Reads at the tail of a log are frequent, and each continues where the last ended."""
    data = batch(b"x" * 200)
    log = open_partition(files, segment_bytes=20 * len(data), index_interval_bytes=0)
    for _ in range(50):
        append(log, data)
    offset, seen = 0, []
    fault = None
    while offset < log.log_end_offset:
        found = [r.offset for r in records(fetched(log, offset, 3 * len(data)))]
        seen += found
        offset = found[-1] + 1
        if fault is None:
            known = log._segments._ends
            assert offset in known
            fault = True
    assert seen == list(range(50))
    append(log, data)
    assert [r.offset for r in records(fetched(log, 50))] == [50]


# --- Timestamps


def test_timestamps_are_found_to_the_record(files: MemoryFiles) -> None:
    """offsets_for_times returns the first record at or after the time, not its batch."""
    log = open_partition(files, segment_bytes=400, index_interval_bytes=100)
    times: list[int] = []
    for index in range(20):
        append(log, batch(b"a", b"b", b"c", timestamp_ms=NOW_MS + index * 100, step_ms=10))
        times += [NOW_MS + index * 100 + step for step in (0, 10, 20)]
    assert len(log.segments) > 3
    for wanted in range(NOW_MS - 5, NOW_MS + 1925, 5):
        offset = next((o for o, time in enumerate(times) if time >= wanted), None)
        found = record_since(log, wanted)
        assert (found and found[1]) == offset
        if found and offset is not None:
            assert found == (times[offset], offset, 0)
    assert log.max_timestamp_ms() == times[-1]


def test_times_that_go_back_and_forth_are_found_too(files: MemoryFiles) -> None:
    """Producers set timestamps; the first *offset* whose time is late enough counts."""
    log = open_partition(files, segment_bytes=500, index_interval_bytes=0)
    times = [5, 3, 9, 1, 9, 2, 30, 4, 4, 31, 0, 31]
    for time in times:
        append(log, batch(timestamp_ms=NOW_MS + time))
    for wanted in range(33):
        offset = next((o for o, time in enumerate(times) if time >= wanted), None)
        found = record_since(log, NOW_MS + wanted)
        assert (found and found[1]) == offset, wanted
    assert log.max_timestamp_ms() == NOW_MS + 31


def test_times_of_deleted_records_are_not_found(files: MemoryFiles) -> None:
    """Otherwise a consumer would seek to an offset that is out of range."""
    log = open_partition(files)
    for index in range(4):
        append(log, batch(b"a", b"b", timestamp_ms=NOW_MS + index))
    log.delete_records(3)
    assert record_since(log, NOW_MS) == (NOW_MS + 1, 3, 0)
    assert record_since(open_partition(MemoryFiles()), 0) is None
    assert open_partition(MemoryFiles()).max_timestamp_ms() == -1


# --- Leader epochs


def test_epochs_follow_the_appends(files: MemoryFiles) -> None:
    """Truncation detection (KIP-320) depends on where each epoch began and ended."""
    log = open_partition(files)
    append(log, batch(b"a", b"b"), leader_epoch=0)
    append(log, batch(), leader_epoch=2)
    append(log, batch(), leader_epoch=2)
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(1) == (0, 2)
    assert log.end_offset_for_epoch(2) == (2, 4)
    assert log.end_offset_for_epoch(3) == (-1, -1)
    assert [log.epoch_for_offset(offset) for offset in range(4)] == [0, 0, 2, 2]
    assert files.read_bytes(f"{DIRECTORY}/{file_names.LEADER_EPOCHS}") == b"0\n2\n0 0\n2 2\n"


# --- Deletion


def test_deleted_records_are_hidden_at_once_and_their_segments_go(files: MemoryFiles) -> None:
    """DeleteRecords guarantees that they are never read again."""
    data = batch(b"x")
    log = open_partition(files, segment_bytes=2 * len(data))
    for _ in range(7):
        append(log, data)
    kept = log.read(0, 2**31).fragments  # as of a response that is being sent
    assert log.delete_records(5) == 5
    assert log.log_start_offset == 5
    assert [segment.base_offset for segment in log.segments] == [4, 6]
    assert [offset for offset, _ in values(log, 5)] == [5, 6]
    assert b"".join(fragment.read() for fragment in kept)
    log.purge()
    assert segment_names(files) == [f"{base:020d}.log" for base in (4, 6)]
    assert not segment_names(files, file_names.DELETED)
    assert log.delete_records(3) == 5  # the log start never decreases
    with pytest.raises(OffsetOutOfRange):
        log.delete_records(8)


# --- Producers


def test_a_retry_returns_the_first_offset_and_writes_nothing(files: MemoryFiles) -> None:
    """The first response was lost; idempotence forbids a second copy."""
    log = open_partition(files)
    sent = [
        batch(b"a", b"b", producer_id=9, producer_epoch=1, base_sequence=sequence)
        for sequence in (0, 2, 4, 6, 8)
    ]
    offsets = [append(log, data).base_offset for data in sent]
    size = log.size_bytes
    for data, offset in zip(sent, offsets, strict=True):
        result = append(log, data)
        assert (result.base_offset, result.last_offset) == (offset, offset + 1)
        assert result.duplicate
    assert log.size_bytes == size
    append(log, batch(producer_id=9, producer_epoch=1, base_sequence=10))
    with pytest.raises(OutOfOrderSequence):  # the sixth oldest batch is forgotten
        append(log, sent[0])


def test_a_retry_with_log_append_time_returns_the_first_time(files: MemoryFiles) -> None:
    """The record has that time in the log, whenever the retry comes."""
    log = open_partition(files, message_timestamp_type="LogAppendTime")
    data = batch(producer_id=9, producer_epoch=0, base_sequence=0)
    append(log, data, now_ms=NOW_MS)
    assert append(log, data, now_ms=NOW_MS + 50).log_append_time_ms == NOW_MS


def test_gaps_and_old_epochs_are_refused(files: MemoryFiles) -> None:
    """A gap means that an earlier batch of this producer is lost or still on its way."""
    log = open_partition(files)
    append(log, batch(producer_id=9, producer_epoch=1, base_sequence=0))
    with pytest.raises(OutOfOrderSequence):
        append(log, batch(producer_id=9, producer_epoch=1, base_sequence=2))
    with pytest.raises(InvalidProducerEpoch):
        append(log, batch(producer_id=9, producer_epoch=0, base_sequence=1))
    with pytest.raises(OutOfOrderSequence):
        append(log, batch(producer_id=9, producer_epoch=2, base_sequence=1))
    append(log, batch(producer_id=9, producer_epoch=2, base_sequence=0))
    assert log.log_end_offset == 2


def test_open_transactions_hold_the_last_stable_offset(files: MemoryFiles) -> None:
    """Readers of committed records must not pass a transaction that may still be aborted."""
    log = open_partition(files)
    append(log, batch(b"plain"))
    options = {"producer_id": 9, "producer_epoch": 0, "attributes": TRANSACTIONAL_MASK}
    append(log, batch(b"t1", base_sequence=0, **options))
    append(log, batch(b"plain"))
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    marker = encode_marker(
        EndTransactionMarker(ControlType.COMMIT, 1),
        producer_id=9,
        producer_epoch=0,
        timestamp_ms=NOW_MS,
        crc32c=crc32c,
    )

    append(log, marker, origin=Origin.COORDINATOR)
    assert log.last_stable_offset == log.high_watermark == 4
    log.close()
    assert open_partition(files).last_stable_offset == 4


# --- Limits and failures


def test_a_batch_larger_than_a_segment_is_refused(files: MemoryFiles) -> None:
    """segment.bytes gives RECORD_LIST_TOO_LARGE; the admission checks max.message.bytes."""
    data = batch(b"x" * 1000)
    log = open_partition(files, segment_bytes=len(data) - 1)
    with pytest.raises(RecordBatchTooLarge):
        append(log, data)
    log.update_config(config())
    append(log, data)


def test_producers_expire(files: MemoryFiles) -> None:
    """Otherwise every producer would be kept in memory for ever."""
    log = open_partition(files)
    append(log, batch(producer_id=1, producer_epoch=0, base_sequence=0, timestamp_ms=1))
    append(
        log,
        batch(producer_id=2, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL_MASK),
    )
    assert log.expire_producers(NOW_MS + 999, 1000) == 0  # by the broker's clock
    assert log.expire_producers(NOW_MS + 1000, 1000) == 1
    assert log.producers.get(2) is not None  # its transaction is open
    append(log, batch(producer_id=1, producer_epoch=0, base_sequence=77))  # unknown: accepted
