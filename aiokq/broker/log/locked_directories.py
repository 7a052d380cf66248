"""The locks of a stopped broker's log directories, for commands that change the directories.

Tests: ``tests/unit/broker/metadata/stopped_broker/test_forgetting.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from aiokq.broker.log import file_names
from aiokq.broker.log.disk_trouble import unusable
from aiokq.broker.log.meta_properties import MetaProperties, decode_meta_properties
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.files import Files

__all__ = ["locked_directories"]


@contextmanager
def locked_directories(files: Files, paths: Sequence[str]) -> Iterator[list[MetaProperties]]:
    """Hold the locks of one node's log directories in a ``with`` block; yield the ids of each.

    Raises:
        ConfigError: a path is not a log directory, a ``meta.properties`` is invalid, or the
            directories belong to several nodes.
        KafkaStorage: a directory is in use, or the disk failed, here or in the block.
    """
    with ExitStack() as stack:
        for path in paths:
            try:
                # checked before the lock, which would create a missing directory
                if not files.exists(f"{path}/{file_names.META_PROPERTIES}"):
                    raise ConfigError(f"{path} is not a log directory: it has no meta.properties")
                lock = files.lock(f"{path}/{file_names.LOCK}")
            except BlockingIOError as error:
                raise KafkaStorage(
                    f"log directory {path} is in use: stop the broker that uses it"
                ) from error
            except OSError as error:
                raise unusable(path, error) from error
            stack.callback(lock.release)
        try:
            ids = [_ids(files, path) for path in paths]
            if len({(one.cluster_id, one.node_id) for one in ids}) > 1:
                raise ConfigError(
                    "the log directories belong to several nodes: name the directories of one "
                    "node only"
                )
            yield ids
        except OSError as error:
            raise unusable(_directory_of(error, paths), error) from error


def _directory_of(error: OSError, paths: Sequence[str]) -> str:
    """Return the log directory that an error is about; the first directory if none matches."""
    file = str(error.filename)
    return next((path for path in paths if f"{file}/".startswith(f"{path}/")), paths[0])


def _ids(files: Files, path: str) -> MetaProperties:
    file = f"{path}/{file_names.META_PROPERTIES}"
    return decode_meta_properties(files.read_bytes(file), file)
