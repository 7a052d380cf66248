"""The metadata controller: turns a request into an error for the client or into metadata records.

Its decisions depend only on the image and the request. `changes` writes the records, and
`publisher` applies them to the node.

Source: Kafka ``ReplicationControlManager.java``, ``ConfigurationControlManager.java``,
``ProducerIdControlManager.java``.
Tests: ``tests/unit/broker/metadata/test_controller.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from aiokq.broker.metadata.group_configs import check_group_configs
from aiokq.broker.metadata.records import (
    GROUP_CONFIG,
    TOPIC_CONFIG,
    MetadataRecord,
    StartedUnclean,
    config_records,
    partition_record,
)
from aiokq.broker.metadata.topic_configs import check_topic_configs, log_config
from aiokq.broker.metadata.topic_layout import CreatedTopic, TopicLayouts, TopicSpec
from aiokq.broker.metadata.topic_names import check_topic_name, colliding_topic
from aiokq.core.errors import InvalidRequest, InvalidTopic, TopicExists, UnknownTopicOrPartition
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.cluster_metadata_records import ProducerIdsRecord, RemoveTopicRecord, TopicRecord
from aiokq.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.metadata.image import MetadataImage
    from aiokq.broker.metadata.topic_image import TopicImage

__all__ = ["BLOCK_SIZE", "ConfigChange", "Controller", "Decision"]

R = TypeVar("R")

BLOCK_SIZE: Final = 1000
"""Number of producer ids in a block, as in Kafka."""

ConfigChange: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str]]
"""A function that computes the new settings of a resource from the current ones. It raises a
BrokerError to refuse the change.
"""


class Decision(NamedTuple, Generic[R]):
    """The controller's decision about a request.

    Attributes:
        answer: the caller's result, returned when the records are in effect.
        records: the records to append together; empty if nothing changes.
    """

    answer: R
    records: Sequence[MetadataRecord]


class Controller:
    """The controller of a cluster of one node, which has all replicas.

    Args:
        new_id: creates topic ids.
    """

    def __init__(
        self, settings: BrokerSettings, node_id: int, new_id: Callable[[], uuid.UUID]
    ) -> None:
        self._settings = settings
        self._node_id = node_id
        self._new_id = new_id
        self._layouts = TopicLayouts(settings, node_id)

    # --- topics

    def create_topic(
        self, image: MetadataImage, spec: TopicSpec, *, validate_only: bool = False
    ) -> Decision[CreatedTopic]:
        """Return a description of a new topic and the records that create it.

        Raises:
            BrokerError: InvalidTopic, TopicExists, InvalidPartitions, InvalidReplicationFactor,
                InvalidReplicaAssignment, InvalidConfiguration, PolicyViolation.
        """
        name = spec.name
        check_topic_name(name)
        if name in image.topics:
            raise TopicExists(f"Topic '{name}' already exists.")
        other = colliding_topic(name, image.topics)
        if other is not None:
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")
        count, factor = self._layouts.of(spec)
        configs = check_topic_configs(spec.configs)
        log_config(configs, self._settings)
        if validate_only:
            return Decision(CreatedTopic(name, ZERO_UUID, count, factor, configs), ())
        topic_id = self._new_id()
        return Decision(
            CreatedTopic(name, topic_id, count, factor, configs),
            [
                TopicRecord(name=name, topic_id=topic_id),
                *config_records(TOPIC_CONFIG, name, {}, configs),
                *(partition_record(topic_id, index, self._node_id) for index in range(count)),
            ],
        )

    def delete_topic(self, image: MetadataImage, name: str, topic_id: uuid.UUID) -> Decision[None]:
        """Return the record that deletes a topic.

        Raises:
            UnknownTopicOrPartition: the topic was deleted meanwhile.
            InvalidTopic: another topic has the same id; see `_topic`.
        """
        self._topic(image, name, topic_id)
        return Decision(None, [RemoveTopicRecord(topic_id=topic_id)])

    def delete_all_topics(self, image: MetadataImage) -> Decision[int]:
        """Return the records that delete all topics, including internal topics, and their number.

        If several topics have the same id, the records delete only one of them. The caller repeats
        the call until the number is 0.
        """
        records = [RemoveTopicRecord(topic_id=topic_id) for topic_id in image.topics_by_id]
        return Decision(len(records), records)

    def create_partitions(
        self,
        image: MetadataImage,
        name: str,
        topic_id: uuid.UUID,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> Decision[None]:
        """Return the records that add partitions to a topic.

        Args:
            count: the new total number of partitions.
            assignments: the replicas of each new partition; None lets the controller choose.

        Raises:
            BrokerError: InvalidPartitions, InvalidReplicaAssignment, PolicyViolation,
                UnknownTopicOrPartition if the topic was deleted meanwhile, or InvalidTopic if
                another topic has the same id.
        """
        present = len(self._topic(image, name, topic_id).partitions)
        self._layouts.check_growth(name, present, count, assignments)
        if validate_only:
            return Decision(None, ())
        records = [
            partition_record(topic_id, index, self._node_id) for index in range(present, count)
        ]
        return Decision(None, records)

    # --- settings

    def alter_topic_configs(
        self,
        image: MetadataImage,
        name: str,
        topic_id: uuid.UUID,
        change: ConfigChange,
        *,
        validate_only: bool = False,
    ) -> Decision[Mapping[str, str]]:
        """Return all settings of a topic after a change, and the records of the change.

        Raises:
            InvalidConfiguration: an unknown setting or an invalid value.
            UnknownTopicOrPartition: the topic was deleted meanwhile.
            InvalidTopic: another topic has the same id.
            BrokerError: raised by ``change``.
        """
        self._topic(image, name, topic_id)
        present = image.topic_configs(name)
        wanted = check_topic_configs(change(present))
        log_config(wanted, self._settings)
        if validate_only:
            return Decision(wanted, ())
        return Decision(wanted, list(config_records(TOPIC_CONFIG, name, present, wanted)))

    def alter_group_configs(
        self,
        image: MetadataImage,
        group_id: str,
        change: ConfigChange,
        *,
        validate_only: bool = False,
    ) -> Decision[Mapping[str, str]]:
        """Return all settings of a group after a change, and the records of the change.

        Raises:
            InvalidRequest: the group id is empty.
            InvalidConfiguration: an unknown setting, or a value beyond the broker's limits.
            BrokerError: raised by ``change``.
        """
        if not group_id:
            raise InvalidRequest(
                "the group id is empty; defaults for all groups are broker settings"
            )
        present = image.configs.get((GROUP_CONFIG, group_id), {})
        wanted = check_group_configs(change(present), self._settings)
        if validate_only:
            return Decision(wanted, ())
        return Decision(wanted, list(config_records(GROUP_CONFIG, group_id, present, wanted)))

    # --- ids and epochs

    def allocate_producer_ids(self, image: MetadataImage) -> Decision[range]:
        """Return a block of producer ids and the record that reserves it."""
        first = image.next_producer_id
        end = first + BLOCK_SIZE
        record = ProducerIdsRecord(broker_id=self._node_id, next_producer_id=end)
        return Decision(range(first, end), [record])

    def count_unclean_start(self, image: MetadataImage) -> Decision[int]:
        """Return the number of unclean starts, including this start, and the record with it."""
        count = image.unclean_starts + 1
        return Decision(count, [StartedUnclean(count)])

    @staticmethod
    def _topic(image: MetadataImage, name: str, topic_id: uuid.UUID) -> TopicImage:
        """Return the topic `name`, after a check that records with its id apply to it.

        Two topics can have the same id in copied log directories. A record that names this id
        applies to only one of them.

        Raises:
            UnknownTopicOrPartition: the topic was deleted meanwhile.
            InvalidTopic: another topic has the same id.
        """
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicOrPartition("the topic was deleted")
        if topic.name != name:
            raise InvalidTopic(
                f"Topic '{name}' has the same topic id as topic '{topic.name}' and cannot be"
                f" changed: delete '{topic.name}' first."
            )
        return topic
