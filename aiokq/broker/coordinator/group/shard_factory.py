"""Factory of the group coordinator's shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.coordinator.group.record_types import encode_record
from aiokq.broker.coordinator.group.shard import GroupShard

if TYPE_CHECKING:
    import random

    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.coordinator.group.consumer.context import GroupTimeouts
    from aiokq.broker.coordinator.group.topic_view import TopicView
    from aiokq.broker.coordinator.timers import Timers
    from aiokq.core.counters import CounterBy

__all__ = ["GroupShardFactory"]


class GroupShardFactory:
    """The `ShardFactory` of groups.

    Args:
        timeouts: the timeouts that may differ between groups.
        rebalances: counts rebalances by the name of the group protocol.
    """

    encode = staticmethod(encode_record)

    def __init__(
        self,
        settings: BrokerSettings,
        rng: random.Random,
        topics: TopicView,
        timeouts: GroupTimeouts,
        rebalances: CounterBy,
    ) -> None:
        self._settings = settings
        self._random = rng
        self._topics = topics
        self._timeouts = timeouts
        self._rebalances = rebalances

    def new_shard(self, timers: Timers, leader_epoch: int) -> GroupShard:
        """Return an empty shard; groups do not need the leader epoch."""
        return GroupShard(
            settings=self._settings,
            timers=timers,
            topics=self._topics,
            rng=self._random,
            timeouts=self._timeouts,
            rebalances=self._rebalances,
        )
