"""The groups of one shard by group id: creation, replay, change of protocol and removal.

Source: Kafka ``GroupMetadataManager.java`` (``replay`` methods).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.coordinator.group.classic.group import ClassicGroup
from aiokq.broker.coordinator.group.consumer.context import ConsumerContext, server_assignors
from aiokq.broker.coordinator.group.consumer.group import ConsumerGroup
from aiokq.broker.coordinator.group.migration.downgrade import OnlineDowngrades
from aiokq.core.counters import CounterBy
from aiokq.core.errors import GroupIdNotFound, RebalanceInProgress, UnknownMemberId

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from aiokq.assign.server_model import ServerAssignor
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.coordinator.group.consumer.context import GroupTimeouts
    from aiokq.broker.coordinator.group.group import Group
    from aiokq.broker.coordinator.group.topic_view import TopicView
    from aiokq.broker.coordinator.record import CoordinatorRecord
    from aiokq.broker.coordinator.timers import Instant, Timers
    from aiokq.wire.group_records import GroupMetadataValue

__all__ = ["GroupMap"]


class GroupMap:
    """The groups of both protocols.

    Args:
        timeouts: timeouts of individual groups; None if all groups have the broker's timeouts.
        rebalances: counts rebalances by the name of the group protocol.

    Attributes:
        by_id: the groups by group id; callers must not change the mapping.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        timers: Timers,
        topics: TopicView,
        rng: random.Random,
        timeouts: GroupTimeouts | None = None,
        rebalances: CounterBy | None = None,
    ) -> None:
        self.by_id: dict[str, Group] = {}
        self._settings = settings
        self._timers = timers
        self._random = rng
        self._rebalances = CounterBy() if rebalances is None else rebalances
        self._consumer_context = ConsumerContext(
            settings,
            timers,
            topics,
            rng,
            OnlineDowngrades(settings, topics, self.classic),
            assignors=server_assignors(settings),
            timeouts=timeouts,
            rebalances=self._rebalances,
        )
        self._upgrading: dict[str, ConsumerGroup] = {}

    @property
    def assignors(self) -> Mapping[str, ServerAssignor]:
        """The assignors of the consumer protocol by name."""
        return self._consumer_context.assignors

    def get(self, group_id: str) -> Group | None:
        return self.by_id.get(group_id)

    def existing(self, group_id: str) -> Group:
        """Return the group of this id.

        Raises:
            GroupIdNotFound: there is no such group.
        """
        group = self.by_id.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return group

    def classic(self, group_id: str) -> ClassicGroup:
        """Return the classic group of this id.

        Raises:
            UnknownMemberId: there is no such classic group.
        """
        group = self.by_id.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise UnknownMemberId()
        return group

    def new_classic(self, group_id: str, timestamp_ms: int | None) -> ClassicGroup:
        """Create a classic group, without adding it to the map."""
        return ClassicGroup(
            group_id,
            settings=self._settings,
            timers=self._timers,
            rng=self._random,
            rebalances=self._rebalances,
            timestamp_ms=timestamp_ms,
        )

    def new_consumer(self, group_id: str) -> ConsumerGroup:
        """Create a group of the consumer protocol, without adding it to the map."""
        return ConsumerGroup(group_id, self._consumer_context)

    def put(self, group: Group) -> None:
        """Add a classic group, before its records are written; `undo_put` is the inverse."""
        self.by_id[group.group_id] = group

    def undo_put(self, group: Group, replaced: Group | None) -> None:
        """Undo `put`, because the group's records could not be written.

        If `group` was replaced or removed meanwhile, nothing changes.

        Args:
            replaced: the group that `put` replaced; None if there was none.
        """
        group_id = group.group_id
        if self.by_id.get(group_id) is not group:
            return
        if replaced is None:
            del self.by_id[group_id]
        else:
            self.by_id[group_id] = replaced

    def begin_upgrade(self, group: ConsumerGroup) -> None:
        """Keep a new group until the replay of its first record adds it to the map."""
        self._upgrading[group.group_id] = group

    def end_upgrade(self, group_id: str) -> None:
        """Drop the group that `begin_upgrade` kept, unless replay has added it to the map."""
        self._upgrading.pop(group_id, None)

    def add_simple(self, group_id: str) -> None:
        """Add an empty group, for committed offsets of a group that has no record of its own."""
        self.by_id[group_id] = self.new_classic(group_id, None)

    def replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        """Apply the record of a classic group."""
        present = self.by_id.pop(group_id, None)
        if isinstance(present, ClassicGroup) and group_id in self._upgrading:
            # Members with pending requests join again, and find the upgraded group.
            present.unloaded(RebalanceInProgress.code)
        elif present is not None:
            present.unloaded()
        if value is not None:
            group = self.new_classic(group_id, None)
            group.restore(value)
            self.by_id[group_id] = group

    def replay_consumer(self, record: CoordinatorRecord) -> None:
        """Apply a record of a group of the consumer protocol."""
        # All record keys of the consumer protocol have `group_id`.
        group_id: str = record.key.group_id  # type: ignore[attr-defined]
        group = self.by_id.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            if group is not None:
                group.unloaded()
            group = self._upgrading.pop(group_id, None) or self.new_consumer(group_id)
            self.by_id[group_id] = group
        group.replay(record)
        if group.is_gone:
            del self.by_id[group_id]
            group.unloaded()

    def loaded(self, instant: Instant) -> None:
        """Start the timers of all groups."""
        for group in list(self.by_id.values()):
            group.loaded(instant)

    def unloaded(self) -> None:
        """Cancel the timers of all groups, answer pending requests, and remove the groups."""
        for group in self.by_id.values():
            group.unloaded()
        self.by_id.clear()
