"""DirectoryLock: a lock that prevents two loads from using the same directory."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import IO, Final

from aiokq.core.forks import Descriptor
from aiokq.spark.durable_files import sync_directory

__all__ = ["LOCK", "DirectoryLock", "Held"]

LOCK: Final = "_aiokq_load.lock"
"""Name of the lock file; it contains the last holder as text, and is never deleted."""


class Held(Exception):
    """Another load holds the lock.

    Attributes:
        holder: name of the holder, such as ``process 4711 on host7``, or ``another process``.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class DirectoryLock:
    """A lock on a directory, released when the holding process ends, even by a kill.

    Forked children do not keep the lock.

    The lock excludes other loads on the same machine, whatever path they use for the directory. It
    excludes loads on other machines only if the file system shares ``flock`` between its clients:
    NFS (not mounted with ``nolock`` or ``local_lock``), CephFS, Lustre with ``-o flock``, GPFS.
    Other shared file systems lock on each machine separately.

    Args:
        directory: created if missing, and synced.

    Raises:
        Held: another load holds the lock.
        OSError: the directory or the file cannot be created or written.

    Source: flock(2).
    """

    def __init__(self, directory: Path) -> None:
        _make(directory)
        # The JVM does not inherit the descriptor, so the lock ends with this process even if the
        # JVM continues.
        self._file: IO[str] = open(directory / LOCK, "a+", encoding="utf-8")  # noqa: SIM115  close()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._descriptor = Descriptor(self._file.fileno())
            self._sign()
        except OSError as error:
            try:
                if error.errno in (errno.EAGAIN, errno.EACCES):
                    raise Held(self._holder()) from error
                raise
            finally:
                self._file.close()

    def close(self) -> None:
        """Release the lock."""
        self._file.close()

    def _sign(self) -> None:
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        self._file.flush()

    def _holder(self) -> str:
        self._file.seek(0)
        # The file is empty if the holder has not written its name yet.
        return self._file.read(200).strip() or "another process"


def _make(directory: Path) -> None:
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    # A file survives a power failure only if its directories also survive.
    for each in missing:
        sync_directory(each.parent)
