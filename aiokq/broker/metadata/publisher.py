"""Makes a node follow the metadata image: opens, deletes and reconfigures logs, tells coordinators.

Owns the objects that requests look at: topics with their partitions, and settings of groups. What
it cannot do is not undone: a partition whose log cannot be opened is offline with that error, and
is tried again until it is open or deleted.

Source: Kafka ``BrokerMetadataPublisher.scala``, ``ReplicaManager.applyDelta``.
Tests: ``tests/unit/broker/metadata/test_publisher.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.group_configs import GroupConfigs
from aiokq.broker.metadata.image import TopicState
from aiokq.broker.metadata.opening import LogOpening
from aiokq.broker.metadata.topic_configs import log_config
from aiokq.broker.metadata.topics import Topic, TopicRegistry
from aiokq.broker.replica.partition import Partition
from aiokq.core.errors import Closed, KafkaStorage
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.metadata.image import MetadataDelta, MetadataImage, PartitionImage
    from aiokq.broker.settings import BrokerSettings
    from aiokq.core.background import BackgroundWork
    from aiokq.core.environment import Environment
    from aiokq.core.supervisor import Supervisor

__all__ = ["MetadataPublisher"]

PARTITIONS_PER_TURN: Final = 32
"""Logs opened or deleted in one turn of the loop; each takes a directory, and opening files."""


class MetadataPublisher:
    """What a node does when the metadata changes. Used from its loop only.

    Args:
        supervisor: runs what opens logs later, until it is closed, which comes before the logs are.
        background: told of logs that could not be opened.
        opened: called with each partition once it has its log.
        deleted: called with each partition that is deleted.

    Attributes:
        topics: the topics of the node, as requests see them.
        group_configs: the settings of groups, as coordinators see them.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        environment: Environment,
        directories: LogDirectories,
        supervisor: Supervisor,
        background: BackgroundWork,
        opened: Callable[[Partition], None],
        deleted: Callable[[Partition], None],
    ) -> None:
        self.topics = TopicRegistry()
        self.group_configs = GroupConfigs(settings)
        self._settings = settings
        self._environment = environment
        self._clock = environment.clock
        self._offload = environment.offload
        self._directories = directories
        self._node_id = directories.properties.node_id
        self._supervisor = supervisor
        self._background = background
        self._opened = opened
        self._deleted = deleted
        self._opening: LogOpening | None = None
        self._started = False
        self._refused: dict[Partition, PartitionImage] = {}
        """Partitions whose new logs could not be opened."""

    # --- start

    def load(self, image: MetadataImage) -> None:
        """Take over an image; `open_logs` opens the logs of its topics."""
        for topic in image.topics.values():
            self._register(TopicState.of(topic, image))
        for group_id, configs in image.group_configs().items():
            self.group_configs.configure(group_id, configs)

    def _register(self, state: TopicState) -> None:
        config = log_config(state.configs, self._settings)
        topic = Topic(
            state.name, state.topic_id, state.configs, config, kafka_epochs=state.kafka_epochs
        )
        for index, partition in enumerate(state.partitions):
            topic.partitions.append(
                Partition.offline(topic, index, partition.replicas, _elsewhere(topic, index))
                if index in state.elsewhere
                else Partition.unopened(topic, index, partition.replicas)
            )
        self.topics.add(topic)

    @property
    def was_unclean(self) -> bool:
        """Whether a log may have lost something when the node stopped, or with a directory."""
        return any(not self._directories.was_clean(found.name) for found in self._unopened())

    def _unopened(self) -> list[Partition]:
        return [found for topic in self.topics for found in topic.partitions if found.is_recovering]

    async def open_logs(self, least_epoch: int) -> None:
        """Open the logs of all topics, off the loop.

        Those that need recovery are left to `recover`: until then nobody leads their partitions.
        Those in a directory that cannot be used are offline.

        Args:
            least_epoch: the least leader epoch after an unclean stop.

        Raises:
            KafkaStorage: no directory can be used.
        """
        self._opening = LogOpening(
            self._environment,
            self._directories,
            threads=self._settings.num_recovery_threads_per_data_dir * len(self._directories.all),
            least_epoch=least_epoch,
            background=self._background,
            opened=self._log_opened,
        )
        await self._opening.open_clean(self._unopened())
        if not self._directories.online:
            raise KafkaStorage(next(iter(self._directories.offline.values())).message)
        self._started = True

    def _log_opened(self, partition: Partition) -> None:
        self._opened(partition)
        topic = self.topics.get(partition.topic.name)
        if self._started and topic is not None:  # before that, nobody has looked
            self.topics.notify(topic)

    async def recover(self) -> None:
        """Open the logs that an unclean stop left, while the others are served."""
        if self._opening is not None:
            await self._opening.recover()

    def stop_recovery(self) -> None:
        """Recover no more; directories of logs that were not recovered are not closed clean."""
        if self._opening is not None:
            self._opening.stop()
            for partition in self._opening.pending:
                self._directories.leave_unclean(partition.name)

    # --- changes

    async def publish(self, delta: MetadataDelta) -> KafkaStorage | None:
        """Do what an append of metadata asks for. One call at a time, in the order of appends.

        Returns:
            The error of the first thing that could not be done; everything else is.
        """
        failure = await self._delete(
            [
                topic
                for topic in map(self.topics.by_id, delta.deleted)
                if topic is not None  # created and deleted by the same append
            ]
        )
        for state in delta.topics:
            failure = await self._create_or_change(state) or failure
        for group_id, configs in delta.groups.items():
            self.group_configs.configure(group_id, configs)
        return failure

    async def _create_or_change(self, state: TopicState) -> KafkaStorage | None:
        topic = self.topics.by_id(state.topic_id)
        if topic is None:
            config = log_config(state.configs, self._settings)
            topic = Topic(
                state.name, state.topic_id, state.configs, config, kafka_epochs=state.kafka_epochs
            )
            failure = await self._add_partitions(topic, state)
            self.topics.add(topic)
            self.topics.notify(topic)
            return failure
        if topic.configs != state.configs:
            topic.configure(state.configs, log_config(state.configs, self._settings))
            for partition in topic.partitions:
                partition.configure(topic.config)
        failure = None
        if len(topic.partitions) < len(state.partitions):
            failure = await self._add_partitions(topic, state)
            self.topics.notify(topic)
        return failure

    async def _add_partitions(self, topic: Topic, state: TopicState) -> KafkaStorage | None:
        """Open the logs of new partitions, some in each turn of the loop."""
        failure: KafkaStorage | None = None
        for index in range(len(topic.partitions), len(state.partitions)):
            image = state.partitions[index]
            partition = Partition.unopened(topic, index, image.replicas)
            topic.partitions.append(partition)
            error = self._open(partition, image)
            if error is not None:
                failure = failure or error
                partition.take_offline(error)
                self._open_later(partition, image)
            if index % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
        return failure

    def _open(self, partition: Partition, image: PartitionImage) -> KafkaStorage | None:
        """Open the log of a new partition; the error if that is impossible now."""
        try:
            log = self._directories.open_partition(
                partition.name,
                partition.topic.topic_id,
                partition.topic.config,
                now_ms=self._clock.timestamp_ms(),
                is_new=True,
            )
        except KafkaStorage as error:
            # Another one: the partition keeps it, and this one's frames keep the files open.
            return KafkaStorage(error.message, topic_partition=partition.name)
        epoch = max(log.epochs.latest_epoch, image.leader_epoch)
        partition.bring_online(log, image.leader, epoch)
        self._opened(partition)
        return None

    def _open_later(self, partition: Partition, image: PartitionImage) -> None:
        is_first = not self._refused
        self._refused[partition] = image
        if is_first:
            with contextlib.suppress(Closed):  # the node stops: the next start opens them
                self._supervisor.spawn(self._open_refused(), name="open logs again")

    async def _open_refused(self) -> None:
        """Open the logs that could not be opened, until there are none."""
        task = self._background.task("open logs")
        while self._refused:
            first = next(iter(self._refused))
            assert isinstance(first.unavailable, KafkaStorage)
            await asyncio.sleep(task.failed(first.unavailable))
            for number, (partition, image) in enumerate(list(self._refused.items()), 1):
                if partition not in self._refused:
                    continue  # deleted meanwhile
                error = self._open(partition, image)
                if error is None:
                    del self._refused[partition]
                    self._log_opened_again(partition)
                else:
                    partition.take_offline(error)
                if number % PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)

    def _log_opened_again(self, partition: Partition) -> None:
        topic = self.topics.get(partition.topic.name)
        if topic is partition.topic:
            self.topics.notify(topic)

    async def _delete(self, topics: Iterable[Topic]) -> KafkaStorage | None:
        """Hide topics from requests, then let go of their logs; their files go later."""
        # What is kept about topics in internal ones goes with those, not topic by topic.
        deleted = sorted(topics, key=lambda topic: not topic.is_internal)
        if not deleted:
            return None
        for topic in deleted:
            self.topics.remove(topic)
        failure: KafkaStorage | None = None
        for topic in deleted:
            self.topics.notify(topic)
            failure = await self._let_go(topic) or failure
        # Once for all partitions, and off the loop: each would take milliseconds of it.
        for directory in self._directories.online:
            try:
                await self._offload.run(directory.sync_names)
            except KafkaStorage as error:
                failure = failure or error
        return failure

    async def _let_go(self, topic: Topic) -> KafkaStorage | None:
        """Let go of a topic's logs; the error of the disk, if it refused one."""
        for partition in topic.partitions:
            self._refused.pop(partition, None)
        if self._opening is not None:
            await self._opening.abandon(topic.partitions)
        failure: KafkaStorage | None = None
        for partition in topic.partitions:
            try:
                self._directories.delete_partition(partition.name)
            except KafkaStorage as error:
                failure = error
            self._deleted(partition)
            if partition.index % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
        return failure


def _elsewhere(topic: Topic, index: int) -> KafkaStorage:
    return KafkaStorage(
        f"{topic.name}-{index} is on another node of the cluster that these directories come from,"
        " or in another directory of this one",
        topic_partition=TopicPartition(topic.name, index),
    )
