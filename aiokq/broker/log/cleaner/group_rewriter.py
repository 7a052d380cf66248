"""The second pass of a cleaning: copies a group of segments into one compacted segment.

The files of the copy end in ``.cleaned`` until all of them are durable, then in ``.swap``. Once
they end in ``.swap``, a recovery uses the copy instead of the originals.

Source: Kafka ``Cleaner.cleanSegments``, ``cleanInto``, ``groupSegmentsBySize``.
Tests: ``tests/unit/broker/log/test_cleaner.py``, ``test_cleaner_crash.py``.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.cleaned_segment import CleanedSegment
from aiokq.broker.log.cleaner.batch_rewriting import (
    checked,
    closing,
    compressed,
    control_type,
    emptied,
    uncompressed,
)
from aiokq.broker.log.cleaner.log_view import LogView, SegmentView, chunks, following
from aiokq.broker.log.index import MAX_RELATIVE_OFFSET
from aiokq.core.errors import CorruptRecord
from aiokq.fastpath import crc32c
from aiokq.fastpath.broker import (
    WALK_CORRUPT,
    WALK_FULL,
    WALK_HORIZON,
    WALK_KEEP_ALL,
    WALK_ONE,
    WALK_OTHER,
    WALK_TRUSTED,
    KeptBatches,
)
from aiokq.records.header import DELETE_HORIZON_MASK, BatchHeader, read_header
from aiokq.records.legacy import Message, decode_message_set
from aiokq.records.record import RawRecord, encode_batch

if TYPE_CHECKING:
    from aiokq.broker.log.cleaner.cleaned_transactions import CleanedTransactions
    from aiokq.broker.log.cleaner.statistics import Statistics
    from aiokq.core.files import Files
    from aiokq.core.types import Buffer
    from aiokq.fastpath.broker import OffsetMap

__all__ = ["GroupRewriter", "group_segments"]

MOST_OF_A_GROUP: Final = 64
"""The maximum number of segments in a group.

The files of all these segments are renamed in one iteration of the event loop.
"""

_ONE: Final = WALK_ONE | WALK_TRUSTED


def group_segments(files: Files, view: LogView) -> list[list[SegmentView]]:
    """Return groups of adjacent segments, each to be copied into one segment.

    A group has at most ``MOST_OF_A_GROUP`` segments. The log and index files of a group fit into
    one segment even if compaction removes no record.
    """
    limit, index_limit = view.config.segment_bytes, view.config.segment_index_bytes
    groups: list[list[SegmentView]] = []
    size = index = time_index = 0
    for segment in view.segments:
        stem = segment.path.removesuffix(file_names.LOG)
        indexes = [
            files.stat_size(stem + kind) if files.exists(stem + kind) else 0
            for kind in (file_names.INDEX, file_names.TIME_INDEX)
        ]
        if (
            groups
            and len(groups[-1]) < MOST_OF_A_GROUP
            and size + segment.size <= limit
            and index + indexes[0] <= index_limit
            and time_index + indexes[1] <= index_limit
            and segment.next_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = index = time_index = 0
        size += segment.size
        index += indexes[0]
        time_index += indexes[1]
    return groups


class GroupRewriter:
    """Copies a group of segments into one segment, without the records that compaction removes.

    Args:
        legacy_horizon_ms: a segment whose last write was at or before this time loses its v0 and v1
            tombstones, because those formats have no delete horizon.
        transactions: state of transactions in the whole run, shared by all groups of segments.

    Attributes:
        cleaned: the copy; complete when ``rewrite`` has ended.
    """

    def __init__(
        self,
        files: Files,
        view: LogView,
        group: Sequence[SegmentView],
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        statistics: Statistics,
        legacy_horizon_ms: int,
    ) -> None:
        self._files = files
        self._view = view
        self._group = group
        self._offsets = offsets
        self._transactions = transactions
        self._statistics = statistics
        self._legacy_horizon_ms = legacy_horizon_ms
        self._keeps_legacy_deletes = True
        self._horizon_ms = view.now_ms + view.config.delete_retention_ms
        # The last batch of each group is kept, if necessary without records, so that the copy ends
        # at the same offset as the originals. A recovery finds the originals by this offset.
        self._upper = group[-1].next_offset
        self._kept = self._new_block(view.config.index_interval_bytes, view.buffer_bytes)
        self._single = self._new_block(0, 0)  # for single batches processed in Python
        self.cleaned = CleanedSegment(
            files,
            view.directory,
            group[0].base_offset,
            config=view.config,
            now_ms=view.now_ms,
            suffix=file_names.CLEANED,
        )

    def _new_block(self, interval: int, room: int) -> KeptBatches:
        return KeptBatches(
            self._offsets,
            now_ms=self._view.now_ms,
            horizon_ms=self._horizon_ms,
            upper_offset=self._upper,
            producers=self._view.last_offsets,
            index_interval_bytes=interval,
            room=room,
        )

    def rewrite(self) -> Generator[int, None, None]:
        """Write the copy durably as ``.swap``; yield the number of bytes that each step processed.

        If the generator fails or is closed early, files of the copy remain, and the caller must
        call ``discard``.

        Raises:
            CorruptRecord: a batch is damaged.
            OSError: the disk failed; FileNotFoundError: a segment was deleted.
        """
        self.cleaned.create()
        self._kept.begin_segment(self.cleaned.base_offset)
        for segment in self._group:
            modified_ms = self._files.modified_ms(segment.path)
            self._keeps_legacy_deletes = modified_ms > self._legacy_horizon_ms
            yield from self._copy(segment)
        self._write()
        for transaction in self._transactions.take_kept():
            self.cleaned.note_aborted(transaction)
        self.cleaned.finish_copy(self._upper)
        self._files.set_modified_ms(self.cleaned.path(file_names.LOG), modified_ms)
        self._count()
        yield 0
        self._files.sync_dir(self._view.directory)
        self.cleaned.rename(file_names.SWAP)
        self._files.sync_dir(self._view.directory)

    def discard(self) -> None:
        """Remove the files of the copy."""
        self.cleaned.close()
        self.cleaned.remove()

    def _count(self) -> None:
        statistics, kept = self._statistics, self._kept
        statistics.segments += len(self._group)
        statistics.merged_segments += 1
        statistics.size_before += sum(segment.size for segment in self._group)
        statistics.bytes_written += self.cleaned.size
        statistics.records_read += kept.read
        statistics.records_kept += kept.kept
        statistics.keyless_records += kept.keyless

    def _copy(self, segment: SegmentView) -> Generator[int, None, None]:
        kept = self._kept
        pieces = chunks(self._files, segment, self._view.buffer_bytes)
        piece = next(pieces, None)
        try:
            while piece is not None:
                at, done = 0, False
                written = self.cleaned.size
                while not done:
                    at, state = kept.keep(piece, at)
                    if state == WALK_CORRUPT:
                        raise CorruptRecord(f"malformed batch in {segment.path}")
                    if state == WALK_FULL:
                        self._make_room()
                    elif state == WALK_OTHER:
                        header, batch = checked(piece, at, segment.path)
                        self._copy_other(header, batch)
                        at += header.size
                    else:
                        done = True
                self._statistics.bytes_read += at
                yield at + self.cleaned.size - written
                piece = following(pieces, at)
        finally:
            pieces.close()

    def _copy_other(self, header: BatchHeader, batch: memoryview) -> None:
        if header.magic < 2:
            self._copy_legacy(header, batch)
        elif header.is_control:
            self._copy_marker(header, batch)
        elif self._transactions.is_aborted(header):
            self._statistics.records_read += header.count
            if self._kept.stays_empty(header.producer_id, header.last_offset):
                self._put_empty(header)
        elif header.codec:
            self._copy_compressed(header, batch)
        else:
            self._keep_one(self._kept, batch)

    def _copy_marker(self, header: BatchHeader, batch: memoryview) -> None:
        needless = self._transactions.is_needless(header, control_type(batch, header))
        has_horizon = header.attributes & DELETE_HORIZON_MASK != 0
        # A needless marker is removed once its delete horizon has passed.
        over = has_horizon and header.base_timestamp_ms <= self._view.now_ms
        if needless and (over or not header.count):
            self._statistics.records_read += header.count
            if self._is_last_of_producer(header):
                self._put_empty(header)
            return
        flags = WALK_KEEP_ALL | (WALK_HORIZON if needless else 0)
        self._keep_one(self._kept, batch, flags)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether an empty batch has to replace a removed marker.

        True for the last batch of the group of segments. Also true for a marker with the latest
        epoch of a producer that has no data batches, because the log would otherwise lose it.
        """
        if header.next_offset == self._upper:
            return True
        return self._view.marker_epochs.get(header.producer_id) == header.producer_epoch

    def _copy_compressed(self, header: BatchHeader, batch: memoryview) -> None:
        plain = uncompressed(batch, header)
        block, statistics = self._single, self._statistics
        read, kept, keyless = block.read, block.kept, block.keyless
        result = self._kept_of(plain, header.base_offset)
        statistics.records_read += block.read - read
        statistics.records_kept += block.kept - kept
        statistics.keyless_records += block.keyless - keyless
        if not len(result):
            return
        found = read_header(result)
        if found.count and (found.count, found.attributes | header.codec) == (
            header.count,
            header.attributes,
        ):
            result = batch
        elif found.count:
            result = compressed(result, found, header.codec)
        self._put(result, header.last_offset, found.max_timestamp_ms)

    def _copy_legacy(self, header: BatchHeader, batch: memoryview) -> None:
        messages = list(decode_message_set(batch, check_crcs=False))
        offsets, latest = self._offsets, self._offsets.latest_offset
        stay = []
        for message in messages:
            if message.offset <= latest:
                if message.key is None:
                    self._statistics.keyless_records += 1
                    continue
                if message.offset < offsets.get(message.key):
                    continue
                if message.value is None and not self._keeps_legacy_deletes:
                    continue
            stay.append(message)
        self._statistics.records_read += len(messages)
        self._statistics.records_kept += len(stay)
        if stay:
            self._put_converted(header, stay)
        last = stay[-1].offset if stay else -1
        if header.next_offset == self._upper > last + 1:
            self._put(closing(header), header.last_offset, header.max_timestamp_ms)

    def _put_converted(self, header: BatchHeader, stay: Sequence[Message]) -> None:
        # The kept records are converted to v2, the only format that Kafka 4 writes.
        plain = encode_batch(
            (RawRecord(*message[:4]) for message in stay),
            crc32c=crc32c,
            timestamp_type=header.timestamp_type,
        )
        # `_kept_of` also sets a delete horizon if the batch has tombstones.
        result = self._kept_of(plain, header.base_offset, WALK_KEEP_ALL)
        found = read_header(result)
        if header.codec:
            result = compressed(result, found, header.codec)
        self._put(result, found.last_offset, found.max_timestamp_ms)

    def _kept_of(self, batch: Buffer, base_offset: int, flags: int = 0) -> Buffer:
        """Return the kept part of one batch, in a buffer that the next call overwrites."""
        block = self._single
        block.begin_segment(base_offset)
        block.reserve(len(batch))
        self._keep_one(block, batch, flags)
        return block.filled()

    def _keep_one(self, block: KeptBatches, batch: Buffer, flags: int = 0) -> None:
        state = WALK_FULL
        while state == WALK_FULL:
            _, state = block.keep(batch, 0, _ONE | flags)
            if state == WALK_FULL:
                self._make_room(block)
        if state == WALK_CORRUPT:
            offset = read_header(batch).base_offset
            raise CorruptRecord(f"malformed batch at offset {offset} of {self._view.name}")

    def _put_empty(self, header: BatchHeader) -> None:
        self._put(emptied(header), header.last_offset, header.max_timestamp_ms)

    def _put(self, batch: Buffer, last_offset: int, max_timestamp_ms: int) -> None:
        while not self._kept.put(batch, last_offset, max_timestamp_ms):
            self._make_room()

    def _make_room(self, block: KeptBatches | None = None) -> None:
        block = block or self._kept
        if not block.used:
            block.reserve(2 * block.room)
        elif block is self._kept:
            self._write()

    def _write(self) -> None:
        """Append the kept batches to the copy."""
        kept = self._kept
        size = kept.used
        if size:
            self.cleaned.write([kept.filled()])
            self.cleaned.note_copied(
                size, kept.clear(), (kept.max_timestamp_ms, kept.max_timestamp_offset)
            )
