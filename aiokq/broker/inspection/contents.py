"""The contents of a log's files, entry by entry, as values to print.

Nothing is written. For an unreadable part of a file, an entry with the reason is yielded. That
entry is the last entry of the file, except in a ``.log`` or a metadata snapshot, where reading
continues at the next valid batch.

Source: Kafka ``DumpLogSegments.scala``, for the choice of fields.
Tests: ``tests/unit/broker/inspection/test_inspection.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiokq.broker.log.batch_reading import batch_records
from aiokq.broker.log.corruption import batches_behind, only_zeros
from aiokq.broker.log.producer_snapshot import decode_snapshot
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.log.quorum_state import decode_quorum_state
from aiokq.core.errors import CorruptRecord, KafkaError, KafkaStorage
from aiokq.records import compression
from aiokq.records.control import marker_of, read_control_type
from aiokq.records.header import (
    DELETE_HORIZON_MASK,
    HEADER_SIZE,
    BatchHeader,
    Checksum,
    read_header,
    verify_crc,
)

if TYPE_CHECKING:
    from aiokq.broker.inspection.places import LogFile
    from aiokq.core.files import Files
    from aiokq.records.record import RawRecord

__all__ = ["Entry", "Value", "contents"]

Value: TypeAlias = "str | bytes | int | bool | list[str] | dict[str, Any] | None"
Entry: TypeAlias = "dict[str, Value]"

_INDEX: Final = struct.Struct(">iI")
_TIME: Final = struct.Struct(">qi")
_TRANSACTION: Final = struct.Struct(">hqqqq")


def contents(
    files: Files, file: LogFile, crc32c: Checksum, *, records: bool = False
) -> Iterator[Entry]:
    """Yield the entries of a file. For a file of kind ``leftover``, nothing is yielded.

    Args:
        records: also yield an entry for each record, after the entry of its batch.

    Raises:
        OSError: the file cannot be read.
    """
    if file.kind in ("log", "metadata-snapshot"):
        yield from _batches(files, file, crc32c, records)
    elif file.kind in _READERS:
        data = files.read_bytes(file.path)
        try:
            yield from _READERS[file.kind](data, file)
        except (CorruptRecord, KafkaStorage, ValueError, struct.error) as error:
            yield {"error": getattr(error, "message", None) or str(error)}
    elif file.kind == "snapshot":
        try:
            yield from _producers(files.read_bytes(file.path), crc32c)
        except CorruptRecord as error:
            yield {"error": error.message}


def _batches(files: Files, file: LogFile, crc32c: Checksum, records: bool) -> Iterator[Entry]:
    opened = files.open(file.path, writable=False)
    try:
        position, end, expected = 0, opened.size(), max(file.base_offset, 0)
        while position < end:
            try:
                header = read_header(opened.pread(HEADER_SIZE, position))
                if header.size > end - position:
                    raise CorruptRecord(f"batch of {header.size} bytes with {end - position} left")
                data = opened.pread(header.size, position)
            except CorruptRecord as error:
                if only_zeros(opened, position, end):
                    yield {"position": position, "zero_bytes": end - position}
                    return
                behind = batches_behind(opened, position, end, expected, crc32c)
                sound, _ = next(behind, (end, None))
                yield {"position": position, "bytes": sound - position, "error": error.message}
                position = sound
                continue
            valid = verify_crc(data, header, crc32c)
            yield _batch(position, header, valid)
            if records:
                yield from _records(data, header, file)
            position += header.size
    finally:
        opened.close()


def _batch(position: int, header: BatchHeader, valid: bool) -> Entry:
    codec = header.codec
    has_horizon = header.magic >= 2 and bool(header.attributes & DELETE_HORIZON_MASK)
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "partition_leader_epoch": header.leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.base_timestamp_ms if has_horizon else None,
        "position": position,
        "log_append_time" if header.timestamp_type else "create_time": header.max_timestamp_ms,
        "size": header.size,
        "magic": header.magic,
        "compress_codec": (
            compression.CODEC_NAMES[codec] if codec < len(compression.CODEC_NAMES) else str(codec)
        ),
        "crc": header.crc,
        "is_valid": valid,
    }


def _records(data: bytes, header: BatchHeader, file: LogFile) -> Iterator[Entry]:
    try:
        for record in batch_records(data, header):
            yield _record(record, header, file)
    except KafkaError as error:
        yield {"error": f"records of the batch at offset {header.base_offset}: {error.message}"}


def _record(record: RawRecord, header: BatchHeader, file: LogFile) -> Entry:
    entry: Entry = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key_size": -1 if record.key is None else len(record.key),
        "value_size": -1 if record.value is None else len(record.value),
        "header_keys": [key for key, _ in record.headers],
    }
    if file.has_metadata:
        from aiokq.broker.inspection.metadata_records import metadata_entry

        return entry | metadata_entry(record, is_control=header.is_control)
    if header.is_control:
        return entry | _marker(record)
    if file.has_transactions:
        from aiokq.broker.inspection.transaction_records import transaction_entry

        return entry | transaction_entry(record)
    return entry | {"key": record.key, "payload": record.value}


def _marker(record: RawRecord) -> Entry:
    """Return the content of a control record as a part of its entry.

    For a transaction marker, the content is the outcome and the coordinator epoch. For any other
    control record, the content is only the type.
    """
    try:
        marker = marker_of(record)
        if marker is None:
            return {"end_txn_marker": str(read_control_type(record.key))}
    except CorruptRecord as error:
        return {"error": f"record at offset {record.offset}: {error.message}"}
    return {"end_txn_marker": marker.type.name, "coordinator_epoch": marker.coordinator_epoch}


def _index(data: bytes, file: LogFile) -> Iterator[Entry]:
    for at in range(0, len(data) - _INDEX.size + 1, _INDEX.size):
        offset, position = _INDEX.unpack_from(data, at)
        if at and not offset and not position:
            yield {"zero_bytes": len(data) - at}  # a running Kafka preallocates index files
            return
        yield {"offset": offset + file.base_offset, "position": position}
    yield from _rest(data, _INDEX.size)


def _time_index(data: bytes, file: LogFile) -> Iterator[Entry]:
    for at in range(0, len(data) - _TIME.size + 1, _TIME.size):
        timestamp, offset = _TIME.unpack_from(data, at)
        if at and not timestamp and not offset:
            yield {"zero_bytes": len(data) - at}
            return
        yield {"timestamp": timestamp, "offset": offset + file.base_offset}
    yield from _rest(data, _TIME.size)


def _transactions(data: bytes, file: LogFile) -> Iterator[Entry]:
    for at in range(0, len(data) - _TRANSACTION.size + 1, _TRANSACTION.size):
        version, producer_id, first, last, stable = _TRANSACTION.unpack_from(data, at)
        yield {
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }
    yield from _rest(data, _TRANSACTION.size)


def _rest(data: bytes, entry: int) -> Iterator[Entry]:
    if len(data) % entry:
        yield {
            "error": f"{len(data) % entry} bytes after the last whole entry ({entry} bytes each)"
        }


def _producers(data: bytes, crc32c: Checksum) -> Iterator[Entry]:
    for producer in decode_snapshot(data, crc32c, 0):
        last = producer.batches[-1] if producer.batches else None
        yield {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "current_txn_first_offset": producer.transaction_first_offset,
            "last_timestamp": producer.last_timestamp_ms,
            "last_sequence": None if last is None else last.last_sequence,
            "last_offset": None if last is None else last.last_offset,
            "batches": len(producer.batches),
        }


def _epochs(data: bytes, file: LogFile) -> Iterator[Entry]:
    for epoch, start in _rows(data, 2):
        yield {"epoch": int(epoch), "start_offset": int(start)}


def _checkpoint(data: bytes, file: LogFile) -> Iterator[Entry]:
    for topic, partition, offset in _rows(data, 3):
        yield {"topic": topic, "partition": int(partition), "offset": int(offset)}


def _rows(data: bytes, columns: int) -> list[list[str]]:
    """Return the rows of a checkpoint file. Raises ValueError if the file is malformed."""
    if not data:
        return []  # Kafka creates the file empty
    lines = data.decode("utf-8", "replace").split("\n")
    if lines[0] != "0":
        raise ValueError(f"version {lines[0]!r}, expected 0")
    if len(lines) < 2 or not lines[1].isdigit():
        raise ValueError("the second line is not a count of entries")
    rows = [line.split() for line in lines[2 : 2 + int(lines[1])] if line]
    if len(rows) != int(lines[1]):
        raise ValueError(f"{len(rows)} entries, but the count is {lines[1]}")
    for row in rows:
        if len(row) != columns:
            raise ValueError(f"entry {' '.join(row)!r} has {len(row)} columns, not {columns}")
    return rows


def _properties(data: bytes, file: LogFile) -> Iterator[Entry]:
    for line in data.decode("utf-8", "replace").splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=" if file.kind == "meta.properties" else ":")
            yield {"name": name.strip(), "value": value.strip()}


def _quorum_state(data: bytes, file: LogFile) -> Iterator[Entry]:
    state = decode_quorum_state(data)
    yield {
        "leader_id": state.leader_id,
        "leader_epoch": state.epoch,
        "voted_id": state.voted_id,
        "voted_directory_id": (
            None if state.voted_directory_id is None else format_uuid(state.voted_directory_id)
        ),
        "current_voters": [str(voter) for voter in state.voters],
        "data_version": state.data_version,
    }


def _metadata(data: bytes, file: LogFile) -> Iterator[Entry]:
    """Yield the content of the metadata file of an earlier version of aiokq."""
    from aiokq.broker.metadata.earlier.private_file import read_private_file

    metadata, sound = read_private_file(data, file.path)
    if metadata is None:
        yield {"migrated": "the metadata is in __cluster_metadata-0"}
        return
    yield {
        "topics": len(metadata.topics),
        "next_producer_id": metadata.next_producer_id,
        "appends": metadata.appends,
    }
    for topic in metadata.topics.values():
        yield {
            "topic": topic.name,
            "topic_id": format_uuid(topic.topic_id),
            "partitions": topic.partitions,
            "configs": [f"{name}={value}" for name, value in sorted(topic.configs.items())],
        }
    if sound < len(data):
        yield {"position": sound, "bytes": len(data) - sound, "error": "incomplete line"}


_READERS: Final[dict[str, Callable[[bytes, LogFile], Iterator[Entry]]]] = {
    "index": _index,
    "timeindex": _time_index,
    "txnindex": _transactions,
    "epochs": _epochs,
    "checkpoint": _checkpoint,
    "partition.metadata": _properties,
    "meta.properties": _properties,
    "metadata": _metadata,
    "quorum-state": _quorum_state,
}
