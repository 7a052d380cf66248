"""SyncedFileIO: file IO for pyiceberg that syncs each file on a local disk when it is closed.

A file is therefore on disk before the catalog refers to it. Without the sync, a power failure may
leave a snapshot with empty files. Object stores do not need the sync.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from aiokq.spark.durable_files import sync_directory, sync_file

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["SyncedFileIO"]


class SyncedFileIO(PyArrowFileIO):
    """File IO of pyiceberg with syncing, selected by the catalog property ``py-io-impl``."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write; a file on a local disk is synced when it is closed."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, netloc))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        path = Path(self._path)
        missing = [parent for parent in path.parents if not parent.exists()]
        stream = super().create(overwrite)
        return _SyncedStream(stream, path, [path.parent, *(each.parent for each in missing)])


class _SyncedStream(OutputStream):
    """Stream to a file; closing it syncs the file and its directory entry.

    Args:
        directories: the directory of the file, and the parent of each directory that was created
            for the file.
    """

    def __init__(self, stream: OutputStream, path: Path, directories: list[Path]) -> None:
        self._stream = stream
        self._path = path
        self._directories = directories
        self.closed = False

    def write(self, data: bytes) -> int:
        written = self._stream.write(data)
        return len(data) if written is None else int(written)

    def tell(self) -> int:
        return self._stream.tell()

    def flush(self) -> None:
        """Do nothing; `close` writes and syncs everything."""

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._stream.close()
        sync_file(self._path)
        for directory in self._directories:
            sync_directory(directory)

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
