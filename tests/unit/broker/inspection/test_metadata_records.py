"""Records of a metadata log in a dump: the JSON that Kafka's decoder prints."""

from __future__ import annotations

import json
import uuid

from aiokq.broker.inspection.contents import contents
from aiokq.broker.inspection.metadata_records import metadata_entry, record_text
from aiokq.broker.inspection.places import files_at
from aiokq.broker.log.uuid_text import parse_uuid
from aiokq.broker.metadata.image.record_codec import encode_metadata_record
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord
from aiokq.wire.cluster_metadata_records import (
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from aiokq.wire.principal_records import UserScramCredentialRecord
from aiokq.wire.registration_records import BrokerEndpoint, RegisterBrokerRecord
from aiokq.wire.struct import Message
from tests.unit.broker.metadata.metadata_logs import DIRECTORY
from tests.unit.broker.metadata.quorum_logs import quorum_of_three

TOPIC = parse_uuid("7qgCJQmMRzuvTomnekVioQ")


def shown(message: Message, version: int | None = None) -> str:
    """Return the text as Kafka prints it after `payload: `."""
    record = RawRecord(7, 0, None, encode_metadata_record(message, version))
    entry = metadata_entry(record, is_control=False)
    return json.dumps(entry["payload"], separators=(",", ":"))


def test_records_as_kafka_prints_them() -> None:
    """The texts are from runs of Kafka's tool: tagged fields with their default are left out."""
    assert shown(NoOpRecord()) == '{"type":"NO_OP_RECORD","version":0,"data":{}}'
    assert shown(FeatureLevelRecord(name="metadata.version", feature_level=29)) == (
        '{"type":"FEATURE_LEVEL_RECORD","version":0,"data":'
        '{"name":"metadata.version","featureLevel":29}}'
    )
    change = PartitionChangeRecord(
        partition_id=0, topic_id=TOPIC, isr=[], leader=-1, last_known_elr=[1]
    )
    assert shown(change) == (
        '{"type":"PARTITION_CHANGE_RECORD","version":2,"data":{"partitionId":0,'
        '"topicId":"7qgCJQmMRzuvTomnekVioQ","isr":[],"leader":-1,"lastKnownElr":[1]}}'
    )
    partition = PartitionRecord(
        partition_id=1,
        topic_id=TOPIC,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=1,
        partition_epoch=1,
        directories=[uuid.UUID("00000010-0000-0000-0000-000000000001")],
    )
    assert shown(partition) == (
        '{"type":"PARTITION_RECORD","version":2,"data":{"partitionId":1,'
        '"topicId":"7qgCJQmMRzuvTomnekVioQ","replicas":[1],"isr":[1],"removingReplicas":[],'
        '"addingReplicas":[],"leader":1,"leaderEpoch":1,"partitionEpoch":1,'
        '"directories":["AAAAEAAAAAAAAAAAAAAAAQ"]}}'
    )


def test_fields_depend_on_the_version() -> None:
    """A record of an old level does not have the fields of a new one."""
    broker = RegisterBrokerRecord(
        broker_id=1, end_points=[BrokerEndpoint(name="P", host="h", port=9)], rack=None
    )
    old = json.loads(shown(broker, 0))["data"]
    assert "inControlledShutdown" not in old
    assert old["endPoints"] == [{"name": "P", "host": "h", "port": 9, "securityProtocol": 0}]
    assert old["rack"] is None
    assert "inControlledShutdown" in json.loads(shown(broker))["data"]


def test_bytes_are_base64() -> None:
    """As in Kafka's JSON."""
    user = UserScramCredentialRecord(name="a", mechanism=1, salt=b"k7", iterations=4096)
    data = json.loads(shown(user))["data"]
    assert (data["salt"], data["storedKey"]) == ("azc=", "")


def test_what_cannot_be_decoded_has_a_reason() -> None:
    """A dump goes on with the next record."""
    for value in (None, b"", b"\x02\x03\x00", b"\x01\x7f\x00", b"\x01\x14\x00\x00\x00"):
        entry = metadata_entry(RawRecord(7, 0, None, value), is_control=False)
        assert entry["error"].startswith("record at offset 7: ")
    entry = metadata_entry(RawRecord(7, 0, b"\0\0\0\x63", b""), is_control=True)
    assert "type 99" in entry["error"]


def test_a_log_directory_shows_its_metadata_log() -> None:
    """Snapshots, segments and `quorum-state`; control records have Kafka's names."""
    files = quorum_of_three(1)
    kinds = [(file.kind, file.has_metadata) for file in files_at(files, "/data")]
    assert kinds == [
        ("meta.properties", False),
        ("quorum-state", True),
        ("metadata-snapshot", True),
        ("log", True),
    ]
    found: dict[str, list[dict[str, object]]] = {}
    for file in files_at(files, DIRECTORY):
        found[file.kind] = list(contents(files, file, crc32c, records=True))
    assert found["quorum-state"][0]["leader_epoch"] == 4
    names = [next(reversed(entry)) for entry in found["metadata-snapshot"] if "key_size" in entry]
    assert names == ["SnapshotHeader", "KRaftVersion", "KRaftVoters", "SnapshotFooter"]
    names = [next(reversed(entry)) for entry in found["log"] if "key_size" in entry]
    assert names[:4] == ["LeaderChange", "KRaftVersion", "KRaftVoters", "payload"]
    assert not any("error" in entry for entries in found.values() for entry in entries)


def test_one_line() -> None:
    """For lists of records in messages."""
    text = record_text(TopicRecord(name="t", topic_id=TOPIC))
    assert text == 'TOPIC_RECORD {"name":"t","topicId":"7qgCJQmMRzuvTomnekVioQ"}'
