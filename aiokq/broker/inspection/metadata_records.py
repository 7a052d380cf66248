"""Records of the metadata log as the JSON of ``kafka-dump-log --cluster-metadata-decoder``.

Source: Kafka ``DumpLogSegments.scala``, and the generated ``*JsonConverter`` classes.
Tests: ``tests/unit/broker/inspection/test_metadata_records.py``.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.image.record_codec import decode_metadata_record
from aiokq.core.errors import CorruptRecord, ProtocolError
from aiokq.records.quorum_control import decode_quorum_control
from aiokq.wire.primitives import DECODE_ERRORS, uvarint
from aiokq.wire.quorum_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from aiokq.wire.struct import Struct

if TYPE_CHECKING:
    from aiokq.core.types import Buffer
    from aiokq.records.record import RawRecord
    from aiokq.wire.struct import Message

__all__ = ["metadata_entry", "record_data", "record_text", "record_type"]

_CONTROLS: Final[Mapping[type[Message], str]] = {
    LeaderChangeMessage: "LeaderChange",
    SnapshotHeaderRecord: "SnapshotHeader",
    SnapshotFooterRecord: "SnapshotFooter",
    KRaftVersionRecord: "KRaftVersion",
    VotersRecord: "KRaftVoters",
}

_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")


def metadata_entry(record: RawRecord, *, is_control: bool) -> dict[str, Any]:
    """Return the decoded content of a record of a metadata log, as a part of its entry in a dump.

    For a record that cannot be decoded, the result has only the reason, under ``error``.
    """
    try:
        if is_control:
            control = decode_quorum_control(record.key, record.value)
            return {record_type(control): record_data(control, control.version)}
        message = decode_metadata_record(record.value)
        version = _version(record.value)
    except (CorruptRecord, ProtocolError) as error:
        return {"error": f"record at offset {record.offset}: {error.message}"}
    data = record_data(message, version)
    return {"payload": {"type": record_type(message), "version": version, "data": data}}


def _version(value: Buffer | None) -> int:
    """Return the version in the frame of a record."""
    assert value is not None
    position = 0
    try:
        for _ in ("frame version", "type"):
            _, position = uvarint(value, position)
        version, _ = uvarint(value, position)
    except DECODE_ERRORS as error:
        raise CorruptRecord(f"not a metadata record: {error}") from error
    return version


def record_type(record: Message) -> str:
    """Return Kafka's name of a record's type, such as ``TOPIC_RECORD`` or ``LeaderChange``."""
    name = _CONTROLS.get(type(record))
    return name or _WORD.sub("_", record.NAME).upper()


def record_data(record: Struct, version: int | None = None) -> dict[str, Any]:
    """Return the fields of a record by Kafka's names, as values of JSON.

    As in Kafka, a tagged field with its default is left out.

    Args:
        version: version of the record; fields that it does not have are left out. None returns the
            fields of all versions.
    """
    fields: dict[str, Any] = {}
    for field in record.__fields__:
        value = getattr(record, field.name)
        if version is not None and not field.in_version(version):
            continue
        if field.tag is not None and field.is_default(value):
            continue
        first, *others = field.name.split("_")
        name = first + "".join(part.capitalize() for part in others)
        fields[name] = _value(value, version)
    return fields


def _value(value: object, version: int | None) -> Any:
    match value:
        case Struct():
            return record_data(value, version)
        case list() | tuple():
            return [_value(one, version) for one in value]
        case uuid.UUID():
            return format_uuid(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case _:
            return value


def record_text(record: Message) -> str:
    """Return a record on one line: its type and its fields as JSON."""
    data = json.dumps(record_data(record), ensure_ascii=False, separators=(",", ":"))
    return f"{record_type(record)} {data}"
