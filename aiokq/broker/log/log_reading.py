"""The reads of one log: records by offset or timestamp, and leader epochs.

Every read is bounded by the log start and end offsets. A consumer's read is also bounded by the
high watermark, which the replica sets (``aiokq.broker.replica``).

Source: Kafka ``UnifiedLog.java``. Tests: ``tests/unit/broker/log/test_partition_log.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokq.broker.log.local_log import LocalLog
from aiokq.broker.log.segments import TimestampSearch
from aiokq.core.errors import OffsetOutOfRange
from aiokq.core.files import FileRange
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.log.leader_epochs import LeaderEpochs
    from aiokq.broker.log.opened_log import OpenedLog
    from aiokq.broker.log.producer_state import ProducerState
    from aiokq.broker.log.transaction_index import AbortedTransaction

__all__ = ["LogRead", "ReadableLog"]


class LogRead(NamedTuple):
    """Whole batches of a log, as ranges of its files.

    Attributes:
        fragments: the ranges, in order; the first batch ends at or after the requested offset.
        size: bytes in all ranges.
        aborted_transactions: the aborted transactions with records in the ranges, if requested.
    """

    fragments: list[FileRange]
    size: int
    aborted_transactions: Sequence[AbortedTransaction] = ()


class ReadableLog(LocalLog):
    """The read operations of a partition's log.

    Attributes:
        high_watermark: the offset before which all records are committed. Users of the log advance
            it. The log changes it only when the log is opened or truncated, or when
            ``PartitionLog.start_at`` empties the log (ADR 9).
    """

    def __init__(self, opened: OpenedLog) -> None:
        super().__init__(opened)
        self._producers = opened.producers
        self._epochs = opened.epochs
        self._log_start_offset = opened.log_start_offset
        self.high_watermark = min(
            max(opened.high_watermark, opened.log_start_offset), self.log_end_offset
        )

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction, but at most the high watermark.

        A transaction counts as open until its end marker is below the high watermark. Without open
        transactions the last stable offset is the high watermark. It is never below the log start
        offset, even if the first records of an open transaction were deleted.
        """
        unstable = self._producers.first_unstable_offset(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    @property
    def producers(self) -> ProducerState:
        """The state of idempotent and transactional producers."""
        return self._producers

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs of the log."""
        return self._epochs

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_bound: int | None = None,
        at_least_one: bool = True,
        read_committed: bool = False,
    ) -> LogRead:
        """Return whole batches, beginning with the batch that holds ``offset``, as file ranges.

        Args:
            max_bytes: maximum bytes of all batches together.
            upper_bound: batches that extend to this offset or beyond are left out; None takes the
                high watermark.
            at_least_one: return the first batch even if it is larger than ``max_bytes``.
            read_committed: also return the aborted transactions with records in the batches.

        Raises:
            OffsetOutOfRange: ``offset`` is before the log start offset or after the log end offset.
            ColdRead: data has to be read from the disk first.
            CorruptRecord: a segment is damaged.
            KafkaStorage: the disk failed, or the log was closed.
        """
        # Hot path, measured by benchmarks/raw_load.py.
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
        """Return a search for the first record at or after ``timestamp_ms``, or None.

        None means that the log has no such record. The search covers one segment, and may run in an
        executor while the log is appended to. If the search finds nothing, the caller continues
        with another search, from ``TimestampSearch.end_offset`` on.

        Args:
            start_offset: records before this offset or the log start offset are ignored.

        Raises:
            ColdRead: data has to be read from the disk first.
            CorruptRecord: a segment is damaged.
            KafkaStorage: the disk failed, or the log is closed.
        """
        self._check_open()
        try:
            return self._segments.search(timestamp_ms, max(start_offset, self._log_start_offset))
        except OSError as error:
            raise self.read_refused(error) from error

    def max_timestamp_ms(self) -> int:
        """Return the largest timestamp of all records; -1 if no record has one.

        Raises:
            ColdRead: data has to be read from the disk first.
            CorruptRecord: a segment is damaged.
            KafkaStorage: the disk failed, or the log is closed.
        """
        self._check_open()
        try:
            return self._segments.max_timestamp_ms()
        except OSError as error:
            raise self.read_refused(error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the newest known epoch up to ``epoch``, and the offset at which that epoch ended.

        See ``LeaderEpochs.end_offset_for``.
        """
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """Return the leader epoch in which ``offset`` was written; -1 if unknown."""
        return self._epochs.epoch_for_offset(offset)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have records between two offsets."""
        return self._segments.aborted_transactions(start, end)
