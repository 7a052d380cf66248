"""Owns the files of one segment: their names, and the ``.log``, open while somebody needs it.

Knows no batches, offsets or indexes: those are ``segment``'s.

Source: Kafka ``FileRecords.java``, ``LogSegment.changeFileSuffixes``.
Tests: ``tests/unit/broker/log/test_segment_files.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.log import file_names
from aiokq.core.files import File, Files

if TYPE_CHECKING:
    from aiokq.broker.log.open_files import OpenFiles

__all__ = ["SegmentFiles"]


class SegmentFiles:
    """The files that have a segment's base offset for a name.

    Attributes:
        base_offset: the first offset that the segment may hold.
        open_files: told when the ``.log`` is opened again; None while one thread of its own loads
            the segment.
    """

    __slots__ = (
        "_directory",
        "_file",
        "_files",
        "_reopened",
        "_suffix",
        "base_offset",
        "open_files",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, suffix: str = "") -> None:
        self.base_offset = base_offset
        self.open_files: OpenFiles | None = None
        self._files = files
        self._directory = directory
        self._suffix = suffix  # behind the names of its files, while it is made by a cleaning
        self._file: File | None = None
        self._reopened = False

    def path(self, suffix: str) -> str:
        """Path of the segment's file with this suffix."""
        return file_names.segment_file(self._directory, self.base_offset, suffix) + self._suffix

    # --- the log

    @property
    def file(self) -> File:
        """The open ``.log`` file."""
        file = self._file
        if file is None or file.closed:
            file = self._file = self._files.open(self.path(file_names.LOG))
            self._reopened = self.open_files is not None
        if self._reopened and self.open_files is not None:
            self.open_files.used(self)
        return file

    def keep_open(self, open_files: OpenFiles) -> None:
        """Have the ``.log`` looked after from now on; it may be open as it was just made."""
        if self.open_files is None and self.is_open:
            open_files.created(self)
        self.open_files = open_files

    @property
    def is_open(self) -> bool:
        """Whether it holds a descriptor."""
        return self._file is not None and not self._file.closed

    def modified_ms(self) -> int:
        """When the ``.log`` was written last, in milliseconds since the epoch."""
        return self._files.modified_ms(self.path(file_names.LOG))

    def release(self) -> None:
        """Let go of the ``.log``, which is opened again when it is needed.

        Not closed: responses may still be sent from it, and the last of them closes it.
        """
        self._forget_file()  # first: another thread may open it again once it is gone
        self._file = None

    def close(self) -> None:
        """Close the ``.log``; the segment can be used again."""
        file = self._file  # the cap may let go of it meanwhile, in another thread
        if file is not None:
            file.close()
            self._forget_file()

    def _forget_file(self) -> None:
        if self.open_files is not None:
            self.open_files.closed(self)
        self._reopened = False

    # --- all of them

    def add_suffix(self, suffix: str, *, with_snapshot: bool = True) -> None:
        """Add ``suffix`` to the names of its files; the open file goes on being readable.

        Args:
            with_snapshot: also that of the producer state where it begins.
        """
        kinds = (*file_names.SEGMENT_SUFFIXES, file_names.SNAPSHOT)
        for kind in kinds if with_snapshot else file_names.SEGMENT_SUFFIXES:
            path = self.path(kind)
            if self._files.exists(path):
                self._files.rename(path, path + suffix)

    def remove_renamed(self, suffix: str) -> None:
        """Remove the files that ``add_suffix`` renamed."""
        for kind in (*file_names.SEGMENT_SUFFIXES, file_names.SNAPSHOT):
            path = self.path(kind) + suffix
            if self._files.exists(path):
                self._files.remove(path)
