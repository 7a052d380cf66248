"""Owns how many descriptors this process has left; what is closed when there are few is for
`descriptor_reserve.py`.

The system is asked, as an embedded broker shares its process with code that opens files and
sockets too. Tests: tests/unit/core/test_descriptors.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

__all__ = ["RESERVE", "Descriptors"]

RESERVE: Final = 32
"""Descriptors kept for logs, snapshots and metadata; an eighth of the limit where that is less."""

_LIMIT_SHARE: Final = 8

_TABLE: Final = "/proc/self/fd"
"""Since Linux 6.2 its size is the number of open descriptors."""

_LISTING: Final = "/dev/fd"
"""Lists open descriptors on other systems, in time proportional to their number."""

_LISTED_AGAIN: Final = 0.1
"""Least seconds between two listings."""

_LISTING_SHARE: Final = 0.01
"""Greatest part of the time spent on listings."""


class Descriptors:
    """The descriptors of this process.

    Args:
        now: seconds on a monotonic clock.
    """

    __slots__ = ("_affordable_at", "_listed", "_now", "_opened", "_stale_at")

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._listed = 0
        self._opened = 0  # since the listing
        self._stale_at = 0.0
        self._affordable_at = 0.0  # when another listing is within its share of the time

    @property
    def limit(self) -> int | None:
        """The soft limit as it is now, as a program may change its own; None without one."""
        if resource is None:
            return None
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return None if limit == resource.RLIM_INFINITY else limit

    def used(self) -> int:
        """How many are open; 0 where the system does not say.

        Those closed since the last listing count, too, where a listing is needed.
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
        """One more was opened since the last listing."""
        self._opened += 1

    def missing(self) -> int:
        """How many of the reserve are in use."""
        limit = self.limit
        if limit is None:
            return 0
        reserve = min(RESERVE, limit // _LIMIT_SHARE)
        missing = reserve - (limit - self.used())
        if missing > 0 and self._opened and (now := self._now()) >= self._affordable_at:
            # Many short connections in a tenth of a second: most of them are closed again.
            self._list(now)
            missing = reserve - (limit - self._listed)
        return max(0, missing)

    def _list(self, now: float) -> None:
        try:
            self._listed = len(os.listdir(_LISTING)) - 1  # without the listing's own
        except FileNotFoundError:
            self._listed = 0
        except OSError:  # there is none left to list them with
            self._listed = self.limit or 0
        self._opened = 0
        end = self._now()
        self._affordable_at = end + (end - now) / _LISTING_SHARE
        self._stale_at = max(self._affordable_at, end + _LISTED_AGAIN)
