"""Owns the log of one partition: appends, reads, producer state, leader epochs, deletion.

Knows no topics, connections or requests, and does not decide what is committed: the replica does
(``aiokq.broker.replica``). Segments and syncs are in ``local_log``, opening and repair in
``recovery``, the checks of an append in ``appending`` and ``validation``.

Source: Kafka ``UnifiedLog.java``.
Tests: ``tests/unit/broker/log/test_partition_log.py``, ``tests/property/test_log_partition.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokq.broker.log.appending import prepare_append
from aiokq.broker.log.local_log import LocalLog
from aiokq.broker.log.producer_snapshot import encode_snapshot, write_snapshot
from aiokq.broker.log.producer_state import Origin, ProducerState
from aiokq.broker.log.results import AppendResult, LogRead
from aiokq.broker.log.retention import RetainedLog, expired
from aiokq.broker.log.segment import Segment
from aiokq.broker.log.segments import TimestampSearch
from aiokq.core.errors import CorruptRecord, OffsetOutOfRange, RecordBatchTooLarge
from aiokq.core.files import FileRange, Files
from aiokq.core.types import TopicPartition
from aiokq.records.header import NO_TIMESTAMP, BatchHeader, Checksum

if TYPE_CHECKING:
    from aiokq.broker.log.appending import Appendable, PreparedAppend
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.disk_trouble import DiskTrouble
    from aiokq.broker.log.epochs import LeaderEpochs
    from aiokq.broker.log.open_files import OpenFiles
    from aiokq.broker.log.retention import RetentionPolicy
    from aiokq.broker.log.transaction_index import AbortedTransaction

__all__ = ["AppendResult", "LogRead", "PartitionLog"]

logger = logging.getLogger("aiokq.broker.log")


class PartitionLog(LocalLog):
    """The records of one partition.

    Touched from one thread at a time: the broker's loop, after recovery handed it over.

    Attributes:
        high_watermark: the offset up to which records are committed. Only the replica sets it; the
            log keeps it, as the bound of what is read, deleted and compacted.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: str,
        *,
        files: Files,
        config: LogConfig,
        crc32c: Checksum,
        segments: Sequence[Segment],
        producers: ProducerState,
        epochs: LeaderEpochs,
        log_start_offset: int,
        high_watermark: int,
        changed: bool,
        disk: DiskTrouble,
        open_files: OpenFiles,
    ) -> None:
        super().__init__(
            topic_partition,
            directory,
            files=files,
            config=config,
            segments=segments,
            changed=changed,
            disk=disk,
            open_files=open_files,
        )
        self._crc32c = crc32c
        self._producers = producers
        self._epochs = epochs
        self._log_start_offset = log_start_offset
        self.high_watermark = min(max(high_watermark, log_start_offset), self.log_end_offset)

    # --- what it is

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self._log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the start of the first transaction not decided below it."""
        unstable = self._producers.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def producers(self) -> ProducerState:
        """What is known of idempotent producers."""
        return self._producers

    @property
    def epochs(self) -> LeaderEpochs:
        """The history of leader epochs."""
        return self._epochs

    # --- append

    def append(
        self,
        data: memoryview,
        headers: Sequence[BatchHeader],
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> AppendResult:
        """Append batches as they came, with offsets and leader epoch patched.

        # hot: benchmarks/raw_load.py. One write, no copy but for what a topic setting changes.

        Awaits nothing: when it returns they are in the log, and the next append follows them.
        Consumers see them when the replica advances ``high_watermark``.

        Args:
            data: the batches, one after the other; bytes behind the last header's are ignored.
            headers: of the batches in ``data``.
            leader_epoch: of this node's leadership of the partition.
            now_ms: the broker's time.

        Raises:
            InvalidRecord, CorruptRecord, RecordTooLarge, InvalidTimestamp: see ``appending``.
            RecordBatchTooLarge: more bytes than a segment may hold.
            OutOfOrderSequence, InvalidProducerEpoch: see ``producer_state``.
            KafkaStorage: the disk refused; nothing of the append is in the log.
        """
        prepared = self.prepare(data, headers, now_ms=now_ms, origin=origin)
        return self.append_prepared(prepared, leader_epoch=leader_epoch)

    def prepare(
        self,
        data: memoryview,
        headers: Sequence[BatchHeader],
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> PreparedAppend:
        """Check batches as ``append`` does, for ``append_prepared``."""
        self.check_usable()
        return prepare_append(
            data, headers, self.config, now_ms=now_ms, origin=origin, crc32c=self._crc32c
        )

    def append_prepared(self, prepared: Appendable, *, leader_epoch: int) -> AppendResult:
        """Append batches that were checked against ``config`` as it is now.

        Whether they are committed is the replica's to decide.

        Raises:
            RecordBatchTooLarge, OutOfOrderSequence, InvalidProducerEpoch, KafkaStorage: as
                ``append``.
        """
        # hot: benchmarks/raw_load.py
        self.check_usable()
        if prepared.size > self.config.segment_bytes:
            raise RecordBatchTooLarge(
                f"append of {prepared.size} bytes is larger than segment.bytes"
                f" {self.config.segment_bytes}"
            )
        stamped = prepared.stamped
        duplicate = prepared.check(self._producers)
        if duplicate is not None:
            return AppendResult(
                duplicate.first_offset,
                duplicate.last_offset,
                duplicate.timestamp_ms if stamped else NO_TIMESTAMP,
                self._log_start_offset,
                duplicate=True,
            )
        base_offset = self.log_end_offset
        next_offset = self._write(prepared, base_offset, leader_epoch)
        return AppendResult(
            base_offset,
            next_offset - 1,
            prepared.now_ms if stamped else NO_TIMESTAMP,
            self._log_start_offset,
        )

    def _write(self, prepared: Appendable, base_offset: int, leader_epoch: int) -> int:
        """Write batches, all or none, and take note of them; the log's end then."""
        now_ms = prepared.now_ms
        placed = prepared.placed_at(base_offset, leader_epoch)
        # All that can fail comes before the write: what is written is not taken back.
        if self._tail.is_full(placed, now_ms):
            self._roll(now_ms)
        if leader_epoch > self._epochs.latest_epoch:
            self.assign_epoch(leader_epoch, base_offset)
        self._changed = True
        self._tail.write(placed)
        for header, marker in placed.produced:
            if marker is None:
                self._producers.update(header, now_ms)
            else:
                aborted = self._producers.end_transaction(header, marker, now_ms)
                if aborted is not None:
                    self._renamed = True  # it may be the first, which makes the file
                    self._segments.active.note_aborted(aborted)
        next_offset = placed.next_offset
        self._producers.map_end_offset = next_offset
        if self.durability.may_wait:
            self.durability.appended(self, next_offset)
        return next_offset

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the newest is empty."""
        self.check_usable()
        if self._segments.active.size:
            self._roll(now_ms)

    def take_snapshot(self) -> None:
        """Write the producer state at the log's end."""
        write_snapshot(
            self._files,
            self.directory,
            self.log_end_offset,
            encode_snapshot(self._producers, self._crc32c),
        )

    # --- read

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound: int | None = None,
        at_least_one: bool = True,
        read_committed: bool = False,
    ) -> LogRead:
        """Whole batches from the one that holds ``offset`` on; no record is touched.

        # hot: benchmarks/raw_load.py

        Args:
            max_bytes: the most they may have in all.
            upper_bound: batches that reach this offset are left out; None takes the high
                watermark.
            at_least_one: the first batch is given even if it is larger than ``max_bytes``.
            read_committed: also say which transactions in what is given were aborted.

        Raises:
            OffsetOutOfRange: ``offset`` is before the log's start or behind its end.
        """
        end = self.log_end_offset
        if not self._log_start_offset <= offset <= end:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.topic_partition} is outside"
                f" {self._log_start_offset}..{end}",
                topic_partition=self.topic_partition,
            )
        bound = self.high_watermark if upper_bound is None else min(upper_bound, end)
        fragments: list[FileRange] = []
        size, upper = 0, offset
        if offset < bound and (max_bytes > 0 or at_least_one):
            try:
                fragments, size, upper = self._segments.read(
                    offset, max_bytes, bound, at_least_one=at_least_one
                )
            except OSError as error:
                raise self.read_refused(error) from error
        return LogRead(
            fragments,
            size,
            self._segments.aborted_transactions(offset, upper) if read_committed and size else (),
        )

    def search_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampSearch | None:
        """Where to look for the first record not earlier than ``timestamp_ms``; None if all are.

        The log says where, the search reads: it may run in an executor while the log goes on. One
        that finds nothing is followed by another from its ``end_offset`` on.

        Args:
            start_offset: records before it do not count, nor those before the log's start.
        """
        self._check_open()
        try:
            return self._segments.search(timestamp_ms, max(start_offset, self._log_start_offset))
        except OSError as error:
            raise self.read_refused(error) from error

    def max_timestamp_ms(self) -> int:
        """The largest timestamp of all records; -1 without one."""
        self._check_open()
        try:
            return self._segments.max_timestamp_ms()
        except OSError as error:
            raise self.read_refused(error) from error

    # --- epochs

    def assign_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """A leader's epoch begins, at the end of the log unless said otherwise.

        Raises:
            KafkaStorage: its file cannot be written.
        """
        try:
            start = self.log_end_offset if start_offset is None else start_offset
            if self._epochs.assign(epoch, start):
                self._changed = self._renamed = True
        except OSError as error:
            raise self._refused("epoch not written", error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above ``epoch`` and where it ends; (-1, -1) if not known."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of the leader that wrote ``offset``; -1 if not known."""
        return self._epochs.epoch_for_offset(offset)

    # --- shorter

    def delete_records(self, offset: int) -> int:
        """Hide the records before ``offset`` and let go of whole segments; the new log start.

        Raises:
            OffsetOutOfRange: above the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} is above the high watermark {self.high_watermark}",
                topic_partition=self.topic_partition,
            )
        if offset > self._log_start_offset:
            self._changed = self._renamed = True
            self._log_start_offset = offset
            *older, active = self._segments.all
            kept = [segment for segment in older if segment.next_offset > offset]
            try:
                self._epochs.truncate_from_start(offset)
                if len(kept) < len(older):
                    self._segments.replace([*kept, active])
            except OSError as error:
                raise self._refused("records not deleted", error) from error
        return self._log_start_offset

    def retain(self, policies: Sequence[RetentionPolicy], now_ms: int) -> int:
        """Let go of the oldest segments that a policy names; how many went.

        The log then starts where what is left begins. Where nothing is left, that is an empty
        segment at its end.

        Raises:
            KafkaStorage: the disk refused, or a segment cannot be read.
        """
        self.check_usable()
        segments = self._segments.all
        try:
            view = RetainedLog(
                segments,
                self._log_start_offset,
                self.log_end_offset,
                self.high_watermark,
                self.config,
                now_ms,
            )
            count, reason = expired(view, policies)
        except (OSError, CorruptRecord) as error:
            raise self._refused("retention failed", error) from error
        if not count:
            return 0
        if count == len(segments):
            self._roll(now_ms)
        kept = self._segments.all[count:]
        start = max(self._log_start_offset, kept[0].base_offset)
        self._changed = self._renamed = True
        try:
            if start > self._log_start_offset:
                self._epochs.truncate_from_start(start)
                self._log_start_offset = start
            self._segments.replace(kept)
        except OSError as error:
            raise self._refused("records not deleted", error) from error
        logger.info(
            "segments deleted partition=%s reason=%r segments=%d bytes=%d log_start_offset=%d",
            self.topic_partition,
            reason,
            count,
            sum(segment.size for segment in segments[:count]),
            start,
        )
        return count

    # --- transactions

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The transactions with records between two offsets that were aborted."""
        return self._segments.aborted_transactions(start, end)

    # --- producers

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were silent for ``expiration_ms``; how many."""
        return self._producers.expire(now_ms, expiration_ms)

    def __repr__(self) -> str:
        return (
            f"<PartitionLog {self.topic_partition} {self._log_start_offset}.."
            f"{self.log_end_offset} {len(self._segments.all)} segments>"
        )
