"""The files of ``__cluster_metadata-0``: the newest snapshot, and the log after it. Read only.

An incomplete end of the log, left by a kill, is ignored; Kafka would cut it off. The files do not
tell which records a quorum has committed: in a cluster with several controllers, Kafka might
discard the last records that are read here.

Source: Kafka ``KafkaRaftLog.java``, ``Snapshots.java``, KIP-630.
Tests: ``tests/unit/broker/kraft/test_metadata_files.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from aiokq.broker.kraft.metadata_image import KafkaMetadata
from aiokq.broker.log.batch_reading import read_batch, walk_headers
from aiokq.broker.log.file_names import (
    CLUSTER_METADATA,
    INDEX,
    LOG,
    parse_segment_file,
    segment_file,
)
from aiokq.broker.log.index import MAX_RELATIVE_OFFSET, IndexCorrupt, OffsetIndex
from aiokq.broker.metadata.snapshot_file import (
    SnapshotId,
    SnapshotReader,
    list_snapshots,
    snapshot_path,
)
from aiokq.core.errors import CorruptRecord, KafkaStorage, ProtocolError
from aiokq.core.files import Files
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import BatchHeader, Checksum, verify_crc
from aiokq.records.record import iter_records

__all__ = ["MetadataEnd", "MetadataFiles"]

_MAX_INDEX_BYTES: Final = 2**31 - 1


class MetadataEnd(NamedTuple):
    """The end of a metadata log; it changes when Kafka runs."""

    offset: int
    epoch: int


class MetadataFiles:
    """The metadata log in one directory.

    Args:
        directory: path of ``__cluster_metadata-0``.
    """

    def __init__(self, files: Files, directory: str, crc32c: Checksum) -> None:
        self.directory = directory
        self._files = files
        self._crc32c = crc32c

    @classmethod
    def find(
        cls, files: Files, directories: Iterable[str], crc32c: Checksum
    ) -> MetadataFiles | None:
        """Return the metadata log in one of the log directories; None if there is none.

        A ``__cluster_metadata-0`` directory without segments and snapshots counts as none.

        Raises:
            KafkaStorage: more than one log directory has a metadata log.
        """
        found = [
            path
            for path in (f"{directory}/{CLUSTER_METADATA}" for directory in directories)
            if files.is_dir(path)
            and any(name.endswith((LOG, ".checkpoint")) for name in files.listdir(path))
        ]
        if len(found) > 1:
            raise KafkaStorage(
                f"two log directories have metadata of Apache Kafka, {' and '.join(found)}: keep "
                "the one in Kafka's metadata.log.dir, and move the other one away"
            )
        return cls(files, found[0], crc32c) if found else None

    def end(self) -> MetadataEnd:
        """Return the end offset and last leader epoch of the log; reads only its last batches.

        Raises:
            OSError: the log cannot be read.
        """
        end = MetadataEnd(*(self._newest_snapshot() or (0, 0)))
        for base in self._bases()[-2:]:  # the newest segment may be empty
            for header, _ in self._batches(base, sys.maxsize):
                if header.next_offset > end.offset:
                    end = MetadataEnd(header.next_offset, header.leader_epoch)
        return end

    def read(self) -> KafkaMetadata:
        """Return the metadata with all records applied.

        Raises:
            KafkaStorage: the log is corrupt or of an unknown version; the message says what to do.
            OSError: the disk failed.
        """
        try:
            return self._read()
        except (CorruptRecord, ProtocolError) as error:
            raise KafkaStorage(
                f"the metadata of Apache Kafka in {self.directory} cannot be read "
                f"({error.message}): move that directory away; the broker then serves the topics "
                "that it finds in the log directories, and deletes nothing"
            ) from error

    def _read(self) -> KafkaMetadata:
        metadata = KafkaMetadata()
        snapshot = self._newest_snapshot()
        if snapshot is not None:
            path = snapshot_path(self.directory, snapshot)
            with SnapshotReader(self._files, path, snapshot.epoch, self._crc32c) as values:
                for value in values:
                    metadata.replay(value)
            metadata.end_offset, metadata.epoch = snapshot
        bases = self._bases()
        for number, base in enumerate(bases):
            after = bases[number + 1] if number + 1 < len(bases) else None
            if after is not None and after <= metadata.end_offset:
                continue
            for header, data in self._batches(base, metadata.end_offset):
                if header.next_offset <= metadata.end_offset:
                    continue
                if header.base_offset > metadata.end_offset:
                    raise CorruptRecord(
                        f"records {metadata.end_offset} to {header.base_offset - 1} are missing"
                    )
                self._replay(metadata, header, data)
                metadata.end_offset, metadata.epoch = header.next_offset, header.leader_epoch
        return metadata

    @staticmethod
    def _replay(metadata: KafkaMetadata, header: BatchHeader, data: bytes) -> None:
        if header.is_control:  # leader and voters of the quorum, which are not used here
            return
        for record in iter_records(data, header):
            if record.offset >= metadata.end_offset:
                metadata.replay(record.value)

    def _newest_snapshot(self) -> SnapshotId | None:
        return max(list_snapshots(self._files, self.directory), default=None)

    def _bases(self) -> list[int]:
        """Return the base offsets of the log's segments."""
        found = map(parse_segment_file, self._files.listdir(self.directory))
        return sorted(base for base, suffix in filter(None, found) if suffix == LOG)

    def _batches(self, base: int, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield batches of a segment, from ``offset`` or earlier on, up to the first bad batch."""
        file = self._files.open(segment_file(self.directory, base, LOG))
        try:
            size = file.size()
            start = self._position(base, offset, size)
            try:
                for position, header in walk_headers(file, start, size):
                    data = read_batch(file, position, header)
                    if not verify_crc(data, header, self._crc32c):
                        return
                    yield header, data
            except CorruptRecord:
                return  # batches after a bad batch do not count, as in Kafka
        finally:
            file.close()

    def _position(self, base: int, offset: int, size: int) -> int:
        """Return the position of a batch that begins at or before ``offset``, from the index."""
        path = segment_file(self.directory, base, INDEX)
        index = OffsetIndex(self._files, path, base, _MAX_INDEX_BYTES)
        try:
            index.load(size)
        except IndexCorrupt:
            return 0
        return index.lookup(min(offset, base + MAX_RELATIVE_OFFSET)) if offset > base else 0
