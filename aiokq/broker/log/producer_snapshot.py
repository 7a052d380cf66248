"""Owns the ``.snapshot`` file: the producer state at one offset, in Kafka's format.

int16 version 1, CRC-32C of what follows, then an array of entries. Kafka keeps one batch per
producer; here a producer has one entry per remembered batch, the newest last, so that a retry is
recognised after a restart too. Kafka's reader takes the last entry of an id: it loses nothing.

Source: Kafka ``ProducerStateManager.java``, ``ProducerSnapshot.json``.
Tests: ``tests/unit/broker/log/test_producer_snapshot.py``.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from aiokq.broker.log import names
from aiokq.broker.log.producer_state import (
    NO_OFFSET,
    BatchMetadata,
    ProducerEntry,
    ProducerState,
)
from aiokq.broker.log.segment import Segment
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import Files
from aiokq.core.types import Buffer
from aiokq.records.control import read_marker
from aiokq.records.header import NO_SEQUENCE, BatchHeader, Checksum

logger = logging.getLogger("aiokq.broker.log")

VERSION: Final = 1
_HEAD: Final = struct.Struct(">hIi")
_CRC_END: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry], crc32c: Checksum) -> bytes:
    """The content of a snapshot file."""
    rows: list[bytes] = []
    for entry in entries:
        batches = list(entry.batches) or [
            BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, entry.last_timestamp_ms)
        ]
        first = entry.transaction_first_offset
        rows += [
            _ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.offset_delta,
                batch.timestamp_ms if batch is not batches[-1] else entry.last_timestamp_ms,
                entry.coordinator_epoch,
                NO_OFFSET if first is None else first,
            )
            for batch in batches
        ]
    body = struct.pack(">i", len(rows)) + b"".join(rows)
    return struct.pack(">hI", VERSION, crc32c(body)) + body


def decode_snapshot(data: Buffer, crc32c: Checksum, now_ms: int) -> list[ProducerEntry]:
    """The producers in a snapshot file, seen at ``now_ms``.

    Raises:
        CorruptRecord: another version, a wrong CRC, or cut short.
    """
    if len(data) < _HEAD.size:
        raise CorruptRecord(f"producer snapshot of {len(data)} bytes")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptRecord(f"producer snapshot of version {version}")
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise CorruptRecord("producer snapshot with a wrong CRC")
    if count < 0 or len(data) < _HEAD.size + count * _ENTRY.size:
        raise CorruptRecord(f"producer snapshot cut short of {count} entries")
    entries: dict[int, ProducerEntry] = {}
    for row in _ENTRY.iter_unpack(memoryview(data)[_HEAD.size : _HEAD.size + count * _ENTRY.size]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator, first = row
        entry = entries.get(producer_id)
        if entry is None or entry.producer_epoch != epoch:
            entry = entries[producer_id] = ProducerEntry(producer_id, epoch)
        if sequence != NO_SEQUENCE:
            entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        entry.coordinator_epoch = coordinator
        entry.transaction_first_offset = None if first == NO_OFFSET else first
        entry.last_timestamp_ms = timestamp
        entry.last_seen_ms = now_ms
    return list(entries.values())


def snapshot_files(files: Files, directory: str) -> list[tuple[int, str]]:
    """The producer snapshots in a partition's directory: offset and path, oldest first."""
    found = []
    for name in files.listdir(directory):
        parsed = names.parse_segment_file(name)
        if parsed is not None and parsed[1] == names.SNAPSHOT:
            found.append((parsed[0], f"{directory}/{name}"))
    return sorted(found)


def write_snapshot(files: Files, directory: str, offset: int, data: bytes) -> None:
    """Write the snapshot of ``offset``; of the older ones the newest two stay, as a reserve."""
    path = names.segment_file(directory, offset, names.SNAPSHOT)
    temporary = path + names.TEMPORARY
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwritev([data], 0)
    finally:
        file.close()
    files.rename(temporary, path)
    for _, older in snapshot_files(files, directory)[:-3]:
        files.remove(older)


def restore_producers(
    files: Files,
    directory: str,
    segments: Sequence[Segment],
    crc32c: Checksum,
    now_ms: int,
) -> ProducerState:
    """The producer state at the end of ``segments``: the last snapshot, then the batches behind."""
    end = segments[-1].next_offset
    state = ProducerState()
    start = segments[0].base_offset
    for offset, path in reversed(snapshot_files(files, directory)):
        if offset > end:
            files.remove(path)  # of records that recovery removed
            continue
        try:
            entries = decode_snapshot(files.read_bytes(path), crc32c, now_ms)
        except CorruptRecord as error:
            logger.warning("producer snapshot ignored file=%s error=%s", path, error.message)
            files.remove(path)
            continue
        for entry in entries:
            state.put(entry)
        start = offset
        break
    for segment in segments:
        if segment.next_offset <= start:
            continue
        position = segment.position_of(start)
        if position is None:
            continue
        for at, header in segment.headers(position):
            if header.has_producer_id and header.base_offset >= start:
                _replay(state, segment, at, header, now_ms)
    state.map_end_offset = end
    return state


def _replay(
    state: ProducerState, segment: Segment, position: int, header: BatchHeader, now_ms: int
) -> None:
    if not header.is_control:
        state.update(header, now_ms)
        return
    marker = read_marker(segment.file.pread(header.size, position), header)
    if marker is not None:
        state.end_transaction(header, marker, now_ms)
