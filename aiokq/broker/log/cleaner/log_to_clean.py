"""The part of a log that may be compacted, and whether its compaction is due.

Source: Kafka ``LogCleanerManager.java``, ``LogToClean``.
Tests: ``tests/unit/broker/log/test_log_to_clean.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.log.disk_load import call_each
from aiokq.broker.log.segment import Segment
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.log.partition_log import PartitionLog

__all__ = ["LogToClean", "log_to_clean", "never_compacted"]


class LogToClean(NamedTuple):
    """The cleanable part of a log.

    Attributes:
        first_dirty_offset: records before this offset were cleaned by earlier runs.
        upper_offset: records from this offset on must not be cleaned.
        clean_bytes: bytes of the segments before ``first_dirty_offset``.
        dirty_bytes: bytes of the segments between the two offsets.
        delay_ms: by how much the age of the oldest dirty segment exceeds max.compaction.lag.ms; 0
            if it does not.
    """

    log: PartitionLog
    first_dirty_offset: int
    upper_offset: int
    clean_bytes: int
    dirty_bytes: int
    delay_ms: int

    @property
    def dirty_ratio(self) -> float:
        """The dirty bytes divided by the clean and dirty bytes: 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether min.cleanable.dirty.ratio or max.compaction.lag.ms is exceeded."""
        if not self.dirty_bytes:
            return False
        return self.delay_ms > 0 or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def never_compacted(log: PartitionLog, cleaned_offset: int | None) -> int:
    """Return the size in bytes of the finished segments that were never compacted.

    Reads nothing from the disk.
    """
    first = cleaned_offset or 0
    return sum(segment.size for segment in log.segments[:-1] if segment.next_offset > first)


def log_to_clean(log: PartitionLog, cleaned_offset: int | None, now_ms: int) -> LogToClean:
    """Return the cleanable part of a log. Called on the log's loop.

    The active segment, records from the last stable offset on, and records younger than
    min.compaction.lag.ms are not cleanable.

    Args:
        cleaned_offset: the log's offset in the cleaner checkpoint. If it is None or outside the
            log, cleaning begins at the log start offset.

    Raises:
        ColdRead: min.compaction.lag.ms or max.compaction.lag.ms is set, and timestamps have to be
            read from the disk first.
        OSError, CorruptRecord: a segment cannot be read.
    """
    start = log.log_start_offset
    first = start if cleaned_offset is None else cleaned_offset
    if not start <= first <= log.log_end_offset:
        first = start
    *older, active = log.segments
    dirty = [segment for segment in older if segment.next_offset > first]
    upper = min(log.last_stable_offset, active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms:
        largest = call_each(dirty, Segment.largest_timestamp_ms)
        young = (one for one, at in zip(dirty, largest, strict=True) if at > now_ms - lag_ms)
        upper = min(upper, next((one.base_offset for one in young), upper))
    # Only whole segments are cleaned, so the limit is lowered to the base offset of a segment.
    upper = max(
        (s.base_offset for s in log.segments if s.base_offset <= upper),
        default=log.segments[0].base_offset,
    )
    clean_bytes = sum(segment.size for segment in older if segment.next_offset <= first)
    dirty = [segment for segment in dirty if segment.next_offset <= upper]
    delay_ms = 0
    overdue_before_ms = now_ms - log.config.max_compaction_lag_ms
    if overdue_before_ms > 0:  # otherwise no record is overdue, and nothing has to be read
        began = call_each(dirty, Segment.first_timestamp_ms)
        delay_ms = max([overdue_before_ms - first_ms for first_ms in began if first_ms > 0] + [0])
    dirty_bytes = sum(segment.size for segment in dirty)
    return LogToClean(log, first, max(first, upper), clean_bytes, dirty_bytes, delay_ms)
