"""Files as Apache Kafka leaves them in a log directory, made by hand on an in-memory disk."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from aiokq.broker.log.partition_metadata import write_partition_metadata
from aiokq.broker.metadata.image.record_codec import encode_metadata_record
from aiokq.broker.metadata.log.metadata_reader import MetadataReader
from aiokq.broker.metadata.log.snapshot_file import SnapshotId, snapshot_path, write_snapshot
from aiokq.fastpath import crc32c
from aiokq.records.quorum_control import encode_quorum_control_batch
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.cluster_metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from aiokq.wire.quorum_records import LeaderChangeMessage, LeaderChangeMessageVoter
from aiokq.wire.struct import Message
from tests.sim.harness.files import MemoryFiles

DIRECTORY = "/data/__cluster_metadata-0"
ORDERS = uuid.UUID("11111111-1111-4111-8111-111111111111")
OTHER = uuid.UUID("22222222-2222-4222-8222-222222222222")
NODE = 3
HERE = uuid.UUID("00000000-0000-4000-8000-000000000001")
LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=25)


def topic(name: str = "orders", topic_id: uuid.UUID = ORDERS) -> TopicRecord:
    return TopicRecord(name=name, topic_id=topic_id)


def partition(
    number: int = 0,
    topic_id: uuid.UUID = ORDERS,
    replicas: Sequence[int] = (NODE,),
    leader: int = NODE,
    epoch: int = 0,
    directory: uuid.UUID = HERE,
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(replicas),
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=epoch,
        directories=[directory] * len(replicas),
    )


def config(name: str, value: str | None, topic: str = "orders", kind: int = 2) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=topic, name=name, value=value)


class KafkaLog:
    """A log directory of node 3, and its metadata log, to which `append` adds batches."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        self.end = 0
        self.base = 0
        self.epoch = 1
        files.mkdirs(DIRECTORY)
        files.write_atomic(
            "/data/meta.properties",
            b"version=1\ncluster.id=kafkas\nnode.id=3\ndirectory.id=AAAAAAAAQACAAAAAAAAAAQ\n",
        )

    @property
    def path(self) -> str:
        return f"{DIRECTORY}/{self.base:020d}.log"

    def append(self, *records: Message | bytes) -> None:
        """Append one batch of the last leader; values given as bytes are written unchanged."""
        values = [r if isinstance(r, bytes) else encode_metadata_record(r) for r in records]
        records = [RawRecord(self.end + n, 0, None, value) for n, value in enumerate(values)]
        self.write(
            encode_batch(records, crc32c=crc32c, base_offset=self.end, leader_epoch=self.epoch)
        )
        self.end += len(records)

    def reopen(self) -> None:
        """Continue the log after another broker has written to it."""
        state = MetadataReader(self.files, DIRECTORY, crc32c).read()
        self.end, self.epoch = state.end_offset, state.epoch
        names = self.files.listdir(DIRECTORY)
        self.base = max(int(name[:20]) for name in names if name.endswith(".log"))

    def lead(self, epoch: int) -> None:
        """Append the first batch of a new controller: a control record."""
        self.epoch = epoch
        voter = LeaderChangeMessageVoter(voter_id=NODE)
        change = LeaderChangeMessage(leader_id=NODE, voters=[voter], granting_voters=[voter])
        self.write(
            encode_quorum_control_batch(
                [change], base_offset=self.end, leader_epoch=epoch, timestamp_ms=0, crc32c=crc32c
            )
        )
        self.end += 1

    def write(self, data: bytes) -> None:
        """Append bytes to the newest segment."""
        before = self.files.read_bytes(self.path) if self.files.exists(self.path) else b""
        self.files.write_atomic(self.path, before + data)

    def roll(self) -> None:
        """Start a new segment."""
        self.base = self.end

    def snapshot(self, *records: Message, epoch: int | None = None) -> str:
        """Write a snapshot of everything up to the end; return its path."""
        epoch = self.epoch if epoch is None else epoch
        path = snapshot_path(DIRECTORY, SnapshotId(self.end, epoch))
        write_snapshot(
            self.files,
            path,
            map(encode_metadata_record, records),
            epoch=epoch,
            timestamp_ms=0,
            last_contained_ms=0,
            crc32c=crc32c,
        )
        return path

    def make_partition(self, name: str, topic_id: uuid.UUID | None, *values: bytes) -> None:
        """Make the directory of a partition with one batch."""
        self.files.mkdirs(f"/data/{name}")
        if topic_id is not None:
            write_partition_metadata(self.files, f"/data/{name}", topic_id)
        records = [RawRecord(number, 0, b"k", value) for number, value in enumerate(values)]
        data = (
            encode_batch(records, crc32c=crc32c, base_offset=0, leader_epoch=0) if values else b""
        )
        self.files.write_atomic(f"/data/{name}/{0:020d}.log", data)
