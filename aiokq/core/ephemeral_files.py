"""Files of the operating system that are never synced, for brokers whose data is not kept.

Nobody needs this data after a power failure, so syncing each change would only take time.
"""

from __future__ import annotations

from aiokq.core.files import OsFile, OsFiles, Path

__all__ = ["EphemeralFile", "EphemeralFiles"]


class EphemeralFile(OsFile):
    """An open file whose content is never synced."""

    __slots__ = ()

    def sync(self) -> None:
        """Do nothing."""


class EphemeralFiles(OsFiles):
    """The operating system's files, never synced."""

    __slots__ = ()

    file_type = EphemeralFile

    def sync_dir(self, path: Path) -> None:
        """Do nothing."""
