"""Control records: their types, and the markers that end transactions.

Source: KIP-98, Kafka ``ControlRecordType.java``, ``EndTransactionMarker.java``.
Tests: ``tests/unit/records/test_control.py``.
"""

from __future__ import annotations

import enum
import functools
import struct
from typing import Final

from aiokq.core.errors import CorruptRecord, RecordTooLarge, UnsupportedCompressionType
from aiokq.core.frozen import frozen
from aiokq.core.types import Buffer
from aiokq.records.header import (
    CONTROL_MASK,
    NO_LEADER_EPOCH,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Checksum,
    sealed_batch,
)
from aiokq.records.record import RawRecord, iter_records

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_RECORD: Final = struct.Struct(">bbbb bhh bhi b")
"""The record of a marker: size, attributes, timestamp delta, offset delta, key, value, headers.

Kafka encodes most of these numbers as zigzag varints. The numbers of a marker are so small that
each varint is one byte, whose value is twice the number.
"""
_SIZE: Final = 2 * (_RECORD.size - 1)


class ControlType(enum.IntEnum):
    """The types of control records, with Kafka's numbers."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@frozen
class EndTransactionMarker:
    """The marker that commits or aborts a producer's transaction in one partition."""

    type: ControlType
    coordinator_epoch: int


def read_control_type(key: Buffer | None) -> int:
    """Return the number of a control record's type, read from the record's key.

    ``ControlType`` may lack the number, because newer brokers may write new types.

    Raises:
        CorruptRecord: the key is missing, too short, or has a negative version.
    """
    if key is None:
        raise CorruptRecord("control record without a key")
    if len(key) < _KEY.size:
        raise CorruptRecord(f"control record key of {len(key)} bytes, too short for a type")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecord(f"control record key of version {version}")
    return int(kind)


def read_marker(data: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the marker of the control batch at the start of ``data``.

    The result is None if the first record has another type, or if the batch has no records.

    Raises:
        CorruptRecord: the batch is not a valid control batch; for example, its codec is unknown.
    """
    try:
        for record in iter_records(data, header):
            return marker_of(record)
    except (RecordTooLarge, UnsupportedCompressionType) as error:
        raise CorruptRecord(f"control batch that cannot be decompressed: {error}") from error
    return None


def marker_of(record: RawRecord) -> EndTransactionMarker | None:
    """Return the marker in a control record; None for a control record of another type.

    Raises:
        CorruptRecord: the record is not a valid control record.
    """
    kind = read_control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptRecord("transaction marker without a coordinator epoch")
    version, epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise CorruptRecord(f"transaction marker of version {version}")
    return EndTransactionMarker(ControlType(kind), epoch)


def encode_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    crc32c: Checksum,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Return a control batch whose only record is ``marker``."""
    batch, _ = marker_batch(
        marker, producer_id, producer_epoch, timestamp_ms, crc32c, base_offset, leader_epoch
    )
    return batch


@functools.lru_cache(maxsize=1)
def marker_batch(
    marker: EndTransactionMarker,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    crc32c: Checksum,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> tuple[bytes, BatchHeader]:
    """Return a control batch whose only record is ``marker``, and its header.

    The last result is cached, because a transaction writes the same marker to several partitions.
    """
    # Hot path, measured by benchmarks/micro/transactions.py. All markers have one layout.
    kind, epoch = marker.type, marker.coordinator_epoch
    content = _RECORD.pack(_SIZE, 0, 0, 0, 2 * _KEY.size, 0, kind, 2 * _VALUE.size, 0, epoch, 0)
    return sealed_batch(
        content,
        count=1,
        timestamp_ms=timestamp_ms,
        crc32c=crc32c,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
