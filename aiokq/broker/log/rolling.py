"""The limits of size and age at which a log rolls.

Source: Kafka ``RollParams``, ``LogConfig.randomSegmentJitter``.
Tests: ``tests/unit/broker/log/test_rolling.py``.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig

__all__ = ["RollLimits"]


class RollLimits(NamedTuple):
    """The size in bytes and the age in milliseconds at which one segment rolls."""

    segment_bytes: int
    segment_ms: int

    @classmethod
    def of(cls, config: LogConfig, name: str) -> RollLimits:
        """Return the limits of one segment.

        The jitter is a hash of ``name``, so logs that were created at the same time do not all roll
        at the same time.

        Args:
            name: a name that identifies the segment among all logs.
        """
        segment_ms = config.segment_ms
        if config.compacted:  # only finished segments are compacted
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        if config.segment_jitter_ms:
            segment_ms -= zlib.crc32(name.encode()) % min(config.segment_jitter_ms, segment_ms)
        return cls(config.segment_bytes, segment_ms)
