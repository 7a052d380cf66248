"""Metadata records: errors of reading and writing, versions by level of metadata.version."""

from __future__ import annotations

import copy
import json
import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokq.broker.metadata.image.features import METADATA_VERSIONS
from aiokq.broker.metadata.image.record_codec import (
    RECORD_CLASSES,
    UnknownMetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
    record_version,
)
from aiokq.core.errors import CorruptRecord, UnsupportedVersion
from aiokq.wire import FieldNotSupported
from aiokq.wire.cluster_metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    ZkMigrationStateRecord,
)
from aiokq.wire.principal_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from aiokq.wire.registration_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from aiokq.wire.struct import Message

GOLDEN = Path(__file__).parents[4] / "golden" / "metadata"
LEVELS = {
    one["level"]: one
    for one in json.loads((GOLDEN / "features.json").read_text())["metadata_versions"]
    if one["production"]
}
DIRECTORY = uuid.UUID(int=1000)
READ_ONLY = (FenceBrokerRecord, UnfenceBrokerRecord, ZkMigrationStateRecord)


@pytest.mark.parametrize(
    "data",
    [
        "0114 0000",
        "011c0003 7431 00",
        "0111 0000000001000000000000000d010001ff",
        "0102 0007 6f7264657273 00000000000000000000000000000007 00",
    ],
)
def test_values_that_were_seen_in_a_log_are_the_same_after_reading_and_writing(data: str) -> None:
    """A record that is only carried over into a snapshot must not change."""
    value = bytes.fromhex(data)
    record = decode_metadata_record(value)
    assert encode_metadata_record(record, value[2]) == value


def test_the_newest_version_is_the_default() -> None:
    """The writer of bootstrap records names no version."""
    assert encode_metadata_record(PartitionRecord())[:3] == bytes((1, 3, 2))


@pytest.mark.parametrize("version", [0, 1])
def test_a_field_that_the_version_lacks_is_an_error(version: int) -> None:
    """The eligible leader replicas would be lost silently."""
    with pytest.raises(FieldNotSupported):
        encode_metadata_record(PartitionRecord(eligible_leader_replicas=[1]), version)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (None, "no value"),
        (b"", "not a metadata record"),
        (b"\x00\x02\x00", "unknown frame version 0"),
        (b"\x02\x02\x00", "unknown frame version 2"),
        (b"\x01\x02", "not a metadata record"),
        (b"\x01\xff\xff\xff\xff\xff\x00", "not a metadata record"),
        (b"\x01\x02\x00\x07ord", "malformed TopicRecord"),
        (encode_metadata_record(NoOpRecord()) + b"\0", "malformed NoOpRecord"),
    ],
)
def test_a_value_that_is_no_record_is_corrupt(value: bytes | None, match: str) -> None:
    """Skipping it could lose a topic."""
    with pytest.raises(CorruptRecord, match=match):
        decode_metadata_record(value)


def test_unknown_types_and_versions_are_named() -> None:
    """Only the number tells which Kafka wrote the record."""
    for value, record_type, version, text in (
        (b"\x01\x32\x03...", 50, 3, "unknown type 50, written by a newer Kafka .at version 3"),
        (b"\x01\x02\x09...", 2, 9, "TopicRecord of unknown version, .* .at version 9"),
        (b"\x01\x06\x00", 6, 0, "unknown type 6, "),
    ):
        with pytest.raises(UnknownMetadataRecord, match=text) as caught:
            decode_metadata_record(value)
        for error in (
            caught.value,
            copy.copy(caught.value),
            pickle.loads(pickle.dumps(caught.value)),
        ):
            assert (error.record_type, error.version) == (record_type, version)


def expected_versions(level: int) -> Iterator[tuple[Message, int | None]]:
    """Yield records with Kafka's version at a level; None for a record that it cannot have."""
    golden = LEVELS[level]

    def since(support: str, version: int = 0) -> int | None:
        return version if golden[support] else None

    always = (TopicRecord, ConfigRecord, RemoveTopicRecord, ProducerIdsRecord, FeatureLevelRecord)
    acls = (AccessControlEntryRecord, RemoveAccessControlEntryRecord, ClientQuotaRecord)
    for cls in (*always, *acls, NoOpRecord, UnregisterBrokerRecord):
        yield cls(), 0
    for cls in (UserScramCredentialRecord, RemoveUserScramCredentialRecord):
        yield cls(), since("scram")
    for cls in (DelegationTokenRecord, RemoveDelegationTokenRecord):
        yield cls(), since("delegation_tokens")
    for cls in (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord):
        yield cls(), since("transactions")
    yield RegisterControllerRecord(), since("controllers")
    yield ClearElrRecord(), since("elr")
    yield RegisterBrokerRecord(), golden["register_broker"]
    yield RegisterBrokerRecord(log_dirs=[DIRECTORY]), since("directories", 3)
    migrating = RegisterBrokerRecord(is_migrating_zk_broker=True)
    yield migrating, golden["register_broker"] if level >= 8 else None
    yield PartitionRecord(), golden["partition"]
    yield PartitionRecord(directories=[DIRECTORY]), golden["partition"] or None
    yield PartitionRecord(eligible_leader_replicas=[]), since("elr", 2)
    yield PartitionChangeRecord(leader=1), golden["partition_change"]
    yield PartitionChangeRecord(last_known_elr=[1]), since("elr", 2)
    yield BrokerRegistrationChangeRecord(fenced=1), 0
    yield BrokerRegistrationChangeRecord(in_controlled_shutdown=1), 1
    yield BrokerRegistrationChangeRecord(log_dirs=[DIRECTORY]), since("directories", 2)


@pytest.mark.parametrize("level", METADATA_VERSIONS)
def test_versions_at_each_level_are_those_of_kafkas_controller(level: int) -> None:
    """Another controller at this level would refuse a record in a newer version."""
    tried = set()
    for record, version in expected_versions(level):
        tried.add(type(record))
        if version is None:
            with pytest.raises(UnsupportedVersion, match=METADATA_VERSIONS[level]):
                record_version(record, level)
        else:
            assert record_version(record, level) == version, record
            assert decode_metadata_record(encode_metadata_record(record, version)) == record
    assert tried | set(READ_ONLY) == set(RECORD_CLASSES.values())


@pytest.mark.parametrize("cls", READ_ONLY)
def test_records_that_kafka_no_longer_writes_are_refused(cls: type[Message]) -> None:
    """Kafka reads them from the logs of old releases."""
    with pytest.raises(UnsupportedVersion, match="never written"):
        record_version(cls(), 29)
