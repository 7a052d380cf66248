"""Snapshots of a running broker's data, and their restoration into a new data directory.

A snapshot is a log directory in the state after a clean shutdown, so that a start with the snapshot
needs no log recovery. The snapshot shares no file with the broker's directory, because after a
power cut the broker may append to a segment that was finished when the snapshot was taken.

Tests: ``tests/unit/broker/test_snapshot.py``.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.checkpoint_file import write_offsets
from aiokq.broker.log.clean_shutdown import clean_shutdown_marker
from aiokq.broker.log.leader_epochs import LeaderEpochs
from aiokq.broker.log.log_snapshot import LogSnapshot, SnapshotFile, snapshot_log
from aiokq.broker.log.meta_properties import MetaProperties, random_id
from aiokq.broker.log.partition_metadata import write_partition_metadata
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.controller.registration import stopped_metadata
from aiokq.broker.metadata.earlier.private_file import PRIVATE_FILE
from aiokq.broker.metadata.log.bootstrap_checkpoint import BOOTSTRAP_CHECKPOINT
from aiokq.broker.metadata.log.metadata_reader import MetadataDamaged, MetadataReader
from aiokq.broker.metadata.log.metadata_writer import write_metadata_log
from aiokq.broker.metadata.log.quorum_state import read_quorum_state
from aiokq.broker.metadata.log.sole_voter import voter_ids
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.supervisor import shielded
from aiokq.fastpath import crc32c
from aiokq.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.broker.metadata.log.snapshot_file import SnapshotId
    from aiokq.broker.node import BrokerNode
    from aiokq.broker.replica.partition import Partition
    from aiokq.core.files import Files
    from aiokq.core.types import TopicPartition

__all__ = ["restore_snapshot", "take_snapshot"]

logger = logging.getLogger("aiokq.broker")

ATTEMPTS: Final = 10
"""Maximum number of attempts; an attempt fails if segments are deleted or compacted during it."""

_SECRET: Final = BOOTSTRAP_CHECKPOINT, file_names.META_PROPERTIES
"""Files of a log directory that only the owner may read, besides those of the metadata log."""

CHUNK: Final = 1024 * 1024
LOGS_PER_TURN: Final = 16


async def take_snapshot(node: BrokerNode, path: str, *, files: Files | None = None) -> None:
    """Copy the data of a running node, as of one moment, to a new log directory.

    All log directories of the node become one directory, which is durable on return. It contains
    the logs of all replicas on the node, leaders and followers.

    Args:
        path: the directory to create, or an empty directory.
        files: the file system to write to; the node's file system by default.

    Raises:
        ConfigError: `path` is a file, or a directory that is not empty.
        BrokerError: KafkaStorage for an I/O error, for an offline log directory, or if each of
            `ATTEMPTS` attempts failed; or the error of a partition whose log is not available, for
            example during its recovery. Nothing is left at `path`.
        Closed: the node is stopping.
    """
    target = (node.environment.files if files is None else files).private()
    _check_free(target, path)
    offline = node.storage.directories.offline
    if offline:
        raise next(iter(offline.values()))
    unique = uuid.UUID(int=node.environment.random.getrandbits(128)).hex
    temporary = f"{path}.{unique}{file_names.TEMPORARY}"
    copy = _Copy(node, temporary, target)
    try:
        for _ in range(ATTEMPTS):
            if await shielded(copy.attempt(), name="take a snapshot"):
                await shielded(node.environment.offload.run(copy.part), name="take a snapshot")
                break
        else:
            raise KafkaStorage(
                f"snapshot failed: segments were replaced during each of {ATTEMPTS} attempts; "
                "try again"
            )
        await node.environment.offload.run(_put_in_place, target, temporary, path)
    except OSError as error:
        await node.environment.offload.run(_remove, target, temporary)
        raise KafkaStorage(f"snapshot at {path} failed: {error.strerror or error}") from error
    except BaseException:
        await shielded(
            node.environment.offload.run(_remove, target, temporary), name="remove half a snapshot"
        )
        raise
    logger.info("snapshot taken: path=%s partitions=%d", path, copy.partitions)


def restore_snapshot(files: Files, snapshot: str, data_dir: str) -> None:
    """Copy a snapshot into a new data directory. Call it in an executor: it copies all bytes.

    Raises:
        ConfigError: `snapshot` is not a log directory, is in use, or lacks a part of its metadata
            log; or `data_dir` is not empty.
        KafkaStorage: the metadata log of `snapshot` is damaged.
        OSError: an I/O error.
    """
    if not files.exists(f"{snapshot}/{file_names.META_PROPERTIES}"):
        raise ConfigError(
            f"nothing to restore: {snapshot} is neither a snapshot nor a broker's log directory"
        )
    _check_free(files, data_dir)
    try:
        lock = files.lock(f"{snapshot}/{file_names.LOCK}")
    except BlockingIOError:
        raise ConfigError(
            f"{snapshot} is in use by a broker: take a snapshot of that broker, and restore the "
            "snapshot"
        ) from None
    try:
        _check_metadata(files, snapshot)
        _copy_tree(files, snapshot, data_dir)
    finally:
        lock.release()


def _check_metadata(files: Files, snapshot: str) -> None:
    """Check that a snapshot has its complete metadata, before anything is copied.

    A broker would start without the metadata, and use the partitions that it finds, but settings of
    topics and groups would be lost.

    Raises:
        ConfigError: a part is missing; the message says which.
        KafkaStorage: a file is damaged, or was written by a newer Kafka.
    """
    reader = MetadataReader(files, f"{snapshot}/{file_names.CLUSTER_METADATA}", crc32c)
    if not reader.exists():
        names = files.listdir(snapshot)
        if PRIVATE_FILE in names or not any(map(file_names.parse_partition_directory, names)):
            return  # written by an earlier version of aiokq, or without partitions
        raise _incomplete(
            snapshot,
            f"it has partitions, but {reader.directory} has neither a log nor a snapshot of the "
            "metadata (if the broker has metadata.log.dir, its log is there)",
        )
    try:
        state = reader.read()
    except MetadataDamaged as error:
        raise KafkaStorage(
            f"{snapshot} cannot be restored, because a part of it is missing or damaged: "
            f"{error.reason}. Copy it again, or run aiokq log repair {snapshot}, which shows what "
            "it would lose"
        ) from error
    quorum = read_quorum_state(files, reader.directory)
    if not voter_ids(state, quorum):
        raise _incomplete(snapshot, f"{reader.directory}/quorum-state is missing")
    if state.torn is not None and files.exists(f"{snapshot}/{file_names.CLEAN_SHUTDOWN}"):
        raise _incomplete(
            snapshot, f"the broker was stopped cleanly, but {state.torn.path} ends inside a batch"
        )


def _incomplete(snapshot: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{snapshot} is incomplete: {reason}. It was probably cut off when it was copied: copy it "
        "again, or take another snapshot"
    )


class _Copy:
    """The state of a snapshot that is being taken."""

    def __init__(self, node: BrokerNode, path: str, target: Files) -> None:
        self.partitions = 0
        self._node = node
        self._path = path
        self._source = node.environment.files
        self._target = target
        self._links: list[tuple[str, int]] = []

    async def attempt(self) -> bool:
        """Copy everything; return False if a segment was replaced during the copy.

        Finished segments are linked if possible, because links take so little time that few
        segments are deleted during the attempt. After an attempt that succeeded, the caller calls
        `part`, which replaces the links with copies.
        """
        node = self._node
        self._links.clear()
        offload = node.environment.offload
        await offload.run(_remove, self._target, self._path)
        captured: list[tuple[uuid.UUID, LogSnapshot]] = []
        async with node.metadata.unchanged():
            partitions = [
                partition
                for topic in node.topics
                for partition in topic.partitions
                if node.node_id in partition.replicas
            ]
            # The capture below blocks the loop, so most index entries are written before it.
            for number, partition in enumerate(partitions):
                _log_of(partition).write_indexes()
                if number % LOGS_PER_TURN == LOGS_PER_TURN - 1:
                    await asyncio.sleep(0)
            # There is no await until all logs are captured, so that the snapshot is of one moment.
            directory_of = node.storage.directories.directory_of
            for partition in partitions:
                directory = directory_of(partition.name)
                cleaned = (
                    None
                    if directory is None
                    else directory.checkpoints.cleaned_offsets.get(partition.name)
                )
                log = snapshot_log(_log_of(partition), self._source, node.crc32c, cleaned)
                captured.append((partition.topic.topic_id, log))
            # Producer ids are reserved before use, so the image covers all producer ids in the
            # logs.
            image, end = await offload.run(node.storage.metadata.copy_image)
        # The copy is a single directory with a new id.
        directory_id = random_id(node.environment.secure_random)
        properties = node.storage.directories.properties
        ids = properties._replace(directory_id=format_uuid(directory_id))
        metadata = stopped_metadata(image, node.node_id, directory_id)
        try:
            await offload.run(self._write, captured, metadata, end, ids)
        except FileNotFoundError:
            return False
        self.partitions = len(captured)
        return all(log.is_current for _, log in captured)

    def _write(
        self,
        captured: Sequence[tuple[uuid.UUID, LogSnapshot]],
        image: MetadataImage,
        end: SnapshotId,
        ids: MetaProperties,
    ) -> None:
        files, root, node = self._target, self._path, self._node
        files.mkdirs(root)
        starts: dict[TopicPartition, int] = {}
        ends: dict[TopicPartition, int] = {}
        watermarks: dict[TopicPartition, int] = {}
        cleaned: dict[TopicPartition, int] = {}
        for topic_id, captured_log in captured:
            partition = captured_log.log.topic_partition
            self._write_log(
                f"{root}/{file_names.partition_directory(partition)}", captured_log, topic_id
            )
            ends[partition] = captured_log.end
            watermarks[partition] = captured_log.high_watermark
            if captured_log.start:
                starts[partition] = captured_log.start
            if captured_log.cleaned is not None:
                cleaned[partition] = captured_log.cleaned
        write_metadata_log(
            files,
            root,
            image,
            snapshot=end,
            node_id=node.node_id,
            voters=node.storage.metadata.voters_with(ids.directory_uuid or ZERO_UUID),
            timestamp_ms=node.environment.clock.timestamp_ms(),
            temporary_id=uuid.UUID(int=node.environment.random.getrandbits(128)),
            crc32c=node.crc32c,
        )
        files.write_atomic(f"{root}/{file_names.META_PROPERTIES}", ids.encode())
        marker = clean_shutdown_marker(image.brokers[node.node_id].broker_epoch)
        files.write_atomic(f"{root}/{file_names.CLEAN_SHUTDOWN}", marker)
        write_offsets(files, f"{root}/{file_names.RECOVERY_POINTS}", ends)
        write_offsets(files, f"{root}/{file_names.HIGH_WATERMARKS}", watermarks)
        write_offsets(files, f"{root}/{file_names.LOG_STARTS}", starts)
        write_offsets(files, f"{root}/{file_names.CLEANED_OFFSETS}", cleaned)

    def _write_log(self, directory: str, captured: LogSnapshot, topic_id: uuid.UUID) -> None:
        files = self._target
        files.mkdirs(directory)
        for file in captured.files:
            self._copy(file, f"{directory}/{file.name}")
        producers = file_names.segment_file(directory, captured.end, file_names.SNAPSHOT)
        _write_file(files, producers, captured.producers)
        epochs = LeaderEpochs(files, f"{directory}/{file_names.LEADER_EPOCHS}")
        for entry in captured.epochs:
            epochs.note(*entry)
        epochs.write()
        write_partition_metadata(files, directory, topic_id)
        for name in (file_names.LEADER_EPOCHS, file_names.PARTITION_METADATA):
            _sync_file(files, f"{directory}/{name}")
        files.sync_dir(directory)

    def _copy(self, file: SnapshotFile, path: str) -> None:
        if file.finished:
            try:
                self._target.link(file.source, path)
            except FileNotFoundError:
                raise
            except OSError:  # another file system, or a file system without hard links
                pass
            else:
                self._links.append((path, file.size))
                return
        _copy_file(self._source, file.source, self._target, path, file.size)

    def part(self) -> None:
        """Replace links with copies. Call it in an executor: it copies all bytes."""
        files = self._target
        for path, size in self._links:
            own = f"{path}{file_names.TEMPORARY}"
            _copy_file(files, path, files, own, size)
            files.rename(own, path)
        for directory in {path.rpartition("/")[0] for path, _ in self._links}:
            files.sync_dir(directory)


def _log_of(partition: Partition) -> PartitionLog:
    """Return the log of a replica, leader or follower.

    Raises:
        BrokerError: the log is not open.
    """
    log = partition.local_log
    return partition.log if log is None else log


def _put_in_place(files: Files, temporary: str, path: str) -> None:
    files.sync_dir(temporary)
    _check_free(files, path)
    if files.exists(path):
        files.remove_tree(path)  # an empty directory
    files.rename(temporary, path)
    files.sync_dir(path.rstrip("/").rpartition("/")[0] or "/")


def _check_free(files: Files, path: str) -> None:
    if files.exists(path) and (not files.is_dir(path) or files.listdir(path)):
        raise ConfigError(f"{path} exists and is not an empty directory: choose another path")


def _copy_tree(files: Files, source: str, target: str) -> None:
    """Copy a log directory: partitions, then the metadata log, and last the shutdown marker.

    The copy may be interrupted. A broker that is started on it would create an empty log for each
    partition that is in the metadata and not on disk. The metadata log is therefore copied after
    all partitions.
    """
    files.mkdirs(target)
    inside = [name for name in files.listdir(source) if name != file_names.LOCK]
    directories = [name for name in inside if files.is_dir(f"{source}/{name}")]
    for name in sorted(directories, key=lambda name: (name == file_names.CLUSTER_METADATA, name)):
        _copy_tree(files, f"{source}/{name}", f"{target}/{name}")
    files.sync_dir(target)
    others = set(inside).difference(directories)
    for name in sorted(others, key=lambda name: (name == file_names.CLEAN_SHUTDOWN, name)):
        path = f"{source}/{name}"
        if name == file_names.CLEAN_SHUTDOWN:
            files.sync_dir(target)
        is_secret = name in _SECRET or target.endswith(file_names.CLUSTER_METADATA)
        copies = files.private() if is_secret else files
        _copy_file(files, path, copies, f"{target}/{name}", files.stat_size(path))
    files.sync_dir(target)


def _copy_file(source: Files, path: str, target: Files, copy: str, size: int) -> None:
    """Copy the first `size` bytes of a file and sync the copy.

    Raises:
        FileNotFoundError: the file is shorter than `size`, or does not exist.
    """
    reading = source.open(path, writable=False)
    try:
        writing = target.open(copy, exclusive=True)
        try:
            position = 0
            while position < size:
                data = reading.pread(min(CHUNK, size - position), position)
                if not data:
                    raise FileNotFoundError(
                        2, f"{path} was truncated to {position} of {size} bytes"
                    )
                writing.pwritev([data], position)
                position += len(data)
            writing.sync()
        finally:
            writing.close()
    finally:
        reading.close()


def _write_file(files: Files, path: str, data: bytes) -> None:
    file = files.open(path, exclusive=True)
    try:
        file.pwritev([data], 0)
        file.sync()
    finally:
        file.close()


def _sync_file(files: Files, path: str) -> None:
    if files.exists(path):
        file = files.open(path)
        try:
            file.sync()
        finally:
            file.close()


def _remove(files: Files, path: str) -> None:
    if files.exists(path):
        files.remove_tree(path)
