"""Adoption: makes this node the only voter of a metadata log whose quorum had several voters.

If a quorum has other voters, this node must not append to its log, because the other voters would
not have the appended records (`sole_voter`). Adoption is for a quorum whose other voters are lost
or will never be started again. If the other voters still run, they continue the old log, and the
two logs differ from then on.

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

import uuid
from typing import TYPE_CHECKING

from aiokq.broker.config.roles import DEFAULT_CONTROLLER
from aiokq.broker.log import file_names
from aiokq.broker.log.locked_directories import locked_directories
from aiokq.broker.log.meta_properties import (
    find_meta_properties,
    random_id,
    write_meta_properties,
)
from aiokq.broker.metadata.image.record_codec import encode_metadata_record, record_version
from aiokq.broker.metadata.log.lost_records import note_lost_records
from aiokq.broker.metadata.log.metadata_reader import MetadataReader
from aiokq.broker.metadata.log.quorum_state import (
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
from aiokq.broker.metadata.stopped_broker.adopted_image import drop_other_nodes, take_partitions
from aiokq.broker.metadata.stopped_broker.old_log import keep_old_log, remove_old_log
from aiokq.broker.metadata.stopped_broker.stopped_log import check_log_exists
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition
from aiokq.wire.quorum_records import VotersRecord, VotersRecordEndpoint

if TYPE_CHECKING:
    from random import Random

    from aiokq.broker.metadata.log.metadata_reader import MetadataState
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum

__all__ = ["Adoption", "adopt"]


@frozen
class Adoption:
    """The result of an adoption or of a dry run.

    Attributes:
        node_id: this node, the only voter of the new log.
        voters: ids of the previous voters, as far as they are known.
        end_offset, epoch: end offset of the new log, and the epoch of its snapshot.
        kept: path of the copy of the old log; "" for a dry run.
        led: number of partitions that this node leads according to the new log.
        elsewhere: partitions without a replica on this node; they are offline.
        behind: partitions whose replica on this node was neither in sync nor eligible to lead; they
            are offline, unless ``unclean`` was given.
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

    The node becomes the leader and the only replica of each partition that it may lead; see
    `take_partitions`. Other partitions keep their replicas and have no leader. Registrations of
    other nodes are dropped.

    Args:
        path: the log directory with ``__cluster_metadata-0``.
        execute: False to return the result without changing anything.
        unclean: also lead the partitions whose replica on this node was neither in sync nor
            eligible; acknowledged records may be missing in them.
        random: source of ids; a ``SystemRandom`` outside of tests.
        timestamp_ms: the present time.

    Raises:
        ConfigError: ``path`` is not a log directory with a metadata log, the node is already the
            only voter, or the log has no metadata yet.
        KafkaStorage: the directory is in use, the log is damaged or was written by a newer Kafka,
            or the disk failed; the message says what to do.
    """
    with locked_directories(files, [path]) as (properties,):
        reader = MetadataReader(files, f"{path}/{file_names.CLUSTER_METADATA}", crc32c)
        check_log_exists(reader, path)
        state = reader.read()
        quorum = read_quorum_state(files, reader.directory)
        if execute and properties.directory_id is None:  # written before Kafka 3.7
            properties, are_stored = find_meta_properties(files, path, None, None, random)
            if not are_stored:
                write_meta_properties(files, path, properties)
        node_id, directory_id = properties.node_id, properties.directory_uuid or random_id(random)
        _check_other_voters(state, quorum, reader.directory, node_id, directory_id)
        if state.image.metadata_version is None:
            raise ConfigError(
                f"{reader.directory} has no metadata yet: remove the directory, and format {path} "
                "for this node alone (aiokq storage format)"
            )
        voters = tuple(sorted(voter_ids(state, quorum)))
        partitions = take_partitions(state.image, node_id, unclean)
        unregistered = drop_other_nodes(state.image, node_id)
        epoch = max(state.epoch, quorum.epoch if quorum is not None else 0) + 1
        begin = SnapshotId(state.end_offset + 1, epoch)
        kept = ""
        if execute:
            remove_unfinished_snapshots(files, reader.directory)
            kept = keep_old_log(files, path, reader.directory, random)
            note_lost_records(files, path)  # this node may have lagged behind the old leader
            old = files.listdir(reader.directory)
            voter = _only_voter(state, node_id, directory_id)
            _write_new_log(files, reader.directory, state, begin, voter, timestamp_ms, crc32c)
            remove_old_log(files, reader.directory, old)
        return Adoption(
            node_id=node_id,
            voters=voters,
            end_offset=begin.end_offset,
            epoch=epoch,
            kept=kept,
            led=partitions.led,
            elsewhere=tuple(partitions.elsewhere),
            behind=tuple(partitions.behind),
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


def _only_voter(state: MetadataState, node_id: int, directory_id: uuid.UUID) -> VotersRecord:
    known = state.voters.voters if state.voters is not None else []
    endpoints = [one.endpoints for one in known if one.voter_id == node_id and one.endpoints]
    # A node that was not a voter has no endpoints in the log.
    default = VotersRecordEndpoint(**DEFAULT_CONTROLLER._asdict())
    return only_voter(node_id, directory_id, endpoints[0] if endpoints else [default])


def _write_new_log(
    files: Files,
    directory: str,
    state: MetadataState,
    begin: SnapshotId,
    voter: VotersRecord,
    timestamp_ms: int,
    crc32c: Checksum,
) -> None:
    """Write the snapshot that the new log begins with, then ``quorum-state`` with its epoch.

    Args:
        state: what was read from the old log; its image is already changed for the new log.
        voter: this node, named in the snapshot (``kraft.version`` 1) or else in ``quorum-state``.
    """
    level = state.image.metadata_version
    assert level is not None
    dynamic = state.kraft_version >= 1
    write_snapshot(
        files,
        snapshot_path(directory, begin),
        (
            encode_metadata_record(record, record_version(record, level))
            for record in state.image.records()
        ),
        epoch=begin.epoch,
        timestamp_ms=timestamp_ms,
        last_contained_ms=state.timestamp_ms,
        crc32c=crc32c,
        voters=voter if dynamic else None,
    )
    voters = () if dynamic else tuple(one.voter_id for one in voter.voters)
    quorum = QuorumState(epoch=begin.epoch, voters=voters, data_version=int(dynamic))
    write_quorum_state(files, directory, quorum)
