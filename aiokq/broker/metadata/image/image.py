"""The metadata image: the state after all metadata records.

Replaying a record changes only the image; `publisher` applies the change to the node. The image
contains the state of all types of records, including those that this broker does not act on,
because each snapshot has to contain them.

Source: Kafka ``MetadataImage.java``, ``MetadataDelta.java``, and the ``replay`` methods of the
controller's ``*ControlManager`` classes, for records that contradict earlier ones.
Tests: ``tests/unit/broker/metadata/image/test_image.py``.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from aiokq.broker.metadata.image.features import DIRECTORY_ASSIGNMENT
from aiokq.broker.metadata.image.principals_image import PrincipalsImage
from aiokq.broker.metadata.image.records import (
    BROKER_CONFIG,
    GROUP_CONFIG,
    METADATA_VERSION,
    TOPIC_CONFIG,
)
from aiokq.broker.metadata.image.topic_image import PartitionImage, TopicImage
from aiokq.core.errors import CorruptRecord
from aiokq.wire.cluster_metadata_records import (
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    ZkMigrationStateRecord,
)
from aiokq.wire.registration_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from aiokq.wire.struct import Message

__all__ = ["FENCED", "MetadataImage"]

NO_BROKER: Final = -1
NO_EPOCH: Final = -1

FENCED: Final = 1
UNFENCED: Final = -1
IN_CONTROLLED_SHUTDOWN: Final = 1
"""This constant, `FENCED` and `UNFENCED` are values in a ``BrokerRegistrationChangeRecord``, in
which 0 means no change.
"""

MAX_SHARED_PARTITIONS: Final = 4096
"""Maximum number of partition states that are kept in order to share equal states."""

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class MetadataImage:
    """The metadata of the cluster after the records that were replayed.

    Attributes:
        features: levels of the finalized features, ``metadata.version`` included, by name.
        brokers: the registration of each broker, with its current state, by node id.
        controllers: the registration of each controller, by node id.
        topics: topics by name.
        topics_by_id: the same topics by topic id; only one of several topics with the same id.
        configs: settings by type and name of their resource; the name "" stands for the default of
            all resources of the type. Resources without settings are left out.
        principals: ACLs, credentials, tokens and quotas.
        next_producer_id: the id with which the next reserved block begins.
    """

    __slots__ = (
        "_shared",
        "brokers",
        "configs",
        "controllers",
        "features",
        "next_producer_id",
        "principals",
        "topics",
        "topics_by_id",
    )

    def __init__(self) -> None:
        self.features: dict[str, int] = {}
        self.brokers: dict[int, RegisterBrokerRecord] = {}
        self.controllers: dict[int, RegisterControllerRecord] = {}
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[uuid.UUID, TopicImage] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.principals = PrincipalsImage()
        self.next_producer_id = 0
        self._shared: dict[PartitionImage, PartitionImage] = {}

    @property
    def metadata_version(self) -> int | None:
        """The level of ``metadata.version``; None before the first record that sets it."""
        return self.features.get(METADATA_VERSION)

    @property
    def has_directories(self) -> bool:
        """Whether the records of partitions name log directories (KIP-858)."""
        level = self.metadata_version
        return level is not None and level >= DIRECTORY_ASSIGNMENT

    def topic_configs(self, name: str) -> Mapping[str, str]:
        return self.configs.get((TOPIC_CONFIG, name), _NONE)

    def group_configs(self) -> dict[str, Mapping[str, str]]:
        """Return the settings of the groups that have any, by group id."""
        return {name: given for (kind, name), given in self.configs.items() if kind == GROUP_CONFIG}

    def cluster_configs(self) -> Mapping[str, str]:
        """Return the settings that apply to all brokers."""
        return self.configs.get((BROKER_CONFIG, ""), _NONE)

    def own_configs(self, node_id: int) -> Mapping[str, str]:
        """Return the settings that apply to one node only."""
        return self.configs.get((BROKER_CONFIG, str(node_id)), _NONE)

    def broker_configs(self, node_id: int) -> Mapping[str, str]:
        """Return the dynamic settings of a node: those of all brokers, overridden by its own."""
        return {**self.cluster_configs(), **self.own_configs(node_id)}

    def copy(self) -> MetadataImage:
        """Return an independent copy; parts that never change are shared."""
        image = MetadataImage()
        image.features = dict(self.features)
        image.brokers = dict(self.brokers)
        image.controllers = dict(self.controllers)
        for topic in self.topics.values():
            image.topics[topic.name] = image.topics_by_id[topic.topic_id] = topic.copy()
        image.configs = {resource: dict(configs) for resource, configs in self.configs.items()}
        image.principals = self.principals.copy()
        image.next_producer_id = self.next_producer_id
        return image

    def replay(self, record: Message) -> None:
        """Replay one record.

        Raises:
            CorruptRecord: the record contradicts earlier records, or its type is not supported.
        """
        replay = _REPLAYS.get(type(record))
        if replay is not None:
            replay(self, record)
        elif not self.principals.replay(record):
            raise CorruptRecord(f"unexpected {type(record).__name__}")

    def _replay_topic(self, record: TopicRecord) -> None:
        if record.name in self.topics:
            raise CorruptRecord(f"topic {record.name!r} exists already")
        topic = TopicImage(record.name, record.topic_id)
        self.topics[record.name] = self.topics_by_id[record.topic_id] = topic

    def _replay_topic_removal(self, record: RemoveTopicRecord) -> None:
        topic = self.topic(record.topic_id)
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        self.configs.pop((TOPIC_CONFIG, topic.name), None)
        if len(self.topics) > len(self.topics_by_id):  # two topics had the same id
            self.topics_by_id = {each.topic_id: each for each in self.topics.values()}

    def _replay_partition(self, record: PartitionRecord) -> None:
        partition = self.share(PartitionImage.of(record))
        self.topic(record.topic_id).set_partition(record.partition_id, partition)

    def _replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self.topic(record.topic_id)
        changed = topic.partition(record.partition_id).changed_by(record)
        topic.set_partition(record.partition_id, self.share(changed))

    def _replay_elr_removal(self, record: ClearElrRecord) -> None:
        topics = list(self.topics.values())
        if record.topic_name:
            if record.topic_name not in self.topics:
                raise CorruptRecord(f"record of topic {record.topic_name!r}, which does not exist")
            topics = [self.topics[record.topic_name]]
        for topic in topics:
            topic.partitions[:] = [self.share(each.without_elr()) for each in topic.partitions]

    def _replay_config(self, record: ConfigRecord) -> None:
        resource = record.resource_type, record.resource_name
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
            return
        configs = self.configs.get(resource, {})
        configs.pop(record.name, None)
        if not configs:
            self.configs.pop(resource, None)

    def _replay_feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = max(self.next_producer_id, record.next_producer_id)

    def _replay_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = record

    def _replay_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _replay_broker_removal(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]

    def _replay_broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker.fenced = record.fenced == FENCED
        if record.in_controlled_shutdown:
            broker.in_controlled_shutdown = record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN
        if record.log_dirs:
            broker.log_dirs = record.log_dirs
        self.brokers[record.broker_id] = broker

    def _replay_fencing(self, record: FenceBrokerRecord) -> None:
        self._set_fenced(record.id, record.epoch, True)

    def _replay_unfencing(self, record: UnfenceBrokerRecord) -> None:
        self._set_fenced(record.id, record.epoch, False)

    def _set_fenced(self, node_id: int, epoch: int, fenced: bool) -> None:
        broker = self._broker(node_id, epoch)
        broker.fenced = fenced
        self.brokers[node_id] = broker

    def _ignore(self, record: NoOpRecord | ZkMigrationStateRecord) -> None:
        """Do nothing: the record changes no state."""

    def topic(self, topic_id: uuid.UUID) -> TopicImage:
        """Return the topic that a record is about.

        Raises:
            CorruptRecord: the topic does not exist.
        """
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise CorruptRecord(f"record of topic {topic_id}, which does not exist")
        return topic

    def _broker(self, node_id: int, epoch: int) -> RegisterBrokerRecord:
        """Return a copy of a broker's registration, for the caller to change.

        The registration in ``brokers`` is not changed, because other images may share it.
        """
        broker = self.brokers.get(node_id)
        if broker is None:
            raise CorruptRecord(f"change of broker {node_id}, which is not registered")
        if broker.broker_epoch != epoch:
            raise CorruptRecord(
                f"change of broker {node_id} in epoch {epoch}, but it is registered in epoch "
                f"{broker.broker_epoch}"
            )
        return copy.copy(broker)

    def share(self, partition: PartitionImage) -> PartitionImage:
        """Return an equal state that other partitions share, or ``partition`` if there is none."""
        shared = self._shared
        if len(shared) >= MAX_SHARED_PARTITIONS:
            shared.clear()
        return shared.setdefault(partition, partition)

    def records(self) -> Iterator[Message]:
        """Yield the smallest sequence of Kafka's records whose replay gives this image.

        The records are in the order of Kafka's snapshots.

        Source: Kafka's ``MetadataImage.write``.
        """
        features = dict(self.features)
        level = features.pop(METADATA_VERSION, None)
        if level is not None:
            yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
        for name, number in sorted(features.items()):
            yield FeatureLevelRecord(name=name, feature_level=number)
        yield from self.brokers.values()
        yield from self.controllers.values()
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for index, partition in enumerate(topic.partitions):
                yield partition.record(topic.topic_id, index)
        for (kind, resource), configs in self.configs.items():
            for name, value in configs.items():
                yield ConfigRecord(
                    resource_type=kind, resource_name=resource, name=name, value=value
                )
        yield from self.principals.quota_records()
        if self.next_producer_id:
            yield ProducerIdsRecord(
                broker_id=NO_BROKER,
                broker_epoch=NO_EPOCH,
                next_producer_id=self.next_producer_id,
            )
        yield from self.principals.records()


_REPLAYS: Final[Mapping[type, Callable[[MetadataImage, Any], None]]] = {
    PartitionRecord: MetadataImage._replay_partition,
    PartitionChangeRecord: MetadataImage._replay_partition_change,
    TopicRecord: MetadataImage._replay_topic,
    RemoveTopicRecord: MetadataImage._replay_topic_removal,
    ConfigRecord: MetadataImage._replay_config,
    ClearElrRecord: MetadataImage._replay_elr_removal,
    ProducerIdsRecord: MetadataImage._replay_producer_ids,
    FeatureLevelRecord: MetadataImage._replay_feature,
    RegisterBrokerRecord: MetadataImage._replay_broker,
    UnregisterBrokerRecord: MetadataImage._replay_broker_removal,
    BrokerRegistrationChangeRecord: MetadataImage._replay_broker_change,
    FenceBrokerRecord: MetadataImage._replay_fencing,
    UnfenceBrokerRecord: MetadataImage._replay_unfencing,
    RegisterControllerRecord: MetadataImage._replay_controller,
    NoOpRecord: MetadataImage._ignore,
    ZkMigrationStateRecord: MetadataImage._ignore,
}
