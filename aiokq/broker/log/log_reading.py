"""Owns the reads of one log: by offset, by time, and the history of its leader epochs.

Every read is bounded by the log's start and end; a consumer's by the high watermark as well, which
the replica sets (``aiokq.broker.replica``).

Source: Kafka ``UnifiedLog.java``. Tests: ``tests/unit/broker/log/test_partition_log.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiokq.broker.log.local_log import LocalLog
from aiokq.broker.log.segments import TimestampSearch
from aiokq.core.errors import OffsetOutOfRange
from aiokq.core.files import FileRange

if TYPE_CHECKING:
    from aiokq.broker.log.leader_epochs import LeaderEpochs
    from aiokq.broker.log.opened_log import OpenedLog
    from aiokq.broker.log.producer_state import ProducerState
    from aiokq.broker.log.transaction_index import AbortedTransaction

__all__ = ["LogRead", "ReadableLog"]


class LogRead(NamedTuple):
    """Whole batches of the log, as ranges of its files.

    Attributes:
        fragments: to be sent in order; the first batch holds the offset asked for or a later one.
        size: bytes in all of them.
        aborted_transactions: whose records a reader of committed ones leaves out, if it asked.
    """

    fragments: list[FileRange]
    size: int
    aborted_transactions: Sequence[AbortedTransaction] = ()


class ReadableLog(LocalLog):
    """The records of one partition, as readers see them.

    Attributes:
        high_watermark: the offset up to which records are committed. Only the replica sets it; the
            log keeps it, as the bound of what is read, deleted and compacted.
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
        """The high watermark, or the start of the first transaction not decided below it."""
        unstable = self._producers.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def producers(self) -> ProducerState:
        """The state of idempotent producers."""
        return self._producers

    @property
    def epochs(self) -> LeaderEpochs:
        """The history of leader epochs."""
        return self._epochs

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
        """A search for the first record not earlier than ``timestamp_ms``; None if all are earlier.

        The search covers one segment, and may run in an executor while the log is appended to. If
        it finds nothing, ask for another one from its ``end_offset`` on.

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

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch not above ``epoch`` and where it ends; (-1, -1) if not known."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of the leader that wrote ``offset``; -1 if not known."""
        return self._epochs.epoch_for_offset(offset)

    # --- transactions

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The transactions with records between two offsets that were aborted."""
        return self._segments.aborted_transactions(start, end)
