"""Control records of a KRaft quorum: leader changes, voters, snapshot headers and footers.

Source: KIP-595, KIP-630, KIP-853, Kafka ``ControlRecordUtils.java``, ``MemoryRecordsBuilder.java``.
Tests: ``tests/unit/records/test_quorum_control.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from aiokq.core.errors import CorruptRecord, ProtocolError
from aiokq.core.types import Buffer
from aiokq.records.control import ControlType, read_control_type
from aiokq.records.header import CONTROL_MASK, BatchHeader, Checksum
from aiokq.records.record import RawRecord, encode_batch, iter_records
from aiokq.wire.codec import decode, encode_bytes
from aiokq.wire.quorum_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

__all__ = [
    "QuorumControlRecord",
    "decode_quorum_control",
    "encode_quorum_control",
    "encode_quorum_control_batch",
    "read_quorum_controls",
]

QuorumControlRecord: TypeAlias = (
    LeaderChangeMessage
    | SnapshotHeaderRecord
    | SnapshotFooterRecord
    | KRaftVersionRecord
    | VotersRecord
)
"""The value of a control record; its field ``version`` is the version in which it is encoded."""

_CLASSES: Final[Mapping[int, type[QuorumControlRecord]]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_TYPES: Final[Mapping[type[QuorumControlRecord], int]] = {
    cls: int(kind) for kind, cls in _CLASSES.items()
}

_KEY: Final = struct.Struct(">hh")
_VERSION: Final = struct.Struct(">h")


def encode_quorum_control(record: QuorumControlRecord) -> tuple[bytes, bytes]:
    """Return key and value of a control record.

    Raises:
        FieldNotSupported: the record's version lacks a field that is set, such as the directory of
            a voter in version 0 of a leader change.
        ProtocolError: the record has an unknown version, or a value does not fit its field.
    """
    return _KEY.pack(0, _TYPES[type(record)]), encode_bytes(record, record.version)


def decode_quorum_control(key: Buffer | None, value: Buffer | None) -> QuorumControlRecord:
    """Return the control record with this key and value.

    Raises:
        CorruptRecord: the record is malformed, its version is unknown, or its type is not in
            ``QuorumControlRecord``.
    """
    kind = read_control_type(key)
    cls = _CLASSES.get(kind)
    if cls is None:
        raise CorruptRecord(f"control record of type {kind}, which a quorum does not have")
    if value is None or len(value) < _VERSION.size:
        raise CorruptRecord(f"{cls.NAME} without a version")
    version = int(_VERSION.unpack_from(value)[0])
    if not cls.supports(version):
        raise CorruptRecord(f"{cls.NAME} of version {version}, which is unknown")
    try:
        return decode(cls, value, version)
    except ProtocolError as error:
        raise CorruptRecord(f"malformed {cls.NAME}: {error.message}") from error


def encode_quorum_control_batch(
    records: Iterable[QuorumControlRecord],
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    crc32c: Checksum,
) -> bytes:
    """Return the control batch with these records; the first record has offset ``base_offset``.

    Raises:
        ValueError: there are no records.
        FieldNotSupported, ProtocolError: a record cannot be encoded, see ``encode_quorum_control``.
    """
    return encode_batch(
        (
            RawRecord(offset, timestamp_ms, *encode_quorum_control(record))
            for offset, record in enumerate(records, base_offset)
        ),
        crc32c=crc32c,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=CONTROL_MASK,
    )


def read_quorum_controls(data: Buffer, header: BatchHeader) -> list[QuorumControlRecord]:
    """Return the records of the control batch at the start of ``data``.

    Raises:
        CorruptRecord: the batch is malformed, or has a record of another type.
        RecordTooLarge, UnsupportedCompressionType: the batch cannot be decompressed, see
            ``iter_records``.
    """
    return [
        decode_quorum_control(record.key, record.value) for record in iter_records(data, header)
    ]
