"""DirectoryLock: a directory is one load's at a time. What is in it is not its affair."""

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
"""The file that is locked; it stays, and says who was the last."""


class Held(Exception):
    """Another load holds the lock.

    Attributes:
        holder: in words, as far as that is known: ``process 4711 on host7``.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class DirectoryLock:
    """A lock on a directory, that goes with the process that holds it, however that ends.

    Processes that are forked from it do not keep it.

    Covered are loads on one machine, by whatever path they name the directory, and those on
    several where the file system shares ``flock`` between its clients: NFS (not mounted with
    ``nolock`` or ``local_lock``), CephFS, Lustre with ``-o flock``, GPFS. Other shared ones lock
    for each machine apart: there loads on two machines are not kept apart. Targets and checkpoints
    are directories; those in an object store are refused before.

    Args:
        directory: it is made, and stays, also after a power cut.

    Raises:
        Held: by another load.
        OSError: it cannot be made, or written.

    Source: flock(2).
    """

    def __init__(self, directory: Path) -> None:
        _make(directory)
        # It is not inherited by the JVM, which would hold it longer.
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
        """Another may have it."""
        self._file.close()

    def _sign(self) -> None:
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        self._file.flush()

    def _holder(self) -> str:
        self._file.seek(0)
        # Between lock and signature the file is empty.
        return self._file.read(200).strip() or "another process"


def _make(directory: Path) -> None:
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    # What is written in one of them outlives a power cut only with its name.
    for each in missing:
        sync_directory(each.parent)
