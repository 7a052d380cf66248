"""Owns the batches of one append: checked, in the form they are stored in, then placed in the log.

Writes nothing and changes nothing: what is wrong with an append is found here, before its first
byte is in the file.

Source: Kafka ``UnifiedLog.append``. Tests: ``tests/unit/broker/log/test_partition_log.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.broker.log.producer_state import BatchMetadata, Origin, ProducerState
from aiokq.broker.log.validation import stored_form, validate_batch
from aiokq.core.errors import RecordBatchTooLarge
from aiokq.core.types import Buffer
from aiokq.records.control import EndTransactionMarker, read_marker
from aiokq.records.header import NO_TIMESTAMP, BatchHeader, Checksum

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig

_PREFIX: Final = struct.Struct(">qii")  # base offset, length, leader epoch
_BEHIND_PREFIX: Final = 16


class PlacedAppend(NamedTuple):
    """What goes into the file, and what it says.

    Attributes:
        buffers: to be written one behind the other.
        headers: of the batches, with their offsets in the log.
        next_offset: the log's end once they are written.
        max_timestamp_ms: the largest of their timestamps; -1 without one.
    """

    buffers: list[Buffer]
    headers: list[BatchHeader]
    next_offset: int
    max_timestamp_ms: int


class CheckedAppend(NamedTuple):
    """Batches that may be appended.

    Attributes:
        batches: in the form they are stored in, with their headers.
        markers: of the control batches that end a transaction, by number of the batch.
        size: bytes of all batches.
        duplicate: the earlier batch that the append repeats: nothing is to be written then.
    """

    batches: list[tuple[Buffer, BatchHeader]]
    markers: dict[int, EndTransactionMarker]
    size: int
    duplicate: BatchMetadata | None

    def placed_at(self, offset: int, leader_epoch: int) -> PlacedAppend:
        """The batches with their offsets, from ``offset`` on, and leader epoch patched in."""
        buffers: list[Buffer] = []
        headers: list[BatchHeader] = []
        max_timestamp = NO_TIMESTAMP
        for batch, header in self.batches:
            header = BatchHeader._make((offset, header.length, leader_epoch, *header[3:]))
            buffers.append(_PREFIX.pack(offset, header.length, leader_epoch))
            buffers.append(memoryview(batch)[_BEHIND_PREFIX:])
            headers.append(header)
            offset = header.next_offset
            max_timestamp = max(max_timestamp, header.max_timestamp_ms)
        return PlacedAppend(buffers, headers, offset, max_timestamp)


def check_append(
    data: memoryview,
    headers: Sequence[BatchHeader],
    config: LogConfig,
    producers: ProducerState,
    *,
    now_ms: int,
    origin: Origin,
    crc32c: Checksum,
) -> CheckedAppend:
    """The batches of an append, if they may be appended.

    Args:
        data: the batches, one after the other; bytes behind the last header's are ignored.
        headers: of the batches in ``data``.
        now_ms: the broker's time.

    Raises:
        InvalidRecord, CorruptRecord, RecordTooLarge, InvalidTimestamp: see ``validation``.
        RecordBatchTooLarge: more than a segment may hold.
        OutOfOrderSequence, InvalidProducerEpoch: see ``producer_state``.
    """
    view = memoryview(data)
    batches: list[tuple[Buffer, BatchHeader]] = []
    markers: dict[int, EndTransactionMarker] = {}
    position = size = 0
    for header in headers:
        batch: Buffer = view[position : position + header.size]
        position += header.size
        validate_batch(batch, header, config, origin=origin, now_ms=now_ms, crc32c=crc32c)
        if origin is Origin.CLIENT:
            batch, header = stored_form(batch, header, config, now_ms=now_ms, crc32c=crc32c)
        elif header.is_control:
            marker = read_marker(batch, header)
            if marker is not None:
                producers.check_marker(header, marker)
                markers[len(batches)] = marker
        batches.append((batch, header))
        size += header.size
    if size > config.segment_bytes:
        raise RecordBatchTooLarge(
            f"append of {size} bytes is larger than segment.bytes {config.segment_bytes}"
        )
    data_headers = (header for _, header in batches if not header.is_control)
    return CheckedAppend(batches, markers, size, producers.check(data_headers, origin))
