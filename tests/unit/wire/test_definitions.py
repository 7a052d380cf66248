"""Every message class, compared with Kafka's definitions: fields, types, versions, tags."""

from __future__ import annotations

import uuid

import pytest

from aiokq import wire
from aiokq.wire.catalog import MODULES
from aiokq.wire.fields import ALWAYS, Field
from aiokq.wire.struct import Message, Request, Response, Struct
from tools import kafka_schema
from tools.kafka_schema import Definition, snake_case, versions

pytestmark = pytest.mark.skipif(
    bool(kafka_schema.missing()),
    reason=f"NOT COMPARED WITH KAFKA'S DEFINITIONS: {kafka_schema.missing()} are not there; "
    "`make kafka` fetches them",
)

KINDS = {
    "bool": "boolean",
    "bytes": "bytes",
    "float64": "f64",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "int8": "i8",
    "records": "records",
    "string": "string",
    "uint16": "u16",
    "uint32": "u32",
    "uuid": "uuid",
}
IMPLICIT = {
    "bool": False,
    "bytes": b"",
    "float64": 0.0,
    "records": None,
    "string": "",
    "uuid": uuid.UUID(int=0),
}

DEFINITIONS = {} if kafka_schema.missing() else kafka_schema.load()


def messages() -> list[type[Message]]:
    names = [name for names in MODULES.values() for name in names.split()]
    return [cls for cls in map(wire.__getattr__, names) if issubclass(cls, Message)]  # type: ignore[arg-type,misc]


def test_the_definitions_are_those_of_both_releases() -> None:
    """With empty jars or an empty catalogue nothing would be compared."""
    assert len(messages()) >= 157
    assert kafka_schema.valid_versions()["ProduceRequest"] == "3-13"
    assert DEFINITIONS["ProduceRequest"]["validVersions"] == "0-13"  # 0 to 2 are from 3.9
    exchanged = [cls for cls in messages() if issubclass(cls, (Request, Response))]
    assert {cls.__name__ for cls in exchanged} <= DEFINITIONS.keys()


def definition_of(cls: type[Message]) -> Definition:
    if cls.__name__ not in DEFINITIONS:
        pytest.skip(f"NOT COMPARED: the jar that defines {cls.__name__} is not there")
    return DEFINITIONS[cls.__name__]


def test_every_metadata_record_of_kafka_is_there() -> None:
    """A log with a record of an unknown type cannot be opened."""
    metadata = {name for name, its in DEFINITIONS.items() if its["type"] == "metadata"}
    if not metadata:
        pytest.skip("NOT COMPARED: the jar that defines the metadata records is not there")
    assert len(metadata) == 26
    assert metadata == {cls.__name__ for cls in messages() if cls.__name__ in metadata}


@pytest.mark.parametrize("cls", messages(), ids=lambda cls: cls.__name__)
def test_the_versions_are_kafkas(cls: type[Message]) -> None:
    """An extra version would be negotiated and then misread by a real broker."""
    definition = definition_of(cls)
    bounds = versions(definition["validVersions"])
    assert bounds is not None
    newest = cls.UNSTABLE_VERSION or cls.MAX_VERSION
    assert (cls.MIN_VERSION, newest) == bounds
    # Only the definition of the request has them.
    request = DEFINITIONS[definition["name"].replace("Response", "Request")]
    assert bool(request.get("latestVersionUnstable")) == (cls.UNSTABLE_VERSION is not None)
    flexible = versions(definition["flexibleVersions"])
    assert (None if flexible is None else flexible[0]) == cls.FLEXIBLE_SINCE
    if issubclass(cls, Request):
        assert definition["apiKey"] == cls.API_KEY
        assert f"{cls.NAME}Request" == definition["name"]
        assert wire.api(cls.API_KEY) is cls
        assert cls.RESPONSE.__name__ == f"{cls.NAME}Response"
    elif issubclass(cls, Response):
        assert definition["apiKey"] == cls.API_KEY
    else:
        assert definition["name"] == cls.NAME
        numbered = definition["type"].startswith(("coordinator-", "metadata"))
        assert (definition["apiKey"] if numbered else None) == cls.RECORD_TYPE


@pytest.mark.parametrize("cls", messages(), ids=lambda cls: cls.__name__)
def test_every_field_is_kafkas(cls: type[Message]) -> None:
    """A wrong range, default or type would shift every following byte in one version only."""
    definition = definition_of(cls)
    structs = kafka_schema.structs_of(definition)
    last = versions(definition["validVersions"])
    assert last is not None
    compared: set[str] = set()
    compare(cls, definition["name"], structs, last[1] or 0, compared)
    assert compared == structs.keys()


def compare(
    cls: type[Struct],
    name: str,
    structs: dict[str, list[Definition]],
    last: int,
    compared: set[str],
) -> None:
    if name in compared:
        return
    compared.add(name)
    expected = structs[name]
    assert [field.name for field in cls.__fields__] == [snake_case(f["name"]) for f in expected]
    for field, its in zip(cls.__fields__, expected, strict=True):
        where = f"{cls.__name__}.{field.name}"
        bounds = versions(its.get("versions") or its["taggedVersions"])
        assert bounds is not None
        since, until = bounds
        if until is not None and until >= last:
            until = None
        assert (field.since, field.until) == (since, ALWAYS if until is None else until), where
        nullable = versions(its.get("nullableVersions", "none"))
        assert field.nullable_since == (None if nullable is None else nullable[0]), where
        if nullable is not None and nullable[1] is not None:
            # Nullability that ends before the field's last version is not supported.
            assert nullable[1] >= (until or last), where
        assert field.tag == its.get("tag"), where
        if field.tag is not None:
            # A field that is tagged in some of its versions only is not supported.
            assert versions(its["taggedVersions"]) == bounds, where
        assert field.ignorable == (its.get("ignorable") in (True, "true")), where
        compare_type(field, its, where)
        element = its["type"].removeprefix("[]")
        if isinstance(field.of, type):
            compare(field.of, element, structs, last, compared)


def compare_type(field: Field, its: Definition, where: str) -> None:
    kafka_type = its["type"]
    element = kafka_type.removeprefix("[]")
    assert not element.startswith("[]"), where
    default = its.get("default")
    if kafka_type != element:
        assert field.kind == "array", where
        assert isinstance(field.of, type) or field.of == KINDS[element], where
        null = "default" in its and default in (None, "null")
        assert field.default is (None if null else list), where
    elif element not in KINDS:
        assert field.kind == "struct", where
        assert isinstance(field.of, type)
        optional = field.tag is not None or field.nullable_since is not None
        assert field.default is (None if optional else field.of), where
    else:
        assert field.kind == KINDS[element], where
        if "default" not in its:
            value: object = IMPLICIT.get(kafka_type, 0)
        elif default in (None, "null"):
            value = None
        elif kafka_type == "bool":
            value = default in (True, "true")
        elif kafka_type.startswith(("int", "uint")):
            value = int(str(default), 0)
        else:
            value = default
        assert (type(field.default), field.default) == (type(value), value), where


def test_the_apis_that_clients_and_groups_need_are_there() -> None:
    """The broker does not advertise an API that is missing here."""
    newest = {wire.API_NAMES[key]: wire.api(key).MAX_VERSION for key in wire.API_NAMES}
    needed = {
        "Produce": 13, "Fetch": 18, "ListOffsets": 11, "Metadata": 13, "OffsetCommit": 10,
        "OffsetFetch": 10, "FindCoordinator": 6, "JoinGroup": 9, "Heartbeat": 4, "LeaveGroup": 5,
        "SyncGroup": 5, "DescribeGroups": 6, "ListGroups": 5, "SaslHandshake": 1,
        "ApiVersions": 4, "CreateTopics": 7, "DeleteTopics": 6, "DeleteRecords": 2,
        "InitProducerId": 5, "OffsetForLeaderEpoch": 4, "DescribeConfigs": 4, "AlterConfigs": 2,
        "SaslAuthenticate": 2, "CreatePartitions": 3, "DeleteGroups": 2,
        "IncrementalAlterConfigs": 1, "OffsetDelete": 0, "DescribeCluster": 2,
        "ConsumerGroupHeartbeat": 1, "ConsumerGroupDescribe": 1, "DescribeTopicPartitions": 0,
        "AddPartitionsToTxn": 5, "AddOffsetsToTxn": 4, "EndTxn": 5, "TxnOffsetCommit": 5,
        "WriteTxnMarkers": 2,
    }  # fmt: skip
    assert newest | needed == newest
