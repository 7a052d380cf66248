"""The check of the files of a metadata log, except its segments.

Tests: ``tests/unit/broker/inspection/test_metadata_checks.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.inspection.findings import Finding, Severity
from aiokq.broker.log import file_names
from aiokq.broker.metadata.image.record_codec import UnknownMetadataRecord, decode_metadata_record
from aiokq.broker.metadata.log.bootstrap_checkpoint import BOOTSTRAP_CHECKPOINT
from aiokq.broker.metadata.log.quorum_state import QUORUM_STATE, decode_quorum_state
from aiokq.broker.metadata.log.snapshot_file import SnapshotReader, list_snapshots, snapshot_path
from aiokq.core.errors import CorruptRecord

if TYPE_CHECKING:
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum

__all__ = ["check_metadata_files"]


def check_metadata_files(files: Files, root: str, crc32c: Checksum) -> list[Finding]:
    """Check the snapshots and ``quorum-state`` of a log directory, and ``bootstrap.checkpoint``.

    A damaged snapshot is an error even if a newer snapshot exists: the older snapshot is needed if
    the newer one is damaged later.

    Raises:
        OSError: a file cannot be read.
    """
    findings: list[Finding] = []
    bootstrap = f"{root}/{BOOTSTRAP_CHECKPOINT}"
    if files.exists(bootstrap):
        _snapshot(files, bootstrap, 0, crc32c, findings)
    directory = f"{root}/{file_names.CLUSTER_METADATA}"
    if not files.is_dir(directory):
        return findings
    for snapshot in list_snapshots(files, directory):
        path = snapshot_path(directory, snapshot)
        _snapshot(files, path, snapshot.epoch, crc32c, findings)
    path = f"{directory}/{QUORUM_STATE}"
    if files.exists(path):
        try:
            decode_quorum_state(files.read_bytes(path))
        except FileNotFoundError:
            pass  # replaced during the check
        except CorruptRecord as error:
            findings.append(Finding(Severity.ERROR, path, None, error.message))
    return findings


def _snapshot(
    files: Files, path: str, epoch: int, crc32c: Checksum, findings: list[Finding]
) -> None:
    try:
        with SnapshotReader(files, path, epoch, crc32c) as reader:
            for value in reader:
                decode_metadata_record(value)
    except FileNotFoundError:
        pass  # removed by the broker during the check
    except (CorruptRecord, UnknownMetadataRecord) as error:
        findings.append(Finding(Severity.ERROR, path, None, error.message))
