"""Metadata logs on an in-memory disk, as a sole voter leaves them."""

from __future__ import annotations

import uuid

from aiokq.broker.log.disk_trouble import DiskTrouble
from aiokq.broker.log.open_files import OpenFiles
from aiokq.broker.metadata.image.records import TOPIC_CONFIG, partition_record
from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog, LogLimits
from aiokq.broker.metadata.log.metadata_reader import MetadataReader, MetadataState
from aiokq.fastpath import crc32c
from aiokq.wire.cluster_metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.sim.harness.files import MemoryFiles

DIRECTORY = "/data/__cluster_metadata-0"
NODE = 3
LEVEL = FeatureLevelRecord(name="metadata.version", feature_level=25)


def memory() -> MemoryFiles:
    made = MemoryFiles()
    made.mkdirs("/data")
    made.sync_dir("/")
    return made


def read(files: MemoryFiles) -> MetadataState:
    reader = MetadataReader(files, DIRECTORY, crc32c)
    return reader.read() if reader.exists() else MetadataState()


def opened(
    files: MemoryFiles, *, clean: bool = False, lead: bool = True, limits: LogLimits | None = None
) -> ClusterMetadataLog:
    state = read(files)
    log = ClusterMetadataLog.open(
        files,
        DIRECTORY,
        state,
        node_id=NODE,
        disk=DiskTrouble(lambda: 0.0, "/data"),
        open_files=OpenFiles(),
        clean=clean,
        limits=limits or LogLimits(),
        now_ms=lambda: 1000,
        crc32c=crc32c,
    )
    if lead:
        log.lead([] if state.image.metadata_version else [LEVEL])
    return log


def topic(number: int) -> list[TopicRecord | PartitionRecord]:
    topic_id = uuid.UUID(int=1000 + number)
    return [
        TopicRecord(name=f"t{number}", topic_id=topic_id),
        partition_record(topic_id, 0, NODE, directory=None),
    ]


def config(number: int) -> ConfigRecord:
    return ConfigRecord(
        resource_type=TOPIC_CONFIG, resource_name="t0", name="a", value=f"{number:0500}"
    )
