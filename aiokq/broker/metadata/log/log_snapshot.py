"""The state of the metadata log at one offset, and the writing of this state as a snapshot.

`cluster_metadata_log` captures the state and removes the parts of the log that the snapshot
replaces. `snapshot_file` has the format of the file.

Tests: ``tests/unit/broker/metadata/log/test_log_snapshot.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from aiokq.broker.metadata.image.record_codec import encode_metadata_record, record_version
from aiokq.broker.metadata.log.snapshot_file import SnapshotId, snapshot_path, write_snapshot
from aiokq.core.errors import Closed
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum
    from aiokq.wire.quorum_records import VotersRecord

__all__ = ["LogSnapshot", "write_log_snapshot"]


@frozen
class LogSnapshot:
    """The state of a metadata log at one offset.

    Attributes:
        id: end offset and epoch of the log.
        image: the state; nothing changes it until the snapshot is written.
        last_ms: timestamp of the last record.
        voters: the voters of the quorum with ``kraft.version`` 1; None with ``kraft.version`` 0.
        log_bytes: bytes of the log between the previous snapshot and this one.
    """

    id: SnapshotId
    image: MetadataImage
    last_ms: int
    voters: VotersRecord | None
    log_bytes: int


def write_log_snapshot(
    files: Files,
    directory: str,
    snapshot: LogSnapshot,
    *,
    timestamp_ms: int,
    crc32c: Checksum,
    is_abandoned: Callable[[], bool],
) -> None:
    """Write a snapshot file; it is durable on return.

    Args:
        directory: path of ``__cluster_metadata-0``.
        timestamp_ms: the present time.
        is_abandoned: returns whether to stop writing; called before each record.

    Raises:
        Closed: the snapshot was abandoned; no file is left.
        UnsupportedVersion, RecordTooLarge: a record cannot be written.
        OSError: the disk failed; see `write_snapshot`.
    """
    level = snapshot.image.metadata_version
    assert level is not None

    def values() -> Iterator[bytes]:
        for record in snapshot.image.records():
            if is_abandoned():
                raise Closed(f"the snapshot of {directory} was abandoned")
            yield encode_metadata_record(record, record_version(record, level))

    write_snapshot(
        files,
        snapshot_path(directory, snapshot.id),
        values(),
        epoch=snapshot.id.epoch,
        timestamp_ms=timestamp_ms,
        last_contained_ms=snapshot.last_ms,
        crc32c=crc32c,
        voters=snapshot.voters,
    )
