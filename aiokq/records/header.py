"""The header of a record batch: its layout, fields and checksum.

Tests: ``tests/unit/records/test_header.py``, golden bytes of Java in ``test_golden.py``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from aiokq.core.errors import CorruptRecord
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import Buffer

Checksum = Callable[[Buffer], int]
"""A function that computes the CRC-32C of bytes, such as ``aiokq.fastpath.crc32c``."""

LOG_OVERHEAD: Final = 12
"""Size in bytes of the base offset and the length field; the length counts the bytes after them."""

LENGTH_OFFSET: Final = 8
"""Position of the length field in a batch of any magic, in bytes."""

HEADER_SIZE: Final = 61
"""Size of a v2 batch header in bytes; the records follow it."""

ATTRIBUTES_OFFSET: Final = 21
"""Position of the attributes in a v2 batch, in bytes; the CRC-32C covers the data from here on."""

MAX_TIMESTAMP_OFFSET: Final = 35

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
EPOCH_BUMP_VERSION: Final = 2
"""The `transaction.version` from which the end of a transaction bumps the producer epoch.

The batches of a transaction have the old epoch; its markers have the new epoch (KIP-890).
"""
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1
SEQUENCE_MASK: Final = 2**31 - 1
UNKNOWN_COUNT: Final = -1
"""The `count` of a compressed v0/v1 wrapper, whose header lacks the number of records."""


_HEADER: Final = struct.Struct(">qiibIhiqqqhii")  # the 13 fields of BatchHeader, in order
_THROUGH_CRC: Final = struct.Struct(">qiibI")
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_LEGACY_V0: Final = struct.Struct(">qiIbb")
_LEGACY_V1: Final = struct.Struct(">qiIbbq")
_BASE_OFFSET: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_LEADER_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")

_new_tuple: Final = tuple.__new__
"""Creates a BatchHeader as ``_make`` does, but does not check the number of fields."""

_MAGIC_OFFSET: Final = 16
_CRC_OFFSET: Final = 17
_LEADER_EPOCH_OFFSET: Final = 12

MIN_LENGTH: Final = {0: 14, 1: 22, 2: HEADER_SIZE - LOG_OVERHEAD}
"""For each magic, the smallest valid value of the length field."""


class BatchHeader(NamedTuple):
    """The header of one batch; the fields are in the order of its bytes.

    For a v0/v1 entry (``magic`` 0 or 1) ``base_offset`` is the entry's own offset. A compressed
    wrapper has the offset of its *last* record, and its ``count`` is UNKNOWN_COUNT.

    Source: Kafka ``DefaultRecordBatch.java``, ``LegacyRecord.java``.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's name; hides tuple.count, which is not used

    @property
    def size(self) -> int:
        """The size of the complete batch, header included, in bytes."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record; compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The compression codec id; 0 to 4 are known."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """The timestamp type: 0 for CreateTime, 1 for LogAppendTime."""
        return (self.attributes & TIMESTAMP_TYPE_MASK) >> 3

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch contains control records, such as a transaction marker."""
        return self.attributes & CONTROL_MASK != 0

    @property
    def has_producer_id(self) -> bool:
        """Whether the batch has the id of an idempotent or transactional producer."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, which wraps to 0 after 2**31 - 1; -1 for no sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MASK

    def placed_at(self, offset: int, leader_epoch: int) -> BatchHeader:
        """Return the header with this base offset and leader epoch; the CRC covers neither."""
        # Hot path, measured by benchmarks/micro/produce.py. `_replace` takes four times as long.
        return _new_tuple(BatchHeader, (offset, self.length, leader_epoch, *self[3:]))


def add_sequence(sequence: int, increment: int) -> int:
    """Return ``sequence + increment``, which wraps to 0 after 2**31 - 1, as in Kafka."""
    return (sequence + increment) & SEQUENCE_MASK


def read_header(data: Buffer, offset: int = 0) -> BatchHeader:
    """Return the header of the batch that begins at byte ``offset`` of ``data``.

    Only the header has to be complete.

    Raises:
        CorruptRecord: the header is incomplete, its magic is unknown, or its length is invalid.
    """
    try:
        magic = data[offset + _MAGIC_OFFSET]
        if magic == 2:
            fields = _HEADER.unpack_from(data, offset)
            if fields[1] < MIN_LENGTH[2]:
                raise CorruptRecord(f"batch length {fields[1]} is below its header")
            return _new_tuple(BatchHeader, fields)
        if magic == 1:
            base, length, crc, _, attributes, timestamp = _LEGACY_V1.unpack_from(data, offset)
        elif magic == 0:
            base, length, crc, _, attributes = _LEGACY_V0.unpack_from(data, offset)
            timestamp = NO_TIMESTAMP
        else:
            raise CorruptRecord(f"unknown magic {magic}")
    except (struct.error, IndexError):
        raise CorruptRecord(f"{len(data) - offset} bytes do not hold a batch header") from None
    if length < MIN_LENGTH[magic]:
        raise CorruptRecord(f"entry length {length} is below its header")
    return BatchHeader(
        base_offset=base,
        length=length,
        leader_epoch=NO_LEADER_EPOCH,
        magic=magic,
        crc=crc,
        attributes=attributes & 0xFF,
        last_offset_delta=0,
        base_timestamp_ms=timestamp,
        max_timestamp_ms=timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        count=UNKNOWN_COUNT if attributes & CODEC_MASK else 1,
    )


def iter_headers(data: Buffer) -> Iterator[BatchHeader]:
    """Yield the headers of the complete batches in ``data``.

    An incomplete batch at the end, as in some fetch responses, is ignored. The sum of the headers'
    ``size`` is the length of the complete batches in bytes.

    Raises:
        CorruptRecord: the bytes where a batch should begin are not a header.
    """
    position, end = 0, len(data)
    while end - position > _MAGIC_OFFSET:
        size = _LENGTH.unpack_from(data, position + 8)[0] + LOG_OVERHEAD
        if position + size > end and size > LOG_OVERHEAD:
            return
        header = read_header(data, position)
        yield header
        position += size


def computed_crc(data: Buffer, header: BatchHeader, crc32c: Checksum) -> int:
    """Compute the checksum of the batch at the start of ``data``.

    For v2 it is the CRC-32C of the bytes from the attributes to the end of the batch. For v0 and v1
    it is zlib's CRC-32 of the bytes from the magic to the end.
    """
    view = memoryview(data)
    if header.magic >= 2:
        return crc32c(view[ATTRIBUTES_OFFSET : header.length + LOG_OVERHEAD])
    return zlib.crc32(view[_MAGIC_OFFSET : header.size])


def verify_crc(data: Buffer, header: BatchHeader, crc32c: Checksum) -> bool:
    """Return whether the batch at the start of ``data`` is complete and matches its checksum."""
    return len(data) >= header.size and computed_crc(data, header, crc32c) == header.crc


def set_base_offset(data: bytearray | memoryview, offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into a v2 batch; its CRC covers neither."""
    _BASE_OFFSET.pack_into(data, 0, offset)
    _LEADER_EPOCH.pack_into(data, _LEADER_EPOCH_OFFSET, leader_epoch)


def set_log_append_time(data: bytearray | memoryview, timestamp_ms: int, crc32c: Checksum) -> None:
    """Set a v2 batch to LogAppendTime: attribute bit 3, max timestamp, and the new CRC."""
    struct.pack_into(">q", data, MAX_TIMESTAMP_OFFSET, timestamp_ms)
    data[ATTRIBUTES_OFFSET + 1] |= TIMESTAMP_TYPE_MASK
    size = _LENGTH.unpack_from(data, 8)[0] + LOG_OVERHEAD
    _CRC.pack_into(data, _CRC_OFFSET, crc32c(memoryview(data)[ATTRIBUTES_OFFSET:size]))


def sealed_batch(
    content: bytes,
    *,
    count: int,
    timestamp_ms: int,
    crc32c: Checksum,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> tuple[bytes, BatchHeader]:
    """Return an uncompressed v2 batch without sequence numbers, and its header.

    Args:
        content: the encoded records.
        count: the number of records; their offsets are consecutive.
        timestamp_ms: the timestamp of all records.
    """
    # Hot path, measured by benchmarks/micro/transactions.py.
    after_crc = (
        attributes,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        count,
    )
    sealed = _AFTER_CRC.pack(*after_crc) + content
    length = HEADER_SIZE - LOG_OVERHEAD + len(content)
    through_crc = (base_offset, length, leader_epoch, 2, crc32c(sealed))
    header: BatchHeader = _new_tuple(BatchHeader, through_crc + after_crc)
    return _THROUGH_CRC.pack(*through_crc) + sealed, header


def pack_header(header: BatchHeader) -> bytes:
    """Return the 61 bytes of a v2 header, with its ``crc`` unchanged."""
    return _HEADER.pack(*header)
