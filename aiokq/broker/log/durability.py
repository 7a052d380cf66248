"""Durability of one log: how far it is synced, and when its topic's settings require a sync.

The ``flusher`` of the log directory does the syncs. By default no record has to be durable. With
``flush.messages`` a sync is requested when the log has that many unsynced records, and from then on
acknowledgements wait for the end of the sync. With ``flush.ms`` a sync begins at most that long
after an append, and no acknowledgement waits for the sync.

Source: Kafka ``UnifiedLog.flush``, ``LocalLog.unflushedMessages``.
Tests: ``tests/unit/broker/log/test_flusher.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.log.config import LONG_MAX

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.flusher import FlushableLog, Flusher

__all__ = ["Durability"]


class Durability:
    """The durability of one log.

    Attributes:
        recovery_point: records before this offset are durable.
        has_policy: whether the topic's settings (``flush.messages``, ``flush.ms``) require syncs.
        may_wait: whether acknowledgements may have to wait for a sync: there is a flush policy, or
            a sync that an earlier policy required has not ended.
        policy_end: the offset before which no record waits for a sync. Kept up to date only while
            ``may_wait`` is true.
        is_new: whether a power cut may still remove the name of the log's directory.
    """

    __slots__ = (
        "_asked",
        "_flush_messages",
        "_flush_ms",
        "_flusher",
        "has_policy",
        "is_new",
        "may_wait",
        "policy_end",
        "recovery_point",
    )

    def __init__(self, config: LogConfig) -> None:
        self.recovery_point = self.policy_end = 0
        self.is_new = False
        self._flusher: Flusher | None = None
        # whether acknowledgements wait for a requested sync that has not ended
        self._asked = False
        self._take(config)

    def _take(self, config: LogConfig) -> None:
        self._flush_messages = config.flush_messages
        self._flush_ms = config.flush_ms
        self.has_policy = config.flush_messages < LONG_MAX or config.flush_ms < LONG_MAX
        self.may_wait = self.has_policy or self._asked

    def update_config(self, config: LogConfig, log: FlushableLog) -> None:
        """Apply changed topic settings.

        If ``flush.ms`` is set, a sync of the unsynced records begins within the new ``flush.ms``.
        """
        if not self.may_wait:
            self.policy_end = log.log_end_offset
        self._take(config)
        unflushed = log.log_end_offset > self.recovery_point
        if self._flusher is not None and self._flush_ms < LONG_MAX and unflushed:
            self._flusher.flush_within(log, self._flush_ms / 1000)

    def attach(self, flusher: Flusher) -> None:
        """Set the flusher; without a flusher no syncs are requested."""
        self._flusher = flusher

    def appended(self, log: FlushableLog, end_offset: int) -> None:
        """Request the syncs that the policy requires after an append up to ``end_offset``."""
        if self._flusher is not None:
            if end_offset - self.recovery_point >= self._flush_messages:
                self._flusher.flush(log)
                self._asked = True
            elif self._flush_ms < LONG_MAX:
                self._flusher.flush_within(log, self._flush_ms / 1000)
        if not self._asked:
            self.policy_end = end_offset

    def segment_finished(self, log: FlushableLog, next_base_offset: int) -> None:
        """Request a background sync of the finished segments, up to ``next_base_offset``."""
        if self._flusher is not None:
            self._flusher.flush(log, next_base_offset)

    def flushed(self, log: FlushableLog, end_offset: int) -> None:
        """Record that a flush up to ``end_offset`` has ended."""
        self.recovery_point = max(self.recovery_point, end_offset)
        if self.may_wait:
            self._asked = False
            self.policy_end = max(self.policy_end, min(self.recovery_point, log.log_end_offset))
            self.appended(log, log.log_end_offset)
            self.may_wait = self.has_policy or self._asked

    def synced(self, log_end_offset: int) -> None:
        """Record that the whole log is durable."""
        self.recovery_point = self.policy_end = log_end_offset

    def truncated(self, log: FlushableLog, active_base_offset: int) -> None:
        """Lower the recovery point to at most the new log end offset; request syncs again.

        The log ignores the results of syncs that began before the truncation.

        Args:
            active_base_offset: the base offset of the newest segment after the truncation.
        """
        end_offset = log.log_end_offset
        self.recovery_point = min(self.recovery_point, end_offset)
        self.policy_end = min(self.policy_end, end_offset)
        self._asked = False
        if self.may_wait:
            self.appended(log, end_offset)
            self.may_wait = self.has_policy or self._asked
        self.segment_finished(log, active_base_offset)
