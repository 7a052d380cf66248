"""Log directories on an in-memory disk, as version 0.1.0 of aiokq left them."""

from __future__ import annotations

import contextlib
import json
import random
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokq.broker.log.directories import LogDirectories
from aiokq.broker.log.leader_epochs import LeaderEpochs
from aiokq.broker.log.meta_properties import MetaProperties
from aiokq.broker.log.partition_metadata import write_partition_metadata
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.controller.registration import stop_records
from aiokq.broker.metadata.earlier.private_file import PRIVATE_FILE
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog, LogLimits
from aiokq.broker.metadata.log.metadata_reader import MetadataReader
from aiokq.broker.metadata.start.metadata_reading import read_metadata
from aiokq.broker.metadata.start.metadata_start import NodeRegistration, open_metadata
from aiokq.core.clock import SystemClock
from aiokq.fastpath import crc32c
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.quorum_records import VotersRecordEndpoint
from tests.sim.harness.files import MemoryFiles

NODE = 3
A, B = "/a", "/b"
IDS = {A: uuid.UUID(int=0xA00), B: uuid.UUID(int=0xB00)}
HEADER = "aiokq metadata log, version 1"
LOG = f"{A}/__cluster_metadata-0"

Record = Mapping[str, Any]


def topic_id(number: int) -> uuid.UUID:
    return uuid.UUID(int=1000 + number)


def line(text: str) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(text.encode()), text.encode())


def private(*appends: Record | Sequence[Record]) -> bytes:
    """Return the content of a private metadata file."""
    return b"".join(map(line, (HEADER, *map(json.dumps, appends))))


def topic(number: int, partitions: int = 1, **more: Any) -> Record:
    ids = {"name": f"t{number}", "topic_id": str(topic_id(number))}
    return {"type": "topic", **ids, "partitions": partitions, **more}


def deleted(number: int) -> Record:
    return {"type": "topic-deleted", "name": f"t{number}", "topic_id": str(topic_id(number))}


def producer_ids(next_producer_id: int) -> Record:
    return {"type": "producer-ids", "next_producer_id": next_producer_id}


def group(group_id: str, **configs: str) -> Record:
    return {"type": "group", "group_id": group_id, "configs": configs}


def unclean_start(count: int) -> Record:
    return {"type": "unclean-start", "unclean_starts": count}


def known_directories(*paths: str) -> Record:
    return {"type": "directories", "directories": {format_uuid(IDS[one]): one for one in paths}}


def taken_over(end_offset: int, *numbers: int) -> Record:
    ids = [format_uuid(topic_id(number)) for number in numbers]
    return {"type": "kafka", "end_offset": end_offset, "epoch": 1, "topic_ids": ids}


@dataclass
class Old:
    """The directories of a node.

    Attributes:
        copies: by path, the content of the private file.
        logs: by path, the partitions, "topic number-partition", and the latest leader epoch of
            each.
        clean: whether the node was stopped cleanly.
    """

    copies: Mapping[str, bytes]
    logs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    clean: bool = True

    def write(self, files: MemoryFiles) -> None:
        for path, content in self.copies.items():
            files.mkdirs(path)
            ids = MetaProperties("c", NODE, format_uuid(IDS[path]))
            files.write_atomic(f"{path}/meta.properties", ids.encode())
            files.write_atomic(f"{path}/{PRIVATE_FILE}", content)
            for name, epoch in self.logs.get(path, {}).items():
                write_log(files, path, name, epoch)
            if self.clean:
                files.write_atomic(f"{path}/.kafka_cleanshutdown", b'{"version":0}')
            files.sync_dir(path)


def write_log(files: MemoryFiles, path: str, name: str, epoch: int) -> None:
    """Write the log of a partition with one record, durably."""
    number, _, index = name.partition("-")
    directory = f"{path}/t{number}-{index}"
    files.mkdirs(directory)
    files.sync_dir(path)
    batch = encode_batch(
        [RawRecord(0, 5, None, b"value")], crc32c=crc32c, base_offset=0, leader_epoch=epoch
    )
    files.write_atomic(f"{directory}/{0:020d}.log", batch)
    write_partition_metadata(files, directory, topic_id(int(number)))
    epochs = LeaderEpochs(files, f"{directory}/leader-epoch-checkpoint")
    epochs.note(epoch, 0)
    epochs.write()
    for one in ("partition.metadata", "leader-epoch-checkpoint"):
        opened = files.open(f"{directory}/{one}")
        opened.sync()
        opened.close()
    files.sync_dir(directory)


def disk(old: Old | None = None) -> MemoryFiles:
    files = MemoryFiles()
    if old is not None:
        old.write(files)
    return files


@contextlib.contextmanager
def started(
    files: MemoryFiles, paths: Sequence[str] = (A,), *, seed: int = 0, dynamic: bool = False
) -> Iterator[ClusterMetadataLog]:
    """Start the metadata of a node on its directories; release them at the end."""
    source = random.Random(seed)
    directories = LogDirectories.open(
        files, paths, crc32c=crc32c, random=source, now=lambda: 0.0, node_id=NODE
    )
    registration = NodeRegistration(
        endpoints=[],
        controller_endpoints=[],
        rack=None,
        min_insync_replicas=1,
        voter=VotersRecordEndpoint(name="C", host="h", port=1) if dynamic else None,
    )
    log: ClusterMetadataLog | None = None
    try:
        start = open_metadata(
            files,
            directories,
            registration,
            state=read_metadata(files, directories.metadata),
            listed=directories.list_partitions(),
            clock=SystemClock(),
            random=source,
            limits=LogLimits(),
        )
        log = start.log
        start.look_for_missing()
        start.lead(registration)
        yield log
    finally:
        if log is not None:
            log.close(clean=False)
        directories.close_unused()


def start_and_stop(files: MemoryFiles, paths: Sequence[str] = (A,), *, seed: int = 0) -> None:
    """Start the metadata of a node, and stop it cleanly."""
    with started(files, paths, seed=seed) as log:
        log.append(*stop_records(log.image, NODE))
        log.close()
    for path in paths:
        files.write_atomic(f"{path}/.kafka_cleanshutdown", b'{"version":0}')


def image(files: MemoryFiles, directory: str = LOG) -> MetadataImage:
    return MetadataReader(files, directory, crc32c).read().image


def describe(found: MetadataImage) -> dict[str, Any]:
    """Return what a migration must keep."""
    names = {directory_id: path for path, directory_id in IDS.items()}
    return {
        "topics": {
            found_topic.name: {
                "id": found_topic.topic_id.int - 1000,
                "configs": dict(found.topic_configs(found_topic.name)),
                "partitions": [
                    (one.leader, one.leader_epoch, *(names.get(d) for d in one.directories))
                    for one in found_topic.partitions
                ],
            }
            for found_topic in found.topics.values()
        },
        "groups": {name: dict(configs) for name, configs in found.group_configs().items()},
        "next_producer_id": found.next_producer_id,
    }
