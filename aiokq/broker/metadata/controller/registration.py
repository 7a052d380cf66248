"""The records that a node appends when it begins an epoch as the only voter, and when it stops.

The node's broker and its controller are one process. The node therefore registers both, and no
other node decides whether this node may lead a partition.

The functions compute records from an image. Only `stopped_metadata` changes the image.

Source: Kafka ``ActivationRecordsGenerator.java``, ``ClusterControlManager.java``,
``PartitionChangeBuilder.java``; KIP-858, KIP-866, KIP-868, KIP-966.
Tests: ``tests/unit/broker/metadata/controller/test_registration.py``,
``tests/property/test_registration.py``.
"""

from __future__ import annotations

import copy
import struct
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.image.features import (
    CONTROLLER_REGISTRATION,
    DIRECTORY_ASSIGNMENT,
    ELIGIBLE_LEADER_REPLICAS,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_TRANSACTIONS,
    METADATA_VERSION,
    METADATA_VERSIONS,
    MINIMUM_METADATA_VERSION,
    new_levels,
    supported_ranges,
)
from aiokq.broker.metadata.image.image import FENCED
from aiokq.broker.metadata.image.records import BROKER_CONFIG
from aiokq.broker.metadata.image.topic_image import NO_LEADER, RECOVERING, PartitionImage
from aiokq.core.errors import CorruptRecord
from aiokq.core.types import TopicPartition
from aiokq.wire.cluster_metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from aiokq.wire.registration_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.wire.struct import Message

__all__ = [
    "MIN_INSYNC_REPLICAS",
    "bootstrap_records",
    "feature_records",
    "leadership_records",
    "lacks_registration",
    "may_be_written_by_kafka",
    "new_incarnation",
    "registration_records",
    "stop_records",
    "stopped_metadata",
]

TRANSACTION_NAME: Final = "Bootstrap records"
ABORT_REASON: Final = "Controller failover"
"""``TRANSACTION_NAME`` and ``ABORT_REASON`` are texts in transaction records, as in Kafka."""

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
"""The setting that no single broker can override while eligible leader replicas are on."""

_OURS: Final = b"aiokq"
"""First bytes of the incarnation ids that aiokq creates; Apache Kafka's ids are random."""

_SIGNED_HALVES: Final = struct.Struct(">qq")


def feature_records(levels: Iterable[tuple[str, int]]) -> list[Message]:
    """Return the records of features that are on: metadata.version first, then sorted by name."""
    ordered = sorted(levels, key=lambda level: (level[0] != METADATA_VERSION, level[0]))
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in ordered if level]


def bootstrap_records(
    image: MetadataImage,
    given: Sequence[Message] | None,
    *,
    min_insync_replicas: int,
    levels: Mapping[str, int] | None = None,
    in_transaction: bool = False,
) -> list[Message]:
    """Return the first records of a new metadata log.

    A log that has a metadata.version is not new, and gets only the record that aborts an open
    metadata transaction.

    Args:
        given: the records of ``bootstrap.checkpoint``; None if the file is missing. The log then
            gets ``levels``.
        min_insync_replicas: ``min.insync.replicas`` of the node. It becomes the dynamic setting of
            all brokers if eligible leader replicas are on.
        levels: the levels of the features, by name; None for the defaults of a new directory.
        in_transaction: whether the log ends inside a metadata transaction, which is then aborted.

    Raises:
        CorruptRecord: ``given`` has no level of metadata.version, or an unknown one.
    """
    records: list[Message] = [AbortTransactionRecord(reason=ABORT_REASON)] if in_transaction else []
    if image.metadata_version is not None:
        return records
    if levels is None:
        levels = new_levels()
    first = feature_records(levels.items()) if given is None else list(given)
    found_levels = {
        record.name: record.feature_level
        for record in first
        if isinstance(record, FeatureLevelRecord)
    }
    level = found_levels.get(METADATA_VERSION)
    if level is None:
        raise CorruptRecord(
            "bootstrap.checkpoint has no metadata.version: restore the file, or format the "
            "directory again"
        )
    if level not in METADATA_VERSIONS:
        raise CorruptRecord(
            f"bootstrap.checkpoint has metadata.version {level}, but this version of aiokq knows "
            f"{MINIMUM_METADATA_VERSION} to {LATEST_METADATA_VERSION}: use a newer aiokq, or "
            "format the directory again with a lower level (--release-version)"
        )
    if found_levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        first.append(
            ConfigRecord(
                resource_type=BROKER_CONFIG,
                resource_name="",
                name=MIN_INSYNC_REPLICAS,
                value=str(min_insync_replicas),
            )
        )
    if level < METADATA_TRANSACTIONS:
        return records + first
    return [
        *records,
        BeginTransactionRecord(name=TRANSACTION_NAME),
        *first,
        EndTransactionRecord(),
    ]


def new_incarnation(random: Random, *, by_kafka: bool) -> uuid.UUID:
    """Return a new incarnation id. `may_be_written_by_kafka` reads ``by_kafka`` from the id.

    Args:
        by_kafka: whether Apache Kafka may have written to the logs of the node.
    """
    fixed = _OURS + bytes([by_kafka])
    number = int.from_bytes(fixed, "big") << 80 | random.getrandbits(80)
    return uuid.UUID(int=number, version=4)


def may_be_written_by_kafka(incarnation: uuid.UUID) -> bool:
    """Whether Kafka may have written to the logs of a node that was registered under this id."""
    return incarnation.bytes[:6] != _OURS + b"\0"


def lacks_registration(image: MetadataImage, node_id: int) -> bool:
    """Whether the registration of a node lacks something that metadata.version allows.

    At low levels, controllers cannot be registered, and brokers are registered without the ids of
    their log directories.
    """
    level, broker = image.metadata_version, image.brokers.get(node_id)
    if level is None or broker is None:
        return False
    if level >= CONTROLLER_REGISTRATION and node_id not in image.controllers:
        return True
    return level >= DIRECTORY_ASSIGNMENT and not broker.log_dirs


def registration_records(
    metadata_version: int,
    *,
    node_id: int,
    broker_incarnation: uuid.UUID,
    controller_incarnation: uuid.UUID,
    broker_epoch: int,
    endpoints: Sequence[BrokerEndpoint],
    controller_endpoints: Sequence[ControllerEndpoint],
    log_directories: Iterable[uuid.UUID],
    rack: str | None,
) -> list[Message]:
    """Return the records that register the node's controller and its broker.

    The broker is registered as unfenced, because no other node has to admit it to the cluster.

    Args:
        metadata_version: the level of metadata.version when the records are appended.
        broker_incarnation, controller_incarnation: incarnation ids for the two registrations.
        broker_epoch: the offset of the first metadata record that the node appends at its start.
        endpoints: the addresses that clients of each listener connect to.
        controller_endpoints: the addresses of the controller's listeners.
        log_directories: ids of the log directories that are online, and of missing directories that
            may have replicas of the node.
    """
    records: list[Message] = []
    if metadata_version >= CONTROLLER_REGISTRATION:
        records.append(
            RegisterControllerRecord(
                controller_id=node_id,
                incarnation_id=controller_incarnation,
                end_points=list(controller_endpoints),
                features=[
                    ControllerFeature(
                        name=name, min_supported_version=least, max_supported_version=most
                    )
                    for name, (least, most) in supported_ranges().items()
                ],
            )
        )
    has_directories = metadata_version >= DIRECTORY_ASSIGNMENT
    records.append(
        RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=broker_incarnation,
            broker_epoch=broker_epoch,
            end_points=list(endpoints),
            features=[
                BrokerFeature(name=name, min_supported_version=least, max_supported_version=most)
                for name, (least, most) in supported_ranges().items()
            ],
            rack=rack,
            fenced=False,
            log_dirs=sorted(log_directories, key=_kafka_order) if has_directories else [],
        )
    )
    return records


def _kafka_order(value: uuid.UUID) -> tuple[int, ...]:
    """Return the sort key of an id: Kafka compares the two halves of an id as signed numbers."""
    return _SIGNED_HALVES.unpack(value.bytes)


def leadership_records(
    image: MetadataImage,
    node_id: int,
    *,
    was_clean: Callable[[TopicPartition], bool] | None,
    online_directories: Collection[uuid.UUID],
) -> list[PartitionChangeRecord]:
    """Return the changes of partitions that a node appends at a start.

    A partition without a leader gets this node as its leader in three cases: the node is in sync;
    no replica is in sync and the node is eligible; or no replica is in sync or eligible and the
    node was the last leader. As in Kafka, the third case is an unclean election.

    A partition that the node already leads gets a new leader epoch after an unclean shutdown of its
    log directory: a power cut may have removed records that readers saw in the old epoch.

    All other partitions, and partitions in offline directories, do not change.

    Args:
        was_clean: returns whether the last shutdown of a partition's log directory was clean; None
            if the shutdowns of all directories were clean.
        online_directories: ids of the log directories that are online.
    """
    level = image.metadata_version
    has_elr = level is not None and level >= ELIGIBLE_LEADER_REPLICAS
    records: list[PartitionChangeRecord] = []
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            leads = partition.leader == node_id
            if leads:
                changes = was_clean is not None and not was_clean(TopicPartition(topic.name, index))
            else:
                changes = partition.leader == NO_LEADER and _may_lead(partition, node_id)
            if not changes or not partition.is_online(node_id, online_directories):
                continue
            record = PartitionChangeRecord(
                partition_id=index, topic_id=topic.topic_id, leader=node_id
            )
            if not leads:
                if partition.isr != (node_id,):
                    record.isr = [node_id]
                is_unclean = not partition.isr and not partition.elr  # as in Kafka
                if is_unclean and partition.leader_recovery_state != RECOVERING:
                    record.leader_recovery_state = RECOVERING
                if partition.elr and has_elr:
                    # Drop the other eligible replicas: they get no records from this node, and
                    # could later lead without records that this node has acknowledged. Kafka keeps
                    # them while fewer than min.insync.replicas are in sync.
                    record.eligible_leader_replicas = []
                if partition.last_known_elr and has_elr:
                    record.last_known_elr = []
            records.append(record)
    return records


def _may_lead(partition: PartitionImage, node_id: int) -> bool:
    if node_id not in partition.replicas:
        return False
    if partition.isr or partition.elr:
        return node_id in (partition.isr or partition.elr)
    return partition.last_known_elr == (node_id,)


def stop_records(image: MetadataImage, node_id: int) -> list[BrokerRegistrationChangeRecord]:
    """Return the record that fences the node's broker at a clean stop, if the broker is active.

    If Apache Kafka were started on the directory without this record, its controller would refuse
    to register the broker until the session of the last registration had timed out.
    """
    broker = image.brokers.get(node_id)
    if broker is None or broker.fenced:
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=node_id, broker_epoch=broker.broker_epoch, fenced=FENCED
        )
    ]


def stopped_metadata(image: MetadataImage, node_id: int, directory_id: uuid.UUID) -> MetadataImage:
    """Return the metadata of a copy of a running node, in the state after a clean stop.

    Args:
        image: an image that nothing else uses; it is changed.
        directory_id: id of the copy's only log directory; it has all replicas of the node.
    """
    for record in stop_records(image, node_id):
        image.replay(record)
    broker = image.brokers.get(node_id)
    if broker is not None and broker.log_dirs:
        broker = copy.copy(broker)
        broker.log_dirs = [directory_id]
        image.brokers[node_id] = broker
    for topic in image.topics.values():
        topic.partitions[:] = [
            image.share(_moved(partition, node_id, directory_id)) for partition in topic.partitions
        ]
    return image


def _moved(partition: PartitionImage, node_id: int, directory_id: uuid.UUID) -> PartitionImage:
    if not partition.directories:
        return partition
    places = (
        directory_id if replica == node_id else place
        for replica, place in zip(partition.replicas, partition.directories, strict=True)
    )
    return partition._replace(directories=tuple(places))
