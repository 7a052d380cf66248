"""Control records of a quorum: Kafka's bytes, and bytes that are none of its records."""

from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq.core.errors import CorruptRecord
from aiokq.records.header import read_header
from aiokq.records.quorum_control import (
    QuorumControlRecord,
    decode_quorum_control,
    encode_quorum_control,
    encode_quorum_control_batch,
    read_quorum_controls,
)
from aiokq.wire.fields import ZERO_UUID
from aiokq.wire.primitives import FieldNotSupported
from aiokq.wire.quorum_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
)
from tests.unit.broker.metadata.quorum_samples import FIRST, GOLDEN, NOW, SECOND, voters
from tests.unit.records.samples import crc32c


def golden() -> dict[str, bytes]:
    lines = (GOLDEN / "control.txt").read_text().splitlines()
    return {name: bytes.fromhex(text) for name, text in map(str.split, lines)}


def voter(number: int, directory: uuid.UUID = ZERO_UUID) -> LeaderChangeMessageVoter:
    return LeaderChangeMessageVoter(voter_id=number, voter_directory_id=directory)


NEWER = LeaderChangeMessage(
    version=1,
    leader_id=2,
    voters=[voter(1, FIRST), voter(2, SECOND)],
    granting_voters=[voter(2, SECOND)],
)
RECORDS: dict[str, QuorumControlRecord] = {
    "leader-change": LeaderChangeMessage(
        leader_id=1, voters=[voter(1), voter(2)], granting_voters=[voter(1)]
    ),
    "snapshot-header": SnapshotHeaderRecord(last_contained_log_timestamp=NOW - 1000),
    "snapshot-footer": SnapshotFooterRecord(),
    "kraft-version": KRaftVersionRecord(k_raft_version=1),
    "voters": voters(),
}
PAIRS = [encode_quorum_control(record) for record in (*RECORDS.values(), NEWER)]


def test_each_golden_record_is_compared() -> None:
    """A record without a sample would not be compared."""
    assert golden().keys() == {*RECORDS, "leader-change-1-value"}


@pytest.mark.parametrize("name", RECORDS)
def test_the_bytes_are_kafkas(name: str) -> None:
    """Kafka and its tools read the log and the snapshots."""
    data = golden()[name]
    record = RECORDS[name]
    written = encode_quorum_control_batch(
        [record], base_offset=40, leader_epoch=5, timestamp_ms=NOW, crc32c=crc32c
    )
    assert written == data
    assert read_quorum_controls(data, read_header(data)) == [record]


def test_leader_changes_are_read_in_all_versions_and_written_in_the_oldest() -> None:
    """Kafka 4.2 writes version 0, without directories, and knows version 1."""
    value = golden()["leader-change-1-value"]
    key, written = encode_quorum_control(NEWER)
    assert (key, written) == (b"\0\0\0\2", value)
    assert decode_quorum_control(key, value) == NEWER
    assert LeaderChangeMessage().version == 0
    with pytest.raises(FieldNotSupported, match="voter_directory_id"):
        encode_quorum_control(LeaderChangeMessage(voters=[voter(1, FIRST)]))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"", "without a key"),
        (b"\0\0\0", b"", "key of 3 bytes, too short for a type"),
        (struct.pack(">hh", 0, 0), b"\0" * 6, "type 0"),
        (struct.pack(">hh", 0, 99), b"\0" * 6, "type 99"),
        (struct.pack(">hh", 0, 2), None, "LeaderChangeMessage without a version"),
        (struct.pack(">hh", 0, 2), b"\0", "LeaderChangeMessage without a version"),
        (struct.pack(">hh", 0, 2), b"\0\2" + bytes(9), "version 2"),
        (struct.pack(">hh", 0, 3), b"\xff\xff" + bytes(9), "version -1"),
        (struct.pack(">hh", 0, 4), b"\0\0\0more", "malformed SnapshotFooterRecord"),
    ],
)
def test_what_is_no_record_of_a_quorum_is_corrupt(
    key: bytes | None, value: bytes | None, reason: str
) -> None:
    """A control record that was skipped could be a change of the voters."""
    with pytest.raises(CorruptRecord, match=reason):
        decode_quorum_control(key, value)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].hex())
def test_each_cut_and_flipped_byte_raises_corrupt_record_or_nothing(
    pair: tuple[bytes, bytes],
) -> None:
    """Another error would not be taken for damage."""
    key, value = pair
    for position in range(len(value)):
        with pytest.raises(CorruptRecord):
            decode_quorum_control(key, value[:position])
        for mask in (1, 0x80, 0xFF):
            flipped = value[:position] + bytes([value[position] ^ mask]) + value[position + 1 :]
            try:
                decode_quorum_control(key, flipped)
            except CorruptRecord:
                pass


@given(st.binary(max_size=40), st.integers(0, 7))
def test_any_bytes_raise_corrupt_record_or_are_a_record(value: bytes, kind: int) -> None:
    """Whatever is decoded can be encoded again."""
    key = struct.pack(">hh", 0, kind)
    try:
        record = decode_quorum_control(key, value)
    except CorruptRecord:
        return
    assert decode_quorum_control(*encode_quorum_control(record)) == record
