"""The metadata log of a stopped broker, for commands that read or change it.

Tests: ``tests/unit/broker/metadata/stopped_broker/test_forgetting.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.broker.log.disk_trouble import DiskTrouble
from aiokq.broker.log.open_files import OpenFiles
from aiokq.broker.metadata.earlier.private_file import MIGRATED_LINE, PRIVATE_FILE
from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog, LogLimits
from aiokq.broker.metadata.log.metadata_reader import MetadataReader, MetadataState
from aiokq.broker.metadata.log.quorum_state import read_quorum_state
from aiokq.broker.metadata.log.sole_voter import check_sole_voter
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.frozen import frozen
from aiokq.fastpath import crc32c
from aiokq.wire.fields import ZERO_UUID

if TYPE_CHECKING:
    from aiokq.broker.log.meta_properties import MetaProperties
    from aiokq.core.files import Files

__all__ = ["StoppedLog", "check_log_exists", "open_stopped_log", "read_stopped_log"]


@frozen
class StoppedLog:
    """The metadata log of a stopped broker, after it was read.

    Attributes:
        log_directory: path of the log directory that has the metadata log.
        properties: the ids of that directory.
        state: the content of the log.
    """

    log_directory: str
    properties: MetaProperties
    state: MetadataState

    @property
    def node_id(self) -> int:
        return self.properties.node_id

    @property
    def directory(self) -> str:
        """Path of ``__cluster_metadata-0``."""
        return f"{self.log_directory}/{file_names.CLUSTER_METADATA}"


def check_log_exists(reader: MetadataReader, path: str) -> None:
    """Raise ConfigError if a log directory, ``path``, has no metadata log."""
    if not reader.exists():
        raise ConfigError(
            f"{path} has no metadata log ({file_names.CLUSTER_METADATA}): name the directory "
            "in metadata.log.dir, by default the first one in log.dirs"
        )


def read_stopped_log(
    files: Files, paths: Sequence[str], ids: Sequence[MetaProperties]
) -> StoppedLog:
    """Read the metadata log of a node whose log directories are locked.

    Args:
        paths: the log directories.
        ids: their ids, in the same order.

    Raises:
        ConfigError: no directory has a metadata log, or the metadata file of an earlier version of
            aiokq was not migrated yet.
        KafkaStorage: two directories have a metadata log, or the log is damaged or was written by a
            newer Kafka.
        OSError: the disk failed.
    """
    readers = {
        path: MetadataReader(files, f"{path}/{file_names.CLUSTER_METADATA}", crc32c)
        for path in paths
    }
    for path in paths:
        file = f"{path}/{PRIVATE_FILE}"
        if files.exists(file) and files.read_bytes(file) != MIGRATED_LINE:
            raise ConfigError(
                f"{file} was written by an earlier version of aiokq: start and stop aiokq broker "
                "once, which moves it to __cluster_metadata-0"
            )
    found = [path for path in paths if readers[path].exists()]
    if len(found) > 1:
        raise KafkaStorage(
            f"{found[0]} and {found[1]} have a metadata log each: keep the one in "
            "metadata.log.dir, and move the other one away"
        )
    if not found:
        raise ConfigError(
            f"{paths[0]}/{file_names.CLUSTER_METADATA} is missing: name the log directory that "
            "has the metadata log, too (metadata.log.dir)"
        )
    return StoppedLog(found[0], ids[list(paths).index(found[0])], readers[found[0]].read())


@contextmanager
def open_stopped_log(
    files: Files, stopped: StoppedLog, *, now_ms: int
) -> Iterator[ClusterMetadataLog]:
    """Open the log of a stopped broker for appends, and close it after the ``with`` block.

    Raises:
        KafkaStorage: the node is not the only voter, ``quorum-state`` or the log is damaged, or the
            disk failed when the log was closed.
        OSError: the disk failed when the log was opened.
    """
    check_sole_voter(
        stopped.state,
        read_quorum_state(files, stopped.directory),
        directory=stopped.directory,
        node_id=stopped.node_id,
        directory_id=stopped.properties.directory_uuid or ZERO_UUID,
    )
    log = ClusterMetadataLog.open(
        files,
        stopped.directory,
        stopped.state,
        node_id=stopped.node_id,
        disk=DiskTrouble(time.monotonic, stopped.log_directory),
        open_files=OpenFiles(),
        clean=False,
        limits=LogLimits(),
        now_ms=lambda: now_ms,
        crc32c=crc32c,
    )
    try:
        yield log
    except BaseException:
        log.close(clean=False)
        raise
    log.close()
