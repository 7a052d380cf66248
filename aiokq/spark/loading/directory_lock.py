"""DirectoryLock: a lock that gives a directory to one load at a time."""

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
"""Name of the locked file, which contains the name of its last holder and is never deleted."""


class Held(Exception):
    """Another load holds the lock.

    Attributes:
        holder: text about the holder, as far as known: ``process 4711 on host7``.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class DirectoryLock:
    """A lock on a directory, released when the holding process ends, in whatever way.

    Forked children do not keep the lock.

    The lock separates loads on one machine, by whatever path they name the directory, and loads on
    several machines if the file system shares ``flock`` between its clients: NFS (not mounted with
    ``nolock`` or ``local_lock``), CephFS, Lustre with ``-o flock``, GPFS. Other shared file systems
    lock on each machine separately, and do not separate loads on two machines. Targets and
    checkpoints in object stores are refused before a lock is taken.

    Args:
        directory: created if missing, and synced.

    Raises:
        Held: another load holds the lock.
        OSError: the directory or the file cannot be created or written.

    Source: flock(2).
    """

    def __init__(self, directory: Path) -> None:
        _make(directory)
        # The JVM does not inherit the descriptor, so it cannot keep the lock after this process.
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
        # The file is empty between locking and signing.
        return self._file.read(200).strip() or "another process"


def _make(directory: Path) -> None:
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    # A file survives a power failure only if the names of its directories do.
    for each in missing:
        sync_directory(each.parent)
