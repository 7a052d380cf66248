"""Owns what retention lets go: policies that count the segments of a log that may be deleted.

Pure: deletes nothing, knows no files. Whole segments only, from the oldest on, up to the high
watermark. A log lets go of what any of its policies names; more of them may be handed to a node.

Source: Kafka ``UnifiedLog.deleteOldSegments``. Tests: ``tests/unit/broker/log/test_retention.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

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
    """A segment as policies see it.

    Attributes:
        base_offset: the first offset it may hold.
        size: bytes of its batches.
    """

    base_offset: int
    size: int

    def largest_timestamp_ms(self) -> int:
        """The largest timestamp of its records; when it was written last if they have none."""
        ...


class RetainedLog(NamedTuple):
    """A log as policies see it.

    Attributes:
        segments: oldest first, the last being appended to; at least one.
        high_watermark: records from here on are not committed, and stay.
    """

    segments: Sequence[RetainedSegment]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    config: LogConfig
    now_ms: int

    @property
    def deletes(self) -> bool:
        """Whether its topic deletes by age and size: ``cleanup.policy`` has ``delete``."""
        return "delete" in self.config.cleanup_policy


class RetentionPolicy(Protocol):
    """One reason to delete old records.

    Attributes:
        reason: in a few words, for the log file.
    """

    @property
    def reason(self) -> str: ...

    def expired(self, log: RetainedLog) -> int:
        """How many of the oldest segments may go.

        What is not committed, and an empty newest segment, stay whatever the answer is.
        """
        ...


class BeforeLogStart:
    """Segments that lie before the log's start: DeleteRecords hid all their records."""

    reason: Final = "before the log start"

    def expired(self, log: RetainedLog) -> int:
        count = 0
        for _, after in pairwise(log.segments):
            if after.base_offset > log.log_start_offset:
                break
            count += 1
        return count


class TooLarge:
    """``retention.bytes``: the oldest go as long as what stays has no less."""

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
    """``retention.ms``: segments whose newest record is older, by the records' timestamps."""

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
"""What Apache Kafka deletes by, in its order."""


class Expired(NamedTuple):
    """How many of the oldest segments go, and why."""

    segments: int
    reason: str


def expired(log: RetainedLog, policies: Sequence[RetentionPolicy]) -> Expired:
    """What of a log goes; the reason is of the policy that names the most."""
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
    """How many of the oldest segments are committed whole; not an empty newest one."""
    ends = [segment.base_offset for segment in log.segments[1:]] + [log.log_end_offset]
    count = 0
    for end in ends:
        if end > log.high_watermark:
            break
        count += 1
    if count == len(log.segments) and not log.segments[-1].size:
        count -= 1
    return count
