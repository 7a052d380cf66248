"""The messages that explain why `aiokq broker` could not start and what the user can do.

Tests: ``tests/fault/test_broker_process.py``.
"""

from __future__ import annotations

import errno
import socket

from aiokq.broker.config.listeners import ListenerFailed
from aiokq.core.errors import ConfigError

__all__ = ["explain_failure"]


def explain_failure(error: ConfigError | OSError, directories: list[str]) -> str:
    """Return a line that says why the start failed and, for most errors, what to do."""
    directory = " or ".join(directories)
    if isinstance(error, ConfigError):
        return error.message
    if isinstance(error, ListenerFailed) and (refused := _explain_listener(error)):
        return refused
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"no permission: {error.filename or directory}: {error.strerror}; the data directory "
            "must be writable, and a port below 1024 needs privileges"
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {directory} is full: free space and start the broker again"
    if isinstance(error, BlockingIOError):
        return (
            f"{directory} is in use by another broker: stop that broker, or choose another "
            "--data-dir"
        )
    if isinstance(error, NotADirectoryError | FileExistsError):
        return f"{error.filename or directory} is not a directory: choose another --data-dir"
    if isinstance(error, ListenerFailed):
        return str(error.strerror)
    return str(error)


def _explain_listener(error: ListenerFailed) -> str | None:
    """Return why a listener could not be opened and what to do.

    Returns None if this function has no text for the error.
    """
    name, host, port = error.endpoint
    if isinstance(error.__cause__, socket.gaierror):
        return (
            f"host {host} is not known here ({error.__cause__.strerror}): choose another --host, "
            f"or change the listener {name}"
        )
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} is in use on {host or 'some address'}: stop the process that listens "
            f"on it, use a free port with --port 0, or change the listener {name}"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"{host} is not an address of this machine: choose another --host, or change the "
            f"listener {name}"
        )
    return None
