"""The topics of a node: what exists, with which partitions, ids and settings.

Owns the registry and the order of its changes: first durable in the metadata log, then done, then
answered. A partition's records are `log`'s, its visibility is `partitions`'.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.log.disk_trouble import remedy
from aiokq.broker.metadata.metadata_records import StartedUnclean, TopicDeleted, TopicRecord
from aiokq.broker.metadata.opening import LogOpening
from aiokq.broker.metadata.topic_configs import check_topic_configs, log_config
from aiokq.broker.metadata.topic_layout import CreatedTopic, TopicLayouts, TopicSpec
from aiokq.broker.metadata.topic_names import INTERNAL_TOPICS, check_topic_name, colliding_topic
from aiokq.broker.replica.partition import Partition
from aiokq.broker.replica.served_topic import ProduceLimits
from aiokq.core.errors import (
    Closed,
    InvalidTopic,
    KafkaStorage,
    TopicExists,
    UnknownTopicOrPartition,
)
from aiokq.core.supervisor import shielded
from aiokq.core.types import TopicPartition
from aiokq.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from aiokq.broker.log.config import LogConfig
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.metadata.metadata_log import MetadataLog
    from aiokq.broker.settings import BrokerSettings
    from aiokq.core.background import BackgroundWork
    from aiokq.core.environment import Environment

__all__ = ["Topic", "TopicRegistry"]

logger = logging.getLogger("aiokq.broker")

ConfigChange: TypeAlias = "Callable[[Mapping[str, str]], Mapping[str, str]]"
"""From a topic's settings to other ones; raises BrokerError for what cannot be."""

PARTITIONS_PER_TURN: Final = 32
"""Logs opened or deleted in one turn of the loop; each takes a directory, and opening files."""


@dataclass(slots=True, eq=False)
class Topic:
    """A topic that exists.

    Attributes:
        configs: the settings given for it, by Kafka's names; `config` is all of them, typed.
        kafka_epochs: as in its `TopicRecord`.
        limits: of a client's batch, by `config`.
    """

    name: str
    topic_id: uuid.UUID
    configs: Mapping[str, str]
    config: LogConfig
    partitions: list[Partition] = field(default_factory=list)
    kafka_epochs: tuple[int, ...] = ()
    limits: ProduceLimits = field(init=False)

    def __post_init__(self) -> None:
        self.configure(self.configs, self.config)

    def configure(self, configs: Mapping[str, str], config: LogConfig) -> None:
        """Take over settings, all of them in `config`."""
        self.configs = configs
        self.config = config
        self.limits = ProduceLimits.of(config, is_internal=self.is_internal)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0

    def partition(self, index: int) -> Partition | None:
        """The partition of this number, if there is one."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class TopicRegistry:
    """Every topic of the cluster, by name and by id.

    Changes run one at a time and finish once begun, whoever asked for them and left.

    Attributes:
        listeners: called with a topic after it was created, grown or deleted, or a log of it was
            recovered; `get` tells which.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        environment: Environment,
        directories: LogDirectories,
        metadata: MetadataLog,
        background: BackgroundWork,
        new_id: Callable[[], uuid.UUID],
        opened: Callable[[Partition], None],
        deleted: Callable[[Partition], None],
    ) -> None:
        self._settings = settings
        self._environment = environment
        self._clock = environment.clock
        self._offload = environment.offload
        self._node_id = directories.properties.node_id
        self._layouts = TopicLayouts(settings, self._node_id)
        self._directories = directories
        self._metadata = metadata
        self._background = background
        self._new_id = new_id
        self._opened = opened
        self._deleted = deleted
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._lock = asyncio.Lock()
        self.listeners: list[Callable[[Topic], None]] = []
        self._opening: LogOpening | None = None
        self._loaded = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def sorted(self) -> list[Topic]:
        """All topics by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def get(self, name: str) -> Topic | None:
        """The topic of this name, if there is one."""
        return self._topics.get(name)

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        """The topic of this id, if there is one."""
        return self._by_id.get(topic_id)

    def partition(self, topic: str, index: int) -> Partition | None:
        """A partition by its topic's name, if there is one."""
        found = self._topics.get(topic)
        return None if found is None else found.partition(index)

    async def load(self) -> None:
        """Take over the topics of the metadata log, and open their logs off the loop.

        Those that need recovery are left to ``recover``: until then nobody leads their partitions.
        What cannot be opened, as its directory cannot be used, is offline.

        Raises:
            KafkaStorage: no directory can be used.
        """
        replicas = (self._node_id,)
        for record in list(self._metadata.image.topics.values()):
            config = log_config(record.configs, self._settings)
            topic = Topic(
                record.name,
                record.topic_id,
                record.configs,
                config,
                kafka_epochs=record.kafka_epochs,
            )
            for index in range(record.partitions):
                topic.partitions.append(
                    Partition.offline(topic, index, replicas, _elsewhere(topic, index))
                    if index in record.elsewhere
                    else Partition.unopened(topic, index, replicas)
                )
            self._add(topic)
        partitions = [
            found
            for topic in self._topics.values()
            for found in topic.partitions
            if found.is_recovering
        ]
        if any(not self._directories.was_clean(partition.name) for partition in partitions):
            await self._count_unclean_start()
        self._opening = LogOpening(
            self._environment,
            self._directories,
            threads=self._settings.num_recovery_threads_per_data_dir * len(self._directories.all),
            least_epoch=self._metadata.image.unclean_starts,
            background=self._background,
            opened=self._log_opened,
        )
        await self._opening.open_clean(partitions)
        if not self._directories.online:
            raise KafkaStorage(next(iter(self._directories.offline.values())).message)
        self._loaded = True

    async def _count_unclean_start(self) -> None:
        count = self._metadata.image.unclean_starts + 1
        try:
            await self._offload.run(self._metadata.append, StartedUnclean(count))
        except KafkaStorage as error:
            if isinstance(error.__cause__, OSError):
                advice = remedy(error.__cause__)
                raise KafkaStorage(f"{error.message}; {advice}") from error.__cause__
            raise

    def _log_opened(self, partition: Partition) -> None:
        self._opened(partition)
        topic = self._topics.get(partition.topic.name)
        if self._loaded and topic is not None:  # before that, nobody has looked
            self._tell(topic)

    async def recover(self) -> None:
        """Open the logs that an unclean stop left, while the others are served."""
        if self._opening is not None:
            await self._opening.recover()

    def stop_recovery(self) -> None:
        """Recover no more; the directories of logs that were not are not closed clean."""
        if self._opening is not None:
            self._opening.stop()
            for partition in self._opening.pending:
                self._directories.leave_unclean(partition.name)

    async def close(self) -> None:
        """Wait for the change that is in work; those behind it, and later ones, raise Closed."""
        self._closed = True
        async with self._lock:
            pass

    @contextlib.asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """One change at a time, and none of a registry whose logs are being closed."""
        async with self._lock:
            if self._closed:
                raise Closed("this broker is stopping: its topics are not changed any more")
            yield

    @contextlib.asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """No topic is made, changed or deleted until the block ends: who wants to waits.

        Raises:
            Closed: the node is stopping.
        """
        async with self._change():
            yield

    async def create_if_allowed(self, name: str, *, allowed: bool) -> Topic | None:
        """Create a topic because somebody asked for its metadata; None where that may not be.

        Raises:
            BrokerError: the name is not one a topic can have, or the creation failed.
        """
        check_topic_name(name)
        if name in INTERNAL_TOPICS or not (allowed and self._settings.auto_create_topics_enable):
            return None
        try:
            await self.create(TopicSpec(name=name))
        except TopicExists:
            pass  # somebody else asked at the same time
        return self._topics.get(name)

    async def create(self, spec: TopicSpec, *, validate_only: bool = False) -> CreatedTopic:
        """Create a topic; durable when this returns.

        Raises:
            BrokerError: InvalidTopic, TopicExists, InvalidPartitions, InvalidReplicationFactor,
                InvalidReplicaAssignment, InvalidConfiguration, PolicyViolation.
        """
        return await shielded(self._create(spec, validate_only), name=f"create {spec.name}")

    async def _create(self, spec: TopicSpec, validate_only: bool) -> CreatedTopic:
        async with self._change():
            self._check_new_name(spec.name)
            count, factor = self._layouts.of(spec)
            configs = check_topic_configs(spec.configs)
            config = log_config(configs, self._settings)
            created = CreatedTopic(
                spec.name, ZERO_UUID if validate_only else self._new_id(), count, factor, configs
            )
            if validate_only:
                return created
            topic = Topic(spec.name, created.topic_id, configs, config)
            await self._record(topic, count, configs)
            try:
                await self._open_partitions(topic, range(count))
            except BaseException:
                # Nobody was told of it, so it may go as if it had never been.
                await self._remove(topic)
                raise
            self._add(topic)
            self._tell(topic)
        logger.info("topic created: topic=%s partitions=%d", spec.name, count)
        return created

    async def delete(self, topic: Topic) -> None:
        """Delete a topic and its records.

        Raises:
            UnknownTopicOrPartition: somebody else deleted it meanwhile.
        """
        await shielded(self._delete(topic), name=f"delete {topic.name}")

    async def _delete(self, topic: Topic) -> None:
        async with self._change():
            self._check_present(topic)
            del self._topics[topic.name]
            del self._by_id[topic.topic_id]
            try:
                await self._remove(topic)
            except KafkaStorage:
                if topic.name in self._metadata.image.topics:
                    self._add(topic)  # it is there as before
                raise
            finally:
                self._tell(topic)
        logger.info("topic deleted: topic=%s", topic.name)

    async def delete_all(self) -> None:
        """Delete every topic, internal ones too, in one change.

        Raises:
            KafkaStorage: the disk refused; what could not be deleted is there.
        """
        await shielded(self._delete_all(), name="delete all topics")

    async def _delete_all(self) -> None:
        async with self._change():
            topics = list(self._topics.values())
            if not topics:
                return
            records = [TopicDeleted(topic.name, topic.topic_id) for topic in topics]
            await self._offload.run(self._metadata.append, *records)
            self._topics.clear()
            self._by_id.clear()
            # What is kept about topics in internal ones goes with those, not topic by topic.
            topics.sort(key=lambda topic: not topic.is_internal)
            failure: KafkaStorage | None = None
            for topic in topics:
                self._tell(topic)
                failure = await self._let_go(topic) or failure
            await self._sync_deletions()
            if failure is not None:
                raise failure
        logger.info("all topics deleted: topics=%d", len(topics))

    async def grow(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Give a topic more partitions; `count` is the new total, `assignments` of the new ones.

        Raises:
            BrokerError: InvalidPartitions, InvalidReplicaAssignment, PolicyViolation.
        """
        await shielded(
            self._grow(topic, count, assignments, validate_only), name=f"grow {topic.name}"
        )

    async def _grow(
        self,
        topic: Topic,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        validate_only: bool,
    ) -> None:
        async with self._change():
            self._check_present(topic)
            present = len(topic.partitions)
            self._layouts.check_growth(topic.name, present, count, assignments)
            if validate_only:
                return
            await self._record(topic, count, topic.configs)
            await self._open_partitions(topic, range(present, count))
            self._tell(topic)
        logger.info("partitions added: topic=%s partitions=%d", topic.name, count)

    async def alter_configs(
        self, topic: Topic, change: ConfigChange, *, validate_only: bool = False
    ) -> None:
        """Change a topic's settings; they take effect at once.

        Args:
            change: the new settings, of those given for the topic when its turn has come: of two
                who change different ones at the same time, none is lost.

        Raises:
            InvalidConfiguration: an unknown setting or a bad value.
            UnknownTopicOrPartition: somebody deleted the topic meanwhile.
        """
        await shielded(
            self._alter_configs(topic, change, validate_only), name=f"alter {topic.name}"
        )

    async def _alter_configs(self, topic: Topic, change: ConfigChange, validate_only: bool) -> None:
        async with self._change():
            self._check_present(topic)
            checked = check_topic_configs(change(topic.configs))
            config = log_config(checked, self._settings)
            if validate_only:
                return
            await self._record(topic, len(topic.partitions), checked)
            topic.configure(checked, config)
            for partition in topic.partitions:
                partition.configure(config)
        logger.info("topic settings changed: topic=%s configs=%s", topic.name, dict(checked))

    # on disk

    async def _record(self, topic: Topic, count: int, configs: Mapping[str, str]) -> None:
        known = self._metadata.image.topics.get(topic.name)
        record = TopicRecord(topic.name, topic.topic_id, count, dict(configs))
        if known is not None:
            record = record._replace(elsewhere=known.elsewhere, kafka_epochs=known.kafka_epochs)
        await self._offload.run(self._metadata.append, record)

    async def _remove(self, topic: Topic) -> None:
        """Record that a topic is gone, then let go of its logs; their files go later."""
        await self._offload.run(self._metadata.append, TopicDeleted(topic.name, topic.topic_id))
        failure = await self._let_go(topic)
        await self._sync_deletions()
        if failure is not None:
            raise failure

    async def _sync_deletions(self) -> None:
        """Once for all partitions, and off the loop: each would take milliseconds of it."""
        for directory in self._directories.online:
            await self._offload.run(directory.sync_names)

    async def _let_go(self, topic: Topic) -> KafkaStorage | None:
        """Let go of a topic's logs; what the disk refused, if it did."""
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

    async def _open_partitions(self, topic: Topic, indexes: range) -> None:
        """Make logs, some in each turn of the loop."""
        for index in indexes:
            self._opened(self._make_partition(topic, index))
            if index % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)

    def _make_partition(self, topic: Topic, index: int) -> Partition:
        log = self._directories.open_partition(
            TopicPartition(topic.name, index),
            topic.topic_id,
            topic.config,
            now_ms=self._clock.timestamp_ms(),
            is_new=True,
        )
        partition = Partition.unopened(topic, index, (self._node_id,))
        partition.bring_online(log, self._node_id, max(log.epochs.latest_epoch, 0))
        topic.partitions.append(partition)
        return partition

    def _add(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def _tell(self, topic: Topic) -> None:
        for listener in self.listeners:
            listener(topic)

    # what may be created

    def _check_new_name(self, name: str) -> None:
        check_topic_name(name)
        if name in self._topics:
            raise TopicExists(f"Topic '{name}' already exists.")
        other = colliding_topic(name, self._topics)
        if other is not None:
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")

    def _check_present(self, topic: Topic) -> None:
        if self._topics.get(topic.name) is not topic:
            raise UnknownTopicOrPartition(f"topic {topic.name!r} was deleted")


def _elsewhere(topic: Topic, index: int) -> KafkaStorage:
    return KafkaStorage(
        f"{topic.name}-{index} is on another node of the cluster that these directories come from,"
        " or in another directory of this one",
        topic_partition=TopicPartition(topic.name, index),
    )
