"""``.snapshot`` files: the producer state at one offset, in Kafka's format.

The content is the version (an int16, 1), the CRC-32C of the rest, and an array of entries. Kafka
stores one entry per producer, with its newest batch. Here a producer has one entry per remembered
batch, the newest last, so that a retry is recognized after a restart too. Kafka can read such a
file, because it uses the last entry of each producer id.

Source: Kafka ``ProducerStateManager.java``, ``ProducerSnapshot.json``.
Tests: ``tests/unit/broker/log/test_producer_snapshot.py``.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Sequence
from typing import Final

from aiokq.broker.log import file_names
from aiokq.broker.log.checkpoint_file import replace_file
from aiokq.broker.log.producer_state import (
    NO_OFFSET,
    BatchMetadata,
    ProducerEntry,
    ProducerState,
)
from aiokq.broker.log.segment import Segment
from aiokq.broker.log.transaction_index import AbortedTransaction
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import File, Files
from aiokq.core.types import Buffer
from aiokq.records.control import read_marker
from aiokq.records.header import NO_SEQUENCE, BatchHeader, Checksum

logger = logging.getLogger("aiokq.broker.log")

VERSION: Final = 1
_HEAD: Final = struct.Struct(">hIi")
_CRC_END: Final = 6
_ENTRY: Final = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Iterable[ProducerEntry], crc32c: Checksum) -> bytes:
    """Return the content of a snapshot file."""
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
    """Return the producers in a snapshot file, with ``now_ms`` as their ``last_seen_ms``.

    Raises:
        CorruptRecord: the file has another version or a wrong CRC, or is truncated.
    """
    if len(data) < _HEAD.size:
        raise CorruptRecord(f"producer snapshot has only {len(data)} bytes")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptRecord(f"producer snapshot has unknown version {version}")
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise CorruptRecord("producer snapshot has a wrong CRC")
    if count < 0 or len(data) < _HEAD.size + count * _ENTRY.size:
        raise CorruptRecord(
            f"producer snapshot of {len(data)} bytes is too short for {count} entries"
        )
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
    """Return offset and path of a partition's producer snapshots, oldest first."""
    found = []
    for name in files.listdir(directory):
        parsed = file_names.parse_segment_file(name)
        if parsed is not None and parsed[1] == file_names.SNAPSHOT:
            found.append((parsed[0], f"{directory}/{name}"))
    return sorted(found)


class UnsyncedSnapshots:
    """The producer snapshots that one log has written and that are not durable yet.

    The snapshot at a segment's base offset is synced together with the records before that offset.
    When these records are deleted, only the snapshot has their producers.

    Source: Kafka ``UnifiedLog.roll``, ``flushProducerStateSnapshot``.
    """

    __slots__ = ("_directory", "_files", "_offsets", "_taken")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._offsets: set[int] = set()
        self._taken: set[int] = set()  # the offsets of the files that ``begin_sync`` returned last

    def _path(self, offset: int) -> str:
        return file_names.segment_file(self._directory, offset, file_names.SNAPSHOT)

    def write(self, offset: int, data: bytes) -> None:
        """Write the snapshot at the log end offset unless it exists. Raises OSError.

        An existing snapshot has the same content, because nothing was appended since it was taken.
        If it were replaced, a power cut before the next sync could damage a durable snapshot.
        """
        path = self._path(offset)
        if not self._files.exists(path):
            replace_file(self._files, path, data)
        self._offsets.add(offset)

    def begin_sync(self, end_offset: int) -> list[File]:
        """Return the open files of the snapshots at or before ``end_offset``, to be synced.

        From now on the snapshots count as durable; ``redo_sync`` undoes this.

        Raises:
            OSError: a file cannot be opened; all files still have to be synced.
        """
        taken = {offset for offset in self._offsets if offset <= end_offset}
        found = []
        for offset in sorted(taken):
            try:
                found.append(self._files.open(self._path(offset)))
            except FileNotFoundError:
                continue  # a truncation or a deletion of records removed the file
        self._offsets -= taken
        self._taken = taken
        return found

    def redo_sync(self) -> None:
        """Mark the files of the last ``begin_sync`` for another sync, because the sync failed."""
        self._offsets |= self._taken

    def sync(self, end_offset: int) -> None:
        """Sync the snapshots at or before ``end_offset``, but not their directory."""
        for file in self.begin_sync(end_offset):
            file.sync()
            file.close()


def remove_stray_snapshots(files: Files, directory: str, segments: Sequence[Segment]) -> None:
    """Remove the snapshots that no recovery needs.

    The newest snapshot within the log and the snapshots at the segments' base offsets are kept.

    Source: Kafka ``ProducerStateManager.removeStraySnapshots``.
    """
    bases = {segment.base_offset for segment in segments}
    start, end = segments[0].base_offset, segments[-1].next_offset
    found = snapshot_files(files, directory)
    newest = max((offset for offset, _ in found if start <= offset <= end), default=None)
    for offset, path in found:
        if offset not in bases and offset != newest:
            files.remove(path)


def remove_snapshots_behind(files: Files, directory: str, end_offset: int) -> None:
    """Remove the snapshots after ``end_offset``, where the log is cut; -1 removes all snapshots."""
    for offset, path in snapshot_files(files, directory):
        if offset > end_offset:
            files.remove(path)


class ProducerReplay:
    """Rebuilds the producer state from a snapshot and the batches after it.

    Args:
        start: base offset of the first segment; earlier snapshots are not used, because the log
            does not have all batches after them.
        end: the offset at which the state is needed; later snapshots are not used.
        repair: whether to remove snapshots after ``end``, because their records may be lost, and to
            write the missing snapshots at the base offsets of the segments that are read. Malformed
            snapshots are removed in either case.

    Attributes:
        state: the producer state after the snapshot and the batches applied since.
        start: offset of the snapshot, whose state includes all earlier batches; without a snapshot,
            the base offset of the first segment.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        start: int,
        end: int,
        crc32c: Checksum,
        now_ms: int,
        *,
        repair: bool = True,
    ) -> None:
        self.state = ProducerState()
        self.start = start
        self._files = files
        self._directory = directory
        self._crc32c = crc32c
        self._now_ms = now_ms
        self._repair = repair
        for offset, path in reversed(snapshot_files(files, directory)):
            if offset < start:
                break
            if offset > end:
                if repair:
                    files.remove(path)
                continue
            try:
                entries = decode_snapshot(files.read_bytes(path), crc32c, now_ms)
            except CorruptRecord as error:
                logger.warning("producer snapshot ignored file=%s error=%s", path, error.message)
                files.remove(path)
                continue
            for entry in entries:
                self.state.put(entry)
            self.start = offset
            break

    def begin_segment(self, base_offset: int) -> None:
        """Write the snapshot at a segment's base offset, durably.

        Does nothing without ``repair``, or if the segment begins at or before ``start``. When the
        earlier segments are deleted, only this snapshot has their producers.

        Source: Kafka ``LogLoader.recoverSegment``, ``UnifiedLog.rebuildProducerState``.
        """
        if self._repair and base_offset > self.start:  # no snapshot after ``start`` exists
            path = file_names.segment_file(self._directory, base_offset, file_names.SNAPSHOT)
            self._files.write_atomic(path, encode_snapshot(self.state, self._crc32c))

    def note(
        self, segment: Segment, position: int, header: BatchHeader
    ) -> AbortedTransaction | None:
        """Apply a batch of the log; return the aborted transaction that the batch ends, or None."""
        if not header.has_producer_id or header.base_offset < self.start:
            return None
        if not header.is_control:
            self.state.update(header, self._now_ms)
            return None
        try:
            marker = read_marker(segment.file.pread(header.size, position), header)
        except CorruptRecord as error:
            # The CRC of the batch matches, so the marker was already malformed when it was written.
            # Cutting the log here would lose the later batches.
            path = segment.path(file_names.LOG)
            logger.error(
                "transaction marker ignored file=%s position=%d error=%s", path, position, error
            )
            return None
        return None if marker is None else self.state.end_transaction(header, marker, self._now_ms)

    def walk(self, segments: Iterable[Segment]) -> None:
        """Apply the batches of valid segments.

        Raises:
            CorruptRecord: a segment is damaged.
        """
        for segment in segments:
            self.begin_segment(segment.base_offset)
            position = segment.position_of(self.start)
            if position is not None:
                for at, header in segment.headers(position):
                    self.note(segment, at, header)


def restore_producers(
    files: Files,
    directory: str,
    segments: Sequence[Segment],
    crc32c: Checksum,
    now_ms: int,
) -> ProducerState:
    """Rebuild the producer state at the end of ``segments`` from a snapshot and the segments.

    The snapshots are repaired; see ``ProducerReplay``.

    Raises:
        CorruptRecord: a segment is damaged.
    """
    start, end = segments[0].base_offset, segments[-1].next_offset
    replay = ProducerReplay(files, directory, start, end, crc32c, now_ms)
    replay.walk(segments)
    replay.state.map_end_offset = end
    return replay.state
