"""The number of open descriptors of this process, and their limit.

`descriptor_reserve.py` closes descriptors when few are available. The number is read from the
operating system, because an embedded broker shares its process with code that opens files and
sockets. Tests: tests/unit/core/test_descriptors.py.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Final

try:
    import resource
except ImportError:  # not available on Windows, which has no such limit
    resource = None  # type: ignore[assignment]

__all__ = ["RESERVE", "Descriptors", "raise_limit"]

RESERVE: Final = 32
"""Descriptors reserved for logs, snapshots and metadata; at most an eighth of the limit."""

_LIMIT_SHARE: Final = 8

_TABLE: Final = "/proc/self/fd"
"""Directory whose `st_size` is the number of open descriptors, since Linux 6.2."""

_LISTING: Final = "/dev/fd"
"""Directory that lists the open descriptors; used if the size of `_TABLE` is 0 or unknown.

Listing takes time proportional to the number of open descriptors.
"""

_LISTED_AGAIN: Final = 0.1
"""Minimum seconds between two listings of descriptors by `used`; `missing` may list earlier."""

_LISTING_SHARE: Final = 0.01
"""Maximum fraction of the elapsed time that is spent on listings."""


_FREE_PER_CALL: Final = 64
"""A check that finds n times this number of free descriptors lets n calls of `missing` skip it.

Descriptors of the reserve do not count as free.
"""

_MOST_UNCHECKED: Final = 64
"""Maximum number of calls of `missing` without a check."""

_UNCHECKED_SECONDS: Final = 0.1
"""For this many seconds after a check, calls of `missing` may leave out the check."""


def raise_limit() -> None:
    """Raise the soft limit of descriptors to the hard limit.

    Each client and each written partition needs a descriptor. The soft limit is usually 1024
    because of programs that use `select`. It can be raised, because asyncio does not use `select`
    on systems that have epoll or kqueue.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS may report an unlimited hard limit, which it does not accept as the soft limit.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Descriptors:
    """The open descriptors of this process, and their limit.

    Args:
        now: returns seconds on a monotonic clock.
    """

    __slots__ = (
        "_affordable_at",
        "_checked_limit",
        "_listed",
        "_now",
        "_opened",
        "_stale_at",
        "_unchecked",
        "_unchecked_until",
    )

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._listed = 0
        self._opened = 0  # number of descriptors opened since the last listing
        self._stale_at = 0.0
        self._checked_limit = 0
        self._unchecked = 0  # number of calls of `missing` that need no check
        self._unchecked_until = 0.0
        self._affordable_at = 0.0  # an earlier listing would exceed _LISTING_SHARE

    @property
    def limit(self) -> int | None:
        """The current soft limit, which a program may change at run time; None without a limit."""
        if resource is None:
            return None
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return None if limit == resource.RLIM_INFINITY else limit

    def used(self) -> int:
        """Return the number of open descriptors; 0 if the system does not report it.

        On systems where descriptors must be listed, descriptors closed since the last listing are
        still counted.
        """
        try:
            count = os.stat(_TABLE).st_size
        except OSError:
            count = 0
        if count:
            return count
        now = self._now()
        if now >= self._stale_at:
            self._list(now)
        return self._listed + self._opened

    def opened(self) -> None:
        """Add 1 to the number of descriptors opened since the last listing."""
        self._opened += 1

    def missing(self) -> int:
        """Return the number of reserved descriptors that are in use.

        Called for each descriptor that is opened. While many are free, few calls ask the
        system, because asking takes as long as accepting a connection.
        """
        limit = self.limit
        if limit is None:
            return 0
        if self._unchecked and limit == self._checked_limit:
            self._unchecked -= 1
            if self._now() < self._unchecked_until:
                return 0
        reserve = min(RESERVE, limit // _LIMIT_SHARE)
        missing = reserve - (limit - self.used())
        if missing < -_FREE_PER_CALL:
            self._checked_limit = limit
            self._unchecked = min(-missing // _FREE_PER_CALL, _MOST_UNCHECKED)
            self._unchecked_until = self._now() + _UNCHECKED_SECONDS
        else:
            self._unchecked = 0
        if missing > 0 and self._opened and (now := self._now()) >= self._affordable_at:
            # List again: many counted descriptors may have been closed since the last listing.
            self._list(now)
            missing = reserve - (limit - self._listed)
        return max(0, missing)

    def _list(self, now: float) -> None:
        try:
            self._listed = len(os.listdir(_LISTING)) - 1  # minus the listing's own descriptor
        except FileNotFoundError:
            self._listed = 0
        except OSError:  # no descriptor is left for the listing
            self._listed = self.limit or 0
        self._opened = 0
        end = self._now()
        self._affordable_at = end + (end - now) / _LISTING_SHARE
        self._stale_at = max(self._affordable_at, end + _LISTED_AGAIN)
