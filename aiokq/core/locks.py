"""Exclusive locks on lock files, against this process and other processes, such as Kafka's.

Kafka locks `.lock` with Java's FileChannel.tryLock, which takes a POSIX record lock. This module
takes the same kind of lock. A POSIX record lock does not exclude its own process, and is released
when the process closes *any* descriptor of the file. Therefore this module registers the files that
the process has locked, and does not open a locked file again. Tests: tests/unit/core/test_files.py.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from typing import Final

from aiokq.core import forks
from aiokq.core.regular_files import open_regular


class _Held:
    """The files that this process has locked, as (device, inode) pairs."""

    def __init__(self) -> None:
        # Reentrant, because a FileLock may be garbage-collected in the thread that has the lock.
        self.guard = threading.RLock()
        self.files: set[tuple[int, int]] = set()
        forks.watch(self)

    def forget(self) -> None:
        """Forget the locks in a forked child, which does not hold its parent's locks."""
        self.guard = threading.RLock()
        self.files = set()


_held: Final = _Held()
"""A global, because the kernel keeps POSIX record locks per process."""


class FileLock:
    """A held POSIX lock on a file; released when the object is garbage-collected, at the latest."""

    __slots__ = ("__weakref__", "_release", "path")

    def __init__(self, path: str, fd: int, key: tuple[int, int]) -> None:
        self.path = path
        mine = forks.Descriptor(fd)
        self._release = weakref.finalize(self, _release, os.getpid(), mine, fd, key)
        self._release.atexit = False  # at exit, the kernel releases the lock

    @classmethod
    def acquire(cls, path: str) -> FileLock:
        """Lock `path`, creating the file if it is missing.

        Raises:
            BlockingIOError: the file is locked by another process or by this process.
            NotRegularFile, IsADirectoryError: `path` is a FIFO, socket, device or directory.
        """
        import fcntl  # missing on Windows, where only the client is used

        with _held.guard:
            try:
                _refuse_if_held(path, os.stat(path))
            except FileNotFoundError:
                pass
            fd, status = open_regular(path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise _blocked(path, "another process") from None
                raise
            key = (status.st_dev, status.st_ino)
            _held.files.add(key)
            return cls(path, fd, key)

    def release(self) -> None:
        """Release the lock; may be called twice.

        The file is not removed, because another process may lock it at the same time. Does nothing
        in a forked child, because the lock is the parent's.
        """
        self._release()


def _release(pid: int, mine: forks.Descriptor, fd: int, key: tuple[int, int]) -> None:
    if os.getpid() != pid:
        return
    with _held.guard:
        _held.files.discard(key)
        os.close(fd)


def _refuse_if_held(path: str, status: os.stat_result) -> None:
    if (status.st_dev, status.st_ino) in _held.files:
        raise _blocked(path, "this process")


def _blocked(path: str, holder: str) -> BlockingIOError:
    return BlockingIOError(errno.EAGAIN, f"{holder} holds the lock", path)
