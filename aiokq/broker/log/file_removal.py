"""Removal of the files of deleted partitions and segments.

Files that cannot be removed are logged, and removed at the next start.

Source: Kafka ``LocalLog.deleteSegmentFiles``, ``LogManager.deleteLogs``.
Tests: ``tests/unit/broker/log/test_directory.py``.
"""

from __future__ import annotations

import logging
from dataclasses import field
from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.core.files import Files
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from aiokq.broker.log.segment import Segment

__all__ = ["FileRemoval", "remove_directory"]

logger = logging.getLogger("aiokq.broker.log")


@frozen
class FileRemoval:
    """Directories and segments whose files are removed together. May be called in any thread."""

    files: Files
    directories: list[str] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)

    def __call__(self) -> None:
        for directory in self.directories:
            remove_directory(self.files, directory)
        for segment in self.segments:
            try:
                segment.remove_renamed(file_names.DELETED)
            except OSError as error:
                path = segment.path(file_names.LOG)
                logger.warning("deleted segment not removed file=%s error=%s", path, error)


def remove_directory(files: Files, directory: str) -> None:
    """Remove the directory of a deleted partition."""
    try:
        files.remove_tree(directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning("deleted log not removed directory=%s error=%s", directory, error)
