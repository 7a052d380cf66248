"""Makes the metadata log of a quorum of several voters one of this node alone.

Before this, the node must not append to the log, because the other voters would not know its
records (`sole_voter`). It is a step for a node whose quorum is lost or given up. If the other
voters still run, they go on with the old log, and the two logs differ from then on.

The new log is the old one's image, as a snapshot whose offset is after the end of the old log.
Apache Kafka and this broker continue with such a snapshot instead of the log before it.

1. The old log is copied aside, under the name of a stray directory, which no broker uses.
2. The snapshot is written. With ``kraft.version`` 1 it has the voters, so this is the adoption.
3. ``quorum-state`` gets the new epoch and, with ``kraft.version`` 0, the voters.
4. The files of the old log are removed. The next start does it if they are left.

After a kill before the adoption, the broker still refuses the directory, and another call does
everything again, which changes nothing that was done before.

Source: KIP-595, KIP-630, KIP-853. Tests: ``tests/unit/broker/metadata/test_adoption.py``.
"""

from __future__ import annotations

import copy
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.locked_directories import locked_directories
from aiokq.broker.log.meta_properties import adopt_meta_properties, random_id
from aiokq.broker.log.partition_metadata import write_partition_metadata
from aiokq.broker.log.uuid_text import parse_uuid
from aiokq.broker.metadata.cluster_metadata_log import METADATA_TOPIC_ID
from aiokq.broker.metadata.metadata_reader import MetadataReader
from aiokq.broker.metadata.quorum_state import (
    QUORUM_STATE,
    QuorumState,
    read_quorum_state,
    write_quorum_state,
)
from aiokq.broker.metadata.record_codec import encode_metadata_record, record_version
from aiokq.broker.metadata.snapshot_file import (
    SnapshotId,
    remove_unfinished_snapshots,
    snapshot_path,
    write_snapshot,
)
from aiokq.broker.metadata.sole_voter import check_sole_voter, voter_ids
from aiokq.broker.metadata.topic_image import NO_LEADER, PartitionImage
from aiokq.broker.metadata.voters import only_voter
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition
from aiokq.wire.quorum_records import VotersRecord, VotersRecordEndpoint

if TYPE_CHECKING:
    from random import Random

    from aiokq.broker.metadata.image import MetadataImage
    from aiokq.broker.metadata.metadata_reader import MetadataState
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum

__all__ = ["Adoption", "adopt"]

ASIDE: Final = ".before-adoption"
"""What the name of the old log has before the suffix of a stray directory."""

CONTROLLER: Final = VotersRecordEndpoint(name="CONTROLLER", host="localhost", port=9093)
"""The endpoint of a node that was no voter; Kafka replaces it at a start by the real one."""

CHECKPOINT: Final = ".checkpoint"
"""Suffix of a snapshot."""

COPIED_BYTES: Final = 1024 * 1024

RECOVERING: Final = 1
"""The state of a partition whose leader was not in sync when it was elected."""


@frozen
class Adoption:
    """What was done, or would be.

    Attributes:
        node_id: this node, now the only voter.
        voters: ids of the voters before, as far as they are known.
        end_offset, epoch: end of the new log.
        kept: path of the old log; "" if nothing was done.
        led: number of partitions that this node leads now.
        elsewhere: partitions without a replica on this node, which are offline.
        behind: partitions whose replica on this node was not in sync; they are offline, unless
            ``unclean`` was given.
        unregistered: ids of the other brokers and controllers, whose registrations were dropped.
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

    The node becomes the only replica and the leader of the partitions that it has in sync. Other
    partitions keep their replicas and have no leader. Registrations of other nodes are dropped.

    Args:
        path: the log directory with ``__cluster_metadata-0``.
        execute: False to return the result without changing anything.
        unclean: lead the partitions, too, whose replica here was not in sync; records that were
            acknowledged may be missing in them.
        random: source of ids; a ``SystemRandom`` outside of tests.
        timestamp_ms: the present time.

    Raises:
        ConfigError: it is no log directory with a metadata log, the node is the only voter already,
            or the log has no metadata yet.
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
    """The partitions of the new log."""

    def __init__(self) -> None:
        self.led = 0
        self.elsewhere: list[TopicPartition] = []
        self.behind: list[TopicPartition] = []


def _take_part(image: MetadataImage, node_id: int, unclean: bool) -> _Result:
    """Make the node the only replica of its partitions, and leave the others without a leader."""
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
    """Whether a replica has all acknowledged records, as far as the log knows."""
    if partition.isr or partition.elr:
        return node_id in partition.isr or node_id in partition.elr
    return partition.last_known_elr == (node_id,)


def _alone(partition: PartitionImage, node_id: int, *, clean: bool) -> PartitionImage:
    """Return the state with the node as the only replica, in a new leader epoch."""
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

    Nothing could drop them later: Kafka has no record that removes a controller, and places new
    replicas on brokers that are registered.
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
    return only_voter(node_id, directory_id, endpoints[0] if endpoints else [CONTROLLER])


# --- the files


def _keep_aside(files: Files, path: str, directory: str, random: Random) -> str:
    """Copy the old log; return the path of the copy, which is complete and durable.

    The copy of a call that was killed is used if it has the same content.
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
    """Whether a directory has all files of the old log.

    The call that was killed may have added a snapshot, and written ``quorum-state``.
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
