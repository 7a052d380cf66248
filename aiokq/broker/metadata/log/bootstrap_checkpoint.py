"""``bootstrap.checkpoint``: the first records of a new metadata log.

The file is written when a log directory is formatted, or at a start if it is missing or damaged.
Its records are appended to an empty metadata log. Its format is that of a snapshot.

Source: Kafka ``BootstrapDirectory.java``, ``BatchFileWriter.java``, KIP-778.
Tests: ``tests/unit/broker/metadata/log/test_bootstrap_checkpoint.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.image.features import METADATA_VERSION
from aiokq.broker.metadata.image.record_codec import (
    UnknownMetadataRecord,
    decode_metadata_record,
    encode_metadata_record,
    record_version,
)
from aiokq.broker.metadata.log.snapshot_file import SnapshotReader, write_snapshot
from aiokq.core.errors import CorruptRecord, KafkaStorage
from aiokq.wire.cluster_metadata_records import FeatureLevelRecord

if TYPE_CHECKING:
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum
    from aiokq.wire.struct import Message

__all__ = ["BOOTSTRAP_CHECKPOINT", "read_bootstrap_checkpoint", "write_bootstrap_checkpoint"]

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"


def write_bootstrap_checkpoint(
    files: Files,
    directory: str,
    records: Iterable[Message],
    *,
    timestamp_ms: int,
    crc32c: Checksum,
) -> str:
    """Write or replace ``bootstrap.checkpoint`` in a log directory; return the path of the file.

    Args:
        records: the first one sets the metadata.version, which determines the version in which
            each record is written.
        timestamp_ms: the present time.

    Raises:
        UnsupportedVersion: a record does not exist in the metadata.version.
        OSError: the disk failed; the directory has the complete old file or the complete new one.
    """
    first, *others = records
    assert isinstance(first, FeatureLevelRecord)
    assert first.name == METADATA_VERSION
    level = first.feature_level
    path = f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    write_snapshot(
        files,
        path,
        [
            encode_metadata_record(record, record_version(record, level))
            for record in (first, *others)
        ],
        epoch=0,
        timestamp_ms=timestamp_ms,
        last_contained_ms=0,  # the snapshot contains no record of a log
        crc32c=crc32c,
        read_only=False,
    )
    return path


def read_bootstrap_checkpoint(
    files: Files, directory: str, crc32c: Checksum
) -> list[Message] | None:
    """Return the records of ``bootstrap.checkpoint`` in a log directory; None without this file.

    Raises:
        KafkaStorage: the file is damaged, or was written by a newer Kafka; the message says what to
            do.
        OSError: the disk failed.
    """
    path = f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    if not files.exists(path):
        return None
    try:
        with SnapshotReader(files, path, 0, crc32c) as reader:
            return [decode_metadata_record(value) for value in reader]
    except CorruptRecord as error:
        raise KafkaStorage(
            f"{error.message}: restore {path} from a copy, or format the log directory again"
        ) from error
    except UnknownMetadataRecord as error:
        raise KafkaStorage(
            f"{path}: {error.message}: use a newer aiokq, or format the log directory again"
        ) from error
