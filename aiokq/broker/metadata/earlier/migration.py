"""Migrates the directories of an earlier version of aiokq at their first start with this version.

The metadata of these directories is in ``aiokq-metadata.log`` (`private_file`). Each log directory
has a copy of this file; the copy with the most appends is used. If the metadata directory has no
``__cluster_metadata-0``, the migration writes this log from the file. If Apache Kafka left a
metadata log, and this node is its only voter, the changes that are only in the file are appended to
the log.

As the last step, each copy is renamed, and a file with one line takes its place; an earlier version
of aiokq refuses this line. The next start repeats a migration that was interrupted before this
step. If one copy was renamed already, the metadata log has the whole content of the file, and the
other copies are outdated.

Tests: ``tests/unit/broker/metadata/earlier/test_migration.py``,
``tests/fault/test_golden_directories.py``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.leader_epochs import read_latest_epoch
from aiokq.broker.log.uuid_text import format_uuid, parse_uuid
from aiokq.broker.metadata.configs.group_configs import GROUP_CONFIGS
from aiokq.broker.metadata.configs.topic_configs import (
    TOPIC_CONFIGS,
    check_topic_configs,
    server_text,
)
from aiokq.broker.metadata.controller.registration import bootstrap_records
from aiokq.broker.metadata.earlier.private_file import (
    MIGRATED,
    MIGRATED_LINE,
    PRIVATE_FILE,
    PrivateMetadata,
    PrivateTopic,
    read_private_file,
)
from aiokq.broker.metadata.image.features import DIRECTORY_ASSIGNMENT
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.image.records import (
    BROKER_CONFIG,
    GROUP_CONFIG,
    TOPIC_CONFIG,
    TRANSACTION_MARKERS,
    UNASSIGNED,
    config_records,
    partition_elsewhere,
    partition_record,
)
from aiokq.broker.metadata.log.metadata_writer import write_metadata_log
from aiokq.broker.metadata.log.snapshot_file import SnapshotId
from aiokq.broker.metadata.log.voters import only_voter
from aiokq.core.errors import InvalidConfiguration, KafkaStorage
from aiokq.core.types import TopicPartition
from aiokq.wire.cluster_metadata_records import (
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.metadata.log.metadata_reader import MetadataState
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum
    from aiokq.wire.quorum_records import VotersRecordEndpoint
    from aiokq.wire.struct import Message

__all__ = ["Migration", "find_migration"]

logger = logging.getLogger("aiokq.broker")

NO_EPOCH: Final = -1
FIRST_EPOCH: Final = 1
"""The epoch of the quorum in the snapshot of a new metadata log."""


def find_migration(files: Files, directories: LogDirectories) -> Migration | None:
    """Return the migration that the node's directories need; None if they need none.

    Raises:
        KafkaStorage: a copy of the metadata file is damaged, no copy was migrated before, and all
            readable copies are empty; the message says what to do.
        OSError: the disk failed.
    """
    found: list[tuple[PrivateMetadata, str]] = []
    failures: list[KafkaStorage] = []
    copies: list[str] = []
    kept: list[str] = []
    is_moved = False
    for directory in directories.online:
        path = f"{directory.path}/{PRIVATE_FILE}"
        if not files.exists(path):
            continue
        data = files.read_bytes(path)
        try:
            metadata, sound = read_private_file(data, path)
        except KafkaStorage as error:
            if files.exists(path + MIGRATED):  # the line that a migration left is damaged
                logger.warning("damaged line is written again file=%s", path)
                kept.append(path)
                is_moved = True
            else:
                failures.append(error)
                copies.append(path)
            continue
        if metadata is None:
            is_moved = True
            continue
        copies.append(path)
        _tell_end(path, data, sound)
        found.append((metadata, path))
    if failures and not is_moved and not any(metadata.appends for metadata, _ in found):
        raise failures[0]  # the readable copies are empty: the node would lose its topics
    if not copies and not kept:
        return None
    if not found:
        found.append((PrivateMetadata(), (copies or kept)[0]))
    newest, path = max(found, key=lambda one: one[0].appends)
    for other, _ in found:
        # No producer id and no leader epoch of any copy may be used again.
        newest.next_producer_id = max(newest.next_producer_id, other.next_producer_id)
        newest.unclean_starts = max(newest.unclean_starts, other.unclean_starts)
    if is_moved:
        newest.leave_ids()
    return Migration(files, directories, newest, path, copies, kept)


def _tell_end(path: str, data: bytes, sound: int) -> None:
    """If a file has a damaged end, log that the end is not migrated."""
    if sound == len(data):
        return
    place = f"file={path} position={sound} bytes={len(data) - sound} kept={path + MIGRATED}"
    if b"\n" in data[sound:]:  # more than the incomplete line that a kill leaves
        logger.error(
            "damaged end of the metadata log is ignored: an acknowledged change of topics or "
            "settings may be lost %s",
            place,
        )
    else:
        logger.warning("incomplete end of the metadata log is ignored %s", place)


class Migration:
    """The migration of one node's directories.

    Attributes:
        is_empty: whether ``aiokq-metadata.log`` has no recorded change.
        by_kafka: whether Apache Kafka used the directories before the earlier version of aiokq.
    """

    def __init__(
        self,
        files: Files,
        directories: LogDirectories,
        private: PrivateMetadata,
        path: str,
        copies: list[str],
        kept: list[str],
    ) -> None:
        self.is_empty = not private.appends
        self.by_kafka = private.kafka is not None or any(
            topic.kafka_epochs for topic in private.topics.values()
        )
        self._files = files
        self._directories = directories
        self._private = private
        self._path = path
        self._copies = copies
        self._kept = kept
        self._node_id = directories.properties.node_id
        self._has_directories = True
        self._places: dict[TopicPartition, LogDirectory] = {}
        self._set_aside: dict[TopicPartition, str] = {}
        """The path of each log that `restore_logs` restores."""
        for directory in directories.online:
            for partition in directory.on_disk.partitions():
                self._places.setdefault(partition, directory)

    def image(self, *, min_insync_replicas: int) -> MetadataImage:
        """Return the metadata in ``aiokq-metadata.log``, with the features of a new directory.

        Args:
            min_insync_replicas: ``min.insync.replicas`` of the node. It becomes the dynamic setting
                of all brokers if eligible leader replicas are on.

        Raises:
            OSError: the disk failed.
        """
        image = MetadataImage()
        first = bootstrap_records(image, None, min_insync_replicas=min_insync_replicas)
        for record in (*first, *self._all_records()):
            if not isinstance(record, TRANSACTION_MARKERS):
                image.replay(record)
        return image

    def write(
        self,
        image: MetadataImage,
        *,
        voter: VotersRecordEndpoint | None,
        timestamp_ms: int,
        random: Random,
        crc32c: Checksum,
    ) -> None:
        """Write a new metadata log that begins with an image.

        Args:
            image: the result of the method ``image``.
            voter: the endpoint of the only voter; None if the log does not name its voters.

        Raises:
            OSError: the disk failed.
        """
        home = self._directories.metadata
        write_metadata_log(
            self._files,
            home.path,
            image,
            snapshot=SnapshotId(sum(1 for _ in image.records()), FIRST_EPOCH),
            node_id=self._node_id,
            voters=None if voter is None else only_voter(self._node_id, home.directory_id, [voter]),
            timestamp_ms=timestamp_ms,
            temporary_id=uuid.UUID(int=random.getrandbits(128)),
            crc32c=crc32c,
        )

    def _all_records(self) -> Iterator[Message]:
        private = self._private
        for topic in private.topics.values():
            yield from self._topic_records(topic)
        yield from config_records(BROKER_CONFIG, "", {}, private.settings)
        for group_id, configs in private.groups.items():
            yield from config_records(GROUP_CONFIG, group_id, {}, configs)
        if private.next_producer_id:
            yield self._producer_ids()

    def _producer_ids(self) -> ProducerIdsRecord:
        return ProducerIdsRecord(
            broker_id=self._node_id, next_producer_id=self._private.next_producer_id
        )

    def _topic_records(self, topic: PrivateTopic) -> Iterator[Message]:
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        yield from config_records(TOPIC_CONFIG, topic.name, {}, topic.configs)
        for index in range(topic.partitions):
            yield self._partition_record(topic, index)

    def _partition_record(self, topic: PrivateTopic, index: int) -> PartitionRecord:
        epoch = self._epoch(topic, index)
        if index in topic.elsewhere and TopicPartition(topic.name, index) not in self._places:
            return partition_elsewhere(
                topic.topic_id, index, has_directories=self._has_directories, leader_epoch=epoch
            )
        return partition_record(
            topic.topic_id,
            index,
            self._node_id,
            directory=self._directory(topic, index) if self._has_directories else None,
            leader_epoch=epoch,
        )

    def _directory(self, topic: PrivateTopic, index: int) -> uuid.UUID:
        """Return the id of the directory that has a partition.

        For a partition that was not found, the result is the id of a missing directory or, if no
        directory is missing, ``UNASSIGNED``.
        """
        place = self._places.get(TopicPartition(topic.name, index))
        if place is not None:
            return place.directory_id
        present = {format_uuid(one) for one in self._directories.ids}
        missing = [one for one in self._private.directories if one not in present]
        return parse_uuid(missing[0]) if missing else UNASSIGNED

    def _epoch(self, topic: PrivateTopic, index: int) -> int:
        """Return the leader epoch of a partition; it is not lower than any epoch used before.

        If the partition was not closed cleanly, epochs up to the number of unclean starts may have
        been used, so the result is at least this number. The result is not a new epoch: the start
        of the node begins one.
        """
        latest = self._latest_epoch(TopicPartition(topic.name, index))
        if index < len(topic.kafka_epochs) and topic.kafka_epochs[index] > NO_EPOCH:
            return max(latest, topic.kafka_epochs[index])
        place = self._places.get(TopicPartition(topic.name, index))
        if latest < 0 or place is None or not place.clean:
            latest = max(latest, self._private.unclean_starts)
        return max(latest, 0)

    def _latest_epoch(self, partition: TopicPartition) -> int:
        place = self._places.get(partition)
        if place is None:
            return NO_EPOCH
        directory = self._set_aside.get(
            partition, f"{place.path}/{file_names.partition_directory(partition)}"
        )
        return read_latest_epoch(self._files, directory)

    def differences(self, state: MetadataState) -> list[Message]:
        """Return the changes in ``aiokq-metadata.log`` that Apache Kafka's metadata log lacks.

        The earlier version of aiokq copied Kafka's metadata into ``aiokq-metadata.log``. If Kafka
        has not changed its log since then, all later changes in ``aiokq-metadata.log`` are
        returned. If Kafka has changed its log, only the topics that Kafka never had are added. In
        both cases, the producer ids that ``aiokq-metadata.log`` reserved are not used again.

        Raises:
            OSError: the disk failed.
        """
        private, image = self._private, state.image
        level = image.metadata_version
        self._has_directories = level is not None and level >= DIRECTORY_ASSIGNMENT
        is_newer = private.kafka is not None and state.data_end_offset <= private.kafka[0]
        records: list[Message] = []
        taken = set(image.topics)
        if is_newer:
            ids = {topic.topic_id for topic in private.topics.values()}
            for topic_id, found in image.topics_by_id.items():
                if topic_id not in ids:
                    records.append(RemoveTopicRecord(topic_id=topic_id))
                    taken.discard(found.name)
        was_kafkas = set(private.kafka_topic_ids)
        for topic in private.topics.values():
            known = image.topics_by_id.get(topic.topic_id)
            if known is None:
                is_ours = format_uuid(topic.topic_id) not in was_kafkas
                if (is_ours or is_newer) and topic.name not in taken:
                    self._find_set_aside(topic)
                    records += self._topic_records(topic)
            elif is_newer:
                records += self._config_differences(topic, image)
                records += (
                    self._partition_record(topic, index)
                    for index in range(len(known.partitions), topic.partitions)
                )
        if is_newer:
            records += self._group_differences(image)
        if private.next_producer_id > image.next_producer_id:
            records.append(self._producer_ids())
        return records

    def _config_differences(self, topic: PrivateTopic, image: MetadataImage) -> list[ConfigRecord]:
        """Return the changes of a topic's settings since they were copied from Kafka's log.

        When the earlier version of aiokq copied the settings, it left out those that were unknown
        to it or invalid, and gave the topic the dynamic settings of the brokers. These differences
        are not changes and are not returned.
        """
        present = image.topic_configs(topic.name)
        brokers = image.broker_configs(self._node_id)
        wanted = dict(topic.configs)
        for name in present:
            if name not in wanted and not _is_valid(name, present[name]):
                wanted[name] = present[name]
        for row in TOPIC_CONFIGS.values():
            dynamic = next((name for name in row.server if name in brokers), None)
            if (
                dynamic is not None
                and row.name not in present
                and wanted.get(row.name) == server_text(dynamic, brokers[dynamic])
            ):
                del wanted[row.name]
        return list(config_records(TOPIC_CONFIG, topic.name, present, wanted))

    def _group_differences(self, image: MetadataImage) -> Iterator[ConfigRecord]:
        groups = image.group_configs()
        for group_id in {**groups, **self._private.groups}:
            present = groups.get(group_id, {})
            unknown = {name: text for name, text in present.items() if name not in GROUP_CONFIGS}
            wanted = {**unknown, **self._private.groups.get(group_id, {})}
            yield from config_records(GROUP_CONFIG, group_id, present, wanted)

    def _find_set_aside(self, topic: PrivateTopic) -> None:
        """Find a topic's logs that were set aside by Kafka, which did not know the topic."""
        for directory in self._directories.online:
            for (topic_id, index), path in directory.strays.find().items():
                partition = TopicPartition(topic.name, index)
                if topic_id == topic.topic_id and partition not in self._places:
                    self._set_aside[partition] = path
                    self._places[partition] = directory

    def restore_logs(self) -> None:
        """Restore the logs that Kafka set aside and ``differences`` found, durably.

        Called before the differences are recorded: otherwise, after a kill, the next start would
        create the partitions empty.

        Raises:
            OSError: the disk failed.
        """
        for partition, path in self._set_aside.items():
            self._directories.take_back(partition, self._places[partition], path)
            logger.warning("log that was set aside is served again partition=%s", partition)

    def finish(self) -> None:
        """Rename the copies of ``aiokq-metadata.log``; leave ``MIGRATED_LINE`` in their places.

        Raises:
            OSError: the disk failed; the next start repeats the migration.
        """
        for path in self._copies:
            self._files.write_atomic(path + MIGRATED, self._files.read_bytes(path))
        for path in (*self._copies, *self._kept):
            self._files.write_atomic(path, MIGRATED_LINE)
        if not self._copies:
            return
        logger.warning(
            "metadata of an earlier version of aiokq moved to %s/%s: topics=%d from=%s kept=%s",
            self._directories.metadata.path,
            file_names.CLUSTER_METADATA,
            len(self._private.topics),
            self._path,
            self._path + MIGRATED,
        )


def _is_valid(name: str, text: str) -> bool:
    try:
        check_topic_configs({name: text})
    except InvalidConfiguration:
        return False
    return True
