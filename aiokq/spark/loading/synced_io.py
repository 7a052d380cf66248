"""SyncedFileIO: what pyiceberg writes to a local disk is on it before the catalog knows of it.

Without this a power cut may leave a snapshot whose files are empty. Other file systems, as object
stores, keep what they have acknowledged.
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
    """As pyiceberg's own, by its property ``py-io-impl``."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write."""
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
    """Of a file, which is on the disk when this is closed, and so is its name.

    Args:
        directories: with names that were made for it.
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
        """It is all written when it is closed."""

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
