"""Expiry of committed offsets, and removal of empty groups that have no offsets left.

Source: Kafka ``GroupCoordinatorShard.cleanupGroupMetadata``; KIP-211.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.outcome import Outcome

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.coordinator.group.committed_offsets import OffsetStore
    from aiokq.broker.coordinator.group.group_map import GroupMap
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant, Timers

__all__ = ["OffsetExpiry"]

logger = logging.getLogger("aiokq.broker.coordinator")

_PASS_KEY: Final = ("expire offsets",)
_REST_KEY: Final = ("expire more offsets",)
_PER_TURN: Final = 500
"""The number of groups or records after which a pass is interrupted so that other tasks run."""
_OFFSETS_DO_NOT_EXPIRE: Final = -1


class OffsetExpiry:
    """The expiry of one shard's offsets: a pass over all groups at each interval."""

    def __init__(
        self, settings: BrokerSettings, timers: Timers, groups: GroupMap, offsets: OffsetStore
    ) -> None:
        self._settings = settings
        self._timers = timers
        self._groups = groups
        self._offsets = offsets

    def schedule(self, instant: Instant) -> None:
        """Schedule the next pass after `offsets.retention.check.interval.ms`."""
        interval = self._settings.offsets_retention_check_interval_ms / 1000
        self._timers.schedule(_PASS_KEY, instant.now + interval, self._begin)

    def cancel(self) -> None:
        """Cancel the current and the next pass."""
        self._timers.cancel(_PASS_KEY)
        self._timers.cancel(_REST_KEY)

    def _begin(self, instant: Instant) -> Outcome[None]:
        self.schedule(instant)
        return self._expire(list(self._groups.by_id), instant)

    def _expire(self, left: list[str], instant: Instant) -> Outcome[None]:
        """Examine some of the groups, and schedule the rest with a timer that is already due."""
        records: list[CoordinatorRecord] = []
        retention_ms = self._settings.offsets_retention_minutes * 60_000
        examined = 0
        while left and examined < _PER_TURN and len(records) < _PER_TURN:
            group = self._groups.get(left.pop())
            if group is None:
                continue
            examined += 1
            base_ms = group.offset_expiry_base()
            if base_ms == _OFFSETS_DO_NOT_EXPIRE:
                continue
            expired, none_left = self._offsets.expired(
                group.group_id, base_ms, retention_ms, instant.timestamp_ms, group.is_subscribed_to
            )
            records += expired
            if none_left and group.is_empty:
                records += group.tombstones()
        if records:
            logger.info("offsets and groups expired: records=%d", len(records))
        if left:
            rest = functools.partial(self._expire, left)
            self._timers.schedule(_REST_KEY, instant.now, rest)
        return Outcome(records, atomic=False)
