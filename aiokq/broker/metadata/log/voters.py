"""The record of the voters of a quorum of one node, for a log with ``kraft.version`` 1.

Source: KIP-853. Tests: ``tests/unit/broker/metadata/stopped_broker/test_formatting.py``.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.metadata.image.features import FEATURES, KRAFT_VERSION
from aiokq.broker.metadata.log.snapshot_file import SnapshotId, snapshot_path, write_snapshot
from aiokq.wire.quorum_records import (
    KRaftVersionFeature,
    VotersRecord,
    VotersRecordEndpoint,
    VotersRecordVoter,
)

if TYPE_CHECKING:
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum

__all__ = ["FIRST_SNAPSHOT", "make_directory", "only_voter", "write_voters"]

FIRST_SNAPSHOT: Final = SnapshotId(0, 0)
"""The id of the snapshot with the voters of a new quorum, written before the first record."""


def only_voter(
    node_id: int, directory_id: uuid.UUID, endpoints: Sequence[VotersRecordEndpoint]
) -> VotersRecord:
    """Return the record of a quorum with one voter.

    Args:
        node_id, directory_id: ids of the voter and of its metadata log directory.
        endpoints: the addresses of the voter's listeners for controllers.
    """
    voter = VotersRecordVoter(
        voter_id=node_id,
        voter_directory_id=directory_id,
        endpoints=list(endpoints),
        k_raft_version_feature=KRaftVersionFeature(
            min_supported_version=0, max_supported_version=FEATURES[KRAFT_VERSION].maximum
        ),
    )
    return VotersRecord(voters=[voter])


def write_voters(
    files: Files, path: str, voters: VotersRecord, *, timestamp_ms: int, crc32c: Checksum
) -> None:
    """Write the first metadata snapshot of a log directory; it records the voters.

    Raises:
        OSError: the disk failed.
    """
    directory = f"{path}/{file_names.CLUSTER_METADATA}"
    make_directory(files, directory)
    write_snapshot(
        files,
        snapshot_path(directory, FIRST_SNAPSHOT),
        (),
        epoch=FIRST_SNAPSHOT.epoch,
        timestamp_ms=timestamp_ms,
        last_contained_ms=timestamp_ms,
        crc32c=crc32c,
        voters=voters,
    )


def make_directory(files: Files, path: str) -> None:
    """Create a directory and its parents durably."""
    path = posixpath.normpath(path)
    made = [path]  # an interrupted call may have created it without making it durable
    while not files.exists(posixpath.dirname(made[-1]) or "."):
        made.append(posixpath.dirname(made[-1]))
    files.mkdirs(path)
    for one in reversed(made):
        with suppress(PermissionError):  # a parent need not be readable
            files.sync_dir(posixpath.dirname(one) or ".")
