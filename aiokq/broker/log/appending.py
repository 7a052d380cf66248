"""Owns the batches of one append: prepared as they are stored, checked, then placed in the log.

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
        size: their bytes.
        next_offset: the log's end once they are written.
        max_timestamp_ms: the largest of their timestamps; -1 without one.
    """

    buffers: list[Buffer]
    headers: list[BatchHeader]
    size: int
    next_offset: int
    max_timestamp_ms: int


class PreparedAppend(NamedTuple):
    """Batches in the form that a topic stores, which their producers may still not append.

    Attributes:
        batches: each with its header.
        size: bytes of all batches.
        config: the topic's settings that they obey.
        origin: who appends them.
        now_ms: the broker's time, which LogAppendTime has stamped on them.
    """

    batches: list[tuple[Buffer, BatchHeader]]
    size: int
    config: LogConfig
    origin: Origin
    now_ms: int

    @property
    def stamped(self) -> bool:
        """Whether the records have the time of the append."""
        return self.config.log_append_time and self.origin is Origin.CLIENT

    def check(self, producers: ProducerState) -> BatchMetadata | None:
        """The earlier batch that these repeat, if so: nothing is to be written then.

        Raises:
            OutOfOrderSequence, InvalidProducerEpoch, TransactionCoordinatorFenced: see
                ``producer_state``.
        """
        if self.origin is Origin.CLIENT:  # whose batches are no control batches
            return producers.check([header for _, header in self.batches], self.origin)
        for index, marker in self.markers().items():
            producers.check_marker(self.batches[index][1], marker)
        data_headers = (header for _, header in self.batches if not header.is_control)
        return producers.check(data_headers, self.origin)

    def markers(self) -> dict[int, EndTransactionMarker]:
        """The control batches that end a transaction, by number of the batch; never a client's."""
        if self.origin is Origin.CLIENT:
            return {}
        found = {
            index: read_marker(batch, header)
            for index, (batch, header) in enumerate(self.batches)
            if header.is_control
        }
        return {index: marker for index, marker in found.items() if marker is not None}

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
        return PlacedAppend(buffers, headers, self.size, offset, max_timestamp)


def prepare_append(
    data: Buffer,
    headers: Sequence[BatchHeader],
    config: LogConfig,
    *,
    now_ms: int,
    origin: Origin,
    crc32c: Checksum,
) -> PreparedAppend:
    """The batches of an append as the topic wants them stored, if they may be.

    Knows nothing of the log, so it may run in an executor: on a compacted topic, or where the
    codec changes, it goes through all records.

    Args:
        data: the batches, one after the other; bytes behind the last header's are ignored.
        headers: of the batches in ``data``.
        now_ms: the broker's time.

    Raises:
        InvalidRecord, CorruptRecord, RecordTooLarge, InvalidTimestamp: see ``validation``.
        RecordBatchTooLarge: more than a segment may hold.
    """
    view = memoryview(data)
    batches: list[tuple[Buffer, BatchHeader]] = []
    position = size = 0
    for header in headers:
        batch: Buffer = view[position : position + header.size]
        position += header.size
        validate_batch(batch, header, config, origin=origin, now_ms=now_ms, crc32c=crc32c)
        if origin is Origin.CLIENT:
            batch, header = stored_form(batch, header, config, now_ms=now_ms, crc32c=crc32c)
        batches.append((batch, header))
        size += header.size
    if size > config.segment_bytes:
        raise RecordBatchTooLarge(
            f"append of {size} bytes is larger than segment.bytes {config.segment_bytes}"
        )
    return PreparedAppend(batches, size, config, origin, now_ms)
