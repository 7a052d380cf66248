"""Owns files that nobody will miss after the process: as the system's, but nothing is ever synced.

For data that is removed when its owner is done with it. A sync would make each change wait for
the disk, to survive a power cut that takes the owner as well.
"""

from __future__ import annotations

import os

from aiokq.core.files import OsFile, OsFiles, Path
from aiokq.core.types import Buffer

__all__ = ["EphemeralFile", "EphemeralFiles"]


class EphemeralFile(OsFile):
    """A descriptor whose content is left to the system."""

    __slots__ = ()

    def sync(self) -> None:
        """Does nothing."""


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
        return EphemeralFile(os.open(path, flags, 0o644), os.fspath(path))

    def sync_dir(self, path: Path) -> None:
        """Does nothing."""

    def write_atomic(self, path: Path, data: Buffer) -> None:
        """As `Files.write_atomic`, but for the durability."""
        temporary = os.fspath(path) + ".tmp"
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
