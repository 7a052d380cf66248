"""Reads the metadata log of a directory, ``__cluster_metadata-0``, without changing it.

The state results from the newest snapshot and the log after it. Every byte of both is checked. A
kill or a power cut can leave an incomplete batch at the end of the log. These bytes, the torn tail,
are reported, because they have to be cut off before anything is appended. Any other bad byte is an
error: unlike Kafka, which drops everything from the first bad batch on, this module drops nothing.

Source: Kafka ``KafkaMetadataLog.scala``, ``Snapshots.java``, KIP-630, KIP-853.
Tests: ``tests/unit/broker/metadata/log/test_metadata_reader.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.corruption import offsets_text
from aiokq.broker.metadata.image.features import (
    LATEST_METADATA_VERSION,
    METADATA_VERSIONS,
    MINIMUM_METADATA_VERSION,
)
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.image.record_codec import UnknownMetadataRecord
from aiokq.broker.metadata.image.replay import MetadataReplay
from aiokq.broker.metadata.log.epoch_rules import EpochRules
from aiokq.broker.metadata.log.snapshot_file import (
    SnapshotId,
    SnapshotReader,
    list_snapshots,
    snapshot_path,
)
from aiokq.broker.metadata.log.torn_append import is_torn_append, may_be_durable
from aiokq.core.errors import (
    CorruptRecord,
    KafkaStorage,
    RecordTooLarge,
    UnsupportedCompressionType,
)
from aiokq.core.frozen import frozen
from aiokq.records.header import HEADER_SIZE, BatchHeader, Checksum, read_header, verify_crc
from aiokq.records.quorum_control import read_quorum_controls
from aiokq.records.record import iter_values
from aiokq.wire.quorum_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord

if TYPE_CHECKING:
    from aiokq.broker.log.leader_epochs import EpochEntry
    from aiokq.broker.metadata.log.epoch_rules import WrongEpoch
    from aiokq.core.files import File, Files

__all__ = ["MetadataDamaged", "MetadataReader", "MetadataState", "TornTail"]

WINDOW: Final = 1024 * 1024
"""Minimum number of bytes of a segment that one read requests."""


@frozen
class TornTail:
    """The bytes after the last whole batch of the log.

    Attributes:
        path: path of the newest segment.
        position: byte position in the segment where the torn tail begins.
        size: number of bytes.
        offset: offset of the record that would follow the last whole batch.
        reason: why the bytes are not a valid batch.
        may_be_durable: whether the bytes can be an append that was complete and acknowledged, and
            became damaged later.
    """

    path: str
    position: int
    size: int
    offset: int
    reason: str
    may_be_durable: bool


class MetadataState:
    """The content of a metadata log.

    Attributes:
        image: the state after all records.
        start_offset: offset of the first record of the log; the end offset of the newest snapshot
            if the log is empty or ends before that offset.
        end_offset: offset after the last record.
        data_end_offset: offset after the last batch of metadata records that is in the image.
        epoch: epoch of the quorum in which the last record was written; 0 if there is none.
        epochs: the epochs of the batches that were read, each with its first offset.
        timestamp_ms: timestamp of the last record; -1 if there is none.
        snapshot: the newest snapshot; None if there is none.
        kraft_version: level of ``kraft.version``.
        voters: the voters of the quorum with ``kraft.version`` 1; None with ``kraft.version`` 0.
        leader_voters: ids of the voters in the last ``LeaderChangeMessage``; None if there is none.
        in_transaction: whether the log ends inside a metadata transaction.
        bytes_after_snapshot: bytes of the log after the newest snapshot.
        torn: the torn tail; None if the log ends with a whole batch, or before the end of the
            newest snapshot, which then replaces the log.
    """

    __slots__ = (
        "bytes_after_snapshot",
        "data_end_offset",
        "end_offset",
        "epoch",
        "epochs",
        "image",
        "in_transaction",
        "kraft_version",
        "leader_voters",
        "snapshot",
        "start_offset",
        "timestamp_ms",
        "torn",
        "voters",
    )

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.start_offset = self.end_offset = self.data_end_offset = self.epoch = 0
        self.epochs: list[EpochEntry] = []
        self.timestamp_ms = -1
        self.snapshot: SnapshotId | None = None
        self.kraft_version = 0
        self.voters: VotersRecord | None = None
        self.leader_voters: tuple[int, ...] | None = None
        self.in_transaction = False
        self.bytes_after_snapshot = 0
        self.torn: TornTail | None = None


class MetadataDamaged(KafkaStorage):
    """A part of the metadata log cannot be used; ``log_repair`` can correct it or cut it off.

    Attributes:
        reason: what is wrong with the bad part.
        state: the content of the log before the bad part.
        snapshot: the bad snapshot; None if the bad part is in a segment. The attributes below have
            a meaning only for a segment.
        base: base offset of the bad segment.
        position: byte position in the segment where the bad part begins.
        offset: offset of the first record in the bad part, or of the first missing record.
        epoch: the right epoch of the batch at ``position``, if only its epoch is wrong and the
            right one is known; else None.
    """

    def __init__(
        self,
        message: str,
        reason: str,
        state: MetadataState,
        *,
        snapshot: SnapshotId | None = None,
        base: int = 0,
        position: int = 0,
        offset: int = 0,
        epoch: int | None = None,
    ) -> None:
        super().__init__(
            f"{message}; restore the file from a copy, or run aiokq log repair, which shows the "
            "records first; nothing was changed"
        )
        self.reason = reason
        self.state = state
        self.snapshot = snapshot
        self.base = base
        self.position = position
        self.offset = offset
        self.epoch = epoch


class MetadataReader:
    """Reads the files of a metadata log.

    Args:
        directory: path of ``__cluster_metadata-0``.
    """

    def __init__(self, files: Files, directory: str, crc32c: Checksum) -> None:
        self.directory = directory
        self._files = files
        self._crc32c = crc32c

    def exists(self) -> bool:
        """Whether there is a log or a snapshot. Raises OSError if the disk failed."""
        return self._files.is_dir(self.directory) and bool(self._bases() or self._snapshots())

    def size_bytes(self) -> int:
        """Return the size of the log with its snapshots. Raises OSError if the disk failed."""
        if not self._files.is_dir(self.directory):
            return 0
        paths = [self._extent(base)[0] for base in self._bases()]
        paths += [snapshot_path(self.directory, one) for one in self._snapshots()]
        return sum(map(self._files.stat_size, paths))

    def read(self) -> MetadataState:
        """Read the newest snapshot and the log after it.

        Raises:
            MetadataDamaged: the log is damaged; the message says which part is bad and what to do.
            KafkaStorage: the log has records or a metadata.version that this version of aiokq does
                not know, or lacks a partition of a topic.
            OSError: the disk failed.
        """
        state = MetadataState()
        replay = MetadataReplay(state.image)
        snapshots = self._snapshots()
        if snapshots:
            self._read_snapshot(state, replay, snapshots[-1])
        epochs = EpochRules(self._files, self.directory, state.snapshot)
        state.epochs = epochs.entries
        bases = self._bases()
        log_end = 0
        for number, base in enumerate(bases):
            after = bases[number + 1] if number + 1 < len(bases) else None
            if after is None or after > state.end_offset or state.snapshot is None:
                log_end = self._read_segment(state, replay, epochs, base, last=after is None)
        wrong = epochs.end()
        if wrong is not None:
            raise self._wrong_epoch(state, wrong)
        for topic in state.image.topics.values():
            if not topic.is_whole:
                raise KafkaStorage(
                    f"{self.directory} lacks partition {len(topic.partitions)} of topic "
                    f"{topic.name}, and has later ones: restore the directory from a copy"
                )
        state.in_transaction = replay.in_transaction
        if bases and log_end < state.end_offset:
            # The log ends before the end of the newest snapshot and is replaced by it. A power cut
            # leaves this state if the snapshot reached the disk before the records.
            state.torn = None
        elif bases and bases[0] < state.end_offset:
            state.start_offset = bases[0]
        self._check_level(state)
        return state

    def _read_snapshot(
        self, state: MetadataState, replay: MetadataReplay, snapshot: SnapshotId
    ) -> None:
        path = snapshot_path(self.directory, snapshot)
        try:
            with SnapshotReader(self._files, path, snapshot.epoch, self._crc32c) as reader:
                for value in reader:
                    self._replay(replay, value, path, snapshot.end_offset)
                state.kraft_version = reader.kraft_version
                state.voters = reader.voters
                state.timestamp_ms = reader.last_contained_ms
        except CorruptRecord as error:
            raise MetadataDamaged(
                f"the snapshot {path}, which has the metadata up to offset {snapshot.end_offset}, "
                f"cannot be applied ({error.message})",
                error.message,
                state,
                snapshot=snapshot,
            ) from error
        state.snapshot = snapshot
        state.start_offset, state.epoch = snapshot
        state.end_offset = state.data_end_offset = snapshot.end_offset

    def _snapshots(self) -> list[SnapshotId]:
        """Return the snapshots, the oldest first."""
        return list_snapshots(self._files, self.directory)

    def _bases(self) -> list[int]:
        """Return the base offsets of the segments, the lowest first."""
        found = map(file_names.parse_segment_file, self._files.listdir(self.directory))
        return sorted(base for base, suffix in filter(None, found) if suffix == file_names.LOG)

    def _extent(self, base: int) -> tuple[str, int, int | None]:
        """Return the path of a segment, and the positions where its batches begin and end.

        An end of None stands for the end of the file.
        """
        return file_names.segment_file(self.directory, base, file_names.LOG), 0, None

    def _epoch(self, base: int, position: int, header: BatchHeader) -> int:
        """Return the epoch of a batch at a position of a segment."""
        return header.leader_epoch

    def _wrong_epoch(self, state: MetadataState, wrong: WrongEpoch) -> MetadataDamaged:
        path, _, _ = self._extent(wrong.base)
        return _damaged(
            state, path, wrong.base, wrong.position, wrong.reason, wrong.offset, wrong.epoch
        )

    def _read_segment(
        self,
        state: MetadataState,
        replay: MetadataReplay,
        epochs: EpochRules,
        base: int,
        *,
        last: bool,
    ) -> int:
        """Replay the records that are not in the snapshot; return the end offset of the segment."""
        path, start, end = self._extent(base)
        expected = base
        if base > state.end_offset:
            missing = offsets_text(state.end_offset, base - 1)
            raise _damaged(state, path, base, 0, f"offsets {missing} are missing", state.end_offset)
        file = self._files.open(path, writable=False)
        try:
            size = file.size() if end is None else end
            for position, header, data, reason in self._batches(file, size, start):
                is_sound = header is not None and not reason
                if header is not None and is_sound and header.base_offset != expected:
                    reason = f"base offset {header.base_offset}, expected {expected}"
                if reason or header is None:
                    if last and is_torn_append(
                        file,
                        position,
                        size,
                        header=header,
                        is_sound=is_sound,
                        expected=expected,
                        epoch=state.epoch,
                        crc32c=self._crc32c,
                    ):
                        durable = may_be_durable(
                            file, position, size, header=header, expected=expected
                        )
                        state.torn = TornTail(
                            path, position, size - position, expected, reason, durable
                        )
                        break
                    raise _damaged(state, path, base, position, reason, expected)
                header = header._replace(leader_epoch=self._epoch(base, position, header))
                wrong = epochs.check(base, position, header, data)
                if wrong is not None:
                    raise self._wrong_epoch(state, wrong)
                expected = header.next_offset
                if expected <= state.end_offset:
                    continue  # the snapshot includes the batch
                try:
                    self._take(state, replay, header, data, path)
                except (CorruptRecord, RecordTooLarge, UnsupportedCompressionType) as error:
                    raise MetadataDamaged(
                        f"{path}: the batch at offset {header.base_offset} cannot be applied "
                        f"({error.message})",
                        error.message,
                        state,
                        base=base,
                        position=position,
                        offset=header.base_offset,
                    ) from error
        finally:
            file.close()
        return expected

    def _take(
        self,
        state: MetadataState,
        replay: MetadataReplay,
        header: BatchHeader,
        data: bytes,
        path: str,
    ) -> None:
        """Apply one batch to `state`; `replay` applies metadata records to the image.

        Metadata records that the snapshot already contains are skipped.
        """
        if header.is_control:
            for control in read_quorum_controls(data, header):
                if isinstance(control, KRaftVersionRecord):
                    state.kraft_version = control.k_raft_version
                elif isinstance(control, VotersRecord):
                    state.voters = control
                elif isinstance(control, LeaderChangeMessage):
                    state.leader_voters = tuple(one.voter_id for one in control.voters)
        else:
            # A snapshot may end inside a batch: skip those records that are in the snapshot.
            for offset, value in enumerate(iter_values(data, header), header.base_offset):
                if offset >= state.end_offset:
                    self._replay(replay, value, path, offset)
            if not replay.in_transaction:
                state.data_end_offset = header.next_offset
        state.end_offset = header.next_offset
        state.epoch = header.leader_epoch
        state.timestamp_ms = header.max_timestamp_ms
        state.bytes_after_snapshot += header.size

    def _replay(self, replay: MetadataReplay, value: bytes, path: str, offset: int) -> None:
        try:
            replay.replay(value)
        except UnknownMetadataRecord as error:
            raise KafkaStorage(
                f"{path}: {error.message} at offset {offset}; nothing was changed: use a newer "
                "aiokq, or continue with Kafka"
            ) from error

    def _batches(
        self, file: File, size: int, position: int = 0
    ) -> Iterator[tuple[int, BatchHeader | None, bytes, str]]:
        """Yield position, header, bytes and error of each batch; end after the first error.

        Args:
            position: where the first batch begins.
        """
        window, start = memoryview(b""), position
        while position < size:
            at = position - start
            if len(window) - at < min(HEADER_SIZE, size - position):
                window, start, at = memoryview(file.pread(WINDOW, position)), position, 0
            try:
                header = read_header(window, at)
            except CorruptRecord as error:
                yield position, None, b"", error.message
                return
            if header.size > size - position:
                yield (
                    position,
                    None,
                    b"",
                    f"batch of {header.size} bytes with {size - position} left",
                )
                return
            if len(window) - at < header.size:
                wanted = max(header.size, WINDOW)
                window, start, at = memoryview(file.pread(wanted, position)), position, 0
            data = bytes(window[at : at + header.size])
            sound = header.magic == 2 and verify_crc(data, header, self._crc32c)
            yield position, header, data, "" if sound else "the checksum does not match"
            position += header.size

    def _check_level(self, state: MetadataState) -> None:
        level = state.image.metadata_version
        if level is not None and not MINIMUM_METADATA_VERSION <= level <= LATEST_METADATA_VERSION:
            oldest = METADATA_VERSIONS[MINIMUM_METADATA_VERSION]
            newest = METADATA_VERSIONS[LATEST_METADATA_VERSION]
            raise KafkaStorage(
                f"{self.directory} has metadata.version {level}, but this version of aiokq knows "
                f"{MINIMUM_METADATA_VERSION} to {LATEST_METADATA_VERSION} ({oldest} to {newest}); "
                "nothing was changed: use a newer aiokq, or continue with Kafka"
            )


def _damaged(
    state: MetadataState,
    path: str,
    base: int,
    position: int,
    reason: str,
    offset: int,
    epoch: int | None = None,
) -> MetadataDamaged:
    return MetadataDamaged(
        f"{path} is damaged at byte {position} ({reason}): the metadata records from offset "
        f"{offset} on are at stake",
        reason,
        state,
        base=base,
        position=position,
        offset=offset,
        epoch=epoch,
    )
