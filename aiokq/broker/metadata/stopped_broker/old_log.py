"""Copies the metadata log to a stray directory before an adoption, and removes the log afterwards.

Tests: ``tests/unit/broker/metadata/stopped_broker/test_adoption.py``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiokq.broker.log import file_names
from aiokq.broker.log.meta_properties import random_id
from aiokq.broker.log.partition_metadata import write_partition_metadata
from aiokq.broker.metadata.log.log_opening import METADATA_TOPIC_ID
from aiokq.broker.metadata.log.quorum_state import QUORUM_STATE

if TYPE_CHECKING:
    from random import Random

    from aiokq.core.files import Files

__all__ = ["keep_old_log", "remove_old_log"]

ASIDE: Final = ".before-adoption"
"""Part of the name of the old log's copy, before the suffix of a stray directory."""

CHECKPOINT: Final = ".checkpoint"
"""Suffix of the file name of a snapshot."""

COPIED_BYTES: Final = 1024 * 1024


def keep_old_log(files: Files, path: str, directory: str, random: Random) -> str:
    """Copy the old log; return the path of the copy, which is complete and durable.

    A complete copy that an interrupted call left is reused.

    Raises:
        OSError: the disk failed.
    """
    for name in files.listdir(path):  # remove unfinished copies
        if name.startswith(f"{file_names.CLUSTER_METADATA}.") and name.endswith(
            file_names.DELETED_DIRECTORY
        ):
            files.remove_tree(f"{path}/{name}")
    number = 1
    while True:
        text = "" if number == 1 else f"-{number}"
        kept = f"{directory}{ASIDE}{text}{file_names.STRAY_DIRECTORY}"
        if not files.exists(kept):
            break
        if _is_copy(files, directory, kept):
            files.sync_dir(path)
            return kept
        number += 1
    temporary = f"{directory}.{random_id(random).hex}{file_names.DELETED_DIRECTORY}"
    files.mkdirs(temporary)
    try:
        for name in files.listdir(directory):
            _copy(files, f"{directory}/{name}", f"{temporary}/{name}")
        files.sync_dir(temporary)
        files.rename(temporary, kept)
    except OSError:
        with suppress(OSError):
            files.remove_tree(temporary)
        raise
    files.sync_dir(path)
    return kept


def _is_copy(files: Files, directory: str, kept: str) -> bool:
    """Whether the directory ``kept`` is a copy of the old log in ``directory``.

    After the copy was made, an interrupted call may have added a snapshot to ``directory`` and
    written ``quorum-state``; these files are not compared.
    """
    names, now = (
        {name for name in files.listdir(path) if not name.startswith(QUORUM_STATE)}
        for path in (kept, directory)
    )
    if not names or not all(name.endswith(CHECKPOINT) for name in now - names):
        return False
    return names <= now and all(
        _is_equal(files, f"{directory}/{name}", f"{kept}/{name}") for name in names
    )


def _is_equal(files: Files, path: str, other: str) -> bool:
    size = files.stat_size(path)
    if size != files.stat_size(other):
        return False
    first, second = files.open(path, writable=False), files.open(other, writable=False)
    try:
        return all(
            first.pread(COPIED_BYTES, position) == second.pread(COPIED_BYTES, position)
            for position in range(0, size, COPIED_BYTES)
        )
    finally:
        first.close()
        second.close()


def _copy(files: Files, path: str, other: str) -> None:
    source, target = files.open(path, writable=False), files.private().open(other, exclusive=True)
    try:
        for position in range(0, source.size(), COPIED_BYTES):
            target.pwritev([source.pread(COPIED_BYTES, position)], position)
        target.sync()
    finally:
        source.close()
        target.close()


def remove_old_log(files: Files, directory: str, names: list[str]) -> None:
    """Remove the files of the old log, except ``quorum-state`` and ``partition.metadata``.

    A missing ``partition.metadata`` is written.

    Args:
        names: names of the files in ``directory`` before the new log was written.

    Raises:
        OSError: the disk failed.
    """
    for name in names:
        if not name.startswith(QUORUM_STATE) and name != file_names.PARTITION_METADATA:
            files.remove(f"{directory}/{name}")
    if file_names.PARTITION_METADATA not in names:
        write_partition_metadata(files, directory, METADATA_TOPIC_ID)
    files.sync_dir(directory)
