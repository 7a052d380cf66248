"""Encodes metadata records into batches of the metadata log.

Tests: ``tests/unit/broker/metadata/log/test_cluster_metadata_log.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokq.broker.metadata.image.record_codec import encode_metadata_record, record_version
from aiokq.broker.metadata.image.records import METADATA_VERSION
from aiokq.broker.metadata.log.snapshot_file import MAX_BATCH_BYTES, RECORD_OVERHEAD
from aiokq.core.errors import RecordTooLarge
from aiokq.records.header import HEADER_SIZE, Checksum
from aiokq.records.record import RawRecord, encode_batch
from aiokq.wire.cluster_metadata_records import FeatureLevelRecord

if TYPE_CHECKING:
    from aiokq.wire.struct import Message

__all__ = ["encode_metadata_batches"]


def encode_metadata_batches(
    records: Iterable[Message],
    *,
    level: int | None,
    leader_epoch: int,
    timestamp_ms: int,
    crc32c: Checksum,
) -> list[bytes]:
    """Encode records into batches of at most 8 MiB; offsets begin at 0 in each batch.

    Args:
        level: level of ``metadata.version``; None for a new log, whose first records set it.

    Raises:
        UnsupportedVersion: a record does not exist in the ``metadata.version``.
        RecordTooLarge: a record does not fit in a batch.
    """
    batches: list[bytes] = []
    some: list[RawRecord] = []
    size = HEADER_SIZE

    def finish() -> None:
        if some:
            batches.append(
                encode_batch(some, crc32c=crc32c, base_offset=0, leader_epoch=leader_epoch)
            )

    for record in records:
        if (
            level is None
            and isinstance(record, FeatureLevelRecord)
            and record.name == METADATA_VERSION
        ):
            level = record.feature_level
        version = record.MAX_VERSION if level is None else record_version(record, level)
        value = encode_metadata_record(record, version)
        needed = len(value) + RECORD_OVERHEAD
        if HEADER_SIZE + needed > MAX_BATCH_BYTES:
            raise RecordTooLarge(f"a metadata record of {len(value)} bytes fits in no batch")
        if size + needed > MAX_BATCH_BYTES:
            finish()
            some, size = [], HEADER_SIZE
        some.append(RawRecord(len(some), timestamp_ms, None, value))
        size += needed
    finish()
    return batches
