"""The group coordinator of a node: the coordinator runtime on `__consumer_offsets`.

Source: Kafka ``GroupCoordinatorService.java``.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from aiokq.broker.coordinator.group.registry_topic_view import RegistryTopicView
from aiokq.broker.coordinator.key_hash import partition_by_hash
from aiokq.broker.coordinator.runtime import CoordinatorRuntime
from aiokq.broker.metadata.controller.topic_layout import TopicSpec
from aiokq.broker.metadata.image.topic_names import OFFSETS_TOPIC
from aiokq.core.errors import BrokerError, Closed
from aiokq.core.log_lines import TextLimit
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    import random

    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.coordinator.group.group import Group
    from aiokq.broker.coordinator.group.shard import GroupShard
    from aiokq.broker.coordinator.group.shard_factory import GroupShardFactory
    from aiokq.broker.coordinator.outcome import Outcome
    from aiokq.broker.coordinator.timers import Instant
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.metadata.configs.group_configs import GroupConfigs
    from aiokq.broker.metadata.publisher.topics import Topic, TopicRegistry
    from aiokq.core.background import BackgroundWork
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.environment import Environment

__all__ = ["OFFSETS_TOPIC", "GroupCoordinator"]

logger = logging.getLogger("aiokq.broker.coordinator")


class _GroupCoordinatorDefinition:
    topic: Final = OFFSETS_TOPIC
    noun: Final = "groups"
    partition_of = staticmethod(partition_by_hash)

    def __init__(
        self,
        settings: BrokerSettings,
        rng: random.Random,
        topics: RegistryTopicView,
        group_configs: GroupConfigs,
        counters: BrokerCounters,
    ) -> None:
        self._settings = settings
        self._random = rng
        self._topics = topics
        self._group_configs = group_configs
        self._counters = counters

    def topic_spec(self, live_brokers: int) -> TopicSpec:
        settings = self._settings
        return TopicSpec(
            name=self.topic,
            partitions=settings.offsets_topic_num_partitions,
            replication_factor=min(settings.offsets_topic_replication_factor, live_brokers),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.offsets_topic_segment_bytes),
            },
        )

    def shard_factory(self) -> GroupShardFactory:
        # Import here, because the import takes tens of milliseconds, and a broker may have no
        # groups.
        from aiokq.broker.coordinator.group.shard_factory import GroupShardFactory

        return GroupShardFactory(
            self._settings,
            self._random,
            self._topics,
            self._group_configs,
            self._counters.group_rebalances,
        )


class GroupCoordinator(CoordinatorRuntime["GroupShard"]):
    """The group coordinator of one node; also removes offsets committed for deleted topics.

    Args:
        settings: the settings of the broker.
        racks: returns the rack of each live node, None for a node without a rack.
        group_configs: the settings of individual groups.
        counters: metrics, to which the numbers of groups and members are added.

    The other arguments are those of `CoordinatorRuntime`.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        environment: Environment,
        topics: TopicRegistry,
        create_topic: Callable[[TopicSpec], Awaitable[object]],
        racks: Callable[[], Mapping[int, str | None]],
        group_configs: GroupConfigs,
        cold_reads: ColdReads,
        counters: BrokerCounters,
        background: BackgroundWork,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        view = RegistryTopicView(topics, racks)
        super().__init__(
            _GroupCoordinatorDefinition(
                settings, environment.random, view, group_configs, counters
            ),
            environment=environment,
            topics=topics,
            create_topic=create_topic,
            live_brokers=lambda: len(racks()),
            commit_timeout=settings.offsets_commit_timeout_ms / 1000,
            cold_reads=cold_reads,
            background=background,
            on_failure=on_failure,
        )
        # The log lines are limited, because each join, leave and sync of a member writes a line,
        # and clients decide how often their members do so.
        self._lines = TextLimit(environment.clock.monotonic)
        self._registry = topics
        topics.listeners.append(self._drop_offsets_if_deleted)
        counters.groups.add_source(self._count_groups)
        counters.group_members.add_source(self._count_members)

    async def start(self) -> None:
        """Begin to load the partitions that this node leads; see `CoordinatorRuntime.start`."""
        logger.addFilter(self._lines)
        await super().start()

    async def close(self) -> None:
        """Stop, and wait for background work to end. Idempotent."""
        try:
            await super().close()
        finally:
            logger.removeFilter(self._lines)

    def _drop_offsets_if_deleted(self, topic: Topic) -> None:
        if self._registry.get(topic.name) is topic or not self.active_shards():
            return
        with contextlib.suppress(Closed):  # the background work has stopped
            self.spawn(self._drop_offsets(topic), name=f"drop offsets of {topic.name}")

    async def _drop_offsets(self, topic: Topic) -> None:
        """Remove the offsets committed for a deleted topic from all active shards.

        A shard that is not loaded keeps these offsets. A kept offset that has a topic id does not
        count for a new topic of the same name.
        """
        gone = [TopicPartition(topic.name, partition.index) for partition in topic.partitions]

        def drop(shard: GroupShard, instant: Instant) -> Outcome[None]:
            return shard.partitions_deleted(gone)

        answers = await self.write_all(drop)
        for partition, error in answers.items():
            if isinstance(error, BrokerError):
                logger.error(
                    "offsets of a deleted topic were not removed: topic=%s partition=%d error=%s",
                    topic.name,
                    partition,
                    error,
                )

    # Any thread may call the next three methods to read the metrics.

    def _count_groups(self) -> dict[tuple[str, ...], int]:
        return Counter((group.type.value, group.state_name) for group in self._groups())

    def _count_members(self) -> dict[tuple[str, ...], int]:
        members: Counter[tuple[str, ...]] = Counter()
        for group in self._groups():
            members[(group.type.value,)] += group.members_count
        return members

    def _groups(self) -> Iterator[Group]:
        for shard in self.active_shards():
            yield from list(shard.groups.values())
