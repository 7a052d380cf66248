"""The publisher: applies the metadata image and its changes to a node.

The publisher opens, deletes and reconfigures logs, makes the node leader or follower of the
partitions that it has replicas of, and notifies the coordinators. It owns the objects that requests
use: topics with their partitions, and settings of groups. A change that fails is not undone. A
partition whose log cannot be opened is offline with the error. `LogOpening` and `LogDeletion` retry
failed openings and deletions while the log directory is online.

Source: Kafka ``BrokerMetadataPublisher.scala``, ``ReplicaManager.applyDelta``.
Tests: ``tests/unit/broker/metadata/publisher/test_publisher.py``, ``test_roles.py``,
``test_creation_on_a_full_disk.py``.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.configs.group_configs import GroupConfigs
from aiokq.broker.metadata.configs.topic_configs import TOPIC_CONFIGS, log_config, served_configs
from aiokq.broker.metadata.image.features import DIRECTORY_ASSIGNMENT, METADATA_VERSION
from aiokq.broker.metadata.image.metadata_delta import TopicState
from aiokq.broker.metadata.publisher.deletion import LogDeletion
from aiokq.broker.metadata.publisher.opening import LogOpening
from aiokq.broker.metadata.publisher.pace import Pace
from aiokq.broker.metadata.publisher.topics import Topic, TopicRegistry
from aiokq.broker.replica.partition import Partition
from aiokq.core.errors import KafkaStorage
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.broker.config.dynamic_settings import DynamicSettings
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.broker.metadata.image.metadata_delta import MetadataDelta
    from aiokq.broker.metadata.image.topic_image import PartitionImage
    from aiokq.core.background import BackgroundWork
    from aiokq.core.environment import Environment
    from aiokq.core.quota_keys import QuotaEntity
    from aiokq.core.supervisor import Supervisor
    from aiokq.wire.struct import Message

__all__ = ["MetadataPublisher"]

NO_EPOCH: Final = -1
TOPIC_DEFAULTS: Final = frozenset(name for row in TOPIC_CONFIGS.values() for name in row.server)
"""The broker settings that are the defaults of topic settings."""

MOST_LOG_CONFIGS: Final = 64
"""Maximum number of `LogConfig` objects kept for reuse by topics with equal settings."""


class MetadataPublisher:
    """Applies metadata changes to a node. Used from the node's loop only.

    Args:
        settings: the settings of the broker; the publisher applies dynamic settings to this object.
        supervisor: runs the retries; it is closed before the logs are closed.
        background: counts failures, and returns the delays between retries.
        elected: called with each partition that this node begins to lead, or leads in a new leader
            epoch, after its log was opened.
        resigned: called with each partition that this node stops leading, and with each partition
            whose log it deletes or can no longer use.
        visible: called with the name of a partition whose high watermark has advanced, and with the
            number of bytes that became visible to consumers.
        deleted: called when a log may have been deleted, so that the files of deleted logs are
            removed later.
        placed: called with topic id, partition number and directory.id of a log if the metadata
            does not name this directory for the log.

    Attributes:
        by_kafka: whether Apache Kafka may have written to the logs.
        topics: the topics of the node, as requests see them.
        group_configs: the settings of groups, as coordinators see them.
        features: levels of features, by name.
        principal_listeners: called with the records of ACLs, SCRAM credentials, delegation tokens
            and quotas in each append. An awaitable that is returned is awaited.
        quotas: the quotas of clients and addresses.
        quotas_changed: called after `quotas` was replaced.
        end_offset: end offset of the last published append; `features` includes this append. 0
            before the first publication.
    """

    def __init__(
        self,
        *,
        settings: DynamicSettings,
        environment: Environment,
        directories: LogDirectories,
        supervisor: Supervisor,
        background: BackgroundWork,
        elected: Callable[[Partition], None],
        resigned: Callable[[Partition], None],
        visible: Callable[[TopicPartition, int], None],
        deleted: Callable[[], None],
        placed: Callable[[uuid.UUID, int, uuid.UUID], None],
        by_kafka: bool,
    ) -> None:
        self.by_kafka = by_kafka
        self.topics = TopicRegistry()
        self.group_configs = GroupConfigs(settings.static)
        self.features: Mapping[str, int] = {}
        self.principal_listeners: list[Callable[[Sequence[Message]], Awaitable[None] | None]] = []
        self.quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self.quotas_changed: Callable[[], None] = lambda: None
        self.end_offset = 0
        self._settings = settings
        self._environment = environment
        self._clock = environment.clock
        self._directories = directories
        self._node_id = directories.properties.node_id
        self._elected = elected
        self._resigned = resigned
        self._visible = visible
        self._placed = placed
        self._opening = LogOpening(
            environment,
            directories,
            threads=settings.static.num_recovery_threads_per_data_dir * len(directories.all),
            epoch_of=self._epoch_of,
            by_kafka=by_kafka,
            supervisor=supervisor,
            background=background,
            opened=self._log_opened,
        )
        self._deletion = LogDeletion(
            environment,
            directories,
            supervisor=supervisor,
            background=background,
            deleted=deleted,
        )
        self._started = False
        self._applied: dict[Topic, Sequence[PartitionImage]] = {}
        """The partitions of each topic, in the newest state that the publisher has applied or is
        applying. A new topic is added here before its logs are created, and to `topics` after that.
        """
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        """`LogConfig` by topic settings, computed with the broker settings in `_configured_by`."""
        self._configured_by = settings.current

    def load(self, image: MetadataImage) -> None:
        """Apply the settings and register the topics of an image; `open_logs` opens the logs."""
        self._settings.apply(image.cluster_configs(), image.own_configs(self._node_id))
        self.features = dict(image.features)
        self.quotas = image.principals.quotas_copy()
        for topic in image.topics.values():
            self._register(TopicState.of(topic, image))
        for group_id, configs in image.group_configs().items():
            self.group_configs.configure(group_id, configs)

    def _register(self, state: TopicState) -> None:
        topic = self._new_topic(state)
        self._applied[topic] = state.partitions
        for index, image in enumerate(state.partitions):
            topic.partitions.append(self._new_partition(topic, index, image))
        self.topics.add(topic)

    def _new_topic(self, state: TopicState) -> Topic:
        configs = served_configs(state.name, state.configs)
        return Topic(state.name, state.topic_id, configs, self._log_config(configs))

    def _log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """Return a topic's typed settings; topics with equal settings usually share one object."""
        if self._settings.current is not self._configured_by:
            self._configured_by = self._settings.current
            self._log_configs.clear()
        key = tuple(configs.items())
        config = self._log_configs.get(key)
        if config is None:
            config = log_config(configs, self._settings.current)
            if len(self._log_configs) == MOST_LOG_CONFIGS:
                self._log_configs.clear()
            self._log_configs[key] = config
        return config

    def _new_partition(self, topic: Topic, index: int, image: PartitionImage) -> Partition:
        """Return a partition whose log is not open yet."""
        partition = Partition.unopened(topic, index, image.replicas)
        partition.change_isr(image.isr)
        if self._node_id not in image.replicas:
            partition.leave(image.leader, image.leader_epoch)
        visible = functools.partial(self._visible, partition.name)
        partition.high_watermark_listeners.append(visible)
        return partition

    def _unopened(self) -> list[Partition]:
        return [found for topic in self.topics for found in topic.partitions if found.is_recovering]

    async def open_logs(self) -> None:
        """Open the logs that need no recovery, in an executor.

        `recover` opens the other logs. Until a log is open, its partition has no leader. Partitions
        in a directory that cannot be used are offline.

        Raises:
            KafkaStorage: no directory can be used.
        """
        await self._opening.open_clean(self._unopened())
        if not self._directories.online:
            raise KafkaStorage(next(iter(self._directories.offline.values())).message)
        self._started = True

    def _epoch_of(self, partition: Partition) -> int:
        """Return the epoch in which this node leads a partition; -1 if this node is not the leader.

        Any thread may call this method.
        """
        topic = partition.topic
        assert isinstance(topic, Topic)
        images = self._applied.get(topic, ())
        if partition.index < len(images) and images[partition.index].leader == self._node_id:
            return images[partition.index].leader_epoch
        return NO_EPOCH

    def _log_opened(self, partition: Partition, log: PartitionLog) -> None:
        self._take_role(partition, log)
        topic = self.topics.get(partition.topic.name)
        if self._started and topic is partition.topic:  # at a start, no listener knows the topic
            self.topics.notify(topic)

    def _take_role(self, partition: Partition, log: PartitionLog) -> None:
        """Make the node leader or follower of a partition whose log was opened."""
        topic = partition.topic
        assert isinstance(topic, Topic)
        image = self._applied[topic][partition.index]
        self._tell_place(topic, partition, image)
        if image.leader == self._node_id:
            epoch = max(log.epochs.latest_epoch, image.leader_epoch)
            partition.bring_online(log, image.leader, epoch)
            self._elected(partition)
        else:
            partition.follow(log, image.leader, image.leader_epoch)

    def _tell_place(self, topic: Topic, partition: Partition, image: PartitionImage) -> None:
        """Report the log directory of a replica if the metadata does not name this directory."""
        directory = self._directories.directory_of(partition.name)
        if directory is None or not self._has_directories():
            return
        if image.directory_of(self._node_id) != directory.directory_id:
            self._placed(topic.topic_id, partition.index, directory.directory_id)

    def _has_directories(self) -> bool:
        return self.features.get(METADATA_VERSION, 0) >= DIRECTORY_ASSIGNMENT

    async def recover(self) -> None:
        """Recover the logs after an unclean shutdown, while other partitions are served."""
        await self._opening.recover()

    def stop_recovery(self) -> None:
        """Stop the recovery; directories with unrecovered logs get no clean shutdown marker."""
        self._opening.stop()
        for partition in self._opening.pending:
            self._directories.leave_unclean(partition.name)

    def directory_failed(self, directory: LogDirectory, error: KafkaStorage) -> None:
        """Take the partitions of a failed log directory offline until the node restarts.

        Source: Kafka ``ReplicaManager.handleLogDirFailure``.
        """
        logs = set(directory.logs.values())
        for topic in self._applied:
            for partition in topic.partitions:
                if partition.local_log in logs:
                    partition.take_offline(error)
                    self._resigned(partition)

    async def publish(self, delta: MetadataDelta) -> KafkaStorage | None:
        """Apply the changes of an append.

        Calls must be made one at a time, in the order of the appends.

        Returns:
            The last error, if any. A change that fails does not prevent the other changes.
        """
        await self._apply_settings(delta)
        failure = await self._delete(
            [
                topic
                for topic in map(self.topics.by_id, delta.deleted)
                if topic is not None  # an append may create and delete a topic
            ]
        )
        for state in delta.topics:
            failure = await self._create_or_change(state) or failure
        for group_id, configs in delta.groups.items():
            self.group_configs.configure(group_id, configs)
        if delta.principals:
            for changed in self.principal_listeners:
                waiting = changed(delta.principals)
                if waiting is not None:
                    await waiting
        if delta.quotas is not None:
            self.quotas = delta.quotas
            self.quotas_changed()
        if delta.features is not None:
            had_directories, self.features = self._has_directories(), delta.features
            if self._has_directories() and not had_directories:
                self._tell_places()
        # Nothing is awaited between the assignments of `features` and `end_offset`, so that other
        # tasks never see only one of them changed.
        self.end_offset = delta.end_offset
        return failure

    def _tell_places(self) -> None:
        """Report the directories of open logs, because the new metadata.version records them."""
        for topic, images in self._applied.items():
            for partition, image in zip(topic.partitions, images, strict=False):
                if partition.local_log is not None:  # a log that is opened later is reported then
                    self._tell_place(topic, partition, image)

    async def _apply_settings(self, delta: MetadataDelta) -> None:
        """Apply changed dynamic settings of the node; apply changed defaults to all topics."""
        settings, own = self._settings, str(self._node_id)
        if not delta.brokers.keys() & {"", own}:
            return
        changed = settings.apply(
            delta.brokers.get("", settings.stored_cluster),
            delta.brokers.get(own, settings.stored_own),
        )
        if not changed & TOPIC_DEFAULTS:
            return
        pace = Pace(self._clock)
        for topic in list(self._applied):
            self._configure(topic, topic.configs, self._log_config(topic.configs))
            await pace.handled(len(topic.partitions))

    @staticmethod
    def _configure(topic: Topic, configs: Mapping[str, str], config: LogConfig) -> None:
        topic.configure(configs, config)
        for partition in topic.partitions:
            partition.configure(config)

    async def _create_or_change(self, state: TopicState) -> KafkaStorage | None:
        topic = self.topics.by_id(state.topic_id)
        if topic is None:
            topic = self._new_topic(state)
            failure = await self._add_partitions(topic, state)
            self.topics.add(topic)
            self.topics.notify(topic)
            return failure
        configs = served_configs(state.name, state.configs)
        if topic.configs != configs:
            self._configure(topic, configs, self._log_config(configs))
        failure = None
        before, self._applied[topic] = self._applied[topic], state.partitions
        for partition, was, image in zip(topic.partitions, before, state.partitions, strict=False):
            if was != image:
                failure = await self._change_partition(partition, was, image) or failure
        if len(topic.partitions) < len(state.partitions):
            failure = await self._add_partitions(topic, state) or failure
            self.topics.notify(topic)
        return failure

    async def _change_partition(
        self, partition: Partition, was: PartitionImage, image: PartitionImage
    ) -> KafkaStorage | None:
        """Make the node the leader or a follower of a partition, or remove the node's replica.

        Source: Kafka's `ReplicaManager.applyLocalLeadersDelta`, `applyLocalFollowersDelta`.

        Returns:
            The error if the log of the replica could not be opened or deleted, else None.
        """
        led = partition.is_online
        partition.change_replicas(image.replicas, image.isr)
        if self._node_id not in image.replicas:
            await self._opening.abandon([partition])
            partition.leave(image.leader, image.leader_epoch)
            if self._node_id not in was.replicas:
                return None
            return self._delete_log(partition)
        log = partition.local_log
        if log is None:
            # If the node had this replica before, the log is still being opened or its directory is
            # offline. The node becomes leader or follower when the log is open.
            return None if self._node_id in was.replicas else self._open(partition)
        if image.leader != self._node_id:
            partition.follow(log, image.leader, image.leader_epoch)
            if led:
                self._resigned(partition)
        elif not led or image.leader_epoch != was.leader_epoch:
            epoch = max(log.epochs.latest_epoch, image.leader_epoch, partition.leader_epoch)
            partition.bring_online(log, image.leader, epoch)
            self._elected(partition)
        return None

    async def _add_partitions(self, topic: Topic, state: TopicState) -> KafkaStorage | None:
        """Add partitions, open their logs, and let other tasks run after every few partitions."""
        failure: KafkaStorage | None = None
        pace = Pace(self._clock)
        self._applied[topic] = state.partitions
        for index in range(len(topic.partitions), len(state.partitions)):
            image = state.partitions[index]
            partition = self._new_partition(topic, index, image)
            topic.partitions.append(partition)
            if self._node_id in image.replicas:
                failure = self._open(partition) or failure
            await pace.handled()
        return failure

    def _open(self, partition: Partition) -> KafkaStorage | None:
        """Open the log of a new partition; return the error if that fails."""
        self._deletion.delete_earlier(partition.name)
        try:
            log = self._directories.open_partition(
                partition.name,
                partition.topic.topic_id,
                partition.topic.config,
                now_ms=self._clock.timestamp_ms(),
                is_new=True,
            )
        except KafkaStorage as error:
            # The partition keeps the returned error. It must be a new exception, because the
            # traceback of `error` keeps files open.
            kept = KafkaStorage(error.message, topic_partition=partition.name)
            self._opening.open_later(partition, kept, is_new=True)
            return kept
        self._take_role(partition, log)
        return None

    async def _delete(self, topics: Iterable[Topic]) -> KafkaStorage | None:
        """Hide topics from requests, then delete their logs, whose files are removed later."""
        # Delete internal topics first: coordinators then discard all their state in one step, not
        # the state of one topic after another.
        deleted = sorted(topics, key=lambda topic: not topic.is_internal)
        if not deleted:
            return None
        for topic in deleted:
            self.topics.remove(topic)
        failure: KafkaStorage | None = None
        changed: set[LogDirectory | None] = set()
        for topic in deleted:
            self.topics.notify(topic)
            failure = await self._let_go(topic, changed) or failure
        return await self._deletion.sync(changed) or failure

    async def _let_go(self, topic: Topic, changed: set[LogDirectory | None]) -> KafkaStorage | None:
        """Delete a topic's logs, and add their directories to `changed`; return the last error."""
        self._applied.pop(topic, None)
        await self._opening.abandon(topic.partitions)
        failure: KafkaStorage | None = None
        pace = Pace(self._clock)
        for partition in topic.partitions:
            changed.add(self._directories.directory_of(partition.name))
            partition.delete()
            failure = self._delete_log(partition) or failure
            await pace.handled()
        return failure

    def _delete_log(self, partition: Partition) -> KafkaStorage | None:
        """Delete a partition's log; if that fails, return the error and retry later."""
        failure = self._deletion.delete(partition.name)
        self._resigned(partition)
        return failure
