"""Errors of a log directory's disk: the error that is raised, the log line, and the offline state.

As in Kafka, a full disk or an I/O error takes the whole directory offline until the broker
restarts, because it is unknown which bytes were written. Damaged records and a lack of file
descriptors are not errors of the disk: the operation fails, and the directory stays online. Unlike
in Kafka, the directory also stays online if a new log cannot be created on a full disk, because no
record is affected. ``fail`` takes the directory offline after any error.

Source: Kafka ``LogDirFailureChannel.java``. Tests: ``tests/unit/broker/log/test_disk_trouble.py``.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from typing import Final

from aiokq.core.errors import CorruptRecord, KafkaError, KafkaStorage
from aiokq.core.regular_files import NotRegularFile
from aiokq.core.types import TopicPartition
from aiokq.core.utf8 import response_text
from aiokq.core.warning_backoff import WarningBackoff

__all__ = ["METADATA_DIRECTORY", "DiskTrouble", "is_full", "remedy", "unusable"]

logger = logging.getLogger("aiokq.broker.log")

LOG_DIRECTORY: Final = "log directory"
METADATA_DIRECTORY: Final = "metadata log directory"

_FULL: Final = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})
_NO_DIRECTORY: Final = frozenset({errno.ENOTDIR, errno.EEXIST})
_IN_THE_WAY: Final = (NotRegularFile, IsADirectoryError, NotADirectoryError, FileExistsError)
"""Errors that mean that the file at a path is not of the kind that the broker needs."""

_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE})
"""Errors that mean that the process or the system has no file descriptor left."""


class DiskTrouble:
    """The errors of one log directory's disk. Used in any thread.

    Args:
        path: path of the log directory.
        now: returns the seconds of a monotonic clock.

    Attributes:
        kind: the kind of directory, for messages; ``METADATA_DIRECTORY`` if the directory has only
            the metadata log.
        failure: the error that took the directory offline; None while it is online.
        listener: called with ``failure`` when the directory goes offline, in the thread in which
            the operation failed.
    """

    __slots__ = ("_lock", "_now", "_path", "_warnings", "failure", "kind", "listener")

    def __init__(self, now: Callable[[], float], path: str = "") -> None:
        self._now = now
        self._path = response_text(path)
        self._warnings = WarningBackoff(now)
        self._lock = threading.Lock()
        self.kind = LOG_DIRECTORY
        self.failure: KafkaStorage | None = None
        self.listener: Callable[[KafkaStorage], None] | None = None

    def refused(
        self,
        partition: TopicPartition | None,
        what: str,
        error: OSError | CorruptRecord,
        path: str = "",
        *,
        may_be_full: bool = False,
    ) -> KafkaStorage:
        """Log an error; take the directory offline if its disk failed; return the error to raise.

        Args:
            what: the failed operation, for the log line and the error, such as "append failed".
            path: path of the file or its directory, used if the error does not contain a path.
            may_be_full: whether a full disk leaves the directory online, because the operation
                only creates a new log.
        """
        reason = _reason(error)
        path = _file(error) or response_text(path)
        if (
            not isinstance(error, OSError)
            or error.errno in _OURS
            or (may_be_full and is_full(error))
            or not self._fail(partition, what, error, path)
        ):
            with self._lock:
                level, times = self._warnings.note((what, reason))
            logger.log(
                logging.ERROR
                if level >= logging.WARNING and self.failure is None
                else logging.DEBUG,
                "%s partition=%s path=%s error=%s times=%d",
                what,
                partition,
                path,
                reason,
                times,
            )
        where = f" ({path})" if path else ""
        who = "" if partition is None else f", {partition}"
        return KafkaStorage(f"{what}: {reason}{who}{where}", topic_partition=partition)

    def fail(
        self, partition: TopicPartition | None, what: str, error: OSError | KafkaError
    ) -> KafkaStorage:
        """Take the directory offline, whatever the error is; return the error to raise.

        Used where the directory must not be used after any error, even a lack of file descriptors.

        Args:
            what: the failed operation, as in ``refused``.
        """
        self._fail(partition, what, error, _file(error))
        return KafkaStorage(f"{what}: {_reason(error)}; {remedy(error)}", topic_partition=partition)

    def _fail(
        self, partition: TopicPartition | None, what: str, error: OSError | KafkaError, path: str
    ) -> bool:
        """Take the directory offline; return False if it was offline already."""
        reason = _reason(error)
        failure = KafkaStorage(
            f"{self.kind} {self._path} is offline until the broker restarts: "
            f"{what}: {reason}; {remedy(error)}"
        )
        with self._lock:
            if self.failure is not None:
                return False
            self.failure = failure
        logger.error(
            "%s offline path=%s cause=%r partition=%s file=%s error=%s",
            self.kind,
            self._path,
            what,
            partition,
            path,
            reason,
        )
        if self.listener is not None:
            self.listener(failure)
        return True


def is_full(error: OSError) -> bool:
    """Whether the error means that the disk is full."""
    return error.errno in _FULL


def remedy(error: OSError | KafkaError) -> str:
    """Return advice for the operator on an error."""
    if not isinstance(error, OSError):
        return "start the broker again"
    if is_full(error):
        return "free space on the disk and start the broker again"
    if error.errno == errno.EIO:
        return "check the disk, then start the broker again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "make the directory writable for this user, or choose another directory"
    if error.errno in _OURS:
        return "raise the limit of open files (ulimit -n) and start the broker again"
    if isinstance(error, _IN_THE_WAY):
        return f"move {_file(error)} away and start the broker again"
    return "choose another directory"


def unusable(path: str, error: OSError) -> KafkaStorage:
    """Return the error for a log directory whose files cannot be opened, read or written."""
    path = response_text(path)
    if error.errno in _NO_DIRECTORY and not _file(error).startswith(f"{path}/"):
        return KafkaStorage(
            f"log directory {path} is a file or is inside a file: choose another directory"
        )
    return KafkaStorage(
        f"log directory {path} cannot be used: {error.strerror or error}; {remedy(error)}"
    )


def _file(error: OSError | KafkaError) -> str:
    """Return the path in an error; for a rename, the path of the new name; "" if there is none."""
    names = (getattr(error, "filename2", None), getattr(error, "filename", None))
    return response_text(next((str(name) for name in names if name is not None), ""))


def _reason(error: OSError | KafkaError) -> str:
    return str(error.strerror or error) if isinstance(error, OSError) else error.message
