"""Batches written by Apache Kafka's own classes, read by aiokq; see tests/golden/records."""

from __future__ import annotations

import pytest

from aiokq.records.compression import compress
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker, read_marker
from aiokq.records.header import CREATE_TIME, LOG_APPEND_TIME, iter_headers, read_header, verify_crc
from aiokq.records.legacy import decode_message_set, encode_message_set, upconvert
from aiokq.records.record import RawRecord, encode_batch, iter_records
from tests.unit.records.samples import APPEND_TIME_MS, GOLDEN, RECORDS, crc32c

MODERN = sorted(path.stem for path in GOLDEN.glob("v2-*.bin"))
LEGACY = sorted(path.stem for path in GOLDEN.glob("v[01]-*.bin"))


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.bin").read_bytes()


def expected(name: str) -> list[RawRecord]:
    """Return the records of one golden file, as its magic and timestamp type change them."""
    records = RECORDS
    if name.startswith("v0"):
        records = [record._replace(timestamp_ms=-1, headers=[]) for record in records]
    elif name.startswith("v1"):
        records = [record._replace(headers=[]) for record in records]
    if name.endswith("append"):
        records = [record._replace(timestamp_ms=APPEND_TIME_MS) for record in records]
    return records


def test_the_golden_files_are_there() -> None:
    """An empty glob would make the tests below pass without any cases."""
    assert len(MODERN) == 7
    assert len(LEGACY) == 10


@pytest.mark.parametrize("name", MODERN)
def test_batches_written_by_java_are_read(name: str) -> None:
    """A header field or codec read differently from Java loses or garbles records."""
    data = golden(name)
    header = read_header(data)
    assert header.size == len(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 106, 107)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 7, 55)
    assert (header.leader_epoch, header.count, header.last_sequence) == (3, 5, 61)
    assert header.timestamp_type == (LOG_APPEND_TIME if name.endswith("append") else CREATE_TIME)
    assert not header.is_control
    assert not header.is_transactional
    assert verify_crc(data, header, crc32c)
    assert list(iter_records(data, header)) == expected(name)


@pytest.mark.parametrize("name", LEGACY)
def test_message_sets_written_by_java_are_read(name: str) -> None:
    """Relative and absolute inner offsets, wrapper times and the wrong lz4 checksum, as in Java."""
    messages = list(decode_message_set(golden(name)))
    assert [RawRecord(*message[:4], headers=[]) for message in messages] == expected(name)
    assert {message.timestamp_type for message in messages} == {
        LOG_APPEND_TIME if name.endswith("append") else CREATE_TIME
    }
    assert all(verify_crc(entry, read_header(entry), crc32c) for entry in entries(golden(name)))


def test_the_wrong_lz4_checksum_is_javas() -> None:
    """The checksum must be wrong in exactly the way of Kafka 0.8."""
    wrapper = golden("v0-lz4-create")
    frame = wrapper[wrapper.index(b"\x04\x22\x4d\x18") :]
    assert compress(3, b"x" * 1000, magic=0)[:7] == frame[:7]
    assert compress(3, b"x" * 1000)[:7] != frame[:7]


def entries(data: bytes) -> list[bytes]:
    parts, position = [], 0
    for header in iter_headers(data):
        parts.append(data[position : position + header.size])
        position += header.size
    return parts


@pytest.mark.parametrize("name", LEGACY)
def test_message_sets_become_batches_with_the_same_records(name: str) -> None:
    """An upconverted batch with other offsets or timestamps would corrupt every consumer."""
    batch = upconvert(golden(name), crc32c=crc32c)
    header = read_header(batch)
    assert verify_crc(batch, header, crc32c)
    assert (header.base_offset, header.last_offset) == (100, 106)
    assert list(iter_records(batch, header)) == expected(name)
    assert header.timestamp_type == (LOG_APPEND_TIME if name.endswith("append") else CREATE_TIME)


def test_an_uncompressed_batch_is_byte_for_byte_javas() -> None:
    """Differences in varints, deltas or attributes might go unnoticed by aiokq's own reader."""
    options = {"leader_epoch": 3, "producer_id": 4000, "producer_epoch": 7, "base_sequence": 55}
    assert encode_batch(RECORDS, crc32c=crc32c, **options) == golden("v2-none-create")


@pytest.mark.parametrize("magic", [0, 1])
def test_an_uncompressed_message_set_is_byte_for_byte_javas(magic: int) -> None:
    """The same for the formats before 0.11."""
    name = f"v{magic}-none-create"
    assert encode_message_set(expected(name), magic) == golden(name)


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_transaction_markers_are_byte_for_byte_javas(kind: ControlType) -> None:
    """A marker that Java does not recognize leaves its read_committed consumers waiting."""
    data = golden(f"marker-{kind.name.lower()}")
    header = read_header(data)
    assert header.is_control
    assert header.is_transactional
    marker = EndTransactionMarker(kind, coordinator_epoch=12)
    assert read_marker(data, header) == marker
    written = encode_marker(
        marker,
        producer_id=4000,
        producer_epoch=7,
        timestamp_ms=1_700_000_000_000,
        crc32c=crc32c,
        base_offset=500,
        leader_epoch=3,
    )
    assert written == data
