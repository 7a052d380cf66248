"""Opening of a partition's log: loaded after a clean shutdown, checked and repaired after a kill.

The functions block, because they may read every byte. Existing logs are opened in an executor. The
steps:

1. Interrupted cleanings, deletions and replacements of files are finished or undone.
2. After an unclean shutdown each batch of the segments that are not known to be durable is checked
   (CRC, offsets). The log is cut at the first bad batch, or at a gap between two segments. The
   removed bytes are kept in ``.corrupt-`` files if some of their records may have been
   acknowledged.
3. Indexes that do not match their segment are rebuilt.
4. Leader epochs, producer state and aborted transactions are restored: from their files, as far as
   these are valid, and from the batches of the log.

aiokq's compaction keeps the last batch of the segments that it merges, so each segment begins where
the previous segment ends. A gap between two segments was left either by a power cut, which removed
the unsynced end of a segment, or by Apache Kafka's compaction. A gap that Kafka's compaction may
have left is accepted.

Source: Kafka ``LogLoader.java``, ``LogSegment.recover``.
Tests: ``tests/unit/broker/log/test_recovery.py``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.corruption import Damage, offsets_text
from aiokq.broker.log.index import IndexCorrupt
from aiokq.broker.log.leader_epochs import LeaderEpochs
from aiokq.broker.log.opened_log import OpenedLog
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.producer_snapshot import (
    ProducerReplay,
    remove_snapshots_behind,
    remove_stray_snapshots,
    restore_producers,
)
from aiokq.broker.log.producer_state import ProducerState
from aiokq.broker.log.segment import Segment
from aiokq.broker.log.segment_check import BadBatch, valid_batches
from aiokq.broker.log.temporary_files import settle_temporary_files
from aiokq.broker.log.truncation import cut_files
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import Files
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition
from aiokq.records.header import Checksum

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.disk_trouble import DiskTrouble
    from aiokq.broker.log.open_files import OpenFiles

logger = logging.getLogger("aiokq.broker.log")

REPORT_EVERY: Final = 64 * 1024 * 1024
"""Bytes of one segment between two progress reports."""


@frozen
class RecoveryProgress:
    """Progress of the recovery of one log."""

    topic_partition: TopicPartition
    checked_bytes: int
    total_bytes: int


Progress = Callable[[RecoveryProgress], None]

GAPS_ANYWHERE: Final = 2**63 - 1
"""Value of ``gaps_before`` if Apache Kafka may have compacted the log up to an unknown offset."""


def _without_checkpoints(partition: TopicPartition, offset: int) -> None:
    """Do nothing; used for a log without checkpoints."""


def open_log(
    files: Files,
    directory: str,
    topic_partition: TopicPartition,
    *,
    config: LogConfig,
    crc32c: Checksum,
    now_ms: int,
    disk: DiskTrouble,
    open_files: OpenFiles,
    clean: bool,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    recovery_point: int = 0,
    gaps_before: int = 0,
    forget_behind: Callable[[TopicPartition, int], None] = _without_checkpoints,
    lower_log_start: Callable[[TopicPartition, int], None] = _without_checkpoints,
    progress: Progress | None = None,
) -> PartitionLog:
    """Open the log in ``directory``; create it with an empty segment if it does not exist.

    Args:
        disk: the handler of disk errors of the log directory.
        open_files: the open files of the log directory.
        clean: whether the last shutdown was clean, so that no batch has to be checked.
        log_start_offset: the log start offset in the checkpoint.
        high_watermark: the high watermark in the checkpoint.
        recovery_point: records before this offset are durable; segments that end at or before it
            usually need no check.
        gaps_before: a gap is accepted if the segment after it begins at or before this offset or
            the recovery point. Any other gap means that records were lost; the log is cut there.
        forget_behind: lowers the checkpoints of a partition to an offset, durably, before later
            records are cut off; can be called in any thread.
        lower_log_start: passed on to the log; see ``OpenedLog``. A recovery keeps the log start
            offset, and does not call this function.
        progress: called from time to time while batches are checked, in the calling thread.

    Raises:
        OSError: the disk failed.
    """
    files.mkdirs(directory)
    loader = _Loader(
        files,
        directory,
        topic_partition,
        config,
        crc32c,
        now_ms,
        progress,
        log_start_offset=log_start_offset,
        # Records before the recovery point are synced, so a gap there was left by compaction.
        gaps_before=max(gaps_before, recovery_point),
        forget_behind=forget_behind,
    )
    segments, producers, sound = loader.open(clean=clean, point=recovery_point)
    end = segments[-1].next_offset
    opened = OpenedLog(
        topic_partition=topic_partition,
        directory=directory,
        files=files,
        config=config,
        crc32c=crc32c,
        segments=segments,
        producers=producers,
        epochs=loader.epochs,
        log_start_offset=max(log_start_offset, segments[0].base_offset),
        high_watermark=high_watermark,
        forget_behind=forget_behind,
        lower_log_start=lower_log_start,
        changed=not sound
        or not files.exists(file_names.segment_file(directory, end, file_names.SNAPSHOT)),
        disk=disk,
        open_files=open_files,
    )
    return PartitionLog(opened)


def unchecked_bytes(files: Files, directory: str, recovery_point: int) -> int:
    """Return how many bytes ``open_log`` checks after an unclean shutdown; 0 if there is no log.

    ``open_log`` checks more than these bytes if a durable part of the log is damaged, or if the
    leader epoch file is missing or malformed.

    Raises:
        OSError: the disk failed.
    """
    if not files.is_dir(directory):
        return 0
    found = [file_names.parse_segment_file(name) for name in files.listdir(directory)]
    bases = sorted(base for base, suffix in filter(None, found) if suffix == file_names.LOG)
    sound = sum(1 for after in bases[1:] if after <= recovery_point)
    return sum(
        files.stat_size(file_names.segment_file(directory, base, file_names.LOG))
        for base in bases[sound:]
    )


class _Loader:
    """Loads or recovers the segments of one log."""

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        crc32c: Checksum,
        now_ms: int,
        progress: Progress | None,
        *,
        log_start_offset: int,
        gaps_before: int,
        forget_behind: Callable[[TopicPartition, int], None],
    ) -> None:
        self._files = files
        self._directory = directory
        self._name = topic_partition
        self._config = config
        self._crc32c = crc32c
        self._now_ms = now_ms
        self._progress = progress
        self._start = log_start_offset
        self._gaps_before = gaps_before
        self._forget_behind = forget_behind
        self._damage = Damage(files, directory, topic_partition, crc32c)
        self._checked = self._total = 0
        # The log end offset at the last shutdown, if the shutdown was clean but the log is damaged.
        # None in all other cases.
        self._synced_end: int | None = None
        self.epochs = LeaderEpochs(files, f"{directory}/{file_names.LEADER_EPOCHS}")

    def open(self, *, clean: bool, point: int) -> tuple[list[Segment], ProducerState, bool]:
        """Return the segments, the producer state, and whether the log was opened without a check.

        If a part of the log that should be valid is damaged, the whole log is checked.

        Args:
            clean: whether the last shutdown was clean.
            point: the recovery point.
        """
        try:
            settle_temporary_files(self._files, self._directory)
            segments, producers = self._load(clean=clean, point=point)
        except CorruptRecord as error:
            logger.error(
                "synced part of the log is damaged, checking the whole log partition=%s error=%s",
                self._name,
                error.message,
            )
            self._synced_end = point if clean and point else None
            clean = False
            segments, producers = self._load(clean=False, point=0)
        if self._start > segments[-1].next_offset:
            segments, producers = self._start_empty(segments)
        remove_stray_snapshots(self._files, self._directory, segments)
        for segment in segments:
            segment.release()  # otherwise each segment would keep a descriptor
        # An epoch may begin at the log end offset: it has no records, but clients may know it.
        self.epochs.truncate_from_end(segments[-1].next_offset + 1)
        start = max(self._start, segments[0].base_offset)
        if start > 0:
            self.epochs.truncate_from_start(start)
        return segments, producers, clean

    def _load(self, *, clean: bool, point: int) -> tuple[list[Segment], ProducerState]:
        """Return the segments, at least one, and the producer state at their end.

        Raises:
            CorruptRecord: the log is damaged although the shutdown was clean, or is damaged before
                ``point``.
        """
        bases = self._bases()
        if not bases:
            return self._empty_log()
        epochs_known = self._load_epochs(clean=clean)
        if clean:
            segments = self._open_all(bases, None)
            end = segments[-1].next_offset
            # The CRC of a batch does not cover its offset, so damage to an offset is found here.
            if point and end != point:
                raise CorruptRecord(
                    f"the log ends at offset {end}, but ended at offset {point} when it was closed"
                )
            if not epochs_known:
                self._epochs_of(segments)
            return segments, self._producers_of(segments)
        return self._recover_all(bases, point if epochs_known else 0)

    def _producers_of(self, segments: Sequence[Segment]) -> ProducerState:
        return restore_producers(self._files, self._directory, segments, self._crc32c, self._now_ms)

    def _start_empty(self, segments: Sequence[Segment]) -> tuple[list[Segment], ProducerState]:
        """Replace segments that all end before the log start offset with an empty segment.

        Such segments remain if a power cut removed the records between them and that offset, or if
        segment files were deleted by hand. The new segment begins at the log start offset. If the
        log continued after the old segments, its next records would have offsets that the
        checkpoint declares deleted.

        Source: Kafka ``LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd``.
        """
        logger.warning(
            "log ends before its start offset, restarted empty partition=%s log_end_offset=%d"
            " log_start_offset=%d",
            self._name,
            segments[-1].next_offset,
            self._start,
        )
        for segment in segments:
            segment.add_suffix(file_names.DELETED)
            segment.remove_renamed(file_names.DELETED)
        return self._empty_log()

    def _empty_log(self) -> tuple[list[Segment], ProducerState]:
        """Create an empty segment at the log start offset; remove all producer snapshots.

        The snapshots lack the last batches of the producers and the ends of their transactions,
        because the segments after the snapshots are lost.

        Source: Kafka ``ProducerStateManager.truncateFullyAndStartAt``.
        """
        remove_snapshots_behind(self._files, self._directory, -1)
        segment = self._segment(self._start)
        segment.create(preallocate=self._config.segment_bytes if self._config.preallocate else 0)
        producers = ProducerState()
        producers.map_end_offset = self._start
        return [segment], producers

    def _bases(self) -> list[int]:
        """Return the base offsets of the segments; remove index files without a ``.log``."""
        found = [
            file_names.parse_segment_file(name) for name in self._files.listdir(self._directory)
        ]
        parsed = [item for item in found if item is not None]
        bases = {base for base, suffix in parsed if suffix == file_names.LOG}
        for base, suffix in parsed:
            if suffix in file_names.SEGMENT_SUFFIXES and base not in bases:
                logger.warning(
                    "removing index without a log partition=%s base_offset=%d", self._name, base
                )
                self._files.remove(file_names.segment_file(self._directory, base, suffix))
        return sorted(bases)

    def _load_epochs(self, *, clean: bool) -> bool:
        """Load the leader epochs; return False if they have to be rebuilt from the log."""
        try:
            self.epochs.load(clean=clean)
        except FileNotFoundError:
            return False
        except CorruptRecord as error:
            logger.warning("rebuilding leader epochs partition=%s error=%s", self._name, error)
            return False
        return True

    def _epochs_of(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            for _, header in segment.headers():
                if header.magic >= 2:
                    self.epochs.note(header.leader_epoch, header.base_offset)
        self.epochs.write()

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self._files, self._directory, base_offset, config=self._config, now_ms=self._now_ms
        )

    def _open_all(self, bases: Sequence[int], end: int | None) -> list[Segment]:
        """Open segments without a check of their batches.

        Args:
            end: base offset of the segment that follows these segments; None if there is none.
        """
        segments = [self._segment(base) for base in bases]
        for segment, after in zip(segments, [*bases[1:], end], strict=True):
            segment.open_existing(sealed_at=after)
            if after is not None and not segment.indexes_fit():
                # rebuilt here, so that the first read of the index does not wait for the rebuild
                segment.rebuild_indexes()
        self._load_transactions(segments)
        return segments

    def _load_transactions(self, segments: Sequence[Segment]) -> None:
        """Load the transaction index of each segment; rebuild a damaged index from the log."""
        for number, segment in enumerate(segments):
            try:
                segment.transactions.load()
            except IndexCorrupt as error:
                logger.warning(
                    "rebuilding aborted transactions partition=%s error=%s", self._name, error
                )
                replay = self._replay_to(segment.base_offset, segments[:number])
                segment.transactions.create()
                for position, header in segment.headers():
                    aborted = replay.note(segment, position, header)
                    if aborted is not None:
                        segment.note_aborted(aborted)
                segment.flush_indexes()

    def _replay_to(
        self, end: int, before: Sequence[Segment], *, repair: bool = False
    ) -> ProducerReplay:
        """Return a replay with the producer state at ``end``, from the segments before it."""
        replay = ProducerReplay(
            self._files,
            self._directory,
            before[0].base_offset if before else end,
            end,
            self._crc32c,
            self._now_ms,
            repair=repair,
        )
        replay.walk(before)
        return replay

    def _recover_all(self, bases: Sequence[int], point: int) -> tuple[list[Segment], ProducerState]:
        # A segment that ends at or before the recovery point was synced completely.
        sound = sum(1 for after in bases[1:] if after <= point)
        self._total = sum(
            self._files.stat_size(file_names.segment_file(self._directory, base, file_names.LOG))
            for base in bases[sound:]
        )
        segments = self._open_all(bases[:sound], bases[sound]) if sound else []
        expected = bases[sound]
        # A snapshot after this offset may include records that are lost.
        replay = self._replay_to(expected, segments, repair=True)
        known_epoch = self.epochs.latest_epoch
        # Epochs from this offset on are read from the batches that are checked. Earlier epochs are
        # only known from the file.
        self.epochs.cut(expected)
        for index in range(sound, len(bases)):
            if bases[index] > expected and not self._may_have_gap(expected, bases[index]):
                self._damage.set_segments_aside(bases[index:])
                break
            segment = self._segment(bases[index])
            replay.begin_segment(bases[index])
            ends_at = self._synced_end if index == len(bases) - 1 else None
            bad = self._recover(segment, max(expected, bases[index]), replay, ends_at)
            segments.append(segment)
            expected = segment.next_offset
            if bad is not None:
                self._cut(segment, bad, bases[index + 1 :], known_epoch)
                break
        self._note_known_epoch(known_epoch, expected)
        self.epochs.write()
        for segment in segments[sound:-1]:
            segment.seal()
        segments[-1].flush_indexes()
        replay.state.map_end_offset = segments[-1].next_offset
        return segments, replay.state

    def _recover(
        self, segment: Segment, expected: int, replay: ProducerReplay, ends_at: int | None
    ) -> BadBatch | None:
        """Check one segment from its first byte; return the first bad batch, or None."""
        file = segment.file
        end = file.size()
        segment.begin_recovery()
        next_report = REPORT_EVERY
        try:
            for position, header in valid_batches(
                file, end, segment.base_offset, expected, self._crc32c, ends_at=ends_at
            ):
                segment.note_batch(header.last_offset, header.size, header.max_timestamp_ms)
                if header.has_producer_id:
                    aborted = replay.note(segment, position, header)
                    if aborted is not None:
                        segment.note_aborted(aborted)
                if header.magic >= 2:
                    self.epochs.note(header.leader_epoch, header.base_offset)
                if position >= next_report:
                    next_report += REPORT_EVERY
                    self._report(self._checked + position)
        except BadBatch as bad:
            return bad.with_traceback(None)  # the traceback's frames would keep files open
        finally:
            self._checked += end
            self._report(self._checked)
        return None

    def _may_have_gap(self, end: int, base_offset: int) -> bool:
        """Whether compaction may have left the gap between two segments."""
        if base_offset <= self._gaps_before:
            if self._gaps_before == GAPS_ANYWHERE:
                logger.warning(
                    "gap between segments, attributed to compaction partition=%s offsets=%s",
                    self._name,
                    offsets_text(end, base_offset - 1),
                )
            return True
        logger.error(
            "gap between segments, log truncated partition=%s lost_offsets=%s",
            self._name,
            offsets_text(end, base_offset - 1),
        )
        return False

    def _report(self, checked: int) -> None:
        if self._progress is not None:
            self._progress(RecoveryProgress(self._name, checked, self._total))

    def _note_known_epoch(self, known_epoch: int, end_offset: int) -> None:
        """Keep the newest leader epoch even if its records are lost: clients may know the epoch."""
        if known_epoch > self.epochs.latest_epoch:
            self.epochs.note(known_epoch, end_offset)

    def _cut(
        self, segment: Segment, bad: BadBatch, behind: Sequence[int], known_epoch: int
    ) -> None:
        """Truncate the log at a bad batch; see ``Damage`` for the backup of the removed bytes.

        Args:
            behind: base offsets of the later segments. They are removed before the bad batch, so
                that after an interruption the next recovery finds the bad batch again. If the bad
                batch were removed first, the later segments would look valid.
        """
        self._note_known_epoch(known_epoch, segment.next_offset)
        cut_files(
            self._files,
            self._directory,
            segment,
            self.epochs,
            forget_behind=functools.partial(self._forget_behind, self._name),
            remove_behind=functools.partial(self._set_aside, segment, bad, behind),
        )

    def _set_aside(self, segment: Segment, bad: BadBatch, behind: Sequence[int]) -> None:
        self._damage.set_segments_aside(behind)
        self._damage.keep_end(segment.file, segment.path(file_names.LOG), bad)
