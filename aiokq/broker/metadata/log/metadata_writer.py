"""Writes a new metadata log that begins with a given image.

Two callers write such a log into a directory without a metadata log: the migration of the metadata
file of an earlier version of aiokq, and the snapshot of a running cluster.

Source: KIP-630. Tests: ``tests/unit/broker/metadata/log/test_metadata_writer.py``.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.partition_metadata import write_partition_metadata
from aiokq.broker.metadata.image.record_codec import encode_metadata_record, record_version
from aiokq.broker.metadata.log.log_opening import METADATA_PARTITION, METADATA_TOPIC_ID
from aiokq.broker.metadata.log.quorum_state import QuorumState, write_quorum_state
from aiokq.broker.metadata.log.snapshot_file import SnapshotId, snapshot_path, write_snapshot

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum
    from aiokq.wire.quorum_records import VotersRecord

__all__ = ["write_metadata_log"]


def write_metadata_log(
    files: Files,
    log_directory: str,
    image: MetadataImage,
    *,
    snapshot: SnapshotId,
    node_id: int,
    voters: VotersRecord | None,
    timestamp_ms: int,
    temporary_id: uuid.UUID,
    crc32c: Checksum,
) -> None:
    """Write ``__cluster_metadata-0`` with one snapshot, from which the next start continues.

    The directory is first written under the name of a deleted log, and is renamed when it is
    durable. At a start, this broker and Apache Kafka remove deleted logs, so that after a kill the
    directory exists completely or not at all.

    Args:
        log_directory: the log directory, which must not have a metadata log.
        image: the metadata; its ``metadata.version`` must be set.
        snapshot: end offset and epoch of the log.
        node_id: id of the only voter; with ``kraft.version`` 0, ``quorum-state`` names it.
        voters: the only voter, with ``kraft.version`` 1; None for ``kraft.version`` 0.
        temporary_id: makes the temporary name unique.

    Raises:
        UnsupportedVersion: a record of the image does not exist in its ``metadata.version``.
        OSError: the disk failed.
    """
    level = image.metadata_version
    assert level is not None
    name = file_names.partition_directory(METADATA_PARTITION)
    temporary = f"{log_directory}/{name}.{temporary_id.hex}{file_names.DELETED_DIRECTORY}"
    files.mkdirs(temporary)
    write_snapshot(
        files,
        snapshot_path(temporary, snapshot),
        (
            encode_metadata_record(record, record_version(record, level))
            for record in image.records()
        ),
        epoch=snapshot.epoch,
        timestamp_ms=timestamp_ms,
        last_contained_ms=timestamp_ms,
        voters=voters,
        crc32c=crc32c,
    )
    dynamic = voters is not None
    write_quorum_state(
        files,
        temporary,
        QuorumState(
            epoch=snapshot.epoch,
            voters=() if dynamic else (node_id,),
            data_version=int(dynamic),
        ),
    )
    write_partition_metadata(files, temporary, METADATA_TOPIC_ID)
    files.sync_dir(temporary)
    files.rename(temporary, f"{log_directory}/{name}")
    files.sync_dir(log_directory)
