"""The changes that one append makes to the metadata, in the form that the publisher applies."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.image.principals_image import is_of_principals
from aiokq.broker.metadata.image.records import BROKER_CONFIG, GROUP_CONFIG, TOPIC_CONFIG
from aiokq.core.frozen import frozen
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.cluster_metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from aiokq.wire.principal_records import ClientQuotaRecord
from aiokq.wire.quorum_records import KRaftVersionRecord

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.broker.metadata.image.topic_image import PartitionImage, TopicImage
    from aiokq.core.quota_keys import QuotaEntity
    from aiokq.wire.struct import Message

__all__ = ["MetadataDelta", "TopicState"]

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@frozen
class TopicState:
    """The state of a topic after an append to the metadata log, as an immutable copy."""

    name: str
    topic_id: uuid.UUID
    partitions: Sequence[PartitionImage]
    configs: Mapping[str, str]

    @classmethod
    def of(cls, topic: TopicImage, image: MetadataImage) -> TopicState:
        """Return the current state of a topic of ``image``."""
        return cls(
            topic.name,
            topic.topic_id,
            tuple(topic.partitions),
            dict(image.topic_configs(topic.name)),
        )


class MetadataDelta(NamedTuple):
    """The changes that the records of one append make to the metadata.

    Attributes:
        deleted: ids of deleted topics.
        topics: new and changed topics, in their state after the append.
        groups: all settings of each group whose settings changed, by group id.
        brokers: all dynamic settings of each broker whose settings changed, by broker id; the key
            "" stands for the settings of all brokers.
        features: all levels of features in the image, if one of them or ``kraft.version`` has
            changed; otherwise None.
        principals: the records of ACLs, SCRAM credentials, delegation tokens and quotas, in order.
        end_offset: end offset of the append.
        quotas: all quotas of clients and addresses, if one of them has changed; otherwise None.
    """

    deleted: Sequence[uuid.UUID]
    topics: Sequence[TopicState]
    groups: Mapping[str, Mapping[str, str]]
    brokers: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    features: Mapping[str, int] | None = None
    end_offset: int = 0
    principals: Sequence[Message] = ()
    quotas: Mapping[QuotaEntity, Mapping[str, float]] | None = None

    @classmethod
    def of(
        cls, records: Iterable[Message], image: MetadataImage, *, end_offset: int
    ) -> MetadataDelta:
        """Return the changes made by ``records``.

        Args:
            image: the image after the replay of the records.
            end_offset: the end offset of the log after their append.
        """
        deleted: list[uuid.UUID] = []
        changed: dict[uuid.UUID, None] = {}
        groups: dict[str, Mapping[str, str]] = {}
        brokers: dict[str, Mapping[str, str]] = {}
        features: Mapping[str, int] | None = None
        principals: list[Message] = []
        has_quotas = False
        for record in records:
            if is_of_principals(record):  # first, because there may be thousands of ACLs
                principals.append(record)
                has_quotas |= isinstance(record, ClientQuotaRecord)
                continue
            match record:
                case PartitionRecord() | PartitionChangeRecord() | TopicRecord():
                    changed[record.topic_id] = None
                case RemoveTopicRecord():
                    deleted.append(record.topic_id)
                case ConfigRecord(resource_type=kind, resource_name=name):
                    if kind == TOPIC_CONFIG and name in image.topics:
                        changed[image.topics[name].topic_id] = None
                    elif kind == GROUP_CONFIG:
                        groups[name] = dict(image.configs.get((kind, name), _NONE))
                    elif kind == BROKER_CONFIG:
                        brokers[name] = dict(image.configs.get((kind, name), _NONE))
                case FeatureLevelRecord() | KRaftVersionRecord():
                    features = dict(image.features)
        return cls(
            deleted,
            [
                TopicState.of(image.topics_by_id[topic_id], image)
                for topic_id in changed
                if topic_id in image.topics_by_id
            ],
            groups,
            brokers,
            features,
            end_offset,
            principals,
            image.principals.quotas_copy() if has_quotas else None,
        )

    @property
    def is_empty(self) -> bool:
        """Whether the append changed nothing that the publisher applies."""
        return not (
            self.deleted
            or self.topics
            or self.groups
            or self.brokers
            or self.features is not None
            or self.principals
            or self.quotas is not None
        )
