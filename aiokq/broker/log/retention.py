"""Retention policies: how many of a log's oldest segments may be deleted.

The policies delete nothing themselves. Only whole segments below the high watermark are deleted,
from the oldest on. A segment may be deleted if at least one policy counts it. A node may have
additional policies.

Source: Kafka ``UnifiedLog.deleteOldSegments``. Tests: ``tests/unit/broker/log/test_retention.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig

__all__ = [
    "KAFKA_POLICIES",
    "BeforeLogStart",
    "Expired",
    "RetainedLog",
    "RetainedSegment",
    "RetentionPolicy",
    "TooLarge",
    "TooOld",
    "expired",
]


class RetainedSegment(Protocol):
    """The part of a segment that retention policies use.

    Attributes:
        base_offset: the first offset that the segment may hold.
        size: bytes of its batches.
    """

    base_offset: int
    size: int

    def largest_timestamp_ms(self) -> int:
        """Return the largest timestamp of the records.

        If no record has a timestamp, return the time of the last write.
        """
        ...


class RetainedLog(NamedTuple):
    """The part of a log that retention policies use.

    Attributes:
        segments: oldest first, at least one; the last is the active segment.
        high_watermark: records from this offset on are not committed, so they are kept.
    """

    segments: Sequence[RetainedSegment]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    config: LogConfig
    now_ms: int

    @property
    def deletes(self) -> bool:
        """Whether ``cleanup.policy`` includes ``delete``."""
        return "delete" in self.config.cleanup_policy


class RetentionPolicy(Protocol):
    """A rule for the deletion of old records.

    Attributes:
        reason: short text for the log line.
    """

    @property
    def reason(self) -> str: ...

    def expired(self, log: RetainedLog) -> int:
        """Return how many of the oldest segments may be deleted.

        The caller keeps uncommitted records and an empty active segment, even if they are counted.
        """
        ...


class BeforeLogStart:
    """Counts segments that end at or before the log start offset, as after DeleteRecords."""

    reason: Final = "before the log start"

    def expired(self, log: RetainedLog) -> int:
        count = 0
        for _, after in pairwise(log.segments):
            if after.base_offset > log.log_start_offset:
                break
            count += 1
        return count


class TooLarge:
    """``retention.bytes``: counts the oldest segments without which the log is still this large."""

    reason: Final = "retention.bytes"

    def expired(self, log: RetainedLog) -> int:
        limit = log.config.retention_bytes
        if limit < 0 or not log.deletes:
            return 0
        surplus = sum(segment.size for segment in log.segments) - limit
        count = 0
        for segment in log.segments:
            surplus -= segment.size
            if surplus < 0:
                break
            count += 1
        return count


class TooOld:
    """``retention.ms``: counts the oldest segments whose records are all older than the limit."""

    reason: Final = "retention.ms"

    def expired(self, log: RetainedLog) -> int:
        limit = log.config.retention_ms
        if limit < 0 or not log.deletes:
            return 0
        count = 0
        for segment in log.segments:
            if log.now_ms - segment.largest_timestamp_ms() <= limit:
                break
            count += 1
        return count


KAFKA_POLICIES: Final[tuple[RetentionPolicy, ...]] = (BeforeLogStart(), TooLarge(), TooOld())
"""The policies of Apache Kafka, in Kafka's order."""


class Expired(NamedTuple):
    """The number of oldest segments to delete, and the reason."""

    segments: int
    reason: str


def expired(log: RetainedLog, policies: Sequence[RetentionPolicy]) -> Expired:
    """Return how many of the oldest segments to delete, and the reason of the deletion.

    The number is the largest number that a policy counts, limited to the committed segments. The
    reason is that of the first policy with this number.
    """
    found = Expired(0, "")
    possible = _committed(log)
    for policy in policies:
        if found.segments == possible:
            break
        count = min(policy.expired(log), possible)
        if count > found.segments:
            found = Expired(count, policy.reason)
    return found


def _committed(log: RetainedLog) -> int:
    """Return how many of the oldest segments are committed, not counting an empty active one."""
    ends = [segment.base_offset for segment in log.segments[1:]] + [log.log_end_offset]
    count = 0
    for end in ends:
        if end > log.high_watermark:
            break
        count += 1
    if count == len(log.segments) and not log.segments[-1].size:
        count -= 1
    return count
