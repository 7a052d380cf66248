"""Opens the files of the metadata log, repairs them after a kill, and writes the new epoch.

`cluster_metadata_log` appends to the log that is opened here.

Tests: ``tests/unit/broker/metadata/log/test_cluster_metadata_log.py``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiokq.broker.log.config import INT_MAX, LogConfig
from aiokq.broker.log.partition_metadata import read_partition_metadata, write_partition_metadata
from aiokq.broker.log.recovery import open_log
from aiokq.broker.metadata.log.epoch_rules import drop_wrong_epochs
from aiokq.broker.metadata.log.lost_records import note_lost_records
from aiokq.broker.metadata.log.quorum_state import QuorumState, overwrite_quorum_state
from aiokq.broker.metadata.log.snapshot_file import READ_ONLY, remove_unfinished_snapshots
from aiokq.core.errors import CorruptRecord, KafkaStorage
from aiokq.core.files import OWNER_ONLY
from aiokq.core.types import TopicPartition

if TYPE_CHECKING:
    from aiokq.broker.log.disk_trouble import DiskTrouble
    from aiokq.broker.log.open_files import OpenFiles
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.broker.metadata.log.metadata_reader import MetadataState, TornTail
    from aiokq.core.files import Files
    from aiokq.records.header import Checksum

__all__ = [
    "METADATA_PARTITION",
    "METADATA_TOPIC_ID",
    "next_epoch",
    "make_private",
    "open_log_files",
    "write_epoch",
]

logger = logging.getLogger("aiokq.broker")

METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
METADATA_TOPIC_ID: Final = uuid.UUID(int=1)


def next_epoch(directory: str, state: MetadataState, known: QuorumState | None) -> int:
    """Return the epoch after the newest epoch in the log and in ``quorum-state``.

    Args:
        known: the content of ``quorum-state``; None if the file is missing.

    Raises:
        KafkaStorage: the newest epoch is the largest that Kafka allows.
    """
    epoch = max(state.epoch, known.epoch if known is not None else 0) + 1
    if epoch > INT_MAX:
        raise KafkaStorage(
            f"{directory} is in the last epoch of a quorum, {INT_MAX}: no leader can follow. "
            "Restore quorum-state and the log from a copy"
        )
    return epoch


def make_private(files: Files, directory: str, names: Sequence[str]) -> None:
    """Let only the owner read the files, because they contain credentials or other secrets.

    Apache Kafka and earlier versions of aiokq create the files with all permissions that the umask
    allows.

    Raises:
        OSError: the disk failed.
    """
    for name in names:
        path = f"{directory}/{name}"
        mode = READ_ONLY if name.endswith(".checkpoint") else OWNER_ONLY
        # A process that may write to a file but does not own it cannot change the permissions.
        with suppress(PermissionError):
            if not files.is_dir(path):
                files.chmod(path, mode)


def open_log_files(
    files: Files,
    directory: str,
    state: MetadataState,
    *,
    disk: DiskTrouble,
    open_files: OpenFiles,
    clean: bool,
    segment_bytes: int,
    now_ms: int,
    crc32c: Checksum,
) -> PartitionLog:
    """Remove incomplete files and bytes that a kill left, and open the log, or create it.

    After an unclean shutdown, damaged segments that the newest snapshot has replaced are set aside.
    A wrong ``partition.metadata`` or ``leader-epoch-checkpoint`` is corrected. If the torn tail may
    have been acknowledged, ``aiokq-lost-metadata`` is written.

    Args:
        state: what was read from the directory; its torn tail is cut off.
        clean: whether the last shutdown was clean, so that the indexes need no check.

    Raises:
        KafkaStorage: the log does not end where ``state`` ends.
        OSError: the disk failed.
    """
    files = files.private()  # the records contain credentials
    files.mkdirs(directory)
    if state.torn is not None:
        if clean or state.torn.may_be_durable:
            note_lost_records(files, directory.rpartition("/")[0])
        _cut_off(files, state.torn)
    remove_unfinished_snapshots(files, directory)
    if state.snapshot is not None and not clean:
        from aiokq.broker.metadata.log.covered_segments import set_damaged_aside

        end_offset = state.snapshot.end_offset
        set_damaged_aside(files, directory, METADATA_PARTITION, end_offset, crc32c)
    _write_topic_id(files, directory)
    if drop_wrong_epochs(
        files, directory, state.epochs, start=state.start_offset, end=state.end_offset
    ):
        logger.warning("leader epochs contradict the metadata log, rebuilding path=%s", directory)
    log = open_log(
        files,
        directory,
        METADATA_PARTITION,
        config=LogConfig(segment_bytes=segment_bytes, retention_ms=-1),
        crc32c=crc32c,
        now_ms=now_ms,
        disk=disk,
        open_files=open_files,
        clean=clean and state.torn is None,
        log_start_offset=state.start_offset,
        high_watermark=state.end_offset,
    )
    end_offset = log.log_end_offset
    if end_offset != state.end_offset:
        log.close(clean=False)
        raise KafkaStorage(
            f"{directory} ends at offset {end_offset}, but its records at "
            f"{state.end_offset}: another process may use the directory"
        )
    return log


def _write_topic_id(files: Files, directory: str) -> None:
    """Write ``partition.metadata`` if it is missing or has a wrong id, which Kafka would refuse."""
    try:
        known = read_partition_metadata(files, directory)
    except CorruptRecord:  # a power cut may leave a part of the file
        known = None
    if known not in (None, METADATA_TOPIC_ID):
        logger.warning(
            "topic id of the metadata log was wrong, writing it again path=%s", directory
        )
    if known != METADATA_TOPIC_ID:
        write_partition_metadata(files, directory, METADATA_TOPIC_ID)


def _cut_off(files: Files, torn: TornTail) -> None:
    """Cut the torn tail off the newest segment, durably."""
    logger.warning(
        "incomplete end of the metadata log cut off file=%s position=%d bytes=%d offset=%d "
        "reason=%r",
        torn.path,
        torn.position,
        torn.size,
        torn.offset,
        torn.reason,
    )
    file = files.open(torn.path)
    try:
        file.truncate(torn.position)
        file.sync()
    finally:
        file.close()


def write_epoch(
    files: Files,
    directory: str,
    state: MetadataState,
    node_id: int,
    epoch: int,
    *,
    names_durable: bool,
) -> None:
    """Write to ``quorum-state`` that this node leads a new epoch.

    The new state need not be durable, because this node is the only voter: nobody learns of the
    epoch before its first record is durable, and from then on the log has the epoch. `next_epoch`
    and Apache Kafka (``QuorumState.initialize``) continue from the log if its epoch is higher than
    that of ``quorum-state``. If a power cut leaves the old state and none of the records, nobody
    knows of the epoch, and the next start may use the same epoch.

    Args:
        names_durable: whether the names of all files in the directory are durable; if not, this
            call makes them durable.

    Raises:
        OSError: the disk failed.
    """
    dynamic = state.kraft_version >= 1
    voters = () if dynamic else (node_id,)
    new = QuorumState(epoch=epoch, leader_id=node_id, voters=voters, data_version=int(dynamic))
    overwrite_quorum_state(files, directory, new, in_place=names_durable)
