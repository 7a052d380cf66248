"""Records of `__consumer_offsets`, byte by byte."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.coordinator.group.record_types import decode_record, encode_record
from aiokq.broker.coordinator.record import CoordinatorRecord
from aiokq.core.errors import ProtocolError
from aiokq.wire.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)

TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def test_an_offset_is_written_as_kafka_4_2_writes_it():
    """Kafka's tools must read the topic: key type 1, value version 4."""
    record = CoordinatorRecord(
        OffsetCommitKey(group="g", topic="t", partition=3),
        OffsetCommitValue(
            offset=42, leader_epoch=5, metadata="m", commit_timestamp=7, topic_id=TOPIC_ID
        ),
    )
    key, value = encode_record(record)
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert (
        value
        == bytes.fromhex("0004 000000000000002a 00000005 02 6d 0000000000000007 01 00 10")
        + TOPIC_ID.bytes
    )


def test_an_offset_with_a_retention_of_its_own_is_version_1():
    """No other version has a retention time."""
    record = CoordinatorRecord(
        OffsetCommitKey(group="g", topic="t", partition=0),
        OffsetCommitValue(offset=1, metadata="", commit_timestamp=2, expire_timestamp=3),
    )
    key, value = encode_record(record)
    assert value[:2] == b"\x00\x01"
    assert decode_record(key, value) == record


def test_a_group_is_version_3():
    """Kafka writes version 3, because 4 is flexible and unreadable for older brokers."""
    record = CoordinatorRecord(
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=4,
            protocol="range",
            leader="m",
            current_state_timestamp=9,
            members=[
                MemberMetadata(
                    member_id="m",
                    group_instance_id="i",
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=6,
                    session_timeout=5,
                    subscription=b"s",
                    assignment=b"a",
                )
            ],
        ),
    )
    key, value = encode_record(record)
    assert key == bytes.fromhex("0002 0001 67")
    assert value[:2] == b"\x00\x03"
    assert decode_record(key, value) == record


def test_a_tombstone_has_no_value():
    """Compaction removes the key."""
    record = CoordinatorRecord(GroupMetadataKey(group="g"), None)
    key, value = encode_record(record)
    assert value is None
    assert decode_record(key, None) == record


def test_records_of_other_groups_are_skipped_with_one_line(caplog):
    """A directory with share groups is readable, with one log line instead of one per record."""
    for _ in range(3):
        assert decode_record(b"\x00\x0b\x00\x01g", b"\x00\x00") is None
    assert len(caplog.records) == 1


def test_what_brokers_before_0_10_wrote_is_read():
    """Key type 0 is an offset as well."""
    record = decode_record(bytes.fromhex("0000 0001 67 0001 74 00000003"), None)
    assert record == (LegacyOffsetCommitKey(group="g", topic="t", partition=3), None)


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x01\x00\x09g", b"\x00\x01"])
def test_garbage_is_a_protocol_error(key):
    """No other error is raised, whatever the bytes are."""
    with pytest.raises(ProtocolError):
        decode_record(key, b"\x00\x03")
