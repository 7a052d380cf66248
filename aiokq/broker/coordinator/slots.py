"""Owns one partition of `__consumer_offsets` as the coordinator has it: its shard, and its state.

Source: Kafka ``CoordinatorRuntime.CoordinatorContext``.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.broker.coordinator.group.shard import GroupShard
    from aiokq.broker.coordinator.shard_log import ShardLog
    from aiokq.broker.coordinator.timers import Timers
    from aiokq.broker.replica.partition import Partition

__all__ = ["ShardState", "Slot"]


class ShardState(Enum):
    """Whether a shard may be asked."""

    LOADING = "its log is being replayed"
    ACTIVE = "it coordinates its groups"
    FAILED = "its log cannot be read"
    CLOSED = "this node coordinates its groups no longer"


class Slot:
    """One partition with its shard, and the loop's timer for the first of the shard's timers."""

    def __init__(
        self, partition: Partition, log: ShardLog, shard: GroupShard, timers: Timers
    ) -> None:
        self.partition = partition
        self.log = log
        self.shard = shard
        self.timers = timers
        self.state = ShardState.LOADING
        self.handle: asyncio.TimerHandle | None = None
        self.wakes_at = 0.0

    def close(self) -> None:
        """Coordinate its groups no longer."""
        if self.state is ShardState.ACTIVE:
            self.shard.unloaded()
        self.state = ShardState.CLOSED
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None
