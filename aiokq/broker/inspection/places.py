"""The files of a log directory, found by their names.

No file is opened or changed: the directory may be in use by a broker.

Tests: ``tests/unit/broker/inspection/test_inspection.py``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.metadata.earlier.private_file import PRIVATE_FILE
from aiokq.broker.metadata.log.bootstrap_checkpoint import BOOTSTRAP_CHECKPOINT
from aiokq.broker.metadata.log.quorum_state import QUORUM_STATE
from aiokq.broker.metadata.log.snapshot_file import parse_snapshot
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.core.files import Files
    from aiokq.core.types import TopicPartition

__all__ = ["CHECKPOINTS", "LogFile", "PartitionPlace", "files_at", "partitions_at"]

CHECKPOINTS: Final = (
    file_names.RECOVERY_POINTS,
    file_names.HIGH_WATERMARKS,
    file_names.LOG_STARTS,
    file_names.CLEANED_OFFSETS,
)

_BY_SUFFIX: Final = {
    file_names.LOG: "log",
    file_names.INDEX: "index",
    file_names.TIME_INDEX: "timeindex",
    file_names.TXN_INDEX: "txnindex",
    file_names.SNAPSHOT: "snapshot",
}
_BY_NAME: Final = {
    file_names.LEADER_EPOCHS: "epochs",
    file_names.PARTITION_METADATA: "partition.metadata",
    file_names.META_PROPERTIES: "meta.properties",
    QUORUM_STATE: "quorum-state",
    BOOTSTRAP_CHECKPOINT: "metadata-snapshot",
    PRIVATE_FILE: "metadata",
    **dict.fromkeys(CHECKPOINTS, "checkpoint"),
}


class LogFile(NamedTuple):
    """A file of a log directory.

    Attributes:
        kind: `log`, `index`, `timeindex`, `txnindex`, `snapshot`, `epochs`, `partition.metadata`,
            `meta.properties`, `metadata`, `metadata-snapshot`, `quorum-state`, `checkpoint`, or
            `leftover` of an interrupted operation.
        base_offset: the base offset in the name of a segment's file, or the end offset in the name
            of a metadata snapshot; -1 for other files.
    """

    path: str
    kind: str
    base_offset: int = -1

    @property
    def has_metadata(self) -> bool:
        """Whether the records in the file, if it has any, are those of a metadata log."""
        directory = posixpath.basename(posixpath.dirname(self.path))
        return self.kind == "metadata-snapshot" or directory.startswith(file_names.CLUSTER_METADATA)

    @property
    def has_transactions(self) -> bool:
        """Whether the records in the file, if it has any, are those of `__transaction_state`."""
        return is_transaction_log(self.path)


def is_transaction_log(path: str) -> bool:
    """Return whether a segment's file is in a directory of `__transaction_state`."""
    directory = posixpath.basename(posixpath.dirname(path))
    return directory.startswith("__transaction_state-")


class PartitionPlace(NamedTuple):
    """The directory of a partition, of the metadata log, or of a stray or future log.

    `partition` is None if the name of the directory is not that of a partition.
    """

    path: str
    partition: TopicPartition | None


def partitions_at(files: Files, path: str) -> list[PartitionPlace]:
    """Return the directories of logs in a log directory, or `path` itself if it has segments."""
    if any(file_names.parse_segment_file(name) for name in files.listdir(path)):
        return [
            PartitionPlace(path, file_names.parse_partition_directory(posixpath.basename(path)))
        ]
    found = []
    for name in files.listdir(path):
        directory = f"{path}/{name}"
        if files.is_dir(directory):
            partition = file_names.parse_partition_directory(name)
            set_aside = name.endswith((file_names.STRAY_DIRECTORY, file_names.FUTURE_DIRECTORY))
            if partition is not None or set_aside or name == file_names.CLUSTER_METADATA:
                found.append(PartitionPlace(directory, partition))
    return found


def files_at(files: Files, path: str) -> Iterator[LogFile]:
    """Yield the files of logs at a path: a file, a partition directory or a log directory.

    The files of a log directory itself come before the files of its partitions. A partition's files
    are ordered by segment. Files of unknown kinds in a directory are left out. If `path` is a file,
    it is always yielded. Its kind is `log` if its name is unknown or is that of a leftover of a
    ``.log``, such as ``.log.deleted``.
    """
    if not files.is_dir(path):
        file = _file(path) or LogFile(path, "log")
        segment, log, _ = posixpath.basename(path).partition(file_names.LOG)
        parsed = file_names.parse_segment_file(segment + log)
        if file.kind == "leftover" and parsed is not None:
            file = LogFile(path, "log", parsed[0])
        yield file
        return
    inside = [_file(f"{path}/{name}") for name in files.listdir(path)]
    for file in sorted(filter(None, inside), key=_order):
        if not files.is_dir(file.path):
            yield file
    for place in partitions_at(files, path):
        if place.path != path:
            yield from files_at(files, place.path)


def _file(path: str) -> LogFile | None:
    name = posixpath.basename(path)
    if name in _BY_NAME:
        return LogFile(path, _BY_NAME[name])
    parsed = file_names.parse_segment_file(name)
    if parsed is not None and parsed[1] in _BY_SUFFIX:
        return LogFile(path, _BY_SUFFIX[parsed[1]], parsed[0])
    snapshot = parse_snapshot(name)
    if snapshot is not None:
        return LogFile(path, "metadata-snapshot", snapshot.end_offset)
    if name.endswith(file_names.TEMPORARY_SUFFIXES) or file_names.CORRUPT in name:
        return LogFile(path, "leftover")
    return None


def _order(file: LogFile) -> tuple[int, int]:
    kinds = list(_BY_SUFFIX.values())
    return file.base_offset, kinds.index(file.kind) if file.kind in kinds else -1
