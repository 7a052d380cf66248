"""The check of one segment: its batches, and its indexes against the batches.

Batches and index entries are both in offset order, so one pass over the ``.log`` compares them.

Source: Kafka ``DumpLogSegments.scala`` (index and time index sanity checks).
Tests: ``tests/unit/broker/inspection/test_inspection.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aiokq.broker.inspection.findings import Finding, Severity
from aiokq.broker.inspection.places import is_transaction_log
from aiokq.broker.inspection.transaction_records import transaction_entry
from aiokq.broker.log import file_names
from aiokq.broker.log.batch_reading import batch_records, read_batch
from aiokq.broker.log.corruption import is_torn, last_sound_offset, only_zeros
from aiokq.broker.log.index import IndexCorrupt
from aiokq.broker.log.leader_epochs import UNDEFINED_EPOCH
from aiokq.broker.log.segment_check import BadBatch, valid_batches
from aiokq.broker.log.transaction_index import TransactionIndex
from aiokq.core.errors import KafkaError
from aiokq.core.named_tuple import NamedTuple
from aiokq.records.header import UNKNOWN_COUNT, BatchHeader, Checksum

if TYPE_CHECKING:
    from aiokq.broker.inspection.producers import ProducerCheck
    from aiokq.broker.log.leader_epochs import LeaderEpochs
    from aiokq.broker.log.transaction_index import AbortedTransaction
    from aiokq.core.files import File, Files

__all__ = ["CheckedSegment", "SegmentCheck"]

_INDEX: Final = struct.Struct(">iI")
_TIME: Final = struct.Struct(">qi")
MOST_FINDINGS: Final = 20
"""Maximum number of findings of one kind per file; an index may have 100,000 wrong entries."""


class CheckedSegment(NamedTuple):
    """The result of the check of a segment.

    Attributes:
        end: the offset after the last batch. If there is a bad batch, only the batches before it
            count, here and in ``size`` and ``batches``.
        size: bytes of the batches.
        whole: whether there is no bad batch.
        has_gaps: whether offsets are missing in the segment, for example after compaction.
    """

    base_offset: int
    end: int
    size: int
    batches: int
    whole: bool
    has_gaps: bool


class SegmentCheck:
    """The check of one segment.

    Args:
        sealed_at: base offset of the next segment; None for the newest.
        unclean: whether the broker is running or was killed. If so, the end of the newest segment
            may be partly written, and its indexes may be incomplete.
        epochs: leader epochs of the log; None if they are unknown.
        producers: the check of the producer state, which replays the batches.
        deep: whether to read the records of each batch.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: int,
        *,
        sealed_at: int | None,
        unclean: bool,
        epochs: LeaderEpochs | None,
        producers: ProducerCheck,
        crc32c: Checksum,
        deep: bool,
    ) -> None:
        self.findings: list[Finding] = []
        self._files = files
        self._directory = directory
        self._base = base_offset
        self._sealed_at = sealed_at
        self._unclean = unclean
        self._epochs = epochs
        self._producers = producers
        self._aborted: list[AbortedTransaction] = []
        self._crc32c = crc32c
        self._deep = deep
        self._counts: dict[tuple[str, str], int] = {}

    def run(self, expected: int) -> CheckedSegment:
        """Check batches and indexes.

        Args:
            expected: the lowest offset that the first batch may have.

        Raises:
            OSError: a file cannot be read.
        """
        path = self._path(file_names.LOG)
        file = self._files.open(path, writable=False)
        try:
            return self._run(file, path, expected)
        finally:
            file.close()

    def _run(self, file: File, path: str, expected: int) -> CheckedSegment:
        index = _OffsetEntries(self)
        times = _TimeEntries(self)
        end, next_offset, batches, size = file.size(), self._base, 0, 0
        whole, has_gaps = True, False
        try:
            for position, header in valid_batches(
                file, end, self._base, max(expected, self._base), self._crc32c
            ):
                self._batch(file, path, position, header)
                index.batch(position, header)
                times.batch(header)
                aborted = self._producers.batch(file, position, header)
                if aborted is not None:
                    self._aborted.append(aborted)
                has_gaps = has_gaps or header.base_offset > next_offset
                next_offset, size = header.next_offset, position + header.size
                batches += 1
        except BadBatch as bad:
            whole = False
            self._producers.stop()
            self._bad(file, path, bad, end)
        index.end(size, whole=whole)
        times.end()
        self._transactions()
        if self._sealed_at is not None and next_offset > self._sealed_at:
            self.error(
                path,
                None,
                "overlap",
                f"ends with offset {next_offset - 1}, but the next segment begins at offset "
                f"{self._sealed_at}",
            )
        return CheckedSegment(self._base, next_offset, size, batches, whole, has_gaps)

    def _batch(self, file: File, path: str, position: int, header: BatchHeader) -> None:
        epochs = self._epochs
        if epochs is not None and header.magic >= 2 and header.leader_epoch >= 0:
            known = epochs.epoch_for_offset(header.base_offset)
            # No epoch is known for records before the log start offset.
            if known not in (UNDEFINED_EPOCH, header.leader_epoch):
                self.warning(
                    path,
                    position,
                    "epoch",
                    f"leader epoch {header.leader_epoch} at offset {header.base_offset}, but "
                    f"{file_names.LEADER_EPOCHS} has epoch {known} for this offset",
                )
        if self._deep:
            self._records(file, path, position, header)

    def _records(self, file: File, path: str, position: int, header: BatchHeader) -> None:
        first, last, count = header.base_offset, header.last_offset, 0
        decoded = not header.is_control and is_transaction_log(path)
        try:
            for record in batch_records(read_batch(file, position, header), header):
                count += 1
                if decoded and (reason := transaction_entry(record).get("error")) is not None:
                    # The coordinator would ignore the record when it loads the log.
                    self.error(path, position, "records", str(reason))
                if header.magic >= 2 and not first <= record.offset <= last:
                    raise ValueError(
                        f"record with offset {record.offset} outside the batch's offsets "
                        f"{first}..{last}"
                    )
        except KafkaError as error:
            self.error(path, position, "records", f"records cannot be read: {error.message}")
            return
        except ValueError as error:
            self.error(path, position, "records", str(error))
            return
        if header.count not in (count, UNKNOWN_COUNT):
            self.error(
                path,
                position,
                "count",
                f"{count} records, but the batch header says {header.count}",
            )

    def _bad(self, file: File, path: str, bad: BadBatch, end: int) -> None:
        lost = last_sound_offset(file, bad.position, end, bad.expected, self._crc32c)
        rest = f"{end - bad.position} bytes from this position on"
        if lost is not None:
            what = (
                f"{bad.reason}; {rest}, with valid batches up to offset {lost} after the invalid "
                "one"
            )
        elif only_zeros(file, bad.position, end):
            what = f"{rest} are zeros"
        else:
            what = f"{bad.reason}; {rest}"
        harmless = lost is None and (
            only_zeros(file, bad.position, end) or is_torn(file, bad.position, end, bad.expected)
        )
        if harmless and self._unclean and self._sealed_at is None:
            self.warning(
                path, bad.position, "tail", f"{what}: written right now, or left by a kill"
            )
        else:
            self.error(path, bad.position, "batch", what)

    def _transactions(self) -> None:
        path = self._path(file_names.TXN_INDEX)
        index = TransactionIndex(self._files, path, self._base)
        try:
            index.load()
        except IndexCorrupt as error:
            self.error(path, None, "txnindex", str(error).removeprefix(path).strip())
            return
        if self._unclean and self._sealed_at is None:
            return  # the newest entries are in memory, or the next start rebuilds them
        known = {(one.producer_id, one.last_offset): one for one in index.entries()}
        for aborted in self._aborted:
            entry = known.get((aborted.producer_id, aborted.last_offset))
            if entry is None or entry.first_offset > aborted.first_offset:
                self.error(
                    path,
                    None,
                    "aborted",
                    f"lacks the aborted transaction of producer {aborted.producer_id} at offsets "
                    f"{aborted.first_offset}..{aborted.last_offset}: readers of committed "
                    "records would get its records",
                )

    def read_index(self, suffix: str, entry: int) -> bytes:
        """Return the complete entries of an index; report a missing file or an incomplete entry.

        A missing file is reported only for a segment that has batches and is not the newest.
        """
        path = self._path(suffix)
        try:
            data = self._files.read_bytes(path)
        except FileNotFoundError:
            if self._files.stat_size(self._path(file_names.LOG)) and self._sealed_at is not None:
                self.warning(path, None, "missing", "missing; the broker rebuilds it from the log")
            return b""
        if len(data) % entry:
            self.warning(
                path,
                len(data) - len(data) % entry,
                "rest",
                f"has {len(data)} bytes, not a multiple of {entry}",
            )
        return data[: len(data) - len(data) % entry]

    @property
    def base_offset(self) -> int:
        return self._base

    def index_path(self, suffix: str) -> str:
        return self._path(suffix)

    def error(self, path: str, position: int | None, kind: str, message: str) -> None:
        self._report(Severity.ERROR, path, position, kind, message)

    def warning(self, path: str, position: int | None, kind: str, message: str) -> None:
        self._report(Severity.WARNING, path, position, kind, message)

    def _report(
        self, severity: Severity, path: str, position: int | None, kind: str, message: str
    ) -> None:
        count = self._counts[path, kind] = self._counts.get((path, kind), 0) + 1
        if count < MOST_FINDINGS:
            self.findings.append(Finding(severity, path, position, message))
        elif count == MOST_FINDINGS:
            self.findings.append(
                Finding(severity, path, position, f"{message}; and more findings of this kind")
            )

    def _path(self, suffix: str) -> str:
        return file_names.segment_file(self._directory, self._base, suffix)


class _OffsetEntries:
    """The entries of an offset index, compared with the batches at their positions."""

    def __init__(self, check: SegmentCheck) -> None:
        self._check = check
        self._path = check.index_path(file_names.INDEX)
        self._entries = self._read()
        self._next = next(self._entries, None)

    def _read(self) -> Iterator[tuple[int, int, int]]:
        """Yield the position in the index, the offset and the log position of each entry."""
        data = self._check.read_index(file_names.INDEX, _INDEX.size)
        before = (-1, -1)
        for at in range(0, len(data), _INDEX.size):
            offset, position = _INDEX.unpack_from(data, at)
            if not offset and not position:
                if at:
                    return  # the rest is preallocated
                continue  # an entry for position 0, where every search begins anyway
            if offset <= before[0] or position <= before[1]:
                self._check.error(
                    self._path,
                    at,
                    "order",
                    f"entry {offset + self._check.base_offset} -> {position} is not greater than "
                    "the previous entry",
                )
                return
            before = offset, position
            yield at, offset + self._check.base_offset, position

    def batch(self, position: int, header: BatchHeader) -> None:
        """Report entries before `position` that belong to no batch; check the batch's own entry.

        Call this method for the batches in the order of their positions.
        """
        while self._next is not None and self._next[2] < position:
            self._stray()
        if self._next is None or self._next[2] != position:
            return
        at, offset, _ = self._next
        if offset < header.base_offset:
            self._check.error(
                self._path,
                at,
                "offset",
                f"offset {offset} for the batch at position {position}, which has offsets "
                f"{header.base_offset}..{header.last_offset}: a search does not find earlier "
                "records",
            )
        elif offset != header.last_offset:
            self._check.warning(
                self._path,
                at,
                "last",
                f"offset {offset} for the batch at position {position}, whose last offset is "
                f"{header.last_offset}",
            )
        self._next = next(self._entries, None)

    def end(self, size: int, *, whole: bool) -> None:
        """Report the remaining entries, which belong to no batch, up to the first bad batch."""
        while self._next is not None:
            if not whole and self._next[2] >= size:
                return  # the remaining entries are at or after the bad batch, which was reported
            self._stray()

    def _stray(self) -> None:
        assert self._next is not None
        at, offset, position = self._next
        self._check.error(
            self._path,
            at,
            "stray",
            f"offset {offset} at position {position}, where no batch begins",
        )
        self._next = next(self._entries, None)


class _TimeEntries:
    """The entries of a time index; each is compared with the batches up to its offset."""

    def __init__(self, check: SegmentCheck) -> None:
        self._check = check
        self._path = check.index_path(file_names.TIME_INDEX)
        self._largest = -1
        self._last_offset = check.base_offset - 1
        self._entries = self._read()
        self._next = next(self._entries, None)

    def _read(self) -> Iterator[tuple[int, int, int]]:
        """Yield the position in the index, the timestamp and the offset of each entry."""
        data = self._check.read_index(file_names.TIME_INDEX, _TIME.size)
        before: tuple[int, int] | None = None
        for at in range(0, len(data), _TIME.size):
            timestamp, offset = _TIME.unpack_from(data, at)
            if not timestamp and not offset:
                if at:
                    return  # the rest is preallocated
                continue
            if before is not None and (timestamp < before[0] or offset < before[1]):
                self._check.error(
                    self._path,
                    at,
                    "order",
                    f"entry {timestamp} -> {offset + self._check.base_offset} is less than the "
                    "previous entry",
                )
                return
            before = timestamp, offset
            yield at, timestamp, offset + self._check.base_offset

    def batch(self, header: BatchHeader) -> None:
        """Compare the entries for offsets before the batch, then note the batch's timestamp."""
        while self._next is not None and self._next[2] < header.base_offset:
            self._compare()
        self._largest = max(self._largest, header.max_timestamp_ms)
        self._last_offset = header.last_offset

    def end(self) -> None:
        """Check the remaining entries. Call this method after `batch` got all valid batches."""
        while self._next is not None:
            if self._next[2] > max(self._last_offset, self._check.base_offset):
                at, timestamp, offset = self._next
                self._check.error(
                    self._path,
                    at,
                    "stray",
                    f"offset {offset} for timestamp {timestamp}, but the last offset of the "
                    f"segment is {self._last_offset}",
                )
                return
            self._compare()

    def _compare(self) -> None:
        assert self._next is not None
        at, timestamp, offset = self._next
        if timestamp < self._largest:
            self._check.error(
                self._path,
                at,
                "time",
                f"timestamp {timestamp} up to offset {offset}, but the largest timestamp up to "
                f"there is {self._largest}: a search by timestamp misses records",
            )
        self._next = next(self._entries, None)
