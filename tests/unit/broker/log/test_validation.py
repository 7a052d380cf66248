"""Batches that are rejected before they are appended, and Kafka's errors for them."""

from __future__ import annotations

import tracemalloc

import pytest

from aiokq.broker.log.appending import prepare_append
from aiokq.broker.log.producer_state import Origin
from aiokq.broker.log.validation import (
    InvalidRecords,
    InvalidTimestamps,
    produced_headers,
    validate_batch,
)
from aiokq.core.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    UnsupportedCompressionType,
)
from aiokq.fastpath import crc32c
from aiokq.records.header import (
    CONTROL_MASK,
    LOG_APPEND_TIME,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    computed_crc,
    pack_header,
    read_header,
)
from aiokq.records.legacy import Message, encode_message_set
from aiokq.records.record import RawRecord, encode_batch
from tests.unit.broker.log.samples import NOW_MS, batch, config


def check(data: bytes, origin: Origin = Origin.CLIENT, **settings: object) -> None:
    validate_batch(
        data,
        read_header(data),
        config(**settings),
        origin=origin,
        now_ms=NOW_MS,
        crc32c=crc32c,
    )


def changed(data: bytes, **fields: int) -> bytes:
    """Return a batch with changed header fields and a valid CRC."""
    header = read_header(data)._replace(**fields)
    data = pack_header(header) + data[61:]
    return pack_header(header._replace(crc=computed_crc(data, header, crc32c))) + data[61:]


def test_a_sound_batch_passes() -> None:
    """Without this test the others would pass for a validator that rejects everything."""
    check(batch(b"a", b"b"))
    check(batch(b"a", codec=4, producer_id=1, producer_epoch=0, base_sequence=0))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"base_offset": 3}, InvalidRecord),
        ({"count": 0}, InvalidRecord),
        ({"count": 3}, InvalidRecord),
        ({"last_offset_delta": -1}, InvalidRecord),
        ({"last_offset_delta": 7}, InvalidRecord),
        ({"attributes": CONTROL_MASK}, InvalidRecord),
        ({"producer_id": 4, "base_sequence": -1}, InvalidRecord),
        ({"attributes": 5}, UnsupportedCompressionType),
        ({"attributes": LOG_APPEND_TIME << 3}, InvalidTimestamp),
    ],
)
def test_headers_a_client_may_not_send(fields: dict[str, int], error: type[Exception]) -> None:
    """Such headers would give readers wrong offsets, control records or times."""
    with pytest.raises(error):
        check(changed(batch(b"a", b"b"), **fields))


def test_a_wrong_crc_is_corruption() -> None:
    """The batch was damaged on its way, so the client sends it again."""
    data = bytearray(batch(b"a"))
    data[-1] ^= 1
    with pytest.raises(CorruptRecord):
        check(bytes(data))
    with pytest.raises(CorruptRecord):
        check(bytes(data), Origin.REPLICATION)


def test_coordinators_write_what_clients_may_not() -> None:
    """Markers are control records, and a follower's batches have offsets."""
    check(changed(batch(b"a"), attributes=CONTROL_MASK), Origin.COORDINATOR)
    check(changed(batch(b"a"), base_offset=10), Origin.REPLICATION, max_message_bytes=10)


@pytest.mark.parametrize("codec", [0, 1])
def test_keyless_records_of_compacted_topics_are_named_one_by_one(codec: int) -> None:
    """They could never be compacted; from version 8 on the response lists them."""
    rows = [RawRecord(i, NOW_MS, None if i in (1, 3) else b"k", b"v") for i in range(5)]
    data = encode_batch(rows, crc32c=crc32c, codec=codec)
    check(data)
    with pytest.raises(InvalidRecords) as caught:
        check(data, cleanup_policy=("compact", "delete"))
    assert caught.value.code == 87
    assert [error.index for error in caught.value.record_errors] == [1, 3]
    check(batch(b"v"), cleanup_policy=("compact",))


def test_times_too_far_ahead_are_named_one_by_one() -> None:
    """A clock that is wrong by days would keep records from expiring."""
    hour = 3_600_000
    check(batch(b"a", timestamp_ms=NOW_MS + hour))
    with pytest.raises(InvalidTimestamps) as caught:
        check(batch(b"a", b"b", b"c", timestamp_ms=NOW_MS + hour - 5, step_ms=5))
    assert caught.value.code == 32
    assert [error.index for error in caught.value.record_errors] == [2]
    check(batch(timestamp_ms=NOW_MS + 2 * hour), message_timestamp_type="LogAppendTime")


@pytest.mark.parametrize("timestamp_ms", [NOW_MS + 3_600_001, 2**63 - 1])
def test_a_header_that_claims_a_time_its_records_do_not_have_is_refused(timestamp_ms: int) -> None:
    """It would roll a segment with every append and keep all of them from expiring."""
    with pytest.raises(InvalidRecord, match="largest timestamp"):
        check(changed(batch(b"a", b"b"), max_timestamp_ms=timestamp_ms))


def test_times_too_far_behind_are_refused_where_a_limit_is_set() -> None:
    """By default there is no limit, because users load historical data."""
    check(batch(timestamp_ms=5))
    with pytest.raises(InvalidTimestamps) as caught:
        check(batch(b"a", b"b", timestamp_ms=5, step_ms=NOW_MS), message_timestamp_before_max_ms=10)
    assert [error.index for error in caught.value.record_errors] == [0]
    check(batch(timestamp_ms=-1), message_timestamp_before_max_ms=10)


def test_invalid_records_are_the_clients_fault() -> None:
    """The CRC is valid, so a retry would not help: INVALID_RECORD, not CORRUPT_MESSAGE."""
    data = batch(b"abc")
    data = changed(data[:61] + b"\xff" * (len(data) - 61))
    with pytest.raises(InvalidRecord, match="malformed"):
        check(data, cleanup_policy=("compact",))


# --- The request


def test_a_partition_has_exactly_one_batch() -> None:
    """From Produce version 3 on; the response has a single offset."""
    data = batch(b"a")
    assert [type(h) for h in produced_headers(data, 9)] == [BatchHeader]
    assert len(produced_headers(data + data[:20], 9)) == 1  # an incomplete second batch is ignored
    for wrong in (b"", data + data, data[:-1]):
        with pytest.raises(InvalidRecord, match="exactly one batch"):
            produced_headers(wrong, 9)


def test_more_batches_than_one_are_not_counted() -> None:
    """A frame of 100 MB may hold 1.6 million headers: 800 MB of objects, and seconds of CPU."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord, match="exactly one batch"):
            produced_headers(batch() * 20_000, 9)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_old_formats_and_early_zstd_are_refused() -> None:
    """Consumers of that age could not decode zstd; formats 0 and 1 end with Produce version 2."""
    with pytest.raises(InvalidRecord, match="magic 2, not 1"):
        produced_headers(encode_message_set([Message(0, 1, b"k", b"v")], 1), 3)
    data = batch(codec=4)
    with pytest.raises(UnsupportedCompressionType):
        produced_headers(data, 6)
    produced_headers(data, 7)
    with pytest.raises(CorruptRecord):
        produced_headers(b"\x00" * 70, 9)


@pytest.mark.parametrize(
    "settings",
    [
        {"compression_type": "zstd"},
        {"message_timestamp_type": "LogAppendTime"},
        {"message_timestamp_after_max_ms": -10_000_000},
        {"max_message_bytes": 10},
        {"message_timestamp_before_max_ms": 86_400_000},
        {"cleanup_policy": ("compact", "delete")},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_that_ask_for_the_records_are_no_headers_business(
    settings: dict[str, object],
) -> None:
    """Regression: a topic's rule was skipped, because the header seemed to be sufficient."""
    header = read_header(batch())
    assert config().header_rules.suffice_for(header, NOW_MS)
    assert not config(**settings).header_rules.suffice_for(header, NOW_MS)
    stamped = header._replace(attributes=TIMESTAMP_TYPE_MASK)
    assert not config().header_rules.suffice_for(stamped, NOW_MS)


def test_the_rules_for_headers_are_made_once_per_settings() -> None:
    """They were made again for each batch on the general path, twice."""
    at = config()
    data = batch()
    for _ in range(2):
        prepare_append(
            data, [read_header(data)], at, now_ms=NOW_MS, origin=Origin.CLIENT, crc32c=crc32c
        )
    assert at.header_rules is at.header_rules
    assert at._replace(max_message_bytes=100).header_rules.max_length == 100 - 12
