"""The metadata log, ``__cluster_metadata-0``, of a node that is the only voter of its quorum.

It is a log like that of any other partition, with Kafka's metadata records. As the only voter, the
node leads each epoch, and records are committed once they are durable. `metadata_reader` reads
the directory, `sole_voter` checks that the node may append, and this module appends.

A snapshot (`log_snapshot`) is due when enough bytes were appended since the last one. The owner of
the log then calls ``snapshot``, which writes a snapshot, removes the oldest snapshots, and deletes
the part of the log before the oldest snapshot that is kept.

Source: Kafka ``KafkaRaftClient.java``, ``KafkaMetadataLog.scala``, ``SnapshotGenerator.java``;
KIP-595, KIP-630.
Tests: ``tests/unit/broker/metadata/log/test_cluster_metadata_log.py``.
"""

from __future__ import annotations

import copy
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.producer_state import Origin
from aiokq.broker.metadata.image.records import TRANSACTION_MARKERS
from aiokq.broker.metadata.log.log_opening import (
    METADATA_PARTITION,
    make_private,
    next_epoch,
    open_log_files,
    write_epoch,
)
from aiokq.broker.metadata.log.log_snapshot import LogSnapshot, write_log_snapshot
from aiokq.broker.metadata.log.metadata_batches import encode_metadata_batches
from aiokq.broker.metadata.log.quorum_state import read_quorum_state
from aiokq.broker.metadata.log.snapshot_file import (
    SnapshotId,
    list_snapshots,
    snapshot_path,
)
from aiokq.core.errors import Closed, KafkaError, KafkaStorage
from aiokq.core.frozen import frozen
from aiokq.records.header import Checksum, read_header
from aiokq.records.quorum_control import QuorumControlRecord, encode_quorum_control_batch
from aiokq.wire.quorum_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    VotersRecord,
)

if TYPE_CHECKING:
    from aiokq.broker.log.disk_trouble import DiskTrouble
    from aiokq.broker.log.open_files import OpenFiles
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.broker.metadata.log.metadata_reader import MetadataState
    from aiokq.core.files import Files
    from aiokq.wire.struct import Message

__all__ = ["ClusterMetadataLog", "LogLimits"]

logger = logging.getLogger("aiokq.broker")

_CONTROLS: Final = (KRaftVersionRecord, VotersRecord)


@frozen
class LogLimits:
    """When snapshots are written, and how much of the log is kept.

    Attributes:
        snapshot_bytes: a snapshot is due when this many bytes were appended since the last snapshot
            (``metadata.log.max.record.bytes.between.snapshots``).
        closing_bytes: a clean stop writes a snapshot if this many bytes were appended since the
            last snapshot.
        segment_bytes: maximum size of a segment in bytes (``metadata.log.segment.bytes``).
        kept_snapshots: number of snapshots that are kept. When there are this many, the segments
            before the oldest snapshot are deleted.
    """

    snapshot_bytes: int = 20 * 1024 * 1024
    closing_bytes: int = 1024 * 1024
    segment_bytes: int = 1024 * 1024 * 1024
    kept_snapshots: int = 2


class ClusterMetadataLog:
    """The open metadata log.

    Its methods can block on the disk and are therefore called in an executor. An ephemeral broker,
    which does not sync, makes small appends on the loop. Threads may call the methods concurrently;
    appends are made one after the other.

    Attributes:
        image: the state after all records. Only ``lead`` and ``append`` change it. While neither
            is in progress, it may be read without the lock: `MetadataChanges` decides a change only
            after the append of the previous one. During an append, only
            ``list(image.brokers.values())`` is safe: registrations are replaced, never changed.
        epoch: the epoch in which this node leads the quorum.
        node_id: id of this node, the only voter.
        kraft_version: level of ``kraft.version``.
    """

    def __init__(
        self,
        files: Files,
        log: PartitionLog,
        state: MetadataState,
        *,
        node_id: int,
        epoch: int,
        disk: DiskTrouble,
        limits: LogLimits,
        now_ms: Callable[[], int],
        crc32c: Checksum,
    ) -> None:
        self.image = state.image
        self.epoch = epoch
        self.node_id = node_id
        self.kraft_version = state.kraft_version
        self._voters = state.voters
        self._files = files
        self._log = log
        self._disk = disk
        self._limits = limits
        self._now_ms = now_ms
        self._crc32c = crc32c
        self._last_ms = state.timestamp_ms
        self._bytes = state.bytes_after_snapshot
        self._has_led = False
        self._closed = self._failed = False
        self._newest_named = log.segments[-1]  # see `open`
        """The newest segment whose name is durable; names of older segments are durable, too."""
        self._abandoned = False
        self._lock = threading.Lock()
        self._snapshot_lock = threading.Lock()
        """Held while a snapshot is written; acquired before ``_lock``."""

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        state: MetadataState,
        *,
        node_id: int,
        disk: DiskTrouble,
        open_files: OpenFiles,
        clean: bool,
        limits: LogLimits,
        now_ms: Callable[[], int],
        crc32c: Checksum,
    ) -> ClusterMetadataLog:
        """Open the log for appends in a new epoch, and create it if it does not exist.

        The torn tail that ``state`` reports is cut off. ``lead`` makes the first append.

        Args:
            directory: path of ``__cluster_metadata-0``.
            state: what was read from the directory; the node must be the only voter.
            disk, open_files: the log directory's failure handling and its open files.
            clean: whether the last shutdown was clean, so that the indexes need no check. Ignored
                if ``quorum-state`` is missing, or has a later epoch than the log because a start
                was interrupted.

        Raises:
            KafkaStorage: ``quorum-state`` cannot be read, the newest epoch is the largest that
                Kafka allows, or the log does not end where ``state`` ends.
            OSError: the disk failed.
        """
        files = files.private()
        # Read the file before anything is changed, because it may be damaged.
        known = read_quorum_state(files, directory)
        epoch = next_epoch(directory, state, known)
        names = files.listdir(directory) if known is not None else []
        clean = clean and known is not None and known.epoch <= state.epoch
        make_private(files, directory, names)
        log = open_log_files(
            files,
            directory,
            state,
            disk=disk,
            open_files=open_files,
            clean=clean,
            segment_bytes=limits.segment_bytes,
            now_ms=now_ms(),
            crc32c=crc32c,
        )
        try:
            if known is None:  # the name of the directory may not be durable yet
                files.sync_dir(directory.rpartition("/")[0] or "/")
            # A clean stop has synced the names. Names that the repair after a kill has changed, and
            # the name of a segment that was created now, are not durable yet.
            newest = log.segments[-1].path(file_names.LOG).rpartition("/")[2]
            names_durable = clean and state.torn is None and newest in names
            write_epoch(files, directory, state, node_id, epoch, names_durable=names_durable)
        except BaseException:
            log.close(clean=False)
            raise
        return cls(
            files,
            log,
            state,
            node_id=node_id,
            epoch=epoch,
            disk=disk,
            limits=limits,
            now_ms=now_ms,
            crc32c=crc32c,
        )

    @property
    def directory(self) -> str:
        """Path of ``__cluster_metadata-0``."""
        return self._log.directory

    @property
    def start_offset(self) -> int:
        """Offset of the first record of the log; a snapshot has the records before it."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """Offset of the next record of the log."""
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """End offset of the records that are durable."""
        return self._log.high_watermark

    @property
    def has_led(self) -> bool:
        """Whether ``lead`` has begun the epoch."""
        return self._has_led

    def lead(self, records: Sequence[Message]) -> None:
        """Begin the epoch: append the control records of a new leader, then ``records``.

        The control records and ``records`` are written with one sync if ``records`` form one batch
        that fits in a segment with the control records. Otherwise each batch is synced before the
        next batch is written.

        Raises:
            KafkaStorage: the disk failed, or the log is closed.
            UnsupportedVersion, RecordTooLarge: see ``append``.
        """
        with self._lock:
            assert not self._has_led
            now_ms = self._now_ms()
            first = self._control_batch(self._first_controls(), now_ms)
            batches = [first, *self._encode(records, now_ms)]
            # Two batches may be written with one sync: if a power cut leaves only a part of them,
            # `MetadataReader` recognizes a torn append.
            together = len(batches) <= 2 and sum(map(len, batches)) <= self._limits.segment_bytes
            self._write([batches] if together else [[batch] for batch in batches], now_ms)
            self._has_led = True
            self._apply(records)

    @property
    def first_offset(self) -> int:
        """Offset that ``lead`` will give to the first of its ``records``."""
        return self.end_offset + len(self._first_controls())

    def _first_controls(self) -> list[QuorumControlRecord]:
        voter = LeaderChangeMessageVoter(voter_id=self.node_id)
        controls: list[QuorumControlRecord] = [
            LeaderChangeMessage(leader_id=self.node_id, voters=[voter], granting_voters=[voter])
        ]
        if self.kraft_version >= 1 and not self.end_offset:
            # The log has no records yet: only its first snapshot (`write_voters`) names the voters.
            assert self._voters is not None
            controls += [KRaftVersionRecord(k_raft_version=self.kraft_version), self._voters]
        return controls

    def _control_batch(self, controls: Sequence[QuorumControlRecord], now_ms: int) -> bytes:
        return encode_quorum_control_batch(
            controls,
            base_offset=0,
            leader_epoch=self.epoch,
            timestamp_ms=now_ms,
            crc32c=self._crc32c,
        )

    def append(self, *records: Message) -> int:
        """Append records; on return they are durable and in ``image``. Return the end offset.

        The records form one batch, or several batches if one batch would be larger than 8 MiB.
        Control records (``kraft.version`` and the voters) form a separate first batch. Each batch
        is durable before the next batch is written; a kill may leave only the first batches.

        Raises:
            KafkaStorage: the disk failed now or at an earlier append, or the log is closed; none of
                these records is in ``image``.
            UnsupportedVersion: a record does not exist in the log's ``metadata.version``.
            RecordTooLarge: a record does not fit in a batch.
        """
        with self._lock:
            self._check_open()
            self._check_synced()
            assert self._has_led
            now_ms = self._now_ms()
            controls = [one for one in records if isinstance(one, _CONTROLS)]
            data = [one for one in records if not isinstance(one, _CONTROLS)]
            batches = self._encode(data, now_ms)
            if controls:
                batches.insert(0, self._control_batch(controls, now_ms))
            self._write([[batch] for batch in batches], now_ms)
            for control in controls:
                if isinstance(control, VotersRecord):
                    self._voters = control
                else:
                    self.kraft_version = control.k_raft_version
            self._apply(data)
            return self.end_offset

    def _encode(self, records: Iterable[Message], now_ms: int) -> list[bytes]:
        return encode_metadata_batches(
            records,
            level=self.image.metadata_version,
            leader_epoch=self.epoch,
            timestamp_ms=now_ms,
            crc32c=self._crc32c,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise KafkaStorage(f"metadata log {self.directory} is closed")

    def _check_synced(self) -> None:
        if self._failed:
            raise KafkaStorage(
                f"metadata log {self.directory} could not be synced; start the broker again"
            )

    def _write(self, appends: Iterable[Sequence[bytes]], now_ms: int) -> None:
        """Make appends one after the other, and sync each.

        Args:
            appends: the batches of each append. A power cut during an append of several batches
                may keep a later batch without an earlier one.
        """
        end_offset = self.end_offset
        try:
            for batches in appends:
                self._log.append(
                    memoryview(b"".join(batches)),
                    [read_header(batch, 0) for batch in batches],
                    leader_epoch=self.epoch,
                    now_ms=now_ms,
                    origin=Origin.COORDINATOR,
                )
                self._log.sync_records()
                self._sync_names()
                self._log.high_watermark = self.end_offset
                self._bytes += sum(map(len, batches))
                self._last_ms = now_ms
        except (OSError, KafkaError) as error:
            if self.end_offset == end_offset:
                raise
            # Some records are written but not synced, or not all are written, so the next start may
            # or may not find them. If this log accepted further appends, the same records could be
            # appended twice.
            self._failed = True
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            failed = self._disk.fail(METADATA_PARTITION, "metadata log not synced", cause)
            raise failed from error

    def _sync_names(self) -> None:
        """Sync the names of segments that were added since the last sync. Raises OSError."""
        newest = self._log.segments[-1]
        if newest is not self._newest_named:
            self._files.sync_dir(self.directory)
            self._newest_named = newest

    def _apply(self, records: Iterable[Message]) -> None:
        # Transaction markers are skipped: each transaction begins and ends within one append, whose
        # records are all durable now. The first append may abort a transaction that an earlier
        # leader did not end; the image has none of its records.
        for record in records:
            if not isinstance(record, TRANSACTION_MARKERS):
                self.image.replay(record)

    def copy_image(self) -> tuple[MetadataImage, SnapshotId]:
        """Return an independent copy of ``image``, and the end offset and epoch of the log.

        Raises:
            KafkaStorage: the log could not be synced, so its end is unknown.
        """
        with self._lock:
            self._check_synced()
            return self.image.copy(), SnapshotId(self.end_offset, self.epoch)

    def voters_with(self, directory_id: uuid.UUID) -> VotersRecord | None:
        """Return the voters to record in a copy of this log.

        The result is None with ``kraft.version`` 0, where the voters are in the configuration.

        Args:
            directory_id: id of the log directory that gets the copy.
        """
        if self._voters is None:
            return None
        [voter] = self._voters.voters
        voter = copy.copy(voter)
        voter.voter_directory_id = directory_id
        return VotersRecord(voters=[voter])

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the log is usable and has grown by ``snapshot_bytes`` since the last snapshot."""
        is_usable = self._has_led and not self._closed and not self._failed
        return is_usable and self._bytes >= self._limits.snapshot_bytes

    def snapshot(self) -> SnapshotId:
        """Write a snapshot of ``image``; delete the part of the log that is not needed any more.

        Appends do not wait while the snapshot is written. No part of the log is deleted before the
        snapshot is durable.

        Raises:
            Closed: the snapshot was abandoned, or the log is being closed; no snapshot was written.
            KafkaStorage: the log is closed or could not be synced, or its segments cannot be rolled
                or removed.
            OSError: the snapshot cannot be written, or an old snapshot or segment cannot be
                removed.
        """
        with self._snapshot_lock:
            with self._lock:
                self._check_open()
                self._check_synced()
                if self._abandoned:
                    raise Closed(f"no snapshot of {self.directory} is written at a stop")
                snapshot = self._capture(self.image.copy())
            self._write_snapshot(snapshot, is_abandoned=lambda: self._abandoned)
            with self._lock:
                self._replaced_by(snapshot)
        return snapshot.id

    def abandon_snapshot(self) -> None:
        """Abandon the snapshot that another thread is writing; later `snapshot` calls raise Closed.

        Does not wait for the disk; `close` waits until the snapshot has ended.
        """
        self._abandoned = True

    def _capture(self, image: MetadataImage) -> LogSnapshot:
        return LogSnapshot(
            SnapshotId(self.end_offset, self.epoch),
            image,
            self._last_ms,
            self._voters if self.kraft_version >= 1 else None,
            self._bytes,
        )

    def _write_snapshot(self, snapshot: LogSnapshot, *, is_abandoned: Callable[[], bool]) -> None:
        write_log_snapshot(
            self._files,
            self.directory,
            snapshot,
            timestamp_ms=self._now_ms(),
            crc32c=self._crc32c,
            is_abandoned=is_abandoned,
        )

    def _replaced_by(self, snapshot: LogSnapshot) -> None:
        """Begin a new segment; delete the parts of the log that a durable snapshot replaces."""
        self._bytes -= snapshot.log_bytes
        self._check_synced()
        self._log.roll(self._now_ms())
        self._sync_names()
        self._drop_old_parts()

    def _drop_old_parts(self) -> None:
        """Remove snapshots beyond the limit, and segments before the oldest snapshot kept.

        As in Kafka, no segment is removed before there are enough snapshots: otherwise the first
        snapshot would be the only copy of the metadata.
        """
        snapshots = list_snapshots(self._files, self.directory)
        beyond = len(snapshots) - self._limits.kept_snapshots
        if beyond < 0:
            return
        *dropped, oldest = snapshots[: beyond + 1]
        self._log.delete_records(oldest.end_offset)
        for snapshot in dropped:
            self._files.remove(snapshot_path(self.directory, snapshot))
        self._log.purge()

    def close(self, clean: bool = True) -> None:
        """Close the files. Idempotent.

        Args:
            clean: write a snapshot if the log has grown by ``closing_bytes``, and close the log so
                that the next start need not check it.

        Raises:
            KafkaStorage: the disk failed.
        """
        self.abandon_snapshot()
        with self._snapshot_lock, self._lock:
            if self._closed:
                return
            try:
                # After a failed sync the log may have records that the image lacks.
                is_due = self._has_led and self._bytes >= self._limits.closing_bytes
                if clean and is_due and not self._failed:
                    self._write_last_snapshot()
            finally:
                self._closed = True
                self._log.close(clean)

    def _write_last_snapshot(self) -> None:
        """Write a snapshot at a clean stop. A failure is only logged, because no record is lost."""
        snapshot = self._capture(self.image)
        try:
            self._write_snapshot(snapshot, is_abandoned=lambda: False)
            self._replaced_by(snapshot)
        except (OSError, KafkaError) as error:
            logger.warning(
                "metadata snapshot not written directory=%s error=%s", self.directory, error
            )
