"""Owns what is said when the disk of a log directory refuses: the error, and what is logged when.

Decides nothing: who writes undoes what it began, who answers answers KAFKA_STORAGE_ERROR. A full
disk fails every append of every partition, thousands a second: the first is a line in the log,
the others are counted, and so is the end of it a line.

Tests: ``tests/unit/broker/log/test_disk_trouble.py``.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import Final

from aiokq.core.errors import CorruptRecord, KafkaStorage
from aiokq.core.repetition import Repetitions
from aiokq.core.types import TopicPartition

__all__ = ["DiskTrouble", "remedy", "unusable"]

logger = logging.getLogger("aiokq.broker.log")

CALM_SECONDS: Final = 10.0
"""How long nothing may have failed until an append means that the trouble is over: on a full disk
small appends find room between large ones that do not."""

_FULL: Final = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})
_NO_DIRECTORY: Final = frozenset({errno.ENOTDIR, errno.EEXIST})


class DiskTrouble:
    """The trouble that one log directory has with its disk.

    Args:
        now: seconds; any clock that goes on.

    Attributes:
        lasting: appends failed, and it is not known to be over.
    """

    __slots__ = ("_failed", "_latest", "_now", "_repetitions", "lasting")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._repetitions = Repetitions(now)
        self._failed = 0
        self._latest = 0.0
        self.lasting = False

    def append_refused(
        self, partition: TopicPartition, what: str, error: OSError | CorruptRecord, path: str = ""
    ) -> KafkaStorage:
        """An append failed: logged, and what the producer is told. Nothing of it is in the log."""
        self.lasting = True
        self._failed += 1
        self._latest = self._now()
        return self.refused(partition, what, error, path)

    def refused(
        self, partition: TopicPartition, what: str, error: OSError | CorruptRecord, path: str = ""
    ) -> KafkaStorage:
        """Something else failed, as a read.

        Args:
            what: was not done, with its verb.
            path: of the file, where the error does not say it.
        """
        reason = _reason(error)
        path = path or str(getattr(error, "filename", None) or "")
        level, times = self._repetitions.note((what, reason))
        logger.log(
            logging.ERROR if level >= logging.WARNING else logging.DEBUG,
            "%s partition=%s path=%s error=%s times=%d",
            what,
            partition,
            path,
            reason,
            times,
        )
        where = f" ({path})" if path else ""
        return KafkaStorage(f"{what}: {reason}, {partition}{where}", topic_partition=partition)

    def append_worked(self) -> None:
        """An append went through while trouble lasts: it may be over."""
        if self._now() - self._latest >= CALM_SECONDS:
            logger.warning("appends are written again failed_before=%d", self._failed)
            self.lasting = False
            self._failed = 0
            self._repetitions.over()


def remedy(error: OSError) -> str:
    """What whoever runs the broker can do about it."""
    if error.errno in _FULL:
        return "free space on its disk and start again"
    return "make it writable for this user, or choose another directory"


def unusable(path: str, error: OSError) -> KafkaStorage:
    """A log directory cannot be opened, or not be closed clean: one line that says what to do."""
    if error.errno in _NO_DIRECTORY:
        return KafkaStorage(
            f"log directory {path} is a file, or lies in one: choose another directory"
        )
    return KafkaStorage(
        f"log directory {path} cannot be used: {error.strerror or error}; {remedy(error)}"
    )


def _reason(error: OSError | CorruptRecord) -> str:
    return error.message if isinstance(error, CorruptRecord) else str(error.strerror or error)
