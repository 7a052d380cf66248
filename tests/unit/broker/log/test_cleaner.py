"""The result of compaction: last records, tombstones, transactions, old formats."""

from __future__ import annotations

import pytest

from aiokq.broker.log.transaction_index import AbortedTransaction
from aiokq.core.errors import CorruptRecord
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType
from aiokq.records.header import (
    DELETE_HORIZON_MASK,
    LOG_APPEND_TIME,
    iter_headers,
    set_log_append_time,
    verify_crc,
)
from aiokq.records.legacy import Message, encode_message_set
from aiokq.records.record import RawRecord, encode_batch
from tests.unit.broker.log.cleaning import DAY_MS, CleanedLog, compacted
from tests.unit.broker.log.samples import NOW_MS, TP, fetched

CODECS = (0, 1, 2, 3, 4)


@pytest.fixture
def log() -> CleanedLog:
    return CleanedLog()


@pytest.mark.parametrize("codec", CODECS)
async def test_the_last_record_of_each_key_stays_with_its_offset(
    log: CleanedLog, codec: int
) -> None:
    """A changed offset would break commits; an older value would mislead readers."""
    log.put((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=codec, roll=True)
    log.put((b"b", b"2"), (b"c", b"1"), codec=codec, roll=True)
    await log.clean()
    assert log.pairs == [(2, b"a", b"2"), (3, b"b", b"2"), (4, b"c", b"1")]
    assert [header.codec for header in log.headers] == [codec, codec]
    assert [(h.base_offset, h.last_offset) for h in log.headers] == [(0, 2), (3, 4)]
    assert log.log.log_end_offset == 5
    # a read from a removed offset returns the next existing batch
    assert [next(iter_headers(fetched(log.log, n))).base_offset for n in range(5)] == [
        0, 0, 0, 3, 3
    ]  # fmt: skip


async def test_a_batch_that_stays_whole_is_copied_byte_for_byte(log: CleanedLog) -> None:
    """Recompressing an unchanged batch would cost time and change its bytes needlessly."""
    for codec in CODECS:
        log.put((b"k%d" % codec, b"x" * 100), (b"l%d" % codec, b"y"), codec=codec, roll=True)
    before = fetched(log.log)
    await log.clean()
    assert fetched(log.log) == before


@pytest.mark.parametrize("codec", CODECS)
async def test_the_header_says_what_is_left(log: CleanedLog, codec: int) -> None:
    """As Kafka's filterTo: the largest timestamp of the rest, unchanged offsets and sequences."""
    data = encode_batch(
        [
            RawRecord(0, NOW_MS - 50, b"a", b"1", [("h", b"1")]),
            RawRecord(1, NOW_MS, b"b", b"1"),
            RawRecord(2, NOW_MS - 20, b"c", b"1", [("h", None)]),
        ],
        crc32c=crc32c,
        codec=codec,
        producer_id=5,
        producer_epoch=1,
        base_sequence=10,
    )
    log.append(data, roll=True)
    log.put((b"b", b"2"), roll=True)
    await log.clean()
    header = log.headers[0]
    assert (header.base_offset, header.last_offset, header.count) == (0, 2, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 10)
    assert header.max_timestamp_ms == NOW_MS - 20
    first, second, _ = log.records
    assert (first.timestamp_ms, second.timestamp_ms) == (NOW_MS - 50, NOW_MS - 20)
    assert (list(first.headers), list(second.headers)) == ([("h", b"1")], [("h", None)])


async def test_a_batch_with_log_append_time_keeps_it(log: CleanedLog) -> None:
    """Its records have no time of their own, so the header's is kept."""
    data = bytearray(
        encode_batch([RawRecord(0, 5, b"a", b"1"), RawRecord(1, 7, b"b", None)], crc32c=crc32c)
    )
    set_log_append_time(data, NOW_MS - 9, crc32c)
    log.append(bytes(data), roll=True)
    log.put((b"a", b"2"), roll=True)
    await log.clean()
    header = log.headers[0]
    assert (header.timestamp_type, header.max_timestamp_ms) == (LOG_APPEND_TIME, NOW_MS - 9)
    assert header.attributes & DELETE_HORIZON_MASK
    assert log.records[0].timestamp_ms == NOW_MS - 9


async def test_the_newest_segment_is_never_touched(log: CleanedLog) -> None:
    """Records are appended to it while the cleaner reads."""
    log.put((b"a", b"1"), (b"a", b"2"), roll=True)
    log.put((b"a", b"3"), (b"a", b"4"))
    await log.clean()
    assert log.pairs == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]
    assert await log.clean() is None


async def test_records_without_a_key_go(log: CleanedLog) -> None:
    """They are from before the topic was compacted, and no key would ever replace them."""
    log.put((None, b"1"), (b"a", b"1"), (None, b"2"), roll=True)
    statistics = await log.clean()
    assert statistics is not None
    assert statistics.keyless_records == 2
    assert log.pairs == [(1, b"a", b"1")]


@pytest.mark.parametrize("codec", [0, 4])
async def test_a_tombstone_outlives_its_key_by_the_delete_retention(
    log: CleanedLog, codec: int
) -> None:
    """A reader that is slower than a cleaning must still see the deletion (KIP-534)."""
    log.put((b"a", b"1"), (b"b", b"1"), codec=codec, roll=True)
    log.put((b"a", None), (b"c", b"1"), codec=codec, roll=True)
    await log.clean()
    assert log.pairs == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    header = log.headers[1]
    assert header.attributes & DELETE_HORIZON_MASK
    assert header.base_timestamp_ms == NOW_MS + DAY_MS
    assert [record.timestamp_ms for record in log.records] == [NOW_MS] * 3
    log.clock.now_ms += DAY_MS - 1
    await log.clean_again()
    assert (2, b"a", None) in log.pairs
    assert log.headers[1].base_timestamp_ms == NOW_MS + DAY_MS  # not postponed
    log.clock.now_ms += 1
    await log.clean_again()
    assert log.pairs == [(1, b"b", b"1"), (3, b"c", b"1")]


async def test_a_batch_that_grows_by_its_horizon_finds_room(log: CleanedLog) -> None:
    """With the new base timestamp each delta takes more bytes, also in a batch of a million."""
    pairs = [(b"%06d" % n, None) for n in range(40_000)]
    log.put(*pairs, roll=True)
    size = log.log.size_bytes
    await log.clean()
    assert log.log.size_bytes > size
    assert [key for _, key, _ in log.pairs] == [key for key, _ in pairs]


async def test_a_live_producers_last_batch_stays_without_records(log: CleanedLog) -> None:
    """Otherwise its last sequence would be lost, and a retry after a restart would be appended."""
    for sequence in range(3):
        log.put((b"a", b"%d" % sequence), producer_id=9, producer_epoch=2, base_sequence=sequence)
    log.put((b"a", b"last"), roll=True)
    log.put((b"z", b"z"), roll=True)
    await log.clean()
    assert log.pairs == [(3, b"a", b"last"), (4, b"z", b"z")]
    [empty] = [header for header in log.headers if not header.count]
    assert (empty.base_offset, empty.last_offset, empty.base_sequence) == (2, 2, 2)
    assert (empty.producer_id, empty.producer_epoch) == (9, 2)
    assert (empty.base_timestamp_ms, empty.max_timestamp_ms) == (-1, NOW_MS)
    # once the producer expires, the batch is removed
    log.log.expire_producers(NOW_MS + 1, 0)
    await log.clean_again()
    assert [header.count for header in log.headers] == [1, 1]


async def test_producer_state_comes_back_from_a_compacted_log() -> None:
    """After a power cut without snapshots, sequences come from the batches alone."""
    log = CleanedLog()
    for sequence in range(3):
        log.put((b"a", b"%d" % sequence), producer_id=9, producer_epoch=2, base_sequence=sequence)
    log.roll()
    log.put((b"a", b"x"), roll=True)
    await log.clean()
    for name in log.names:
        if name.endswith(".snapshot"):
            log.files.remove(f"/data/orders-0/{name}")
    log.files.crash()
    again = CleanedLog(log.files)
    entry = again.log.producers.get(9)
    assert entry is not None
    assert (entry.producer_epoch, entry.last_sequence) == (2, 2)


async def test_records_of_an_aborted_transaction_go_before_its_marker(log: CleanedLog) -> None:
    """A reader inside the transaction must still see the marker, which goes after its horizon."""
    log.put((b"a", b"old"))
    log.transact(1, 0, (b"a", b"aborted"), (b"b", b"aborted"))
    log.end(1, ControlType.ABORT)
    log.put((b"c", b"1"), roll=True)
    log.put((b"d", b"1"), roll=True)
    await log.clean()
    # an aborted value does not replace the older one
    data = [
        (offset, key) for offset, key, value in log.pairs if value and key in (b"a", b"c", b"d")
    ]
    assert data == [(0, b"a"), (4, b"c"), (5, b"d")]
    markers = [h for h in log.headers if h.is_control]
    assert [m.base_offset for m in markers] == [3]
    assert not markers[0].attributes & DELETE_HORIZON_MASK
    assert log.log.aborted_transactions(0, 6) == [AbortedTransaction(1, 1, 3, 4)]
    # only the producer's last batch is left, without records
    log.log.expire_producers(NOW_MS + 1, 0)
    await log.clean_again()
    await log.clean_again()
    [marker] = [h for h in log.headers if h.is_control]
    assert marker.attributes & DELETE_HORIZON_MASK
    assert marker.base_timestamp_ms == NOW_MS + DAY_MS
    assert log.log.aborted_transactions(0, 6) == []
    log.clock.now_ms += DAY_MS
    await log.clean_again()
    assert not [h for h in log.headers if h.is_control]


async def test_the_marker_of_a_commit_stays_as_long_as_its_records(log: CleanedLog) -> None:
    """Without it a reader of committed records would wait for the end of the transaction."""
    log.transact(1, 0, (b"a", b"1"))
    log.end(1, ControlType.COMMIT)
    log.put((b"z", b"1"), roll=True)
    await log.clean()
    assert [h.base_offset for h in log.headers] == [0, 1, 2]
    log.put((b"a", b"2"), roll=True)
    log.log.expire_producers(NOW_MS + 1, 0)
    for _ in range(2):
        await log.clean_again()
        assert [h.base_offset for h in log.headers] == [1, 2, 3]
    log.clock.now_ms += DAY_MS
    await log.clean_again()
    assert [h.base_offset for h in log.headers] == [2, 3]


async def test_the_marker_keeps_the_epoch_of_a_producer_without_records() -> None:
    """The marker is the only trace of a fenced producer, and is kept without its record."""
    log = CleanedLog()
    log.end(4, ControlType.ABORT, epoch=3)
    log.put((b"a", b"1"), roll=True)
    for _ in range(3):
        await log.clean_again()
        log.clock.now_ms += DAY_MS
    [empty] = [h for h in log.headers if h.producer_id == 4]
    assert (empty.count, empty.producer_epoch, empty.is_control) == (0, 3, True)


async def test_a_commit_counts_also_after_an_abort_that_was_cleaned_before(
    log: CleanedLog,
) -> None:
    """The dirty section has no marker of the old transaction, only of the producer's next one."""
    log.put((b"a", b"old"))
    log.transact(1, 0, (b"a", b"aborted"))
    log.end(1, ControlType.ABORT)
    log.roll()
    await log.clean()
    log.put((b"b", b"1"))
    log.transact(1, 1, (b"b", b"2"))
    log.end(1, ControlType.COMMIT)
    log.roll()
    await log.clean()
    assert (3, b"b", b"1") not in log.pairs
    assert (4, b"b", b"2") in log.pairs


async def test_nothing_of_an_open_transaction_is_cleaned(log: CleanedLog) -> None:
    """Whether its records count depends on its end."""
    log.put((b"a", b"1"), roll=True)
    log.transact(1, 0, (b"a", b"2"))
    log.roll()
    log.put((b"a", b"3"), roll=True)
    await log.clean()
    assert log.pairs == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]
    log.end(1, ControlType.ABORT)
    log.put((b"b", b"1"), roll=True)
    await log.clean()
    assert [(o, k) for o, k, v in log.pairs if v and k in (b"a", b"b")] == [(2, b"a"), (4, b"b")]


@pytest.mark.parametrize("append_time", [False, True])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
async def test_old_formats_are_converted_as_they_are_compacted(
    magic: int, codec: int, append_time: bool
) -> None:
    """Kafka 4 no longer writes them: remaining records become magic 2, tombstones get a horizon."""
    log = CleanedLog()

    def put(*messages: Message) -> None:
        data = encode_message_set(messages, magic, codec, timestamp_type=int(append_time and magic))
        segment = log.log.segments[-1]
        segment.write([data])
        for header in iter_headers(data):
            segment.note_batch(header.last_offset, header.size, header.max_timestamp_ms)
        log.log.high_watermark = log.log.log_end_offset
        log.roll()

    put(
        Message(0, NOW_MS, b"a", b"1"),
        Message(1, NOW_MS, None, b"no key"),
        Message(2, NOW_MS, b"b", b"1"),
        Message(3, NOW_MS, b"c", None),
    )
    put(Message(4, NOW_MS, b"a", b"2"))
    await log.clean()
    assert log.pairs == [(2, b"b", b"1"), (3, b"c", None), (4, b"a", b"2")]
    assert {header.magic for header in log.headers} == {2}
    assert {header.codec for header in log.headers} == {codec}
    assert {record.timestamp_ms for record in log.records} == {NOW_MS if magic else -1}
    assert {header.timestamp_type for header in log.headers} == {int(append_time and magic)}
    log.clock.now_ms += DAY_MS
    await log.clean_again()
    assert log.pairs == [(2, b"b", b"1"), (4, b"a", b"2")]


@pytest.mark.parametrize("codec", [0, 1])
async def test_what_is_left_of_an_old_format_ends_where_the_next_segment_begins(codec: int) -> None:
    """A gap would look as if a power cut had removed the end of the segment."""
    log = CleanedLog()
    messages = [Message(0, NOW_MS, b"a", b"1"), Message(1, NOW_MS, b"b", b"1")]
    data = encode_message_set(messages, 1, codec)
    segment = log.log.segments[-1]
    segment.write([data])
    for header in iter_headers(data):
        segment.note_batch(header.last_offset, header.size, header.max_timestamp_ms)
    log.log.high_watermark = log.log.log_end_offset
    log.roll()
    log.put((b"b", b"2"), roll=True)
    log.log.update_config(compacted(segment_bytes=1))  # prevents merging with the next segment
    await log.clean()
    assert log.pairs == [(0, b"a", b"1"), (2, b"b", b"2")]
    walked = [[h.next_offset for _, h in segment.headers()] for segment in log.log.segments]
    assert [found[-1] for found in walked if found] == [2, 3]


async def test_a_tombstone_of_an_old_format_goes_with_the_age_of_its_segment() -> None:
    """It has no horizon; its age is compared with the time of the cleaned section."""
    log = CleanedLog(config=compacted(delete_retention_ms=10))
    data = encode_message_set([Message(1, NOW_MS, b"c", None), Message(2, NOW_MS, b"d", b"1")], 1)
    log.put((b"a", b"1"), roll=True)
    segment = log.log.segments[-1]
    segment.write([data])
    for header in iter_headers(data):
        segment.note_batch(header.last_offset, header.size, header.max_timestamp_ms)
    log.log.high_watermark = log.log.log_end_offset
    log.roll()
    log.put((b"e", b"1"), roll=True)
    log.files.set_modified_ms(segment.path(".log"), NOW_MS - 11)
    log.directory.checkpoints.cleaned_offsets.note(TP, 1)
    await log.clean()
    assert [offset for offset, _, _ in log.pairs] == [0, 2, 3]


def batches(log: CleanedLog):  # type: ignore[no-untyped-def]
    data = fetched(log.log, log.log.log_start_offset)
    position = 0
    for header in iter_headers(data):
        yield header, data[position : position + header.size]
        position += header.size


async def test_a_full_map_cleans_a_part_and_the_next_run_goes_on() -> None:
    """The map's memory is bounded for any log; the rest waits for the next run."""
    from aiokq.fastpath.broker import OFFSET_MAP_ENTRY

    room = OFFSET_MAP_ENTRY * 20
    log = CleanedLog(log_cleaner_dedupe_buffer_size=max(room, 1024))
    keys = max(room, 1024) // OFFSET_MAP_ENTRY * 2
    for turn in range(3):
        for n in range(keys):
            log.put((b"%d" % n, b"%d" % turn))
        log.roll()
    latest = log.latest
    runs = 0
    while await log.clean() is not None:
        runs += 1
        assert log.latest == latest
        assert runs < 50
    assert runs > 2
    assert len(log.log.segments) <= 3


async def test_a_batch_with_more_keys_than_the_map_holds_is_said_and_left() -> None:
    """No run could clean it, so it must neither be retried for ever nor lose records."""
    log = CleanedLog(log_cleaner_dedupe_buffer_size=1024)
    log.put(*[(b"%d" % n, b"1") for n in range(200)], roll=True)
    log.unclean = True
    await log.clean()
    assert await log.clean() is None
    assert len(log.pairs) == 200


async def test_a_damaged_batch_is_never_copied(
    log: CleanedLog, caplog: pytest.LogCaptureFixture
) -> None:
    """A new checksum would hide the damage, so the log is left unchanged."""
    log.put((b"a", b"1"), (b"b", b"1"), roll=True)
    log.put((b"a", b"2"), roll=True)
    log.files.corrupt("/data/orders-0/00000000000000000000.log", 70)
    before = log.files.read_bytes("/data/orders-0/00000000000000000000.log")
    log.unclean = True
    await log.clean()
    assert await log.clean() is None
    assert "a batch is damaged" in caplog.text
    assert log.counters.uncleanable_partitions.value == 1
    assert log.files.read_bytes("/data/orders-0/00000000000000000000.log") == before
    assert not [name for name in log.names if name.endswith((".cleaned", ".swap"))]


async def test_segments_are_merged_up_to_their_size_and_index() -> None:
    """Otherwise a log would end up as a thousand tiny files."""
    log = CleanedLog(config=compacted(segment_bytes=1000))
    for n in range(12):
        log.put((b"k%d" % n, b"x" * 200), roll=True)
    await log.clean()
    assert len(log.log.segments) == 5
    assert all(segment.size <= 1000 for segment in log.log.segments)
    assert len(log.pairs) == 12
    small = CleanedLog(config=compacted(segment_index_bytes=16, index_interval_bytes=0))
    for n in range(8):
        small.put((b"k%d" % n, b"x"))
        small.put((b"l%d" % n, b"x"), roll=True)
    await small.clean()
    assert len(small.log.segments) > 4


async def test_indexes_of_a_cleaned_segment_are_what_recovery_would_make() -> None:
    """A wrong entry hides records from a read by offset or by time."""
    log = CleanedLog()
    for n in range(60):
        log.put(
            (b"k%d" % (n % 17), b"x" * 50),
            (b"only%d" % n, b"y"),
            codec=n % 5,
            timestamp_ms=NOW_MS + (n * 7) % 31,
        )
    log.roll()
    log.put((b"z", b"z"), roll=True)
    await log.clean()
    segment = log.log.segments[0]
    kept = [log.files.read_bytes(segment.path(kind)) for kind in (".index", ".timeindex")]
    assert all(kept)
    largest = segment.max_timestamp()
    segment.rebuild_indexes()
    segment.seal()
    assert [log.files.read_bytes(segment.path(k)) for k in (".index", ".timeindex")] == kept
    assert segment.max_timestamp() == largest
    for header, data in batches(log):
        assert verify_crc(data, header, crc32c)


async def test_an_unknown_magic_is_refused(log: CleanedLog) -> None:
    """The length of such a batch is unknown."""
    from aiokq.broker.log.cleaner.batch_rewriting import checked

    data = bytearray(encode_batch([RawRecord(0, 1, b"a", b"b")], crc32c=crc32c))
    data[16] = 3
    with pytest.raises(CorruptRecord):
        checked(memoryview(data), 0, "somewhere")
