"""The start of a node's metadata: its log is checked and opened, and a new epoch begins.

`metadata_reading` has read the log. `open_metadata` opens, migrates or creates the log. It refuses
a log that this node cannot continue or is not allowed to continue.
`MetadataStart.lead` begins the node's epoch: it appends the first records of a new log, the
registration of the node, and the changes of partitions that the node leads.

Source: Kafka ``SharedServer.scala``, ``KafkaRaftManager.scala``, ``BrokerLifecycleManager.scala``.
Tests: ``tests/unit/broker/metadata/start/test_metadata_start.py``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.clean_shutdown import NO_BROKER_EPOCH
from aiokq.broker.log.disk_trouble import unusable
from aiokq.broker.log.partition_metadata import is_damaged_id
from aiokq.broker.metadata.controller.registration import (
    bootstrap_records,
    feature_records,
    leadership_records,
    may_be_written_by_kafka,
    new_incarnation,
    registration_records,
)
from aiokq.broker.metadata.image.features import (
    METADATA_TRANSACTIONS,
    METADATA_VERSION,
    SUPPORTED_LEVELS,
)
from aiokq.broker.metadata.image.records import CLIENT_METRICS_CONFIG, TRANSACTION_MARKERS
from aiokq.broker.metadata.log.bootstrap_checkpoint import (
    BOOTSTRAP_CHECKPOINT,
    read_bootstrap_checkpoint,
    write_bootstrap_checkpoint,
)
from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog, LogLimits
from aiokq.broker.metadata.log.log_opening import make_private, next_epoch
from aiokq.broker.metadata.log.lost_records import (
    forget_lost_records,
    may_lack_records,
    note_lost_records,
)
from aiokq.broker.metadata.log.metadata_reader import MetadataReader, MetadataState
from aiokq.broker.metadata.log.quorum_state import read_quorum_state
from aiokq.broker.metadata.log.sole_voter import check_sole_voter, no_voter
from aiokq.broker.metadata.start.lost_records import records_after_loss
from aiokq.broker.metadata.start.metadata_reading import read_metadata
from aiokq.broker.metadata.start.missing_directories import look_for_missing
from aiokq.broker.metadata.start.node_file import read_node_file, write_node_file
from aiokq.core.errors import CorruptRecord, KafkaStorage
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.wire.cluster_metadata_records import BeginTransactionRecord, EndTransactionRecord

if TYPE_CHECKING:
    from aiokq.broker.log.directories import Listed, LogDirectories
    from aiokq.broker.log.directory import LogDirectory
    from aiokq.broker.metadata.earlier.migration import Migration
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.core.clock import Clock
    from aiokq.core.files import Files
    from aiokq.wire.quorum_records import VotersRecordEndpoint
    from aiokq.wire.registration_records import BrokerEndpoint, ControllerEndpoint
    from aiokq.wire.struct import Message

__all__ = ["MetadataStart", "NodeRegistration", "open_metadata"]

logger = logging.getLogger("aiokq.broker")

ENFORCED: Final = frozenset({"ACLs", "SCRAM credentials", "quotas"})
"""The kinds of `PrincipalsImage.counts` that this broker enforces."""


@frozen
class NodeRegistration:
    """The values that the node registers, and those that a new metadata log begins with.

    Attributes:
        endpoints: the addresses that clients of each listener connect to.
        controller_endpoints: the addresses of the controller's listeners.
        rack: ``broker.rack``.
        min_insync_replicas: ``min.insync.replicas`` of the node. A new log records this value for
            all brokers if eligible leader replicas are on.
        voter: the endpoint of this node as the only voter, if a new log gets ``kraft.version`` 1
            and therefore records its voters; None if a new log gets ``kraft.version`` 0.
        features: the levels of the features, by name, of a new log without
            ``bootstrap.checkpoint``; None for the defaults.
    """

    endpoints: Sequence[BrokerEndpoint]
    controller_endpoints: Sequence[ControllerEndpoint]
    rack: str | None
    min_insync_replicas: int
    voter: VotersRecordEndpoint | None
    features: Mapping[str, int] | None = None


class MetadataStart:
    """The metadata of a node that is starting. Its methods wait for the disk.

    Attributes:
        log: the open metadata log; ``lead`` appends the first records of the new epoch to it.
        by_kafka: whether Apache Kafka may have written to the logs of this node.
    """

    def __init__(
        self,
        files: Files,
        directories: LogDirectories,
        log: ClusterMetadataLog,
        *,
        clock: Clock,
        random: Random,
        first: Sequence[Message],
        last: Sequence[Message],
        image: MetadataImage,
        by_kafka: bool,
        finish: Callable[[], None] | None,
    ) -> None:
        self.log = log
        self.by_kafka = by_kafka
        self._files = files
        self._directories = directories
        self._clock = clock
        self._random = random
        self._first = first
        self._last = last
        self._image = image
        self._finish = finish
        self._missing: list[uuid.UUID] = []
        self._node_id = directories.properties.node_id
        self._paths = read_node_file(files, directories.metadata.path)

    def look_for_missing(self) -> None:
        """Add missing log directories to the directories that could not be opened."""
        self._missing = look_for_missing(self._directories, self._image, self._paths)

    def lead(self, registration: NodeRegistration) -> None:
        """Begin the epoch: register the node, and make it leader of the partitions it may lead.

        Then the clean shutdown markers are removed, and a migration is finished. A start that fails
        before this step keeps the markers, because it has changed no log of a partition.

        Raises:
            KafkaStorage: the disk failed; the message says what to do.
        """
        directories = self._directories
        broker_epoch = self.log.first_offset
        incarnation, controller_incarnation = (
            new_incarnation(self._random, by_kafka=self.by_kafka) for _ in range(2)
        )
        level = self._image.metadata_version
        assert level is not None, "the first records set it"
        registered = registration_records(
            level,
            node_id=self._node_id,
            broker_incarnation=incarnation,
            controller_incarnation=controller_incarnation,
            broker_epoch=broker_epoch,
            endpoints=registration.endpoints,
            controller_endpoints=registration.controller_endpoints,
            log_directories=directories.online_ids.union(self._missing),
            rack=registration.rack,
        )
        led = leadership_records(
            self._image,
            self._node_id,
            was_clean=self._was_clean(),
            online_directories=directories.online_ids,
        )
        moved: Sequence[Message] = self._last
        if moved and level >= METADATA_TRANSACTIONS:
            # The records may be in several batches, and a power cut may keep only the first ones.
            # In a transaction, either all records take effect or none.
            moved = [BeginTransactionRecord(name="Migration"), *moved, EndTransactionRecord()]
        path = directories.metadata.path
        try:
            lost: Sequence[Message] = []
            if self._is_older_than_logs():
                logger.warning(
                    "the metadata log is older than the clean shutdown marker, its last records "
                    "are missing: topics may be unknown, and their logs set aside path=%s",
                    path,
                )
                note_lost_records(self._files, path)
            if may_lack_records(self._files, path):
                image = _after(self._image, [], led)
                lost = records_after_loss(
                    self._files, directories, image, broker_epoch=broker_epoch
                )
            self.log.lead([*self._first, *moved, *registered, *led, *lost])
            if lost:
                forget_lost_records(self._files, path)
            for directory in directories.with_metadata:
                directory.set_broker_epoch(broker_epoch)
            directories.begin()
            if self._finish is not None:
                self._finish()
            self._note_paths()
        except OSError as error:
            raise unusable(directories.metadata.path, error) from error
        except KafkaStorage as error:
            if isinstance(error.__cause__, OSError):
                raise unusable(directories.metadata.path, error.__cause__) from error
            raise

    def _is_older_than_logs(self) -> bool:
        """Whether a clean shutdown marker shows that the metadata log had a later registration.

        If so, the end of the log was lost, or the log was restored from a copy. New and migrated
        logs have no registration yet.
        """
        broker = self._image.brokers.get(self._node_id)
        known = NO_BROKER_EPOCH if broker is None else broker.broker_epoch
        return not self._last and any(
            one.broker_epoch > known for one in self._directories.with_metadata
        )

    def _was_clean(self) -> Callable[[TopicPartition], bool] | None:
        """Return a function that returns whether a partition's log directory was closed cleanly.

        As in Kafka, a clean shutdown marker with another broker epoch than that of the last
        registration does not count: the directory may be a copy of an earlier state, or the marker
        is damaged. The result is None if all directories were closed cleanly.
        """
        directories = self._directories
        broker = self._image.brokers.get(self._node_id)
        stale = {
            one
            for one in directories.all
            if broker is not None and one.broker_epoch not in (NO_BROKER_EPOCH, broker.broker_epoch)
        }
        if not stale and all(one.clean for one in directories.all):
            return None
        return lambda partition: (
            directories.was_clean(partition) and directories.directory_of(partition) not in stale
        )

    def write_bootstrap_checkpoints(self) -> None:
        """Write ``bootstrap.checkpoint`` into each log directory that has none.

        ``kafka-storage format`` writes it into each log directory, too.

        A damaged file is replaced, because Kafka reads the file at each start. This node needs the
        file only while the metadata log is empty, so its start need not wait for this method. A
        failure is only logged.
        """
        for directory in self._directories.with_metadata:
            if directory.disk.failure is not None:
                continue
            try:
                self._write_bootstrap_checkpoint(directory.path)
            except OSError as error:
                logger.warning(
                    "bootstrap.checkpoint not written, the next start writes it path=%s error=%s",
                    directory.path,
                    error,
                )

    def _write_bootstrap_checkpoint(self, path: str) -> None:
        if self._has_bootstrap_checkpoint(path):
            make_private(self._files, path, (BOOTSTRAP_CHECKPOINT,))
        else:
            write_bootstrap_checkpoint(
                self._files,
                path,
                feature_records(self._image.features.items()),
                timestamp_ms=self._clock.timestamp_ms(),
                crc32c=crc32c,
            )

    def _has_bootstrap_checkpoint(self, path: str) -> bool:
        try:
            return read_bootstrap_checkpoint(self._files, path, crc32c) is not None
        except KafkaStorage as error:
            if not isinstance(error.__cause__, CorruptRecord):
                return True  # written by a newer Kafka
            logger.warning("bootstrap.checkpoint damaged, writing it again: %s", error.message)
            return False

    def _note_paths(self) -> None:
        paths = self._paths | {one.directory_id: one.path for one in self._directories.all}
        if paths == self._paths:
            return
        try:
            write_node_file(self._files, self._directories.metadata.path, paths)
        except OSError as error:  # the node works without the file
            logger.warning(
                "node file not written path=%s error=%s", self._directories.metadata.path, error
            )


def open_metadata(
    files: Files,
    directories: LogDirectories,
    registration: NodeRegistration,
    *,
    state: MetadataState | None,
    listed: Listed,
    clock: Clock,
    random: Random,
    limits: LogLimits,
) -> MetadataStart:
    """Open the metadata log of a node; create the log if it does not exist.

    The metadata file of an earlier version of aiokq, if there is one, is migrated into the log.

    Args:
        state: the content of the log; None if there is no log.
        listed: the partitions in the directories.

    Raises:
        KafkaStorage: the log is damaged, is in the wrong directory, belongs to a quorum with other
            voters, or the disk failed; the message says what to do.
    """
    try:
        return _open(
            files,
            directories,
            registration,
            state,
            listed,
            clock=clock,
            random=random,
            limits=limits,
        )
    except OSError as error:
        raise unusable(directories.metadata.path, error) from error


def _open(
    files: Files,
    directories: LogDirectories,
    registration: NodeRegistration,
    state: MetadataState | None,
    listed: Listed,
    *,
    clock: Clock,
    random: Random,
    limits: LogLimits,
) -> MetadataStart:
    home, node_id = directories.metadata, directories.properties.node_id
    _check_place(files, directories)
    migration = _find_migration(files, directories)
    _check_continued(files, directories, state)
    is_moved = migration is not None and not migration.is_empty and state is None
    if migration is not None and is_moved:
        moved = migration.image(min_insync_replicas=registration.min_insync_replicas)
        directories.find(_owned(moved, node_id), listed)
        directories.write_ids()
        migration.write(
            moved,
            voter=registration.voter,
            timestamp_ms=clock.timestamp_ms(),
            random=random,
            crc32c=crc32c,
        )
        state = read_metadata(files, home)
        _check_continued(files, directories, state)
    if state is None:
        state = MetadataState()
        if migration is None and registration.voter is not None:
            _check_not_formatted(files, home.path, listed)
    first = _first_records(files, home.path, state, registration)
    last = _last_records(files, directories, listed, state, migration, random)
    image = _after(state.image, first, last)
    if not is_moved:
        directories.find(_owned(image, node_id), listed)
    # The checks that can refuse the start come first, because the next steps change files.
    directories.write_ids()
    make_private(files, home.path, (file_names.META_PROPERTIES,))
    if migration is not None:
        migration.restore_logs()
    if state.snapshot is None and not state.end_offset and registration.voter is not None:
        state = _write_voter(files, directories, registration.voter, clock.timestamp_ms())
    _tell_unenforced(image)
    log = ClusterMetadataLog.open(
        files,
        f"{home.path}/{file_names.CLUSTER_METADATA}",
        state,
        node_id=node_id,
        disk=home.disk,
        open_files=home.open_files,
        clean=_was_log_closed(home, state),
        limits=limits,
        now_ms=clock.timestamp_ms,
        crc32c=crc32c,
    )
    return MetadataStart(
        files,
        directories,
        log,
        clock=clock,
        random=random,
        first=first,
        last=last,
        image=image,
        by_kafka=_may_be_kafkas(state.image, image, node_id, migration),
        finish=None if migration is None else migration.finish,
    )


def _check_continued(
    files: Files, directories: LogDirectories, state: MetadataState | None
) -> None:
    """Check that this node may continue the metadata log, or begin one.

    Args:
        state: the content of the log; None if there is no log.

    Raises:
        KafkaStorage: this node is not allowed to continue the log, or no epoch is left.
        OSError: the disk failed.
    """
    home = directories.metadata
    directory = f"{home.path}/{file_names.CLUSTER_METADATA}"
    if state is None:
        state = MetadataState()
    known = read_quorum_state(files, directory)
    check_sole_voter(
        state,
        known,
        directory=directory,
        node_id=directories.properties.node_id,
        directory_id=home.directory_id,
    )
    next_epoch(directory, state, known)  # raises KafkaStorage if no epoch is left


def _was_log_closed(home: LogDirectory, state: MetadataState) -> bool:
    """Whether the clean shutdown marker counts for the metadata log, too.

    A start begins its epoch and registers the node before it removes the marker. If the start was
    interrupted in between, the log ends with the control records of the epoch, or the marker has
    another broker epoch than the registration. The marker does not count then.
    """
    broker = state.image.brokers.get(home.properties.node_id)
    is_registered = broker is not None and broker.broker_epoch == home.broker_epoch
    return home.clean and is_registered and state.data_end_offset == state.end_offset


def _check_not_formatted(files: Files, path: str, listed: Listed) -> None:
    """Check that a directory without a log was not formatted for a node that is added to a quorum.

    Formatting writes ``bootstrap.checkpoint`` and, for a voter of a dynamic quorum, also a log with
    the voters. With the file but no log, the directory was therefore formatted without voters. It
    is accepted if there are partitions: it then had a log, which was lost or moved away.

    Args:
        path: path of the metadata directory.

    Raises:
        KafkaStorage: the metadata directory was formatted without voters, or a directory cannot be
            read.
    """
    if files.exists(f"{path}/{BOOTSTRAP_CHECKPOINT}") and not _has_partitions(listed):
        raise no_voter(path)


def _first_records(
    files: Files, path: str, state: MetadataState, registration: NodeRegistration
) -> Sequence[Message]:
    """Return the first records of a new log, and the record that aborts an open transaction.

    The result is empty if the log is not new and has no open metadata transaction.

    Args:
        path: path of the log directory with the metadata log.

    Raises:
        KafkaStorage: ``bootstrap.checkpoint`` cannot be used.
    """
    is_new = state.image.metadata_version is None
    try:
        return bootstrap_records(
            state.image,
            read_bootstrap_checkpoint(files, path, crc32c) if is_new else None,
            min_insync_replicas=registration.min_insync_replicas,
            levels=registration.features,
            in_transaction=state.in_transaction,
        )
    except CorruptRecord as error:
        raise KafkaStorage(f"{path}: {error.message}") from error


def _last_records(
    files: Files,
    directories: LogDirectories,
    listed: Listed,
    state: MetadataState,
    migration: Migration | None,
    random: Random,
) -> Sequence[Message]:
    """Return the records for metadata that the log lacks.

    The records are made from the metadata file of an earlier version of aiokq. For a new log
    without such a file, they are made from the partitions in the log directories.
    """
    if migration is not None and not migration.is_empty:
        return migration.differences(state)
    if state.image.metadata_version is not None:
        return []
    if not _has_partitions(listed):
        return []
    from aiokq.broker.metadata.start.found_partitions import found_partition_records

    return found_partition_records(files, directories, random)


def _has_partitions(listed: Listed) -> bool:
    """Whether a log directory of a node without metadata has a partition.

    Raises:
        KafkaStorage: a directory cannot be read. If the start continued, the partitions in it would
            not become topics, and a later start would set their logs aside.
    """
    for directory, found in listed.items():
        if isinstance(found, OSError):
            raise unusable(directory.path, found) from found
    return any(listed.values())


def _may_be_kafkas(
    before: MetadataImage, after: MetadataImage, node_id: int, migration: Migration | None
) -> bool:
    """Whether Apache Kafka may have written to the logs of a node.

    Args:
        before, after: the image without and with the records that the start appends.
    """
    if migration is not None and migration.by_kafka:
        return True
    broker = before.brokers.get(node_id)
    if broker is not None:
        return may_be_written_by_kafka(broker.incarnation_id)
    # The node was not registered before. Without a migration, its topics are made from the logs in
    # its directories, because there is no metadata, and nobody knows who wrote these logs.
    return migration is None and bool(after.topics)


def _check_place(files: Files, directories: LogDirectories) -> None:
    """Check that no log directory except the metadata directory has a metadata log.

    Raises:
        KafkaStorage: another log directory has a metadata log.
    """
    home = directories.metadata
    for directory in directories.online:
        if directory is not home:
            path = f"{directory.path}/{file_names.CLUSTER_METADATA}"
            if MetadataReader(files, path, crc32c).exists():
                raise KafkaStorage(
                    f"the metadata log is in {path}, but the metadata directory of this node is "
                    f"{home.path}: set metadata.log.dir={directory.path}, or name this directory "
                    "first, or move the log away if it is not this node's"
                )


def _find_migration(files: Files, directories: LogDirectories) -> Migration | None:
    if not any(files.exists(f"{one.path}/{file_names.PRIVATE_FILE}") for one in directories.online):
        return None
    from aiokq.broker.metadata.earlier.migration import find_migration

    return find_migration(files, directories)


def _write_voter(
    files: Files, directories: LogDirectories, endpoint: VotersRecordEndpoint, timestamp_ms: int
) -> MetadataState:
    """Write the first snapshot of a new log; it records this node as the only voter.

    Returns:
        The content of the log.
    """
    from aiokq.broker.metadata.log.voters import only_voter, write_voters

    home = directories.metadata
    voters = only_voter(home.properties.node_id, home.directory_id, [endpoint])
    write_voters(files, home.path, voters, timestamp_ms=timestamp_ms, crc32c=crc32c)
    return MetadataReader(files, f"{home.path}/{file_names.CLUSTER_METADATA}", crc32c).read()


def _after(
    image: MetadataImage, first: Sequence[Message], last: Sequence[Message]
) -> MetadataImage:
    """Return the image after the records that this start appends."""
    if not first and not last:
        return image
    image = image.copy()
    for record in (*first, *last):
        if not isinstance(record, TRANSACTION_MARKERS):
            image.replay(record)
    return image


def _owned(
    image: MetadataImage, node_id: int
) -> Callable[[TopicPartition, uuid.UUID | None], bool]:
    """Return a function that returns whether a partition found on disk is the node's replica."""

    def owned(partition: TopicPartition, topic_id: uuid.UUID | None) -> bool:
        topic = image.topics.get(partition.topic)
        return (
            topic is not None
            and partition.partition < len(topic.partitions)
            and (topic_id in (None, topic.topic_id) or is_damaged_id(topic_id, topic.topic_id))
            and node_id in topic.partitions[partition.partition].replicas
        )

    return owned


def _tell_unenforced(image: MetadataImage) -> None:
    """Log the parts of the metadata that this broker keeps but does not act on."""
    held = [
        f"{count} {what}"
        for what, count in image.principals.counts().items()
        if what not in ENFORCED
    ]
    subscriptions = sum(kind == CLIENT_METRICS_CONFIG for kind, _ in image.configs)
    if subscriptions:
        held.append(f"{subscriptions} client metrics subscriptions")
    held += [
        f"{name}={level}"
        for name, level in sorted(image.features.items())
        if name != METADATA_VERSION and level > SUPPORTED_LEVELS.get(name, 0)
    ]
    if held:
        logger.warning("kept in the metadata and NOT enforced here: %s", ", ".join(held))
