"""Owns when a log goes on to a new segment: by the size and the age of the newest.

Source: Kafka ``RollParams``, ``LogConfig.randomSegmentJitter``.
Tests: ``tests/unit/broker/log/test_rolling.py``.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.segment import Segment

__all__ = ["RollLimits"]


class RollLimits(NamedTuple):
    """When a log goes on to a new segment."""

    segment_bytes: int
    segment_ms: int

    @classmethod
    def of(cls, config: LogConfig, name: str) -> RollLimits:
        """The limits of a segment of this name.

        The jitter takes logs apart that began together: of no matter how random, as long as they
        differ, so it is made from the name.
        """
        segment_ms = config.segment_ms
        if config.compacted:  # only what is not appended to any more can be compacted
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        if config.segment_jitter_ms:
            segment_ms -= zlib.crc32(name.encode()) % min(config.segment_jitter_ms, segment_ms)
        return cls(config.segment_bytes, segment_ms)

    def is_idle(self, segment: Segment, now_ms: int) -> bool:
        """Whether a record that came now would begin a new segment, and the segment is that old.

        Records of long ago alone, as an import brings them, are no reason.
        """
        if not segment.size:
            return False
        first = segment.first_timestamp_ms()
        if first >= 0 and now_ms - first <= self.segment_ms:
            return False
        # when it was made; of one that was loaded since then, when it was written last
        since = segment.created_ms
        if now_ms - since <= self.segment_ms:
            since = segment.modified_ms()
        return now_ms - since > self.segment_ms
