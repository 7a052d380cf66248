"""Owns the batches of one append: prepared as they are stored, checked, then placed in the log.

Mostly that is one batch of a client, which is stored as it came: ``OrdinaryAppend``. All others
are a ``PreparedAppend``.

Writes nothing and changes nothing: what is wrong with an append is found here, before its first
byte is in the file.

Source: Kafka ``UnifiedLog.append``. Tests: ``tests/unit/broker/log/test_partition_log.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aiokq.broker.log.producer_state import BatchMetadata, Origin, ProducerState
from aiokq.broker.log.validation import HeaderRules, stored_form, validate_batch
from aiokq.core.types import Buffer
from aiokq.records.control import EndTransactionMarker, read_marker
from aiokq.records.header import (
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    Checksum,
)

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig

_PREFIX: Final = struct.Struct(">qii")  # base offset, length, leader epoch
_BEHIND_PREFIX: Final = 16


class AppendResult(NamedTuple):
    """What became of an append.

    Attributes:
        base_offset: of its first record; of the original's if it was a duplicate.
        log_append_time_ms: the time stamped on the records; -1 with CreateTime.
        duplicate: the same batch was appended before, nothing was written.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class PlacedAppend(NamedTuple):
    """What goes into the file, and what it says.

    Attributes:
        buffers: to be written one behind the other.
        batches: last offset, size and largest timestamp of each.
        size: their bytes.
        next_offset: the log's end once they are written.
        max_timestamp_ms: the largest of their timestamps; -1 without one.
        produced: the headers, with their offsets in the log, of those that change what is known of
            their producer; the marker, if one ends its transaction.
    """

    buffers: list[Buffer]
    batches: list[tuple[int, int, int]]
    size: int
    next_offset: int
    max_timestamp_ms: int
    produced: Sequence[tuple[BatchHeader, EndTransactionMarker | None]]


class Appendable(Protocol):
    """Batches that a log may append.

    Attributes:
        size: bytes of all batches.
        now_ms: the broker's time.
        stamped: it is the records' own: LogAppendTime.
    """

    @property
    def size(self) -> int: ...
    @property
    def now_ms(self) -> int: ...
    @property
    def stamped(self) -> bool: ...

    def check(self, producers: ProducerState) -> BatchMetadata | None:
        """The earlier batch that these repeat, if so: nothing is to be written then.

        Raises:
            OutOfOrderSequence, InvalidProducerEpoch, TransactionCoordinatorFenced: see
                ``producer_state``.
        """

    def placed_at(self, offset: int, leader_epoch: int) -> PlacedAppend:
        """The batches with their offsets, from ``offset`` on, and leader epoch patched in."""


class OrdinaryAppend:
    """One batch of a client, checked and stored as it came.

    Args:
        batch: its bytes.
        header: as ``read_header`` gives it.

    Attributes:
        count: of its records.
        max_timestamp_ms: the largest of their timestamps.
    """

    # hot: benchmarks/raw_load.py
    __slots__ = (
        "_batch",
        "_header",
        "_last_delta",
        "_producer_id",
        "count",
        "max_timestamp_ms",
        "now_ms",
        "size",
    )

    stamped: Final = False

    def __init__(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        self._batch = batch
        self._header = header
        self.now_ms = now_ms
        self.size = len(batch)
        # unpacked, as each attribute of a named tuple is a call
        *_, last_delta, _, self.max_timestamp_ms, self._producer_id, _, _, self.count = header
        self._last_delta = last_delta

    def check(self, producers: ProducerState) -> BatchMetadata | None:
        """As ``Appendable`` says."""
        if self._producer_id <= NO_PRODUCER_ID:
            return None
        return producers.check((self._header,), Origin.CLIENT)

    def placed_at(self, offset: int, leader_epoch: int) -> PlacedAppend:
        """As ``Appendable`` says."""
        size, last_offset, timestamp = self.size, offset + self._last_delta, self.max_timestamp_ms
        produced: tuple[tuple[BatchHeader, None], ...] = ()
        if self._producer_id > NO_PRODUCER_ID:
            produced = ((self._header.placed_at(offset, leader_epoch), None),)
        return PlacedAppend(
            [
                _PREFIX.pack(offset, size - LOG_OVERHEAD, leader_epoch),
                self._batch[_BEHIND_PREFIX:],
            ],
            [(last_offset, size, timestamp)],
            size,
            last_offset + 1,
            timestamp,
            produced,
        )


class PreparedAppend(NamedTuple):
    """Batches in the form that a topic stores, which their producers may still not append.

    Attributes:
        batches: the bytes of each.
        headers: of the batches.
        origin: who appends them.
        size, now_ms, stamped: as ``Appendable`` says.
    """

    batches: list[Buffer]
    headers: list[BatchHeader]
    size: int
    origin: Origin
    now_ms: int
    stamped: bool

    def check(self, producers: ProducerState) -> BatchMetadata | None:
        """As ``Appendable`` says."""
        if self.origin is Origin.CLIENT:  # whose batches are no control batches
            return producers.check(self.headers, self.origin)
        for index, marker in self._markers().items():
            producers.check_marker(self.headers[index], marker)
        data_headers = (header for header in self.headers if not header.is_control)
        return producers.check(data_headers, self.origin)

    def _markers(self) -> dict[int, EndTransactionMarker]:
        """The control batches that end a transaction, by number of the batch; never a client's."""
        if self.origin is Origin.CLIENT:
            return {}
        found = {
            index: read_marker(batch, header)
            for index, (batch, header) in enumerate(zip(self.batches, self.headers, strict=True))
            if header.is_control
        }
        return {index: marker for index, marker in found.items() if marker is not None}

    def placed_at(self, offset: int, leader_epoch: int) -> PlacedAppend:
        """As ``Appendable`` says."""
        buffers: list[Buffer] = []
        batches: list[tuple[int, int, int]] = []
        produced: list[tuple[BatchHeader, EndTransactionMarker | None]] = []
        markers = self._markers()
        max_timestamp = NO_TIMESTAMP
        for index, (batch, header) in enumerate(zip(self.batches, self.headers, strict=True)):
            buffers.append(_PREFIX.pack(offset, header.length, leader_epoch))
            buffers.append(memoryview(batch)[_BEHIND_PREFIX:])
            if header.producer_id > NO_PRODUCER_ID and (index in markers or not header.is_control):
                produced.append((header.placed_at(offset, leader_epoch), markers.get(index)))
            offset += header.last_offset_delta + 1
            batches.append((offset - 1, header.size, header.max_timestamp_ms))
            if header.max_timestamp_ms > max_timestamp:
                max_timestamp = header.max_timestamp_ms
        return PlacedAppend(buffers, batches, self.size, offset, max_timestamp, produced)


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
    """
    # hot: benchmarks/micro/produce.py
    view = memoryview(data)
    client = origin is Origin.CLIENT
    batches: list[Buffer] = []
    stored_headers: list[BatchHeader] = []
    position = size = 0
    for header in headers:
        end = position + header.length + LOG_OVERHEAD
        batch: Buffer = view[position:end]
        position = end
        validate_batch(batch, header, config, origin=origin, now_ms=now_ms, crc32c=crc32c)
        if client and not HeaderRules.of(config).suffice_for(header, now_ms):
            batch, header = stored_form(batch, header, config, now_ms=now_ms, crc32c=crc32c)
        batches.append(batch)
        stored_headers.append(header)
        size += header.length + LOG_OVERHEAD
    stamped = client and config.log_append_time
    return PreparedAppend(batches, stored_headers, size, origin, now_ms, stamped)
