"""The files of one segment: their names, and the ``.log``, which is opened when it is needed.

The content of the files is handled by ``segment``.

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
    """The files that are named after a segment's base offset.

    Attributes:
        base_offset: the first offset that the segment may hold.
        open_files: counts reopened files; None until the segment is in the list of a log.
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
        self._suffix = suffix  # appended to all file names; "" if the files have their final names
        self._file: File | None = None
        self._reopened = False

    def path(self, suffix: str) -> str:
        """Return the path of the segment's file with this suffix."""
        return file_names.segment_file(self._directory, self.base_offset, suffix) + self._suffix

    @property
    def file(self) -> File:
        """The ``.log`` file; it is opened first if it is not open. Raises OSError."""
        file = self._file
        if file is None or file.closed:
            file = self._file = self._files.open(self.path(file_names.LOG))
            self._reopened = self.open_files is not None
        if self._reopened and self.open_files is not None:
            self.open_files.used(self)
        return file

    def keep_open(self, open_files: OpenFiles) -> None:
        """Count the ``.log`` in ``open_files`` now, if it is open, and whenever it is reopened."""
        if self.open_files is None and self.is_open:
            open_files.created(self)
        self.open_files = open_files

    @property
    def is_open(self) -> bool:
        """Whether the segment holds a descriptor."""
        return self._file is not None and not self._file.closed

    def modified_ms(self) -> int:
        """Return when the ``.log`` was last written, in milliseconds since the Unix epoch."""
        return self._files.modified_ms(self.path(file_names.LOG))

    def release(self) -> None:
        """Drop the reference to the ``.log``, which is reopened when it is needed.

        The file is not closed here, because responses may still be sent from it. The last user
        of the file closes it.
        """
        # `open_files` is told before `_file` is None. Once `_file` is None, another thread may
        # reopen the file, and the reopened file must stay counted.
        self._forget_file()
        self._file = None

    def close(self) -> None:
        """Close the ``.log``, which is reopened when it is needed."""
        file = self._file  # read once: another thread may set `_file` to None meanwhile
        if file is not None:
            file.close()
            self._forget_file()

    def _forget_file(self) -> None:
        if self.open_files is not None:
            self.open_files.closed(self)
        self._reopened = False

    def add_suffix(self, suffix: str, *, with_snapshot: bool = True) -> None:
        """Add ``suffix`` to the names of all files; the open file stays readable.

        Args:
            with_snapshot: whether to include the producer snapshot at the base offset.
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
