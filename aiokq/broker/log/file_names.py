"""Owns the names of files and directories in a log directory; opens none.

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
"""Of files that a crash leaves and the next start finishes or removes."""

CORRUPT: Final = ".corrupt-"
"""Before the position from which recovery moved bytes out of a ``.log``."""

DELETED_DIRECTORY: Final = "-delete"
FUTURE_DIRECTORY: Final = "-future"
STRAY_DIRECTORY: Final = "-stray"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLUSTER_METADATA: Final = "__cluster_metadata-0"
"""Apache Kafka's own metadata log: a directory, but no topic's."""

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"

MAX_NAME: Final = 255
"""Bytes a file name may have on the file systems in use."""

_BASE: Final = re.compile(r"^(\d{20})(\..+)$")
_STRAY: Final = re.compile(r"^.+-(\d+)\.[0-9a-f]{32}-stray$")


def segment_file(directory: str, base_offset: int, suffix: str) -> str:
    """Path of a segment's file: 20 digits of its first offset, then the suffix."""
    return f"{directory}/{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Base offset and suffix in a file's name; None if it is no segment's."""
    match = _BASE.match(name)
    return None if match is None else (int(match[1]), match[2])


def partition_directory(partition: TopicPartition) -> str:
    """Name of the directory of a partition, ``<topic>-<n>``."""
    return f"{partition.topic}-{partition.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition a directory is of; None for any other name, ``-delete`` and the like."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit():
        return None
    if name == CLUSTER_METADATA:
        return None
    if number != str(int(number)):
        return None
    return TopicPartition(topic, int(number))


def parse_stray_directory(name: str) -> int | None:
    """The partition number of a directory that was set aside; None for any other name.

    The topic's name is not told: a long one was cut.
    """
    match = _STRAY.match(name)
    return None if match is None else int(match[1])


def renamed_directory(partition: TopicPartition, unique: str, suffix: str) -> str:
    """What a partition's directory is renamed to; a long topic name is cut to fit.

    Args:
        suffix: DELETED_DIRECTORY for one to be removed, STRAY_DIRECTORY for one nobody knows.
    """
    ending = f"-{partition.partition}.{unique}{suffix}"
    return partition.topic[: MAX_NAME - len(ending)] + ending
