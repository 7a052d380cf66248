"""Names of the files and directories in a log directory.

Source: Kafka ``LogFileUtils.java``, ``UnifiedLog.java``.
"""

from __future__ import annotations

import re
from typing import Final

from aiokq.core.types import TopicPartition

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TEMPORARY: Final = ".tmp"
TEMPORARY_SUFFIXES: Final = (DELETED, CLEANED, SWAP, TEMPORARY)
"""Suffixes of files that a crash may leave; the next start renames or removes the files."""

CORRUPT: Final = ".corrupt-"
"""Suffix of a file with bytes that were removed from a damaged log.

The suffix follows the name of the original file, and is followed by the position of the bytes in
the original file.
"""

DELETED_DIRECTORY: Final = "-delete"
FUTURE_DIRECTORY: Final = "-future"
STRAY_DIRECTORY: Final = "-stray"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLUSTER_METADATA: Final = "__cluster_metadata-0"
"""The directory of the metadata log, which belongs to no topic."""

PRIVATE_FILE: Final = "aiokq-metadata.log"
"""The metadata file of earlier versions of aiokq."""

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"

MAX_NAME: Final = 255
"""The maximum number of bytes in a file name on common file systems."""

_BASE_DIGITS: Final = 20
_STRAY: Final = r"^.+-(\d+)\.[0-9a-f]{32}-stray$"


def segment_file(directory: str, base_offset: int, suffix: str) -> str:
    """Return the path of a segment's file: 20 digits of the base offset, then the suffix."""
    return f"{directory}/{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Return the base offset and suffix of a segment's file name; None for other names."""
    # Hot path, called for each file of each partition at a start; measured by
    # benchmarks/log_startup.py.
    base, suffix = name[:_BASE_DIGITS], name[_BASE_DIGITS:]
    if len(suffix) < 2 or suffix[0] != "." or not base.isascii() or not base.isdigit():
        return None
    return int(base), suffix


def partition_directory(partition: TopicPartition) -> str:
    """Return the name of a partition's directory, ``<topic>-<n>``."""
    return f"{partition.topic}-{partition.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """Return the partition that a directory is named after.

    Returns None for other names, and for the directory of the metadata log.
    """
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit():
        return None
    if name == CLUSTER_METADATA:
        return None
    if number != str(int(number)):
        return None
    return TopicPartition(topic, int(number))


def parse_stray_directory(name: str) -> int | None:
    """Return the partition number of a directory that was set aside; None for other names.

    The topic name is not returned, because a long topic name is shortened in the directory name.
    """
    match = re.match(_STRAY, name) if name.endswith(STRAY_DIRECTORY) else None
    return None if match is None else int(match[1])


def renamed_directory(partition: TopicPartition, unique: str, suffix: str) -> str:
    """Return a new name for a partition's directory; a long topic name is shortened to fit.

    Args:
        suffix: DELETED_DIRECTORY for a deleted partition, STRAY_DIRECTORY for a directory that is
            set aside.
    """
    ending = f"-{partition.partition}.{unique}{suffix}"
    return partition.topic[: MAX_NAME - len(ending)] + ending
