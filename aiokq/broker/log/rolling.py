"""The limits of size and age at which a log rolls.

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
    """The limits of one segment."""

    segment_bytes: int
    segment_ms: int

    @classmethod
    def of(cls, config: LogConfig, name: str) -> RollLimits:
        """Return the limits of a segment of this name.

        The jitter is derived from the name. It only has to differ between logs, so that logs which
        began at the same time do not roll at the same time.
        """
        segment_ms = config.segment_ms
        if config.compacted:  # the active segment is not compacted
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        if config.segment_jitter_ms:
            segment_ms -= zlib.crc32(name.encode()) % min(config.segment_jitter_ms, segment_ms)
        return cls(config.segment_bytes, segment_ms)

    def is_idle(self, segment: Segment, now_ms: int) -> bool:
        """Whether a record that arrived now would make the segment roll by age.

        Old record timestamps alone, as in an import, do not count.
        """
        if not segment.size:
            return False
        first = segment.first_timestamp_ms()
        if first >= 0 and now_ms - first <= self.segment_ms:
            return False
        # time of creation; if the segment was loaded later, time of the last write
        since = segment.created_ms
        if now_ms - since <= self.segment_ms:
            since = segment.modified_ms()
        return now_ms - since > self.segment_ms
