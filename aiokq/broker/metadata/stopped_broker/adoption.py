"""Adoption: makes this node the only voter of a metadata log whose quorum had several voters.

A node with other voters must not append to the log, because they would not have the appended
records (`sole_voter`). Adoption is for a quorum whose other voters are lost or will never be
started again. If the other voters still run, they continue the old log, and the two logs differ
from then on.

The new log consists of one snapshot, which has the image of the old log and an offset after the end
of the old log. Apache Kafka and this broker ignore log records before such a snapshot.

1. The old log is copied to a stray directory, which no broker uses.
2. The snapshot is written. With ``kraft.version`` 1 the snapshot names the voters, so this step
   completes the adoption.
3. ``quorum-state`` gets the new epoch and, with ``kraft.version`` 0, the voters; with that version
   this step completes the adoption.
4. The files of the old log are removed. The next start ignores files that remain after a kill.

After a kill before the adoption is complete, the broker still refuses the directory. Another call
repeats all steps, but reuses a complete copy of the old log.

Source: KIP-595, KIP-630, KIP-853.
Tests: ``tests/unit/broker/metadata/stopped_broker/test_adoption.py``.
"""

from __future__ import annotations

import copy
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiokq.broker.config.roles import DEFAULT_CONTROLLER
from aiokq.broker.log import file_names
from aiokq.broker.log.locked_directories import locked_directories
from aiokq.broker.log.meta_properties import adopt_meta_properties, random_id
from aiokq.broker.log.partition_metadata import write_partition_metadata
from aiokq.broker.log.uuid_text import parse_uuid
from aiokq.broker.metadata.image.record_codec import encode_metadata_record, record_version
from aiokq.broker.metadata.image.topic_image import NO_LEADER, PartitionImage
from aiokq.broker.metadata.log.cluster_metadata_log import METADATA_TOPIC_ID
from aiokq.broker.metadata.log.metadata_reader import MetadataReader
from aiokq.broker.metadata.log.quorum_state import (
    QUORUM_STATE,
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from aiokq.broker.metadata.log.snapshot_file import (
    SnapshotId,
    remove_unfinished_snapshots,
    snapshot_path,
    write_snapshot,
)
from aiokq.broker.metadata.log.sole_voter import check_sole_voter, voter_ids
from aiokq.broker.metadata.log.voters import only_voter
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition
from aiokq.wire.quorum_records import VotersRecord, VotersRecordEndpoint

if TYPE_CHECKING:
    from random import Random

    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.broker.metadata.log.metadata_reader import MetadataState
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum

__all__ = ["Adoption", "adopt"]

ASIDE: Final = ".before-adoption"
"""Part of the name of the old log's copy, before the suffix of a stray directory."""

CHECKPOINT: Final = ".checkpoint"
"""Suffix of the file name of a snapshot."""

COPIED_BYTES: Final = 1024 * 1024

RECOVERING: Final = 1
"""Leader recovery state of a partition whose leader was not in sync when it was elected."""


@frozen
class Adoption:
    """The result of an adoption, or of a dry run of one.

    Attributes:
        node_id: this node, the only voter of the new log.
        voters: ids of the previous voters, as far as they are known.
        end_offset, epoch: end offset of the new log, and the epoch of its snapshot.
        kept: path of the copy of the old log; "" for a dry run.
        led: number of partitions that this node leads according to the new log.
        elsewhere: partitions without a replica on this node; they are offline.
        behind: partitions whose replica on this node was not in sync; they are offline, unless
            ``unclean`` was given.
        unregistered: ids of the other brokers and controllers, whose registrations are dropped.
    """

    node_id: int
    voters: tuple[int, ...]
    end_offset: int
    epoch: int
    kept: str
    led: int
    elsewhere: tuple[TopicPartition, ...]
    behind: tuple[TopicPartition, ...]
    unregistered: tuple[int, ...]


def adopt(
    files: Files,
    path: str,
    *,
    execute: bool,
    unclean: bool = False,
    random: Random,
    timestamp_ms: int,
    crc32c: Checksum,
) -> Adoption:
    """Make this node the only voter of the metadata log in a log directory.

    The node becomes the leader and the only replica of each partition whose replica on this node is
    in sync. Other partitions keep their replicas and have no leader. Registrations of other nodes
    are dropped.

    Args:
        path: the log directory with ``__cluster_metadata-0``.
        execute: False to return the result without changing anything.
        unclean: also lead the partitions whose replica on this node was not in sync; acknowledged
            records may be missing in them.
        random: source of ids; a ``SystemRandom`` outside of tests.
        timestamp_ms: the present time.

    Raises:
        ConfigError: ``path`` is not a log directory with a metadata log, the node is already the
            only voter, or the log has no metadata yet.
        KafkaStorage: the directory is in use, the log is damaged or was written by a newer Kafka,
            or the disk failed; the message says what to do.
    """
    with locked_directories(files, [path]) as (properties,):
        directory = f"{path}/{file_names.CLUSTER_METADATA}"
        reader = MetadataReader(files, directory, crc32c)
        if not reader.exists():
            raise ConfigError(
                f"{path} has no metadata log ({file_names.CLUSTER_METADATA}): name the directory "
                "in metadata.log.dir, by default the first one in log.dirs"
            )
        state = reader.read()
        quorum = read_quorum_state(files, directory)
        if execute and properties.directory_id is None:  # written before Kafka 3.7
            properties = adopt_meta_properties(files, path, None, None, random)
        directory_id = (
            random_id(random)
            if properties.directory_id is None
            else parse_uuid(properties.directory_id)
        )
        node_id = properties.node_id
        _check_other_voters(state, quorum, directory, node_id, directory_id)
        level = state.image.metadata_version
        if level is None:
            raise ConfigError(
                f"{directory} has no metadata yet: remove the directory, and format {path} for "
                "this node alone (aiokq storage format)"
            )
        voters = tuple(sorted(voter_ids(state, quorum)))
        result = _take_part(state.image, node_id, unclean)
        unregistered = _drop_others(state.image, node_id)
        epoch = max(state.epoch, quorum.epoch if quorum is not None else 0) + 1
        snapshot = SnapshotId(state.end_offset + 1, epoch)
        kept = ""
        if execute:
            remove_unfinished_snapshots(files, directory)
            kept = _keep_aside(files, path, directory, random)
            dynamic = state.kraft_version >= 1
            old = files.listdir(directory)
            write_snapshot(
                files,
                snapshot_path(directory, snapshot),
                (
                    encode_metadata_record(record, record_version(record, level))
                    for record in state.image.records()
                ),
                epoch=epoch,
                timestamp_ms=timestamp_ms,
                last_contained_ms=state.timestamp_ms,
                crc32c=crc32c,
                voters=_only_voter(state, node_id, directory_id) if dynamic else None,
            )
            write_quorum_state(
                files,
                directory,
                QuorumState(
                    epoch=epoch,
                    voters=() if dynamic else (node_id,),
                    data_version=int(dynamic),
                ),
            )
            _remove_old(files, directory, old)
        return Adoption(
            node_id=node_id,
            voters=voters,
            end_offset=snapshot.end_offset,
            epoch=epoch,
            kept=kept,
            led=result.led,
            elsewhere=tuple(result.elsewhere),
            behind=tuple(result.behind),
            unregistered=unregistered,
        )


def _check_other_voters(
    state: MetadataState,
    quorum: QuorumState | None,
    directory: str,
    node_id: int,
    directory_id: uuid.UUID,
) -> None:
    """Raise ConfigError if the node is the only voter."""
    try:
        check_sole_voter(
            state, quorum, directory=directory, node_id=node_id, directory_id=directory_id
        )
    except KafkaStorage:
        return
    raise ConfigError(
        f"node {node_id} is the only voter of {directory} already: there is nothing to adopt, "
        "start the broker"
    )


# --- the image


class _Result:
    """The attributes of `Adoption` that describe partitions."""

    def __init__(self) -> None:
        self.led = 0
        self.elsewhere: list[TopicPartition] = []
        self.behind: list[TopicPartition] = []


def _take_part(image: MetadataImage, node_id: int, unclean: bool) -> _Result:
    """Make the node the only replica of partitions it may lead; the others get no leader."""
    result = _Result()
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            is_here = node_id in partition.replicas
            in_sync = is_here and _in_sync(partition, node_id)
            if in_sync or (is_here and unclean):
                changed = _alone(partition, node_id, clean=in_sync)
                result.led += 1
            elif partition.leader == NO_LEADER:
                changed = partition
            else:
                changed = partition._replace(
                    leader=NO_LEADER,
                    leader_epoch=partition.leader_epoch + 1,
                    partition_epoch=partition.partition_epoch + 1,
                )
            topic.set_partition(index, image.share(changed))
            if not is_here:
                result.elsewhere.append(TopicPartition(topic.name, index))
            elif not in_sync:
                result.behind.append(TopicPartition(topic.name, index))
    return result


def _in_sync(partition: PartitionImage, node_id: int) -> bool:
    """Whether a node's replica has all acknowledged records, according to the metadata."""
    if partition.isr or partition.elr:
        return node_id in partition.isr or node_id in partition.elr
    return partition.last_known_elr == (node_id,)


def _alone(partition: PartitionImage, node_id: int, *, clean: bool) -> PartitionImage:
    """Return the partition with the node as its only replica and leader, in a new leader epoch.

    A partition that is already in this state is returned unchanged.
    """
    if partition.replicas == partition.isr == (node_id,) and partition.leader == node_id:
        return partition
    directories: tuple[uuid.UUID, ...] = ()
    if len(partition.directories) == len(partition.replicas):
        directories = (partition.directories[partition.replicas.index(node_id)],)
    return PartitionImage(
        replicas=(node_id,),
        isr=(node_id,),
        leader=node_id,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
        directories=directories,
        leader_recovery_state=partition.leader_recovery_state if clean else RECOVERING,
    )


def _drop_others(image: MetadataImage, node_id: int) -> tuple[int, ...]:
    """Drop the registrations of other nodes, and fence this node; return the others' ids.

    Kafka has no record that removes the registration of a controller, so a controller that stays
    registered could never be removed. Kafka would also place new replicas on other brokers that
    stay registered.
    """
    others = {*image.brokers, *image.controllers} - {node_id}
    image.brokers = {one: broker for one, broker in image.brokers.items() if one == node_id}
    image.controllers = {one: each for one, each in image.controllers.items() if one == node_id}
    own = image.brokers.get(node_id)
    if own is not None:
        own = copy.copy(own)  # other images may share it
        own.fenced, own.in_controlled_shutdown = True, False
        image.brokers[node_id] = own
    return tuple(sorted(others))


def _only_voter(state: MetadataState, node_id: int, directory_id: uuid.UUID) -> VotersRecord:
    known = state.voters.voters if state.voters is not None else []
    endpoints = [one.endpoints for one in known if one.voter_id == node_id and one.endpoints]
    # A node that was not a voter has no endpoints in the log.
    default = VotersRecordEndpoint(**DEFAULT_CONTROLLER._asdict())
    return only_voter(node_id, directory_id, endpoints[0] if endpoints else [default])


# --- the files


def _keep_aside(files: Files, path: str, directory: str, random: Random) -> str:
    """Copy the old log; return the path of the copy, which is complete and durable.

    A complete copy that an interrupted call left is reused.
    """
    for name in files.listdir(path):  # unfinished copies
        if name.startswith(f"{file_names.CLUSTER_METADATA}.") and name.endswith(
            file_names.DELETED_DIRECTORY
        ):
            files.remove_tree(f"{path}/{name}")
    number = 1
    while True:
        text = "" if number == 1 else f"-{number}"
        kept = f"{directory}{ASIDE}{text}{file_names.STRAY_DIRECTORY}"
        if not files.exists(kept):
            break
        if _is_copy(files, directory, kept):
            files.sync_dir(path)
            return kept
        number += 1
    temporary = f"{directory}.{random_id(random).hex}{file_names.DELETED_DIRECTORY}"
    files.mkdirs(temporary)
    try:
        for name in files.listdir(directory):
            _copy(files, f"{directory}/{name}", f"{temporary}/{name}")
        files.sync_dir(temporary)
        files.rename(temporary, kept)
    except OSError:
        with suppress(OSError):
            files.remove_tree(temporary)
        raise
    files.sync_dir(path)
    return kept


def _is_copy(files: Files, directory: str, kept: str) -> bool:
    """Whether the directory ``kept`` is a copy of the old log in ``directory``.

    Since the copy was made, an interrupted call may have added a snapshot to ``directory`` and
    written ``quorum-state``; these files are not compared.
    """
    names, now = (
        {name for name in files.listdir(path) if not name.startswith(QUORUM_STATE)}
        for path in (kept, directory)
    )
    if not names or not all(name.endswith(CHECKPOINT) for name in now - names):
        return False
    return names <= now and all(
        _is_equal(files, f"{directory}/{name}", f"{kept}/{name}") for name in names
    )


def _is_equal(files: Files, path: str, other: str) -> bool:
    size = files.stat_size(path)
    if size != files.stat_size(other):
        return False
    first, second = files.open(path, writable=False), files.open(other, writable=False)
    try:
        return all(
            first.pread(COPIED_BYTES, position) == second.pread(COPIED_BYTES, position)
            for position in range(0, size, COPIED_BYTES)
        )
    finally:
        first.close()
        second.close()


def _copy(files: Files, path: str, other: str) -> None:
    source, target = files.open(path, writable=False), files.open(other, exclusive=True)
    try:
        for position in range(0, source.size(), COPIED_BYTES):
            target.pwritev([source.pread(COPIED_BYTES, position)], position)
        target.sync()
    finally:
        source.close()
        target.close()


def _remove_old(files: Files, directory: str, names: list[str]) -> None:
    """Remove the files of the old log."""
    for name in names:
        if not name.startswith(QUORUM_STATE) and name != file_names.PARTITION_METADATA:
            files.remove(f"{directory}/{name}")
    if file_names.PARTITION_METADATA not in names:
        write_partition_metadata(files, directory, METADATA_TOPIC_ID)
    files.sync_dir(directory)
