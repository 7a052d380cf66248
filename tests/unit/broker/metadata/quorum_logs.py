"""Metadata logs of quorums with three voters, as Apache Kafka leaves them on node 3."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterable, Sequence

from aiokq.broker.log.meta_properties import MetaProperties
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.image.record_codec import encode_metadata_record
from aiokq.broker.metadata.log.quorum_state import QuorumState, write_quorum_state
from aiokq.broker.metadata.log.snapshot_file import SnapshotId, snapshot_path, write_snapshot
from aiokq.fastpath import crc32c
from aiokq.records.quorum_control import QuorumControlRecord, encode_quorum_control_batch
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.cluster_metadata_records import PartitionRecord, ProducerIdsRecord, TopicRecord
from aiokq.wire.quorum_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    VotersRecord,
    VotersRecordEndpoint,
    VotersRecordVoter,
)
from aiokq.wire.registration_records import RegisterBrokerRecord, RegisterControllerRecord
from aiokq.wire.struct import Message
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import DIRECTORY, LEVEL, NODE, memory

DIR_OF_NODE = uuid.UUID(int=103)
EPOCH = 4
SEGMENT = f"{DIRECTORY}/{0:020d}.log"

OPERATIONS = (
    *("open", "listdir", "mkdirs", "remove", "remove_tree", "rename", "sync_dir", "write_atomic"),
    *("pwritev", "sync", "truncate", "chmod", "read_bytes"),
)


def voters(*nodes: int) -> VotersRecord:
    return VotersRecord(
        voters=[
            VotersRecordVoter(
                voter_id=node,
                voter_directory_id=uuid.UUID(int=100 + node),
                endpoints=[VotersRecordEndpoint(name="C", host=f"node{node}", port=9000 + node)],
            )
            for node in nodes
        ]
    )


def partition(
    topic: int, index: int, replicas: Sequence[int], isr: Sequence[int], **changes: object
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=uuid.UUID(int=1000 + topic),
        replicas=list(replicas),
        isr=list(isr),
        leader=isr[0] if isr else -1,
        leader_epoch=7,
        partition_epoch=20,
        directories=[uuid.UUID(int=100 + node) for node in replicas],
        **changes,  # type: ignore[arg-type]
    )


def records() -> list[Message]:
    """Return the metadata of three nodes and of a topic with partitions of each kind."""
    return [
        LEVEL,
        *(RegisterControllerRecord(controller_id=node) for node in (1, 2, 3)),
        *(RegisterBrokerRecord(broker_id=node, broker_epoch=node, fenced=False) for node in (1, 3)),
        TopicRecord(name="t", topic_id=uuid.UUID(int=1001)),
        partition(1, 0, (1, 3, 2), (1, 3)),
        partition(1, 1, (1, 2), (1, 2)),
        partition(1, 2, (3, 1), (1,)),
        partition(1, 3, (3,), (3,)),
        partition(1, 4, (1, 3), (), last_known_elr=[3]),
        partition(1, 5, (1, 3), (), eligible_leader_replicas=[1, 3]),
        partition(1, 6, (1, 3), (), eligible_leader_replicas=[1]),
        partition(1, 7, (3, 1, 2), (3, 1), adding_replicas=[2]),
        ProducerIdsRecord(broker_id=1, next_producer_id=5000),
    ]


def leader_change(*nodes: int) -> LeaderChangeMessage:
    each = [LeaderChangeMessageVoter(voter_id=node) for node in nodes]
    return LeaderChangeMessage(leader_id=nodes[0], voters=each, granting_voters=each)


def batches(
    controls: Sequence[QuorumControlRecord],
    groups: Iterable[Sequence[Message]],
    *,
    base_offset: int = 0,
    epoch: int = EPOCH,
) -> bytes:
    """Return a control batch, and a batch for each group of records."""
    out = bytearray()
    if controls:
        out += encode_quorum_control_batch(
            controls, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=5, crc32c=crc32c
        )
        base_offset += len(controls)
    for group in groups:
        raw = [
            RawRecord(offset, 5, None, encode_metadata_record(record))
            for offset, record in enumerate(group, base_offset)
        ]
        out += encode_batch(raw, crc32c=crc32c, base_offset=base_offset, leader_epoch=epoch)
        base_offset += len(group)
    return bytes(out)


def data_directory() -> MemoryFiles:
    """Return a disk with a log directory of node 3 that has no metadata log."""
    files = memory()
    ids = MetaProperties("c", NODE, format_uuid(DIR_OF_NODE))
    files.write_atomic("/data/meta.properties", ids.encode())
    files.mkdirs(DIRECTORY)
    files.sync_dir("/data")
    return files


def quorum_of_three(kraft_version: int, *, members: tuple[int, ...] = (1, 2, 3)) -> MemoryFiles:
    files = data_directory()
    controls: list[QuorumControlRecord] = [leader_change(*members)]
    if kraft_version:
        first = voters(*members)
        write_snapshot(
            files,
            snapshot_path(DIRECTORY, SnapshotId(0, 0)),
            (),
            epoch=0,
            timestamp_ms=0,
            last_contained_ms=0,
            crc32c=crc32c,
            voters=first,
        )
        controls += [KRaftVersionRecord(k_raft_version=1), first]
    files.write_atomic(SEGMENT, batches(controls, [records()]))
    write_quorum_state(
        files,
        DIRECTORY,
        QuorumState(
            EPOCH,
            leader_id=members[0],
            voted_id=members[-1],
            voters=() if kraft_version else members,
            data_version=kraft_version,
        ),
    )
    files.sync_dir(DIRECTORY)
    return files


def kill_after(files: MemoryFiles, number: int) -> list[int]:
    """Let every file operation from a number on fail, as if the process had ended before it.

    Returns:
        A list whose only element is the number of operations so far.
    """
    calls = [0]

    def is_over(_: str) -> bool:
        calls[0] += 1
        return calls[0] > number

    for operation in OPERATIONS:
        files.fail(operation, errno.EIO, matches=is_over, times=None)
    return calls


def left_before_each(files: MemoryFiles, run: Callable[[], object]) -> list[MemoryFiles]:
    """Return the disk as it is before each file operation of `run`, and after the last one."""
    left: list[MemoryFiles] = []

    def note(_: str) -> bool:
        left.append(files.copy())
        return False  # the operation does not fail

    for operation in OPERATIONS:
        files.fail(operation, matches=note, times=None)
    run()
    files.heal()
    left.append(files.copy())
    return left
