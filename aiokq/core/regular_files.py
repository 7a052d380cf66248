"""`open_regular`, which opens regular files, and refuses FIFOs, sockets, devices and directories.

Tests: tests/unit/core/test_regular_files.py.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

__all__ = ["NotRegularFile", "open_regular"]

_FLAGS: Final = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)  # without it, opening a FIFO waits for its other end
    | getattr(os, "O_NOCTTY", 0)
)
_REFUSED: Final = frozenset({errno.ENXIO, errno.ENODEV, getattr(errno, "EOPNOTSUPP", errno.ENXIO)})
"""Errors of opening a socket, a FIFO without a reader, or a device that does not exist."""


class NotRegularFile(OSError):
    """The path names a FIFO, a socket or a device instead of a regular file."""


def open_regular(
    path: str | os.PathLike[str], flags: int, mode: int = 0o644
) -> tuple[int, os.stat_result]:
    """Open a regular file without waiting for other processes; return descriptor and status.

    Args:
        flags: flags of `os.open`; O_CLOEXEC, O_NONBLOCK and O_NOCTTY are added.
        mode: permissions of a file that is created, before the process's umask is applied.

    Raises:
        NotRegularFile: `path` is a FIFO, a socket or a device.
        IsADirectoryError: `path` is a directory.
        OSError: the file cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | _FLAGS, mode)
    except OSError as error:
        if error.errno in _REFUSED:
            _check(path, os.stat(path))
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            _check(path, status)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def _check(path: str | os.PathLike[str], status: os.stat_result) -> None:
    name, mode = os.fspath(path), status.st_mode
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    kind = "a FIFO" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    raise NotRegularFile(errno.EINVAL, f"{kind} is where a regular file belongs", name)
