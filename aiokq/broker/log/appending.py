"""The batches of one append: their checks, their stored form, and their offsets.

``OrdinaryAppend`` is the usual case: a single batch from a client, stored unchanged.
``OwnAppend`` is a batch that a coordinator writes to its own log.
``MarkerAppend`` is a marker that ends a transaction. ``PreparedAppend`` is every other append of a
leader; ``follower_append`` has the appends of followers.

This module writes nothing and changes no state.

Source: Kafka ``UnifiedLog.append``. Tests: ``tests/unit/broker/log/test_partition_log.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.broker.log.producer_state import BatchMetadata, Origin, ProducerState
from aiokq.broker.log.validation import stored_form, validate_batch
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.types import Buffer
from aiokq.records.control import EndTransactionMarker, marker_batch, read_marker
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
    """The result of an append.

    Attributes:
        base_offset: offset of the first record. The offsets of a duplicate are those of the batch
            that is in the log already.
        log_append_time_ms: the timestamp that the broker gave all records (LogAppendTime); -1 if it
            kept their timestamps.
        duplicate: whether the batch was in the log already; if so, nothing was written.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class PlacedAppend(NamedTuple):
    """Batches with their offsets, as they are written to the file.

    Attributes:
        buffers: the bytes, to be written one after the other.
        batches: last offset, size and largest timestamp of each batch.
        size: bytes in total.
        next_offset: the log end offset after the write.
        max_timestamp_ms: the largest timestamp of all batches; -1 if they have no timestamps.
        produced: for each batch that changes the producer state, its header with the offsets in the
            log, and its transaction marker (None for a data batch).
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
        now_ms: the broker's time at the append, in milliseconds since the Unix epoch.
        stamped: whether the broker's time replaced the timestamps of a client's records
            (LogAppendTime).
    """

    @property
    def size(self) -> int: ...
    @property
    def now_ms(self) -> int: ...
    @property
    def stamped(self) -> bool: ...

    def check(self, producers: ProducerState) -> BatchMetadata | None:
        """Return the earlier batch that this append repeats; None if the append is new.

        A repeated batch must not be written again.

        Raises:
            OutOfOrderSequence: a sequence does not follow the producer's last sequence, or a new
                epoch does not begin with sequence 0.
            InvalidProducerEpoch: a newer epoch of the producer has written to the partition, or a
                marker belongs to an earlier transaction than the open one.
            InvalidTxnState: the producer has an open transaction, and a batch is not transactional.
            TransactionCoordinatorFenced: a marker has an older coordinator epoch than an earlier
                marker of the producer.
        """

    def placed_at(self, offset: int, leader_epoch: int) -> PlacedAppend:
        """Return the batches with ``leader_epoch`` and with offsets that begin at ``offset``."""


class OrdinaryAppend:
    """One checked batch from a client, stored unchanged.

    Args:
        batch: the bytes of the batch.
        header: the header of the batch, as ``read_header`` returns it.

    Attributes:
        count: number of records.
        max_timestamp_ms: the largest timestamp of the records.
    """

    # Hot path, measured by benchmarks/raw_load.py.
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
        # Unpacked in one statement, because reading the attributes one by one takes longer.
        *_, last_delta, _, self.max_timestamp_ms, self._producer_id, _, _, self.count = header
        self._last_delta = last_delta

    @property
    def is_transactional(self) -> bool:
        return self._header.is_transactional

    def check(self, producers: ProducerState) -> BatchMetadata | None:
        """See ``Appendable``."""
        if self._producer_id <= NO_PRODUCER_ID:
            return None
        return producers.check((self._header,), Origin.CLIENT)

    def placed_at(self, offset: int, leader_epoch: int) -> PlacedAppend:
        """See ``Appendable``."""
        size, last_offset, timestamp = self.size, offset + self._last_delta, self.max_timestamp_ms
        produced: tuple[tuple[BatchHeader, None], ...] = ()
        if self._producer_id > NO_PRODUCER_ID:
            produced = ((self._header.placed_at(offset, leader_epoch), None),)
        prefix = _PREFIX.pack(offset, size - LOG_OVERHEAD, leader_epoch)
        # `tuple.__new__` saves the 0.1 us that the Python constructor of `PlacedAppend` takes.
        return tuple.__new__(
            PlacedAppend,
            (
                [prefix, self._batch[_BEHIND_PREFIX:]],
                [(last_offset, size, timestamp)],
                size,
                last_offset + 1,
                timestamp,
                produced,
            ),
        )


class OwnAppend(OrdinaryAppend):
    """One batch that a coordinator of this broker appends; its sequences are not checked."""

    __slots__ = ()

    def check(self, producers: ProducerState) -> BatchMetadata | None:
        """See ``Appendable``."""
        if self._producer_id <= NO_PRODUCER_ID:
            return None
        return producers.check((self._header,), Origin.COORDINATOR)


class MarkerAppend:
    """The marker that ends a producer's transaction, as a control batch.

    Args:
        transaction_version: the transaction version (KIP-890) with which the transaction ended.
    """

    __slots__ = ("_batch", "_header", "_marker", "_version", "now_ms", "size")

    stamped: Final = False

    def __init__(
        self,
        marker: EndTransactionMarker,
        *,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        now_ms: int,
        crc32c: Checksum,
    ) -> None:
        self._marker = marker
        self._version = transaction_version
        self._batch, self._header = marker_batch(
            marker, producer_id, producer_epoch, now_ms, crc32c
        )
        self.now_ms = now_ms
        self.size = len(self._batch)

    def check(self, producers: ProducerState) -> BatchMetadata | None:
        """See ``Appendable``."""
        producers.check_marker(self._header, self._marker, self._version)
        return None

    def placed_at(self, offset: int, leader_epoch: int) -> PlacedAppend:
        """See ``Appendable``."""
        header, size, timestamp = self._header, self.size, self.now_ms
        prefix = _PREFIX.pack(offset, header.length, leader_epoch)
        return PlacedAppend(
            [prefix, memoryview(self._batch)[_BEHIND_PREFIX:]],
            [(offset, size, timestamp)],
            size,
            offset + 1,
            timestamp,
            [(header.placed_at(offset, leader_epoch), self._marker)],
        )


class PreparedAppend(NamedTuple):
    """Batches in the form that the topic stores, not yet checked against the producer state.

    Attributes:
        batches: the bytes of each batch.
        headers: the header of each batch.
        origin: the origin of the batches; it determines the checks.
        size, now_ms, stamped: see ``Appendable``.
    """

    batches: list[Buffer]
    headers: list[BatchHeader]
    size: int
    origin: Origin
    now_ms: int
    stamped: bool

    def check(self, producers: ProducerState) -> BatchMetadata | None:
        """See ``Appendable``."""
        if self.origin is Origin.CLIENT:  # clients cannot append control batches
            return producers.check(self.headers, self.origin)
        for index, marker in self._markers().items():
            producers.check_marker(self.headers[index], marker)
        data_headers = (header for header in self.headers if not header.is_control)
        return producers.check(data_headers, self.origin)

    def _markers(self) -> dict[int, EndTransactionMarker]:
        """Return the marker of each batch that ends a transaction, by the index of the batch."""
        if self.origin is Origin.CLIENT:
            return {}
        found = {
            index: read_marker(batch, header)
            for index, (batch, header) in enumerate(zip(self.batches, self.headers, strict=True))
            if header.is_control
        }
        return {index: marker for index, marker in found.items() if marker is not None}

    def placed_at(self, offset: int, leader_epoch: int) -> PlacedAppend:
        """See ``Appendable``."""
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
    """Check the batches of an append and convert them to the form that the topic stores.

    This function does not use the log, so it may run in an executor.

    Args:
        data: the batches, one after the other; bytes after the last header's batch are ignored.
        headers: the headers of the batches in ``data``.
        now_ms: the broker's time.

    Raises:
        InvalidRecord, CorruptRecord, RecordTooLarge, InvalidTimestamp, UnsupportedCompressionType:
            see ``validation``.
    """
    # Hot path, measured by benchmarks/micro/produce.py.
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
        if client and not config.header_rules.suffice_for(header, now_ms):
            batch, header = stored_form(batch, header, config, now_ms=now_ms, crc32c=crc32c)
        batches.append(batch)
        stored_headers.append(header)
        size += header.length + LOG_OVERHEAD
    stamped = client and config.log_append_time
    return PreparedAppend(batches, stored_headers, size, origin, now_ms, stamped)
