"""Owns how far one log would survive a power cut, and who waits until that is farther.

Syncs nothing: that is its directory's ``flusher``'s. Knows the policy of one log: by default
nothing has to be durable, with ``flush.messages`` records are seen and acknowledged after their
sync, with ``flush.ms`` they are synced some time after it.

Source: Kafka ``UnifiedLog.flush``, ``LocalLog.unflushedMessages``.
Tests: ``tests/unit/broker/log/test_flusher.py``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokq.broker.log.config import LONG_MAX

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.flusher import Flusher, PendingFlush
    from aiokq.broker.log.local_log import LocalLog

__all__ = ["Durability"]


class Durability:
    """The durable part of one log.

    Attributes:
        recovery_point: records before it are durable, and never checked by a recovery again.
        has_policy: its topic asks for flushes.
        is_new: its directory's name may not be durable yet.
    """

    __slots__ = (
        "_flush_messages",
        "_flush_ms",
        "_flusher",
        "_waiters",
        "has_policy",
        "is_new",
        "recovery_point",
    )

    def __init__(self, config: LogConfig) -> None:
        self.recovery_point = 0
        self.is_new = False
        self._flusher: Flusher | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.update_config(config)

    def update_config(self, config: LogConfig) -> None:
        """Take over changed topic settings."""
        self._flush_messages = config.flush_messages
        self._flush_ms = config.flush_ms
        self.has_policy = config.flush_messages < LONG_MAX or config.flush_ms < LONG_MAX

    def attach(self, flusher: Flusher) -> None:
        """Ask this flusher from now on; without one nothing is ever held back."""
        self._flusher = flusher

    def holds_back(self, log: LocalLog, end_offset: int) -> bool:
        """Whether records before ``end_offset``, just written, are seen only when they are durable.

        Asks for the flushes that the policy says.
        """
        if self._flusher is None:
            return False
        if end_offset - self.recovery_point >= self._flush_messages:
            self._flusher.flush(log)
            return True
        if self._flush_ms < LONG_MAX:
            self._flusher.flush_within(log, self._flush_ms / 1000)
        return False

    def settings_changed(self, log: LocalLog) -> None:
        """Records that wait for a flush, or for nothing, wait no longer than ``flush.ms`` now."""
        unflushed = log.log_end_offset > self.recovery_point
        if self._flusher is not None and self._flush_ms < LONG_MAX and unflushed:
            self._flusher.flush_within(log, self._flush_ms / 1000)

    def segment_finished(self, log: LocalLog, next_base_offset: int) -> None:
        """A segment is written to no more: synced in the background, recovery never reads it."""
        if self._flusher is not None:
            self._flusher.flush(log, next_base_offset)

    def flushed(self, done: PendingFlush) -> None:
        """A flush that was begun is done."""
        self.recovery_point = max(self.recovery_point, done.end_offset)

    async def changed(self) -> None:
        """Wait until a flush has ended, well or not, or the log was closed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        """Let those who wait look again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
