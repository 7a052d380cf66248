"""Owns lock files that exclude other processes, Kafka's own among them, and this process.

Kafka locks `.lock` with Java's FileChannel.tryLock, which is a POSIX record lock: so this is
one too. Such a lock has two traps: it does not exclude its own process, and closing *any*
descriptor of the file in this process drops it. So a registry of this process is asked
first, before the file is opened. Tests: tests/unit/core/test_files.py.
"""

from __future__ import annotations

import errno
import os
import threading

_guard = threading.Lock()
_held: dict[tuple[int, int], int] = {}
"""(device, inode) to the pid that locked it: after a fork the parent's entries mean nothing.

State of the module because the kernel keeps these locks per process.
"""


class FileLock:
    """A held POSIX lock on a file."""

    __slots__ = ("_fd", "_key", "_pid", "path")

    def __init__(self, path: str, fd: int, key: tuple[int, int]) -> None:
        self.path = path
        self._fd = fd
        self._key = key
        self._pid = os.getpid()

    @classmethod
    def acquire(cls, path: str) -> FileLock:
        """Locks `path`, which is made if missing.

        Raises:
            BlockingIOError: another process, or this one, holds it.
        """
        import fcntl  # not on Windows, where the client runs all the same

        with _guard:
            try:
                _refuse_if_held(path, os.stat(path))
            except FileNotFoundError:
                pass
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise _blocked(path, "another process") from None
                raise
            status = os.fstat(fd)
            key = (status.st_dev, status.st_ino)
            _held[key] = os.getpid()
            return cls(path, fd, key)

    def release(self) -> None:
        """Once is enough, twice is harmless. The file stays: removing it would be a race."""
        with _guard:
            fd, self._fd = self._fd, -1
            if fd < 0:
                return
            if _held.get(self._key) == self._pid:
                del _held[self._key]
            os.close(fd)


def _refuse_if_held(path: str, status: os.stat_result) -> None:
    if _held.get((status.st_dev, status.st_ino)) == os.getpid():
        raise _blocked(path, "this process")


def _blocked(path: str, holder: str) -> BlockingIOError:
    return BlockingIOError(errno.EAGAIN, f"{holder} holds the lock", path)
