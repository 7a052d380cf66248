"""Checks of batches before an append, in Kafka's order. Nothing here writes.

Kafka reads every record. As a deliberate deviation, aiokq trusts a header whose batch has a
matching CRC, and reads records only where a rule needs them: on compacted topics, for a timestamp
limit that the header alone cannot decide, and if the broker recompresses.

Source: Kafka ``ProduceRequest.java``, ``UnifiedLog.java``, ``LogValidator.java``.
Tests: ``tests/unit/broker/log/test_validation.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from aiokq.broker.log.config import LONG_MAX, LogConfig
from aiokq.broker.log.producer_state import Origin
from aiokq.core.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    UnsupportedCompressionType,
)
from aiokq.core.frozen import frozen
from aiokq.core.offload import FAST_CODEC_THRESHOLD, GZIP_THRESHOLD
from aiokq.core.types import Buffer
from aiokq.records import compression
from aiokq.records.header import (
    CODEC_MASK,
    CONTROL_MASK,
    HEADER_SIZE,
    LENGTH_OFFSET,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    Checksum,
    computed_crc,
    iter_headers,
    pack_header,
    read_header,
    set_log_append_time,
)
from aiokq.records.record import RawRecord, iter_records

ZSTD_SINCE: Final = 7
"""First version of Produce that may contain zstd."""

MAX_RECORD_ERRORS: Final = 1000
"""The maximum number of record errors in a response; a batch may have millions of records."""

WALK_THRESHOLD: Final = 16 * 1024
"""The size in bytes from which the records of an uncompressed batch are read in an executor.

The loop reads the records of a smaller batch in at most 1 ms.
"""

_LENGTH: Final = struct.Struct(">i")

MAX_CONTENT: Final = 256 * 1024 * 1024
"""The maximum decompressed size in bytes of a batch whose records the broker has to read."""


@frozen
class RecordError:
    """The error of one record in a refused batch.

    Attributes:
        index: index of the record in the batch, from 0.
    """

    index: int
    message: str


class InvalidRecords(InvalidRecord):
    """INVALID_RECORD (87), with the affected records."""

    def __init__(self, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(message)
        self.record_errors = tuple(record_errors)


class InvalidTimestamps(InvalidTimestamp):
    """INVALID_TIMESTAMP (32), with the affected records."""

    def __init__(self, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(message)
        self.record_errors = tuple(record_errors)


def produced_headers(data: Buffer, version: int) -> list[BatchHeader]:
    """Return a list with the header of a partition's only batch, for Produce version 3 or newer.

    Raises:
        InvalidRecord: there is no batch, several batches, or a batch whose magic is not 2.
        UnsupportedCompressionType: the batch uses zstd, and the version is older than 7.
        CorruptRecord: a header is malformed.
    """
    size = len(data)
    if size > HEADER_SIZE and _LENGTH.unpack_from(data, LENGTH_OFFSET)[0] + LOG_OVERHEAD == size:
        # The usual case is a hot path, measured by benchmarks/micro/produce.py.
        headers = [read_header(data)]
    else:
        headers = list(islice(iter_headers(data), 2))  # reads at most two headers
    if len(headers) != 1:
        raise InvalidRecord(
            f"Produce version {version} must have exactly one batch per partition, but this "
            f"request has {'several' if headers else 'none'}"
        )
    header = headers[0]
    if header.magic != 2:
        raise InvalidRecord(
            f"Produce version {version} must have batches of magic 2, not {header.magic}"
        )
    if version < ZSTD_SINCE and header.codec == compression.ZSTD:
        raise UnsupportedCompressionType(f"zstd needs Produce version {ZSTD_SINCE} or newer")
    return headers


def validate_batch(
    batch: Buffer,
    header: BatchHeader,
    config: LogConfig,
    *,
    origin: Origin,
    now_ms: int,
    crc32c: Checksum,
) -> None:
    """Check one batch against the topic's settings, except for its size and its sequences.

    If ``origin`` is not a client, only the CRC is checked.

    Args:
        batch: exactly the bytes of the batch.
        now_ms: the broker's time.

    Raises:
        CorruptRecord: the CRC is wrong.
        InvalidRecord: the header or a record is malformed or not allowed.
        InvalidTimestamp: a timestamp is outside the limits, or the batch has the timestamp type
            LogAppendTime, which only the broker may set.
        UnsupportedCompressionType: the codec is unknown.
        RecordTooLarge: the records that have to be read decompress to too many bytes.
    """
    client = origin is Origin.CLIENT
    if client and header.base_offset != 0:
        raise InvalidRecord(f"base offset of a produced batch must be 0, not {header.base_offset}")
    if computed_crc(batch, header, crc32c) != header.crc:
        raise CorruptRecord(
            f"the CRC of the batch does not match its header, which has {header.crc:#010x}"
        )
    if client:
        _validate_header(header)
        if not config.header_rules.suffice_for(header, now_ms):
            _validate_records(batch, header, config, now_ms)


def check_size(header: BatchHeader, max_bytes: int) -> None:
    """Check that a batch is not larger than ``max.message.bytes``.

    Raises:
        RecordTooLarge: the batch is larger.
    """
    if header.length > max_bytes - LOG_OVERHEAD:
        raise RecordTooLarge(
            f"batch of {header.size} bytes is larger than max.message.bytes {max_bytes}"
        )


def _validate_header(header: BatchHeader) -> None:
    # Hot path, measured by benchmarks/micro/produce.py. The header is unpacked in one statement,
    # because reading the attributes one by one takes longer.
    _, _, _, _, _, attributes, last_delta, _, _, producer_id, _, sequence, count = header
    if last_delta < 0:
        raise InvalidRecord(f"last offset delta {last_delta} is negative")
    if count <= 0:
        raise InvalidRecord(f"batch with a record count of {count}")
    if count != last_delta + 1:
        raise InvalidRecord(
            f"batch of {count} records with last offset delta {last_delta}, expected {count - 1}"
        )
    if attributes & CONTROL_MASK:
        raise InvalidRecord("clients may not write control records")
    if sequence < 0 and producer_id > NO_PRODUCER_ID:
        raise InvalidRecord(f"batch of producer {producer_id} with negative sequence {sequence}")
    if attributes & CODEC_MASK > compression.ZSTD:
        raise UnsupportedCompressionType(f"unknown compression codec {attributes & CODEC_MASK}")


def _validate_records(batch: Buffer, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Check the rules for single records; records are read only if the header is not enough."""
    if header.timestamp_type == LOG_APPEND_TIME:
        raise _every_record(header, "a producer may not set the timestamp type LogAppendTime")
    if config.compacted:
        keyless: list[RecordError] = []
        for index, record in enumerate(_records(batch, header)):
            if record.key is None:
                keyless.append(RecordError(index, "a record of a compacted topic must have a key"))
                if len(keyless) == MAX_RECORD_ERRORS:
                    break
        if keyless:
            raise InvalidRecords("one or more records of a compacted topic have no key", keyless)
    if not _times_need_records(header, config, now_ms):
        return
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    outside: list[RecordError] = []
    largest = NO_TIMESTAMP
    for index, record in enumerate(_records(batch, header)):
        timestamp = record.timestamp_ms
        largest = max(largest, timestamp)
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            outside.append(
                RecordError(index, f"timestamp {timestamp} is outside {earliest}..{latest}")
            )
            if len(outside) == MAX_RECORD_ERRORS:
                break
    if outside:
        raise InvalidTimestamps(f"one or more timestamps are outside {earliest}..{latest}", outside)
    if header.max_timestamp_ms > latest:
        # Kafka corrects such a header. aiokq refuses the batch, because its client is broken.
        raise InvalidRecord(
            f"largest timestamp in the batch header is {header.max_timestamp_ms}, but the "
            f"largest timestamp of the records is {largest}"
        )


def needs_executor(config: LogConfig, header: BatchHeader, now_ms: int) -> bool:
    """Whether an executor should check or convert the records of a producer's batch.

    Called if the header is not enough to accept the batch. If the records of a compressed batch are
    needed, the result is always True, because decompressed records may be a thousand times larger
    than the batch.
    """
    codec = _wanted_codec(config, header.codec)
    if codec != header.codec:
        threshold = GZIP_THRESHOLD if codec == compression.GZIP else FAST_CODEC_THRESHOLD
        return header.codec != compression.NONE or header.size >= threshold
    if config.compacted or _times_need_records(header, config, now_ms):
        return header.codec != compression.NONE or header.size >= WALK_THRESHOLD
    return False


def _times_need_records(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    """Whether the records have to be read in order to check the timestamp limits."""
    if config.log_append_time:
        return False
    latest = now_ms + config.message_timestamp_after_max_ms
    return header.max_timestamp_ms > latest or config.message_timestamp_before_max_ms != LONG_MAX


def _every_record(header: BatchHeader, message: str) -> InvalidTimestamps:
    count = min(header.count, MAX_RECORD_ERRORS)
    return InvalidTimestamps(message, [RecordError(index, message) for index in range(count)])


def _records(batch: Buffer, header: BatchHeader) -> Iterator[RawRecord]:
    """Yield the records; as in Kafka, raise InvalidRecord if they are malformed."""
    try:
        yield from iter_records(batch, header, limit=MAX_CONTENT)
    except CorruptRecord as error:
        raise InvalidRecord(f"malformed records: {error.message}") from error


def stored_form(
    batch: Buffer, header: BatchHeader, config: LogConfig, *, now_ms: int, crc32c: Checksum
) -> tuple[Buffer, BatchHeader]:
    """Return the batch as the topic stores it, and the header of the stored batch.

    LogAppendTime sets the timestamps; a different ``compression.type`` recompresses the batch.

    Raises:
        RecordTooLarge: the stored batch would be larger than ``max.message.bytes``, or the batch
            decompresses to too many bytes.
        InvalidRecord: the records to recompress are malformed.
    """
    codec = _wanted_codec(config, header.codec)
    if codec != header.codec:
        batch = _recompress(batch, header, codec, config, crc32c)
    elif not config.log_append_time:
        return batch, header
    stored = bytearray(batch)
    if config.log_append_time:
        set_log_append_time(stored, now_ms, crc32c)
    header = next(iter_headers(stored))
    check_size(header, config.max_message_bytes)
    return stored, header


def _wanted_codec(config: LogConfig, codec: int) -> int:
    if config.compression_type == "producer":
        return codec
    if config.compression_type == "uncompressed":
        return compression.NONE
    return compression.codec_id(config.compression_type)


def _recompress(
    batch: Buffer, header: BatchHeader, codec: int, config: LogConfig, crc32c: Checksum
) -> bytes:
    section: Buffer = memoryview(batch)[HEADER_SIZE : header.size]
    try:
        section = compression.decompress(header.codec, section, MAX_CONTENT)
    except CorruptRecord as error:
        raise InvalidRecord(f"malformed records: {error.message}") from error
    level = {
        compression.GZIP: config.compression_gzip_level,
        compression.LZ4: config.compression_lz4_level,
        compression.ZSTD: config.compression_zstd_level,
    }.get(codec)
    content = compression.compress(codec, section, level)
    header = header._replace(
        length=HEADER_SIZE - LOG_OVERHEAD + len(content),
        attributes=header.attributes & ~CODEC_MASK | codec,
    )
    data = pack_header(header) + content
    return pack_header(header._replace(crc=computed_crc(data, header, crc32c))) + content
