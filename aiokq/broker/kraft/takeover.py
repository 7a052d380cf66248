"""The takeover of log directories that Apache Kafka wrote, before the first log is opened.

If Kafka's metadata exists and has changed since the last takeover, Kafka was the last to use the
directory: its topics, ids and settings are written to this broker's metadata log. If there is no
metadata of Kafka, and this broker's metadata log is empty, the partitions that are found are
served (`found_partitions`).

Metadata that is damaged or was written by a newer Kafka refuses the start. An incomplete end of the
log, left by a kill, is ignored; Kafka would cut it off. The files do not tell which records a
quorum has committed: in a cluster with several controllers, Kafka might discard the last records
that are read here.

Kafka's metadata is not changed, so that Kafka can continue with the directory.

Tests: ``tests/unit/broker/kraft/test_takeover.py``, ``tests/interop/apache/test_directories.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from aiokq.broker.kraft.found_partitions import NO_EPOCH, serve_as_found
from aiokq.broker.log.disk_trouble import unusable
from aiokq.broker.log.file_names import CLUSTER_METADATA
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.records import (
    GROUP_CONFIG,
    TOPIC_CONFIG,
    KafkaTakenOver,
    MetadataRecord,
    TopicTakenOver,
    config_records,
    partition_record,
)
from aiokq.broker.metadata.topic_image import NO_LEADER
from aiokq.core.errors import InvalidConfiguration, KafkaStorage
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.wire.cluster_metadata_records import ProducerIdsRecord, RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.metadata.image import MetadataImage
    from aiokq.broker.metadata.metadata_log import MetadataLog
    from aiokq.broker.metadata.metadata_reader import MetadataReader, MetadataState
    from aiokq.broker.metadata.topic_image import PartitionImage
    from aiokq.core.files import Files

__all__ = ["take_over"]

logger = logging.getLogger("aiokq.broker")

PRODUCER_ID_BITS: Final = 48
"""Producer ids issued here start at a multiple of two to this power, above all ids of Kafka.

Kafka later continues with its own ids. If two producers had the same id, records of the second
producer could be treated as duplicates.
"""


def take_over(
    files: Files, directories: LogDirectories, metadata: MetadataLog, *, random: Random
) -> None:
    """Update the metadata log from the metadata and partitions that Apache Kafka left.

    Raises:
        KafkaStorage: Kafka's metadata is damaged, was written by a newer Kafka or is in two
            directories, or the disk failed; the message says what to do.
    """
    path = directories.all[0].path
    try:
        found = _find(files, directories)
        if found is not None:
            _follow(found, directories, metadata)
            _find_again(directories, metadata)
            return
        topics = metadata.image.topics.values()
        bound = any(max(topic.kafka_epochs, default=NO_EPOCH) > NO_EPOCH for topic in topics)
        if bound and _all_present(directories, metadata):
            _forget(metadata)
        elif not metadata.image.appends:
            serve_as_found(directories, metadata, random)
        _find_again(directories, metadata)
    except OSError as error:
        raise unusable(path, error) from error


def _find(files: Files, directories: LogDirectories) -> MetadataReader | None:
    """Return the reader of Kafka's metadata log; None if no log directory has one.

    A ``__cluster_metadata-0`` directory without segments and snapshots counts as none.

    Raises:
        KafkaStorage: more than one log directory has a metadata log.
    """
    paths = [f"{directory.path}/{CLUSTER_METADATA}" for directory in directories.online]
    if not any(map(files.is_dir, paths)):
        return None
    from aiokq.broker.metadata.metadata_reader import MetadataReader

    found = [
        reader
        for reader in (MetadataReader(files, path, crc32c) for path in paths)
        if reader.exists()
    ]
    if len(found) > 1:
        raise KafkaStorage(
            "two log directories have metadata of Apache Kafka, "
            f"{' and '.join(reader.directory for reader in found)}: keep the one in Kafka's "
            "metadata.log.dir, and move the other one away"
        )
    return found[0] if found else None


def _read(found: MetadataReader) -> MetadataState:
    try:
        return found.read()
    except KafkaStorage as error:
        raise KafkaStorage(
            f"the metadata of Apache Kafka cannot be taken over: {error.message}. If you move "
            f"{found.directory} away, the broker serves the topics that it finds in the log "
            "directories, and deletes nothing"
        ) from error


def _follow(found: MetadataReader, directories: LogDirectories, metadata: MetadataLog) -> None:
    known = metadata.image.kafka
    taken_over = None if known is None else (known.end_offset, known.epoch)
    if taken_over is not None and found.end() == taken_over:
        return
    state = _read(found)
    if taken_over == (state.end_offset, state.epoch):
        return
    if state.torn is not None:
        logger.warning(
            "incomplete end of Apache Kafka's metadata ignored file=%s position=%d bytes=%d "
            "offset=%d reason=%r",
            state.torn.path,
            state.torn.position,
            state.torn.size,
            state.torn.offset,
            state.torn.reason,
        )
    kafka = state.image
    node_id = directories.properties.node_id
    records = list(_records(kafka, metadata.image, directories))
    topic_ids = tuple(sorted(format_uuid(topic.topic_id) for topic in kafka.topics.values()))
    reserved = ((kafka.next_producer_id >> PRODUCER_ID_BITS) + 1) << PRODUCER_ID_BITS
    # The records are written in one append, so that a takeover interrupted by a kill is repeated.
    metadata.append(
        *records,
        ProducerIdsRecord(broker_id=node_id, next_producer_id=reserved),
        KafkaTakenOver(state.end_offset, state.epoch, topic_ids),
    )
    _take_back_strays(directories, metadata.image)
    logger.warning(
        "metadata of Apache Kafka taken over: cluster=%s node=%d topics=%d partitions=%d "
        "from=%s; Kafka's files are not changed%s",
        directories.properties.cluster_id,
        node_id,
        len(kafka.topics),
        sum(len(topic.partitions) for topic in kafka.topics.values()),
        found.directory,
        _left_out(kafka),
    )


def _all_present(directories: LogDirectories, metadata: MetadataLog) -> bool:
    """Whether all log directories are online; a missing directory could have Kafka's metadata."""
    present = {directory.properties.directory_id for directory in directories.all}
    return not directories.offline and present.issuperset(metadata.image.directories)


def _forget(metadata: MetadataLog) -> None:
    """Remove the leader epochs of Kafka from the topics, because Kafka's metadata was removed."""
    topics = [
        TopicTakenOver(topic.topic_id, topic.elsewhere, (NO_EPOCH,) * len(topic.kafka_epochs))
        for topic in metadata.image.topics.values()
    ]
    metadata.append(*topics, KafkaTakenOver(0, 0, ()))


def _left_out(kafka: MetadataImage) -> str:
    said = [f"{count} {what}" for what, count in kafka.principals.counts().items()]
    return f"; NOT enforced here: {', '.join(said)}" if said else ""


def _records(
    kafka: MetadataImage, image: MetadataImage, directories: LogDirectories
) -> Iterator[MetadataRecord]:
    """Yield the records that give the image the current state of Kafka's topics.

    Topics that Kafka never had were created here, so they are kept, unless Kafka now has another
    topic of the same name.
    """
    from aiokq.broker.metadata.group_configs import GROUP_CONFIGS

    groups = kafka.group_configs()
    present_groups = image.group_configs()
    for group_id in {**present_groups, **groups}:
        given = groups.get(group_id, {})
        known = {name: value for name, value in given.items() if name in GROUP_CONFIGS}
        yield from config_records(GROUP_CONFIG, group_id, present_groups.get(group_id, {}), known)
    before = set() if image.kafka is None else set(image.kafka.topic_ids)
    ids = {topic.topic_id for topic in kafka.topics.values()}
    for ours in image.topics.values():
        was_kafkas = format_uuid(ours.topic_id) in before
        if ours.topic_id not in ids and (was_kafkas or ours.name in kafka.topics):
            yield RemoveTopicRecord(topic_id=ours.topic_id)
    brokers = kafka.broker_configs(directories.properties.node_id)
    for topic in kafka.topics.values():
        present = image.topics.get(topic.name)
        if present is not None and present.topic_id != topic.topic_id:
            present = None
        if present is None:
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        # Partitions that this broker has added to a topic of Kafka are kept.
        first = 0 if present is None else len(present.partitions)
        for index in range(first, len(topic.partitions)):
            yield partition_record(topic.topic_id, index, directories.properties.node_id)
        yield from config_records(
            TOPIC_CONFIG,
            topic.name,
            {} if present is None else image.topic_configs(topic.name),
            _configs(topic.name, kafka.topic_configs(topic.name), brokers),
        )
        yield TopicTakenOver(
            topic.topic_id,
            tuple(
                number
                for number, partition in enumerate(topic.partitions)
                if _is_elsewhere(partition, directories)
            ),
            tuple(map(_next_epoch, topic.partitions)),
        )


def _next_epoch(partition: PartitionImage) -> int:
    """Return the leader epoch in which the node will lead the partition again.

    A node that was killed is still the leader in the metadata, and keeps its epoch.
    """
    return partition.leader_epoch + (partition.leader == NO_LEADER)


def _is_elsewhere(partition: PartitionImage, directories: LogDirectories) -> bool:
    """Whether Kafka has a partition only on other nodes, or in a directory that is not opened."""
    node_id = directories.properties.node_id
    directory = partition.directory_of(node_id)
    ours = {one.properties.directory_id for one in directories.all}
    return node_id not in partition.replicas or (
        directory is not None and format_uuid(directory) not in ours
    )


def _find_again(directories: LogDirectories, metadata: MetadataLog) -> None:
    """Note partitions that were elsewhere and are found now; log those that are still missing."""
    missing = [topic for topic in metadata.image.topics.values() if topic.elsewhere]
    if not missing:
        return
    present = {
        partition for directory in directories.online for partition in directory.partitions()
    }
    records = []
    for topic in missing:
        left = tuple(n for n in topic.elsewhere if TopicPartition(topic.name, n) not in present)
        if left != topic.elsewhere:
            records.append(TopicTakenOver(topic.topic_id, left, topic.kafka_epochs))
        if left:
            logger.warning(
                "partitions are offline, because no log directory has them topic=%s partitions=%s",
                topic.name,
                ",".join(map(str, left)),
            )
    if records:
        metadata.append(*records)


def _configs(name: str, given: Mapping[str, str], brokers: Mapping[str, str]) -> dict[str, str]:
    """Return the valid settings of a topic of Kafka: its own, and Kafka's dynamic broker defaults.

    This broker has no dynamic defaults, so they become settings of the topic.
    """
    from aiokq.broker.metadata.topic_configs import TOPIC_CONFIGS, check_topic_configs, server_text

    configs = dict(given)
    for row in TOPIC_CONFIGS.values():
        for server in row.server:
            if server in brokers and row.name not in given:
                text = server_text(server, brokers[server])
                if text != str(row.default):
                    configs[row.name] = text
                break
    checked: dict[str, str] = {}
    for setting, text in configs.items():
        try:
            checked |= check_topic_configs({setting: text})
        except InvalidConfiguration as error:
            logger.warning("invalid setting ignored topic=%s error=%s", name, error.message)
    return checked


def _take_back_strays(directories: LogDirectories, image: MetadataImage) -> None:
    """Give the logs of topics created here their names back, if Kafka has set them aside."""
    ours = {topic.topic_id: topic for topic in image.topics.values()}
    for directory in directories.online:
        present = directory.partitions()
        for (topic_id, number), path in directory.strays.find().items():
            topic = ours.get(topic_id)
            if topic is None or number >= len(topic.partitions):
                continue
            partition = TopicPartition(topic.name, number)
            if partition not in present:
                directory.strays.take_back(partition, path)
                logger.warning("log that was set aside is served again partition=%s", partition)
