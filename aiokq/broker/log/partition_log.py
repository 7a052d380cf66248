"""The log of one partition: appends, truncation, deletion of old records, producer state.

The replica decides which records are committed (``aiokq.broker.replica``). Other modules
have the reads (``log_reading``), segments and syncs (``local_log``), opening and repair
(``recovery``), and the checks of an append (``appending``, ``validation``).

Source: Kafka ``UnifiedLog.java``.
Tests: ``tests/unit/broker/log/test_partition_log.py``, ``tests/property/test_log_partition.py``.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokq.broker.log.appending import AppendResult, prepare_append
from aiokq.broker.log.flusher import PendingFlush
from aiokq.broker.log.follower_append import leader_batches
from aiokq.broker.log.log_reading import LogRead, ReadableLog
from aiokq.broker.log.producer_snapshot import encode_snapshot
from aiokq.broker.log.producer_state import Origin, ProducerState
from aiokq.broker.log.retention import RetainedLog, expired
from aiokq.broker.log.truncation import (
    Cut,
    cut_files,
    find_cut,
    rename_segments,
    restart_files,
)
from aiokq.core.errors import CorruptRecord, KafkaStorage, OffsetOutOfRange, RecordBatchTooLarge
from aiokq.core.supervisor import shielded
from aiokq.records.header import NO_TIMESTAMP, BatchHeader

if TYPE_CHECKING:
    from aiokq.broker.log.appending import Appendable, PlacedAppend, PreparedAppend
    from aiokq.broker.log.opened_log import OpenedLog
    from aiokq.broker.log.retention import RetentionPolicy
    from aiokq.core.offload import Offload

__all__ = ["AppendResult", "LogRead", "PartitionLog"]

logger = logging.getLogger("aiokq.broker.log")


class PartitionLog(ReadableLog):
    """The log of one partition.

    Used by one thread at a time: the thread that opens the log, then the broker's loop, and finally
    the thread that closes the log.
    """

    def __init__(self, opened: OpenedLog) -> None:
        super().__init__(opened)
        self._crc32c = opened.crc32c
        self._forget_behind = opened.forget_behind
        self._lower_log_start = opened.lower_log_start
        self._unfinished: Cut | None = None  # a truncation that failed while it cut the files

    def append(
        self,
        data: memoryview,
        headers: Sequence[BatchHeader],
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
    ) -> AppendResult:
        """Append batches with new offsets and the leader epoch.

        On return the batches are in the log; a duplicate is not written again. Consumers see the
        batches when the replica advances ``high_watermark``.

        Args:
            data: the batches, one after the other; bytes after the last header's batch are ignored.
            headers: headers of the batches in ``data``.
            leader_epoch: the leader epoch in which this node leads the partition.
            now_ms: the broker's time.

        Raises:
            InvalidRecord, CorruptRecord, RecordTooLarge, InvalidTimestamp,
                UnsupportedCompressionType: see ``validation``.
            RecordBatchTooLarge: the append is larger than ``segment.bytes``.
            OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState,
                TransactionCoordinatorFenced: see ``Appendable.check``.
            KafkaStorage: the disk failed, or the log is closed or being truncated; nothing of the
                append is in the log.
        """
        # Hot path, measured by benchmarks/raw_load.py.
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
        """Check batches as ``append`` does, but not their sequences and their total size.

        ``append_prepared`` checks the sequences and the total size, and appends the result.
        """
        self.check_usable()
        return prepare_append(
            data, headers, self.config, now_ms=now_ms, origin=origin, crc32c=self._crc32c
        )

    def append_prepared(self, prepared: Appendable, *, leader_epoch: int) -> AppendResult:
        """Append batches that were checked against the current ``config``.

        Raises:
            RecordBatchTooLarge, OutOfOrderSequence, InvalidProducerEpoch, InvalidTxnState,
                TransactionCoordinatorFenced, KafkaStorage: see ``append``.
        """
        # Hot path, measured by benchmarks/raw_load.py.
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
        base_offset = self._segments.active.next_offset
        next_offset = self._write(
            prepared.placed_at(base_offset, leader_epoch),
            ((leader_epoch, base_offset),) if leader_epoch > self._epochs.latest_epoch else (),
            prepared.now_ms,
        )
        timestamp_ms = prepared.now_ms if stamped else NO_TIMESTAMP
        # `tuple.__new__` saves the 0.1 us that the Python constructor of `AppendResult` takes.
        return tuple.__new__(
            AppendResult,
            (base_offset, next_offset - 1, timestamp_ms, self._log_start_offset, False),
        )

    def append_as_follower(
        self, data: memoryview, headers: Sequence[BatchHeader], *, leader_epoch: int, now_ms: int
    ) -> int:
        """Append batches of the partition's leader unchanged; return the new log end offset.

        All batches are checked before the first is written. They are written one segment at a time,
        so after an error of the disk the log may contain only the batches of the first segments.

        Args:
            data: the batches, one after the other, with their offsets and leader epochs.
            headers: headers of the batches in ``data``.
            leader_epoch: leader epoch of the leader that sent the batches.

        Raises:
            UnexpectedAppendOffset: the first batch begins before the log end offset; see
                ``Partition.append_as_follower`` in ``replica``.
            CorruptRecord: the batches do not continue the log, are damaged, or have a wrong leader
                epoch; see ``follower_append``.
            KafkaStorage: the disk failed, or the log is closed or being truncated.
        """
        self.check_usable()
        runs = leader_batches(
            self.topic_partition,
            data,
            headers,
            end_offset=self.log_end_offset,
            latest_epoch=self._epochs.latest_epoch,
            leader_epoch=leader_epoch,
            segment_bytes=self.config.segment_bytes,
            crc32c=self._crc32c,
        )
        for placed, epochs in runs:
            self._write(placed, epochs, now_ms)
        return self.log_end_offset

    def _write(self, placed: PlacedAppend, epochs: Sequence[tuple[int, int]], now_ms: int) -> int:
        """Write batches, all or none, and update the producer state; return the new log end offset.

        Args:
            epochs: leader epochs that begin in the batches, each with its first offset.
        """
        # Everything that may fail comes first, because a successful write is never undone.
        if self._writer.is_full(placed, now_ms):
            self._roll(now_ms)
        for epoch, start_offset in epochs:
            self.assign_epoch(epoch, start_offset)
        self._changed = True
        self._writer.write(placed)
        for header, marker in placed.produced:
            if marker is None:
                self._producers.update(header, now_ms)
            else:
                aborted = self._producers.end_transaction(header, marker, now_ms)
                self._producers.limit_completed(self.high_watermark)
                if aborted is not None:
                    self._renamed = True  # after its first entry, the transaction index gets a file
                    self._segments.active.note_aborted(aborted)
        next_offset = placed.next_offset
        self._producers.map_end_offset = next_offset
        if self.durability.may_wait:
            self.durability.appended(self, next_offset)
        return next_offset

    def begin_flush(self, before: int | None) -> PendingFlush | None:
        """See ``LocalLog.begin_flush``; the result includes the file of leader epochs."""
        pending = super().begin_flush(before)
        if pending is None:
            return None
        try:
            return pending._replace(files=[*pending.files, *self._epochs.begin_sync()])
        except OSError as error:
            self.redo_flush(pending)
            raise self._refused("flush failed", error) from error

    def redo_flush(self, failed: PendingFlush) -> None:
        """See ``LocalLog.redo_flush``."""
        self._epochs.redo_sync()
        super().redo_flush(failed)

    def flush(self) -> None:
        """See ``LocalLog.flush``."""
        for file in self._epochs.begin_sync():
            file.sync()
            file.close()
        super().flush()

    def roll(self, now_ms: int) -> None:
        """Start a new segment unless the newest is empty.

        Raises:
            KafkaStorage: the disk failed, or the log is closed or being truncated.
        """
        self.check_usable()
        if self._segments.active.size:
            self._roll(now_ms)

    def take_snapshot(self) -> None:
        """Write a snapshot of the producer state at the log end offset."""
        data = encode_snapshot(self._producers, self._crc32c)
        self._snapshots.write(self.log_end_offset, data)

    def assign_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Record that a leader epoch begins at ``start_offset``, by default the log end offset.

        Raises:
            KafkaStorage: the file of leader epochs cannot be written.
        """
        try:
            start = self.log_end_offset if start_offset is None else start_offset
            if self._epochs.assign(epoch, start):
                self._changed = self._renamed = True
        except OSError as error:
            raise self._refused("epoch not written", error) from error

    def delete_records(self, offset: int) -> int:
        """Raise the log start offset to ``offset``; remove finished segments that end before it.

        Returns:
            The log start offset. If it was not below ``offset``, nothing has changed.

        Raises:
            OffsetOutOfRange: ``offset`` is above the high watermark.
            KafkaStorage: the disk failed, or the log is being truncated.
        """
        if self.is_truncating:
            raise self._truncating_error()
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
        """Remove the oldest segments that the policies count as expired; return their number.

        Afterwards the log start offset is at least the base offset of the oldest remaining segment.
        If no segment remains, a new empty segment is added at the log end offset.

        Raises:
            ColdRead: timestamps have to be read from the disk first.
            KafkaStorage: the disk failed, a segment cannot be read, or the log is closed or being
                truncated.
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

    async def truncate_to(self, offset: int, offload: Offload, *, now_ms: int) -> int:
        """Remove all records from ``offset`` on; return the new log end offset.

        A batch that holds ``offset`` is removed completely. The new log end offset is lower than
        ``offset`` if such a batch began earlier, if compaction left a gap before ``offset``, or if
        the log ended earlier anyway.

        During the call nothing is appended. Readers see the shorter log before the files are cut.
        If an error leaves the truncation unfinished, the log takes no appends until another call
        has finished the truncation or the log is opened again.

        Args:
            offload: runs the reads and writes of files off the loop.

        Raises:
            OffsetOutOfRange: ``offset`` is below the high watermark, or the batch that holds it
                begins below the high watermark.
            KafkaStorage: the disk failed, or the log is closed or being truncated.
            CorruptRecord: the log cannot be read.
        """
        # Shielded, so that a cancelled caller does not interrupt the truncation.
        return await shielded(
            self._truncate_to(offset, offload, now_ms),
            name=f"truncate {self.topic_partition}",
            expected=(OffsetOutOfRange, KafkaStorage),
        )

    async def start_at(self, offset: int, offload: Offload, *, now_ms: int) -> None:
        """Discard all records and continue with an empty log at ``offset``.

        Used by a follower without records if its log end offset is inside the first batch that it
        fetched; `Partition.append_as_follower` says how that happens. Afterwards the log start
        offset, the log end offset and the high watermark are ``offset``, and no producers or leader
        epochs are known. Errors have the same effect as in ``truncate_to``.

        Args:
            offload: runs the reads and writes of files off the loop.

        Raises:
            OffsetOutOfRange: the log has records, and ``offset`` is below the high watermark.
            KafkaStorage: the disk failed, or the log is closed or being truncated.

        Source: Kafka ``UnifiedLog.truncateFullyAndStartAt``.
        """
        await shielded(
            self._start_at(offset, offload, now_ms),
            name=f"restart {self.topic_partition}",
            expected=(OffsetOutOfRange, KafkaStorage),
        )

    async def _start_at(self, offset: int, offload: Offload, now_ms: int) -> None:
        await self._finish_truncation(offload)
        self.check_usable()
        if offset < self.high_watermark and self._log_start_offset < self.log_end_offset:
            raise self._below_high_watermark(offset)
        segment = self._writer.unopened_segment(offset, now_ms)
        producers = ProducerState()
        producers.map_end_offset = offset
        cut = Cut([segment], self._segments.all, producers, is_restart=True)
        self.is_truncating = True
        self.generation += 1
        self._changed = self._renamed = True
        self._segments.cut(cut.segments)
        self._producers = producers
        self._epochs.cut(0)
        self.high_watermark = self._log_start_offset = offset
        self.durability.recovery_point = min(self.recovery_point, offset)
        await self._cut_files(cut, offload)
        logger.info("log restarted empty partition=%s offset=%d", self.topic_partition, offset)

    def _below_high_watermark(self, offset: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(
            f"offset {offset} is below the high watermark {self.high_watermark}",
            topic_partition=self.topic_partition,
        )

    async def _finish_truncation(self, offload: Offload) -> None:
        if self._unfinished is not None:
            unfinished, self._unfinished = self._unfinished, None
            await self._cut_files(unfinished, offload)

    async def _truncate_to(self, offset: int, offload: Offload, now_ms: int) -> int:
        await self._finish_truncation(offload)
        self.check_usable()
        if offset < self.high_watermark:
            raise self._below_high_watermark(offset)
        if offset >= self.log_end_offset:
            # There are no records to remove, but an epoch that begins at or after ``offset`` may
            # differ from the leader's epochs.
            self._replace_epochs(offset)
            return self.log_end_offset
        self.is_truncating = True
        self.generation += 1
        try:
            cut = await offload.run(
                functools.partial(
                    find_cut,
                    self._files,
                    self.directory,
                    self._segments.all,
                    offset,
                    self.high_watermark,
                    crc32c=self._crc32c,
                    now_ms=now_ms,
                )
            )
            self._check_open()
            # If this node was elected leader during the search, the high watermark may have risen.
            if offset < self.high_watermark:
                raise self._below_high_watermark(offset)
        except OSError as error:
            self.is_truncating = False
            raise self.read_refused(error) from error
        except BaseException:
            self.is_truncating = False
            raise
        self._changed = self._renamed = True
        self._segments.cut(cut.segments)
        end_offset = self.log_end_offset
        cut.producers.inherit(self._producers, end_offset)
        self._producers = cut.producers
        self._epochs.cut(end_offset)
        # The new log end offset can be below the high watermark or the log start offset only if
        # compaction has left no record between the log end offset and ``offset``.
        self.high_watermark = min(self.high_watermark, end_offset)
        self._log_start_offset = min(self._log_start_offset, end_offset)
        self.durability.recovery_point = min(self.recovery_point, end_offset)
        await self._cut_files(cut, offload)
        logger.info(
            "log truncated partition=%s log_end_offset=%d offset=%d segments=%d",
            self.topic_partition,
            end_offset,
            offset,
            len(cut.behind),
        )
        return end_offset

    async def _cut_files(self, cut: Cut, offload: Offload) -> None:
        where = self._files, self.directory
        segment, start = cut.segments[-1], self._log_start_offset
        forget = functools.partial(self._forget_behind, self.topic_partition)

        def cut_and_lower_log_start() -> None:
            if cut.is_restart:
                restart_files(*where, segment, cut.behind, self._epochs, forget_behind=forget)
            else:
                remove = functools.partial(rename_segments, *where, cut.behind)
                cut_files(*where, segment, self._epochs, forget_behind=forget, remove_behind=remove)
            # The log start checkpoint is lowered last: if it were lowered before the cut, a crash
            # in between would bring deleted records back.
            self._lower_log_start(self.topic_partition, start)

        try:
            await offload.run(cut_and_lower_log_start)
        except Exception as error:
            # BaseException is not caught, because after a cancellation the thread may still be
            # cutting the files.
            self._unfinished = cut
            if not isinstance(error, OSError):
                raise
            if self._closed:  # the log was deleted, so the disk did not fail
                raise self._closed_error() from error
            raise self._refused("log not truncated", error) from error
        self._segments.add_removed(cut.behind)
        self.is_truncating = False
        self._writer.segments_changed()
        self.durability.truncated(self, self._segments.active.base_offset)
        self.notify_replica()

    def _replace_epochs(self, end_offset: int) -> None:
        try:
            self._epochs.truncate_from_end(end_offset)
        except OSError as error:
            raise self._refused("epochs not truncated", error) from error

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Remove idle producers; return their number. See ``ProducerState.expire``."""
        return self._producers.expire(now_ms, expiration_ms)

    def __repr__(self) -> str:
        return (
            f"<PartitionLog {self.topic_partition} {self._log_start_offset}.."
            f"{self.log_end_offset} {len(self._segments.all)} segments>"
        )
