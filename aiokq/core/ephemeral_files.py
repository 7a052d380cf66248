"""Files of the operating system that are never synced, for brokers whose data is not kept.

Nobody needs this data after a power failure, so syncing each change would only take time.
"""

from __future__ import annotations

import os

from aiokq.core.files import OsFile, OsFiles, Path
from aiokq.core.types import Buffer

__all__ = ["EphemeralFile", "EphemeralFiles"]


class EphemeralFile(OsFile):
    """An open file whose content is never synced."""

    __slots__ = ()

    def sync(self) -> None:
        """Do nothing."""


class EphemeralFiles(OsFiles):
    """The operating system's files, never synced."""

    __slots__ = ()

    def open(
        self, path: Path, *, create: bool = False, exclusive: bool = False, writable: bool = True
    ) -> EphemeralFile:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)
        if exclusive:
            flags |= os.O_CREAT | os.O_EXCL
        elif create:
            flags |= os.O_CREAT
        return EphemeralFile(os.open(path, flags, self._mode), os.fspath(path))

    def sync_dir(self, path: Path) -> None:
        """Do nothing."""

    def write_atomic(self, path: Path, data: Buffer) -> None:
        """Replace a file as `Files.write_atomic` does, but without making it durable."""
        temporary = os.fspath(path) + ".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0)
        with open(os.open(temporary, flags, self._mode), "wb") as file:
            file.write(data)
        os.replace(temporary, path)
