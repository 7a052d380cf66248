"""Snapshots of the metadata log: files named ``<end offset>-<epoch>.checkpoint``.

A snapshot has records whose replay gives the same state as a replay of the log before the end
offset. It consists of a control batch with a header, batches of metadata records, and a control
batch with a footer. With ``kraft.version`` 1 the first batch also has the voters. Offsets in the
file begin at 0. A snapshot is written under a name that ends in ``.part``, and is renamed once it
is complete and durable.

``bootstrap.checkpoint``, which has the first records of a new metadata log, has the same format.

Source: KIP-630, KIP-853, Kafka ``RecordsSnapshotWriter.java``, ``Snapshots.java``.
Tests: ``tests/unit/broker/metadata/log/test_snapshot_file.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Final

from aiokq.broker.log.batch_reading import read_batch, walk_headers
from aiokq.broker.log.config import INT_MAX
from aiokq.core.errors import CorruptRecord, RecordTooLarge, UnsupportedCompressionType
from aiokq.core.files import Files
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import HEADER_SIZE, BatchHeader, Checksum, verify_crc
from aiokq.records.quorum_control import (
    QuorumControlRecord,
    encode_quorum_control_batch,
    read_quorum_controls,
)
from aiokq.records.record import RawRecord, encode_batch, iter_values
from aiokq.wire.quorum_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

__all__ = [
    "MAX_BATCH_BYTES",
    "MAX_BATCH_RECORDS",
    "RECORD_OVERHEAD",
    "SnapshotId",
    "SnapshotReader",
    "list_snapshots",
    "parse_snapshot",
    "remove_unfinished_snapshots",
    "snapshot_path",
    "write_snapshot",
]

MAX_BATCH_RECORDS: Final = 1024
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""The largest batch that Kafka reads from a snapshot, in bytes."""

RECORD_OVERHEAD: Final = 16
"""Largest number of bytes that a record without a key needs in addition to its value."""

READ_ONLY: Final = 0o400

PART: Final = ".part"

# These patterns are compiled at their first use: a start with a new directory uses none of them.
_NAME: Final = r"([0-9]{20})-([0-9]{10})\.checkpoint"
# Kafka puts a random number before the suffix of an unfinished file.
_UNFINISHED: Final = r"[0-9]{20}-[0-9]{10}(-.*)?\.checkpoint\.(part|deleted)"

_OFFSET_MAX: Final = 2**63 - 1


class SnapshotId(NamedTuple):
    """The id of a snapshot: end offset and epoch of the part of the log that it contains.

    The newer one of two snapshots has the larger id.

    Attributes:
        end_offset: offset after the last record of the log that the snapshot contains.
        epoch: epoch of that record.
    """

    end_offset: int
    epoch: int


def snapshot_path(directory: str, snapshot: SnapshotId) -> str:
    """Return the path of a snapshot of the log in a directory."""
    return f"{directory}/{snapshot.end_offset:020d}-{snapshot.epoch:010d}.checkpoint"


def parse_snapshot(name: str) -> SnapshotId | None:
    """Return the id in the file name of a snapshot; None for other names."""
    match = re.fullmatch(_NAME, name) if name.endswith(".checkpoint") else None
    if match is None:
        return None
    found = SnapshotId(int(match[1]), int(match[2]))
    return found if found.end_offset <= _OFFSET_MAX and found.epoch <= INT_MAX else None


def list_snapshots(files: Files, directory: str) -> list[SnapshotId]:
    """Return the snapshots in a directory, the oldest first. Raises OSError."""
    return sorted(filter(None, map(parse_snapshot, files.listdir(directory))))


def remove_unfinished_snapshots(files: Files, directory: str) -> None:
    """Remove snapshots that are not complete, and those whose deletion began. Raises OSError."""
    for name in files.listdir(directory):
        if ".checkpoint." in name and re.fullmatch(_UNFINISHED, name):
            files.remove(f"{directory}/{name}")


def write_snapshot(
    files: Files,
    path: str,
    values: Iterable[bytes],
    *,
    epoch: int,
    timestamp_ms: int,
    last_contained_ms: int,
    crc32c: Checksum,
    voters: VotersRecord | None = None,
    read_only: bool = True,
) -> int:
    """Write a snapshot; it is complete and durable when it gets its name. Return its size in bytes.

    An existing file of this name is replaced. Only one batch is in memory at a time.

    Args:
        values: the values of the metadata records, which are read while the file is written.
        epoch: the epoch in the name; 0 for ``bootstrap.checkpoint``.
        timestamp_ms: the present time, the timestamp of all records.
        last_contained_ms: timestamp of the last record of the log that the snapshot contains.
        voters: voters of the quorum with ``kraft.version`` 1; None with ``kraft.version`` 0.
        read_only: whether to remove the permission to write to the file, as Kafka does.

    Raises:
        RecordTooLarge: a value does not fit in a batch.
        OSError: the disk failed. The last step syncs the directory; if only this step failed, the
            complete file is left. After any other error, the unfinished file is removed, if
            possible.
    """
    part = path + PART
    if files.exists(part):
        files.remove(part)  # it may be read-only
    controls: list[QuorumControlRecord] = [
        SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_ms)
    ]
    if voters is not None:
        controls += [KRaftVersionRecord(k_raft_version=1), voters]
    file = files.private().open(part, exclusive=True)  # the records contain credentials
    try:
        position = offset = 0

        def control(records: list[QuorumControlRecord]) -> bytes:
            return encode_quorum_control_batch(
                records,
                base_offset=offset,
                leader_epoch=epoch,
                timestamp_ms=timestamp_ms,
                crc32c=crc32c,
            )

        position += file.pwritev([control(controls)], position)
        offset += len(controls)
        for some in _in_batches(values):
            records = [RawRecord(n, timestamp_ms, None, v) for n, v in enumerate(some, offset)]
            batch = encode_batch(records, crc32c=crc32c, base_offset=offset, leader_epoch=epoch)
            position += file.pwritev([batch], position)
            offset += len(some)
        position += file.pwritev([control([SnapshotFooterRecord()])], position)
        file.sync()
        file.close()
        if read_only:
            files.chmod(part, READ_ONLY)
        files.rename(part, path)
    except Exception:
        file.close()
        with suppress(OSError):
            files.remove(part)
        raise
    files.sync_dir(path.rpartition("/")[0] or ".")
    return position


def _in_batches(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    some: list[bytes] = []
    size = HEADER_SIZE
    for value in values:
        needed = len(value) + RECORD_OVERHEAD
        if needed + HEADER_SIZE > MAX_BATCH_BYTES:
            raise RecordTooLarge(
                f"a metadata record of {len(value)} bytes does not fit in a batch of "
                f"{MAX_BATCH_BYTES} bytes"
            )
        if some and (len(some) == MAX_BATCH_RECORDS or size + needed > MAX_BATCH_BYTES):
            yield some
            some, size = [], HEADER_SIZE
        some.append(value)
        size += needed
    if some:
        yield some


class SnapshotReader:
    """An open snapshot; iterate over it once for the values of its metadata records.

    The file is read and verified batch by batch, so an error may come after some values. The values
    are those of a valid snapshot only if the iteration ends without an error.

    Attributes:
        last_contained_ms: timestamp of the last record of the log that the snapshot contains.
        kraft_version: level of ``kraft.version``; 0 if the snapshot does not have it.
        voters: voters of the quorum; None if the snapshot does not have them.
    """

    __slots__ = (
        "_batches",
        "_crc32c",
        "_epoch",
        "_file",
        "kraft_version",
        "last_contained_ms",
        "voters",
    )

    def __init__(self, files: Files, path: str, epoch: int, crc32c: Checksum) -> None:
        """Open a snapshot and read its header.

        Args:
            epoch: the epoch in the name; 0 for ``bootstrap.checkpoint``.

        Raises:
            CorruptRecord: the file does not begin with the header of a snapshot; the message has
                the file and the position in it.
            OSError: the disk failed, or the file is missing.
        """
        self.kraft_version = 0
        self.voters: VotersRecord | None = None
        self._epoch = epoch
        self._crc32c = crc32c
        self._file = files.open(path, writable=False)
        try:
            self._batches = self._read_batches()
            self.last_contained_ms = self._read_header()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SnapshotReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. May be called twice."""
        self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the values of the metadata records.

        Raises:
            CorruptRecord: the snapshot has a bad byte, or no footer at its end; the message has the
                file and the position in it.
            OSError: the disk failed.
        """
        finished = False
        for position, header, data in self._batches:
            if finished:
                raise self._corrupt(position, "a batch follows the footer")
            if not header.is_control:
                yield from self._values(position, header, data)
                continue
            controls = self._controls(position, header, data)
            if len(controls) != 1 or not isinstance(controls[0], SnapshotFooterRecord):
                raise self._corrupt(position, "a control batch that is not the footer")
            finished = True
        if not finished:
            raise self._corrupt(self._file.size(), "the footer is missing")

    def _read_header(self) -> int:
        position, header, data = next(self._batches, (0, None, b""))
        if header is None or not header.is_control:
            raise self._corrupt(position, "not the header of a snapshot")
        first, *others = self._controls(position, header, data)
        if not isinstance(first, SnapshotHeaderRecord):
            raise self._corrupt(position, "not the header of a snapshot")
        for record in others:
            if isinstance(record, KRaftVersionRecord):
                self.kraft_version = record.k_raft_version
            elif isinstance(record, VotersRecord):
                self.voters = record
            else:
                raise self._corrupt(position, f"the header has a {record.NAME}")
        return first.last_contained_log_timestamp

    def _read_batches(self) -> Iterator[tuple[int, BatchHeader, bytes]]:
        """Yield position, header and bytes of each batch; verify checksums and offsets."""
        size = self._file.size()
        position = offset = 0
        try:
            for position, header in walk_headers(self._file, 0, size):
                data = read_batch(self._file, position, header)
                if header.magic != 2 or not verify_crc(data, header, self._crc32c):
                    raise CorruptRecord("wrong CRC")
                if header.base_offset != offset:
                    raise CorruptRecord(f"record {offset} is missing")
                if header.leader_epoch != self._epoch:
                    raise CorruptRecord(f"epoch {header.leader_epoch} instead of {self._epoch}")
                if header.count <= 0 or header.count != header.last_offset_delta + 1:
                    raise CorruptRecord(f"{header.count} records with wrong offsets")
                offset = header.next_offset
                yield position, header, data
                position += header.size
        except CorruptRecord as error:
            raise self._corrupt(position, error.message) from error
        if position != size:
            raise self._corrupt(position, "the file ends inside a batch")

    def _values(self, position: int, header: BatchHeader, data: bytes) -> Iterator[bytes]:
        try:
            yield from iter_values(data, header)
        except (CorruptRecord, RecordTooLarge, UnsupportedCompressionType) as error:
            raise self._corrupt(position, error.message) from error

    def _controls(
        self, position: int, header: BatchHeader, data: bytes
    ) -> list[QuorumControlRecord]:
        try:
            return read_quorum_controls(data, header)
        except (CorruptRecord, RecordTooLarge, UnsupportedCompressionType) as error:
            raise self._corrupt(position, error.message) from error

    def _corrupt(self, position: int, reason: str) -> CorruptRecord:
        return CorruptRecord(f"{self._file.path} is corrupt at byte {position}: {reason}")
