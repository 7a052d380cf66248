"""The records in the part of a log that a repair cuts off, including those of damaged batches.

Most records of a batch with a wrong checksum can still be decoded, because each record has its own
length. The decoded records may differ from those that were written, so they are marked.

Tests: ``tests/unit/broker/metadata/stopped_broker/test_cut_records.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aiokq.broker.log.corruption import batches_behind
from aiokq.broker.metadata.image.record_codec import UnknownMetadataRecord, decode_metadata_record
from aiokq.broker.metadata.log.snapshot_file import MAX_BATCH_BYTES
from aiokq.core.errors import CorruptRecord, RecordTooLarge, UnsupportedCompressionType
from aiokq.core.frozen import frozen
from aiokq.records.header import (
    CONTROL_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Checksum,
    read_header,
)
from aiokq.records.quorum_control import decode_quorum_control
from aiokq.records.record import iter_records

if TYPE_CHECKING:
    from aiokq.core.files import File
    from aiokq.records.record import RawRecord
    from aiokq.wire.struct import Message

__all__ = ["LostRecord", "cut_records"]

READ_BYTES: Final = 2 * MAX_BATCH_BYTES
"""Number of bytes that are read for a batch whose length may be damaged."""


@frozen
class LostRecord:
    """A record in the part that is cut off, or a range of records that cannot be read.

    Attributes:
        offset: offset of the record, or of the first record of the range.
        last_offset: the last offset of the range; None if it is unknown.
        record: the decoded record; None if it cannot be decoded, and for a range.
        is_sound: whether the checksum of the batch is right. If not, the decoded record may differ
            from the record that was written.
    """

    offset: int
    last_offset: int | None
    record: Message | None
    is_sound: bool = True


def cut_records(file: File, position: int, expected: int, crc32c: Checksum) -> Iterator[LostRecord]:
    """Yield the records of a segment from a position on.

    Args:
        expected: the offset of the first record at ``position``.

    Raises:
        OSError: the disk failed.
    """
    end = file.size()
    for at, header in batches_behind(file, position, end, expected, crc32c):
        yield from _damaged(file, position, at, expected, header.base_offset - 1)
        yield from _records(file.pread(header.size, at), header, header.base_offset, is_sound=True)
        position, expected = at + header.size, header.next_offset
    yield from _damaged(file, position, end, expected, None)


def _damaged(
    file: File, position: int, end: int, expected: int, last: int | None
) -> Iterator[LostRecord]:
    """Yield the decodable records between two positions, then one range for the other records.

    Args:
        expected: the offset of the first record.
        last: the offset of the last record; None if it is unknown.
    """
    while position + HEADER_SIZE < end and (last is None or expected <= last):
        data = file.pread(min(end - position, READ_BYTES), position)
        try:
            header = read_header(data)
        except CorruptRecord:
            break
        # The length and the codec may be damaged, too; a metadata log has no compressed batches.
        rest = header._replace(
            length=len(data) - LOG_OVERHEAD, attributes=header.attributes & CONTROL_MASK
        )
        begin = expected
        for one in _records(data, rest, expected, is_sound=False):
            if last is not None and one.offset > last:
                break
            yield one
            expected += 1
        if expected - begin != header.count or header.size > end - position:
            if last is None and header.count == header.last_offset_delta + 1:
                known = begin + header.last_offset_delta
                last = known if known >= expected else None
            break
        position += header.size
    if (last is None and position < end) or (last is not None and expected <= last):
        yield LostRecord(expected, last, None, is_sound=False)


def _records(
    data: bytes, header: BatchHeader, offset: int, *, is_sound: bool
) -> Iterator[LostRecord]:
    """Yield the records of a batch before the first malformed one."""
    records = iter_records(data, header)
    while True:
        try:
            record = next(records, None)
        except (CorruptRecord, RecordTooLarge, UnsupportedCompressionType):
            return
        if record is None:
            return
        yield LostRecord(offset, offset, _decoded(record, header), is_sound)
        offset += 1


def _decoded(record: RawRecord, header: BatchHeader) -> Message | None:
    try:
        if header.is_control:
            return decode_quorum_control(record.key, record.value)
        return None if record.value is None else decode_metadata_record(record.value)
    except (CorruptRecord, UnknownMetadataRecord):
        return None
