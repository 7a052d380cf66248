"""The metadata controller: turns a request into an error for the client or into metadata records.

A decision depends on the image, the request and the settings with which the node was started; new
ids are random. `changes` writes the records, and `publisher` applies them to the node.

Source: Kafka ``ReplicationControlManager.java``, ``ConfigurationControlManager.java``,
``ProducerIdControlManager.java``.
Tests: ``tests/unit/broker/metadata/controller/test_controller.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.configs.group_configs import GROUP_CONFIGS, check_group_configs
from aiokq.broker.metadata.configs.topic_configs import (
    TOPIC_CONFIGS,
    check_topic_configs,
    log_config,
)
from aiokq.broker.metadata.controller.broker_configs import alter_broker_configs, node_settings
from aiokq.broker.metadata.controller.decision import Charge, ConfigChange, Decision
from aiokq.broker.metadata.controller.eligible_replicas import clear_elr_records
from aiokq.broker.metadata.controller.registration import (
    lacks_registration,
    may_be_written_by_kafka,
    new_incarnation,
    registration_records,
)
from aiokq.broker.metadata.controller.topic_layout import CreatedTopic, TopicLayouts, TopicSpec
from aiokq.broker.metadata.image.records import (
    GROUP_CONFIG,
    MIGRATING,
    TOPIC_CONFIG,
    UNASSIGNED,
    config_records,
    partition_record,
)
from aiokq.broker.metadata.image.topic_names import check_topic_name, colliding_topic
from aiokq.core.errors import InvalidRequest, InvalidTopic, TopicExists, UnknownTopicOrPartition
from aiokq.wire.cluster_metadata_records import (
    PartitionChangeRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from aiokq.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.metadata.controller.acl_changes import AclFilter
    from aiokq.broker.metadata.controller.feature_updates import FeatureUpdate
    from aiokq.broker.metadata.controller.quota_changes import QuotaChange
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.broker.metadata.image.principals_image import AclValue
    from aiokq.broker.metadata.image.topic_image import TopicImage
    from aiokq.connection.turn import Steps
    from aiokq.core.errors import BrokerError
    from aiokq.wire.principal_records import AccessControlEntryRecord
    from aiokq.wire.quorum_records import VotersRecord
    from aiokq.wire.registration_records import ControllerEndpoint
    from aiokq.wire.struct import Message

__all__ = ["BLOCK_SIZE", "Controller"]

BLOCK_SIZE: Final = 1000
"""Number of producer ids in a block, as in Kafka."""


class Controller:
    """The controller of a cluster of one node, which has all replicas.

    With ``validate_only``, a method only checks the request and returns no records.

    Args:
        settings: the settings with which the node was started. Dynamic settings can override the
            defaults of topic settings, but not the default numbers of partitions and replicas of a
            new topic, and not the limits of groups.
        new_id: returns a random id.
    """

    def __init__(
        self, settings: BrokerSettings, node_id: int, new_id: Callable[[], uuid.UUID]
    ) -> None:
        self._settings = settings
        self._node_id = node_id
        self._new_id = new_id
        self._layouts = TopicLayouts(settings, node_id)

    def create_topic(
        self,
        image: MetadataImage,
        spec: TopicSpec,
        *,
        validate_only: bool = False,
        charge: Charge | None = None,
    ) -> Decision[CreatedTopic]:
        """Return a description of a new topic and the records that create it.

        Args:
            charge: counts the new partitions against a quota, with `validate_only` as well.

        Raises:
            BrokerError: InvalidTopic, TopicExists, InvalidPartitions, InvalidReplicationFactor,
                InvalidReplicaAssignment, InvalidConfiguration, PolicyViolation,
                ThrottlingQuotaExceeded.
        """
        name = spec.name
        check_topic_name(name)
        if name in image.topics:
            raise TopicExists(f"Topic '{name}' already exists.")
        other = colliding_topic(name, image.topics)
        if other is not None:
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")
        count, factor = self._layouts.of(spec)
        configs = check_topic_configs(spec.configs, self._effective(image))
        if charge is not None:
            charge(count)
        if validate_only:
            return Decision(CreatedTopic(name, ZERO_UUID, count, factor, configs), ())
        topic_id = self._new_id()
        return Decision(
            CreatedTopic(name, topic_id, count, factor, configs),
            [
                TopicRecord(name=name, topic_id=topic_id),
                *_topic_config_records(image, name, {}, configs),
                *self._partition_records(image, topic_id, range(count)),
            ],
        )

    def delete_topic(
        self,
        image: MetadataImage,
        name: str,
        topic_id: uuid.UUID,
        *,
        charge: Charge | None = None,
    ) -> Decision[None]:
        """Return the record that deletes a topic.

        Args:
            charge: counts the partitions against a quota.

        Raises:
            UnknownTopicOrPartition: the topic was deleted meanwhile.
            InvalidTopic: the record would delete another topic, which has the same id; see
                `_topic`.
            ThrottlingQuotaExceeded: raised by `charge`.
        """
        topic = self._topic(image, name, topic_id)
        if charge is not None:
            charge(len(topic.partitions))
        return Decision(None, [RemoveTopicRecord(topic_id=topic_id)])

    def delete_all_topics(self, image: MetadataImage) -> Decision[int]:
        """Return the records that delete all topics, including internal topics.

        The answer is the number of records.

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
        charge: Charge | None = None,
    ) -> Decision[None]:
        """Return the records that add partitions to a topic.

        Args:
            count: the new total number of partitions.
            assignments: the replicas of each new partition; None lets the controller choose.
            charge: counts the new partitions against a quota, with `validate_only` as well.

        Raises:
            BrokerError: InvalidPartitions, InvalidReplicaAssignment, PolicyViolation,
                ThrottlingQuotaExceeded, UnknownTopicOrPartition if the topic was deleted
                meanwhile, or InvalidTopic (see `_topic`).
        """
        present = len(self._topic(image, name, topic_id).partitions)
        self._layouts.check_growth(name, present, count, assignments)
        if charge is not None:
            charge(count - present)
        if validate_only:
            return Decision(None, ())
        return Decision(None, self._partition_records(image, topic_id, range(present, count)))

    def _partition_records(
        self, image: MetadataImage, topic_id: uuid.UUID, indexes: Iterable[int]
    ) -> list[Message]:
        """Return the records of new partitions.

        If the node is registered with one log directory, the records name this directory. Otherwise
        they have ``UNASSIGNED`` in its place: the node chooses a directory when it creates the log,
        and reports it afterwards; see `assign_directories`. If the metadata.version has no
        directories, the records have none.
        """
        directory: uuid.UUID | None = None
        if image.has_directories:
            broker = image.brokers.get(self._node_id)
            online = [] if broker is None else broker.log_dirs
            directory = online[0] if len(online) == 1 else UNASSIGNED
        return [
            partition_record(topic_id, index, self._node_id, directory=directory)
            for index in indexes
        ]

    def assign_directories(
        self, image: MetadataImage, places: Mapping[tuple[uuid.UUID, int], uuid.UUID]
    ) -> Decision[None]:
        """Return the records of the log directories that the node has chosen for its replicas.

        If a partition was created at a metadata.version without directories, the directories of its
        other replicas remain unknown (``MIGRATING``).

        Args:
            places: directory.id by topic id and partition number. Partitions that do not exist any
                more, or have no replica on this node, are left out. If the metadata.version has no
                directories, all are left out.

        Source: Kafka's ``ReplicationControlManager.handleAssignReplicasToDirs``.
        """
        records: list[Message] = []
        if not image.has_directories:
            return Decision(None, records)
        for (topic_id, index), directory in places.items():
            topic = image.topics_by_id.get(topic_id)
            if topic is None or index >= len(topic.partitions):
                continue
            state = topic.partitions[index]
            if self._node_id not in state.replicas:
                continue
            directories = list(state.directories) or [MIGRATING] * len(state.replicas)
            directories[state.replicas.index(self._node_id)] = directory
            if tuple(directories) != state.directories:
                records.append(
                    PartitionChangeRecord(
                        partition_id=index, topic_id=topic_id, directories=directories
                    )
                )
        return Decision(None, records)

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
            InvalidTopic: see `_topic`.
            BrokerError: raised by ``change``.
        """
        self._topic(image, name, topic_id)
        present = image.topic_configs(name)
        changed = change(present)
        # Apache Kafka has stored the settings that this broker does not know. A request may keep
        # their values, but not change them.
        kept = {
            key: text
            for key, text in changed.items()
            if key not in TOPIC_CONFIGS and present.get(key) == text
        }
        wanted = check_topic_configs(
            {key: text for key, text in changed.items() if key not in kept},
            self._effective(image),
        )
        wanted |= kept
        if validate_only:
            return Decision(wanted, ())
        return Decision(wanted, _topic_config_records(image, name, present, wanted))

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
            InvalidConfiguration: a setting is unknown, or a value is invalid or outside the
                broker's limits.
            BrokerError: raised by ``change``.
        """
        if not group_id:
            raise InvalidRequest(
                "the group id is empty; defaults for all groups are broker settings"
            )
        present = image.configs.get((GROUP_CONFIG, group_id), {})
        changed = change(present)
        kept = {
            key: text
            for key, text in changed.items()
            if key not in GROUP_CONFIGS and present.get(key) == text
        }
        wanted = check_group_configs(
            {key: text for key, text in changed.items() if key not in kept}, self._settings
        )
        wanted |= kept
        if validate_only:
            return Decision(wanted, ())
        return Decision(wanted, list(config_records(GROUP_CONFIG, group_id, present, wanted)))

    def alter_broker_configs(
        self,
        image: MetadataImage,
        name: str,
        change: ConfigChange,
        *,
        named: Collection[str],
        validate_only: bool = False,
    ) -> Decision[Mapping[str, str]]:
        """Return dynamic settings after a change, and the records of the change.

        ``name`` is the id of this node, or "" for the settings of all nodes.

        Raises:
            BrokerError: see `broker_configs.alter_broker_configs`.
        """
        return alter_broker_configs(
            image,
            name,
            change,
            named=named,
            static=self._settings,
            node_id=self._node_id,
            validate_only=validate_only,
        )

    def update_features(
        self,
        image: MetadataImage,
        updates: Sequence[FeatureUpdate],
        *,
        kraft_version: int,
        voters: VotersRecord,
        validate_only: bool = False,
    ) -> Decision[None]:
        """Return the records that change levels of features; see `feature_updates`.

        Raises:
            InvalidUpdateVersion: a level cannot be set.
        """
        from aiokq.broker.metadata.controller.feature_updates import update_features

        return update_features(
            image,
            updates,
            node_id=self._node_id,
            kraft_version=kraft_version,
            voters=voters,
            min_insync_replicas=self._settings.min_insync_replicas,
            validate_only=validate_only,
        )

    def register_again(
        self,
        image: MetadataImage,
        controller_endpoints: Sequence[ControllerEndpoint],
        log_directories: Collection[uuid.UUID],
    ) -> Decision[None]:
        """Return the records that register the running node again.

        The records register everything that the level of metadata.version allows. The list is
        empty if the present registration is already complete.

        Args:
            controller_endpoints: the addresses of the node's listeners for controllers.
            log_directories: ids of the log directories that are online.
        """
        if not lacks_registration(image, self._node_id):
            return Decision(None, ())
        broker, level = image.brokers[self._node_id], image.metadata_version
        assert level is not None
        by_kafka = may_be_written_by_kafka(broker.incarnation_id)
        records = registration_records(
            level,
            node_id=self._node_id,
            broker_incarnation=broker.incarnation_id,
            controller_incarnation=new_incarnation(Random(self._new_id().int), by_kafka=by_kafka),
            broker_epoch=broker.broker_epoch,
            endpoints=broker.end_points,
            controller_endpoints=controller_endpoints,
            log_directories=log_directories,
            rack=broker.rack,
        )
        return Decision(None, records)

    def unregister_broker(self, image: MetadataImage, broker_id: int) -> Decision[None]:
        """Return the records that remove a broker from the cluster; see `unregistration`.

        Raises:
            BrokerIdNotRegistered: no broker with this id is registered.
            InvalidRequest: the id is that of this node.
        """
        from aiokq.broker.metadata.controller.unregistration import unregister_broker

        settings = self._effective(image)
        return unregister_broker(
            image,
            broker_id,
            node_id=self._node_id,
            config_of=lambda name: log_config(image.topic_configs(name), settings),
        )

    def create_acls(
        self, image: MetadataImage, acls: Sequence[AclValue]
    ) -> Steps[Decision[list[BrokerError | None]]]:
        """Return an error or None for each ACL, and the records of the new ones; see `acl_changes`.

        Raises:
            InvalidRequest: there are too many ACLs.
        """
        from aiokq.broker.metadata.controller.acl_changes import create_acls

        return create_acls(image, acls, new_id=self._new_id)

    @staticmethod
    def delete_acls(
        image: MetadataImage, filters: Iterable[AclFilter]
    ) -> Steps[Decision[list[Sequence[AccessControlEntryRecord] | BrokerError]]]:
        """Return the ACLs that match each filter and the records that remove them.

        Raises:
            InvalidRequest: too many ACLs match.
        """
        from aiokq.broker.metadata.controller.acl_changes import delete_acls

        return delete_acls(image, filters)

    def alter_client_quotas(
        self,
        image: MetadataImage,
        changes: Sequence[QuotaChange],
        *,
        unknown_hosts: Collection[str],
        validate_only: bool = False,
    ) -> Steps[Decision[list[BrokerError | None]]]:
        """Return an error or None for each change, and the records; see `quota_changes`."""
        from aiokq.broker.metadata.controller.quota_changes import alter_client_quotas

        return alter_client_quotas(
            image, changes, unknown_hosts=unknown_hosts, validate_only=validate_only
        )

    def allocate_producer_ids(self, image: MetadataImage) -> Decision[range]:
        """Return a block of producer ids and the record that reserves it."""
        first = image.next_producer_id
        end = first + BLOCK_SIZE
        record = ProducerIdsRecord(
            broker_id=self._node_id,
            broker_epoch=image.brokers[self._node_id].broker_epoch,
            next_producer_id=end,
        )
        return Decision(range(first, end), [record])

    def _effective(self, image: MetadataImage) -> BrokerSettings:
        return node_settings(image, self._settings, self._node_id)

    @staticmethod
    def _topic(image: MetadataImage, name: str, topic_id: uuid.UUID) -> TopicImage:
        """Return the topic `name`, after checking that records with `topic_id` apply to this topic.

        Two topics can have the same id in copied log directories. A record that names this id
        applies to only one of them.

        Raises:
            UnknownTopicOrPartition: the topic was deleted meanwhile.
            InvalidTopic: records with `topic_id` apply to another topic, which has the same id.
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


def _topic_config_records(
    image: MetadataImage, name: str, present: Mapping[str, str], wanted: Mapping[str, str]
) -> list[Message]:
    records = list(config_records(TOPIC_CONFIG, name, present, wanted))
    return [*records, *clear_elr_records(image, records)]
