"""Owns how a partition's log is found on disk: opened after a clean stop, made sound after a kill.

Synchronous, for an executor: it may read every byte. What it does, in order: leftovers of an
interrupted cleaning are finished or removed; after an unclean stop each batch is checked (CRC,
offsets that rise), the log cut at the first bad one, and what was behind it kept aside if any of
it may have been acknowledged; indexes are made again where they do not fit; epochs and producer
state follow from the log and the last snapshot.

Source: Kafka ``LogLoader.java``, ``LogSegment.recover``.
Tests: ``tests/unit/broker/log/test_recovery.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import names
from aiokq.broker.log.corruption import keep_aside, only_zeros, valid_batches
from aiokq.broker.log.epochs import LeaderEpochs
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.producer_snapshot import restore_producers
from aiokq.broker.log.segment import Segment
from aiokq.broker.log.walk import walk_headers
from aiokq.core.errors import CorruptRecord
from aiokq.core.files import Files
from aiokq.core.types import TopicPartition
from aiokq.records.header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Checksum,
    read_header,
    verify_crc,
)

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig

logger = logging.getLogger("aiokq.broker.log")

WINDOW: Final = 1024 * 1024
"""Bytes read at a time while checking; a larger batch is read by itself."""


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """How far the recovery of one log is, for whoever waits for it."""

    topic_partition: TopicPartition
    checked_bytes: int
    total_bytes: int


Progress = Callable[[RecoveryProgress], None]


def open_log(
    files: Files,
    directory: str,
    topic_partition: TopicPartition,
    *,
    config: LogConfig,
    crc32c: Checksum,
    now_ms: int,
    clean: bool,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    progress: Progress | None = None,
) -> PartitionLog:
    """The log in ``directory``, which is made with an empty segment if nothing is there.

    Args:
        clean: the last stop was clean: nothing is scanned.
        log_start_offset: what DeleteRecords or retention left, from the checkpoint.
        recovery_point: records before it are known to be sound; whole segments are skipped.
        progress: called now and then while batches are checked, from this thread.

    Raises:
        OSError: the disk refused.
    """
    files.mkdirs(directory)
    finish_interrupted(files, directory)
    loader = _Loader(files, directory, topic_partition, config, crc32c, now_ms, progress)
    segments = loader.load(clean=clean, log_start_offset=log_start_offset, point=recovery_point)
    producers = restore_producers(files, directory, segments, crc32c, now_ms)
    end = segments[-1].next_offset
    epochs = loader.epochs
    epochs.truncate_from_end(end)
    start = min(max(log_start_offset, segments[0].base_offset), end)
    if start > 0:
        epochs.truncate_from_start(start)
    return PartitionLog(
        topic_partition,
        directory,
        files=files,
        config=config,
        crc32c=crc32c,
        segments=segments,
        producers=producers,
        epochs=epochs,
        log_start_offset=start,
    )


def finish_interrupted(files: Files, directory: str) -> None:
    """Finish or undo what a crash interrupted: ``.swap``, ``.cleaned``, ``.deleted``, ``.tmp``.

    A swap is complete once a segment's ``.log.swap`` is there and no ``.cleaned`` is older: its
    files then replace those they were made from. Else the originals are all still there.
    """
    found = files.listdir(directory)
    swaps: dict[int, list[str]] = {}
    cleaned: list[int] = []
    for name in found:
        stem, dot, suffix = name.rpartition(".")
        parsed = names.parse_segment_file(stem)
        if dot + suffix == names.SWAP and parsed is not None:
            swaps.setdefault(parsed[0], []).append(stem)
        elif dot + suffix == names.CLEANED and parsed is not None:
            cleaned.append(parsed[0])
        if dot + suffix in (names.CLEANED, names.DELETED, names.TEMPORARY):
            files.remove(f"{directory}/{name}")
    for base_offset in sorted(swaps):
        stems = swaps[base_offset]
        log_swap = names.segment_file(directory, base_offset, names.LOG) + names.SWAP
        if cleaned and base_offset >= min(cleaned):
            for stem in stems:
                files.remove(f"{directory}/{stem}{names.SWAP}")
            continue
        if files.exists(log_swap):
            _remove_replaced(files, directory, log_swap, base_offset, set(swaps))
        for stem in stems:
            files.rename(f"{directory}/{stem}{names.SWAP}", f"{directory}/{stem}")
        logger.info("finished swap directory=%s base_offset=%d", directory, base_offset)


def _remove_replaced(
    files: Files, directory: str, log_swap: str, base_offset: int, swapped: set[int]
) -> None:
    """Remove the segments whose records a swapped-in one holds."""
    end = base_offset
    file = files.open(log_swap)
    try:
        for _, header in walk_headers(file, 0, file.size()):
            end = max(end, header.last_offset)
    finally:
        file.close()
    for name in files.listdir(directory):
        parsed = names.parse_segment_file(name)
        if parsed is None or parsed[1] not in names.SEGMENT_SUFFIXES:
            continue
        if base_offset <= parsed[0] <= end and (
            parsed[0] == base_offset or parsed[0] not in swapped
        ):
            files.remove(f"{directory}/{name}")


class _Loader:
    """Builds the segments of one log."""

    def __init__(
        self,
        files: Files,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        crc32c: Checksum,
        now_ms: int,
        progress: Progress | None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._name = topic_partition
        self._config = config
        self._crc32c = crc32c
        self._now_ms = now_ms
        self._progress = progress
        self._checked = self._total = 0
        self.epochs = LeaderEpochs(files, f"{directory}/{names.LEADER_EPOCHS}")

    def load(self, *, clean: bool, log_start_offset: int, point: int) -> list[Segment]:
        """The segments, at least one."""
        bases = self._bases()
        self._load_epochs()
        if not bases:
            segment = self._segment(log_start_offset)
            segment.create()
            return [segment]
        if clean:
            try:
                return self._open_all(bases)
            except CorruptRecord as error:
                logger.error(
                    "log is not what a clean stop leaves, recovering it partition=%s error=%s",
                    self._name,
                    error.message,
                )
        return self._recover_all(bases, point)

    def _bases(self) -> list[int]:
        """Base offsets of the segments; index files without a log are removed."""
        found = [names.parse_segment_file(name) for name in self._files.listdir(self._directory)]
        parsed = [item for item in found if item is not None]
        bases = {base for base, suffix in parsed if suffix == names.LOG}
        for base, suffix in parsed:
            if suffix in names.SEGMENT_SUFFIXES and base not in bases:
                logger.warning(
                    "removing index without a log partition=%s base_offset=%d", self._name, base
                )
                self._files.remove(names.segment_file(self._directory, base, suffix))
        return sorted(bases)

    def _load_epochs(self) -> None:
        try:
            self.epochs.load()
        except CorruptRecord as error:
            logger.warning("epochs are made anew partition=%s error=%s", self._name, error.message)

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self._files,
            self._directory,
            base_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            index_bytes=self._config.segment_index_bytes,
            now_ms=self._now_ms,
        )

    def _open_all(self, bases: Sequence[int]) -> list[Segment]:
        segments = [self._segment(base) for base in bases]
        for segment, after in zip(segments, [*bases[1:], None], strict=True):
            segment.open_existing(sealed_at=after)
        return segments

    # --- after an unclean stop

    def _recover_all(self, bases: Sequence[int], point: int) -> list[Segment]:
        # a segment that ends at or before the recovery point was synced whole
        sound = sum(1 for after in bases[1:] if after <= point)
        self._total = sum(
            self._files.stat_size(names.segment_file(self._directory, base, names.LOG))
            for base in bases[sound:]
        )
        segments = self._open_all(bases[: sound + 1])[:sound] if sound else []
        expected = bases[sound]
        for index in range(sound, len(bases)):
            segment = self._segment(bases[index])
            whole = self._recover(segment, max(expected, bases[index]))
            segments.append(segment)
            expected = segment.next_offset
            if not whole:
                self._set_aside_later(bases[index + 1 :])
                break
        self.epochs.write()
        for segment in segments[sound:-1]:
            segment.seal()
        segments[-1].flush_indexes()
        return segments

    def _recover(self, segment: Segment, expected: int) -> bool:
        """Check one segment from its first byte; False if it had to be cut."""
        file = segment.file
        end = file.size()
        segment.begin_rebuild()
        position, reason = 0, ""
        window, start = memoryview(b""), 0
        next_report = self._checked + 64 * WINDOW
        while position < end:
            at = position - start
            if len(window) - at < min(HEADER_SIZE, end - position):
                window, start, at = self._read(segment, position, WINDOW, end), position, 0
            try:
                header = read_header(window, at)
            except CorruptRecord as error:
                reason = error.message
                break
            if header.size > end - position:
                reason = f"batch of {header.size} bytes with {end - position} left"
                break
            if len(window) - at < header.size:
                size = max(header.size, WINDOW)
                window, start, at = self._read(segment, position, size, end), position, 0
            batch = window[at : at + header.size]
            reason = self._flaw(batch, header, expected, segment.base_offset)
            if reason:
                break
            segment.note_batch(header.last_offset, header.size, header.max_timestamp_ms)
            if header.magic >= 2:
                self.epochs.note(header.leader_epoch, header.base_offset)
            expected = header.next_offset
            position += header.size
            if self._checked + position >= next_report:
                next_report += 64 * WINDOW
                self._report(self._checked + position)
        self._checked += end
        self._report(self._checked)
        if position < end:
            self._cut(segment, position, end, expected, reason)
            return False
        return True

    def _read(self, segment: Segment, position: int, size: int, end: int) -> memoryview:
        return memoryview(segment.file.pread(min(size, end - position), position))

    def _flaw(self, batch: memoryview, header: BatchHeader, expected: int, base: int) -> str:
        """Why a whole batch cannot stand where it is; empty if it can."""
        if not verify_crc(batch, header, self._crc32c):
            return "CRC mismatch"
        if header.base_offset < expected and header.magic >= 2:
            return f"base offset {header.base_offset} after {expected - 1}"
        if header.last_offset < expected or header.last_offset - base > 2**31 - 1:
            return f"last offset {header.last_offset} where {expected} was due"
        return ""

    def _report(self, checked: int) -> None:
        if self._progress is not None:
            self._progress(RecoveryProgress(self._name, checked, self._total))

    def _cut(self, segment: Segment, position: int, end: int, expected: int, reason: str) -> None:
        """Truncate a segment at a bad batch; keep what is removed unless it is a torn append."""
        path = segment.path(names.LOG)
        torn = _is_torn(self._read(segment, position, HEADER_SIZE, end), end - position)
        lost = valid_batches(segment.file, position, end, expected, self._crc32c)
        if torn and lost is None:
            logger.warning(
                "removing torn tail partition=%s file=%s position=%d bytes=%d next_offset=%d",
                self._name,
                path,
                position,
                end - position,
                expected,
            )
        elif lost is None and only_zeros(segment.file, position, end):
            logger.warning(
                "removing zeros partition=%s file=%s position=%d bytes=%d next_offset=%d",
                self._name,
                path,
                position,
                end - position,
                expected,
            )
        else:
            kept = keep_aside(self._files, segment.file, path, position, end)
            logger.error(
                "corrupt batch, log cut partition=%s file=%s position=%d reason=%r"
                " lost_offsets=%s bytes=%d kept=%s",
                self._name,
                path,
                position,
                reason,
                _offsets(expected, lost),
                end - position,
                kept,
            )
        segment.file.truncate(position)

    def _set_aside_later(self, bases: Sequence[int]) -> None:
        """Segments behind a cut cannot be served: there would be a hole in the offsets."""
        for base in bases:
            path = names.segment_file(self._directory, base, names.LOG)
            size = self._files.stat_size(path)
            if size:
                file = self._files.open(path)
                try:
                    lost = valid_batches(file, 0, size, base, self._crc32c)
                finally:
                    file.close()
                kept = f"{path}{names.CORRUPT}0"
                self._files.rename(path, kept)
                logger.error(
                    "segment behind a cut set aside partition=%s file=%s lost_offsets=%s"
                    " bytes=%d kept=%s",
                    self._name,
                    path,
                    _offsets(base, lost),
                    size,
                    kept,
                )
            for suffix in names.SEGMENT_SUFFIXES:
                path = names.segment_file(self._directory, base, suffix)
                if self._files.exists(path):
                    self._files.remove(path)


def _is_torn(head: memoryview, left: int) -> bool:
    """Whether the bytes at the end of a log are the beginning of a batch and no more."""
    if len(head) < LOG_OVERHEAD:
        return True
    size = int.from_bytes(head[8:12], "big", signed=True) + LOG_OVERHEAD
    return size > left


def _offsets(first: int, last: int | None) -> str:
    return f"{first}-{last}" if last is not None else f"{first}-?"
