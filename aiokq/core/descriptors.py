"""Owns how many descriptors this process has left; what is closed when there are few is decided
elsewhere.

The system is asked, as an embedded broker shares its process with code that opens files and
sockets too. Tests: tests/unit/core/test_descriptors.py.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from typing import Final

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

__all__ = ["PROCESS", "RESERVE", "Descriptors"]

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

    __slots__ = ("_keepers", "_listed", "_now", "_opened", "_stale_at")

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        # Replaced, never changed, as any thread reads it. Weak: a listener whose loop was closed
        # before it must not stay, with its port, for this.
        self._keepers: tuple[weakref.WeakMethod[Callable[[], None]], ...] = ()
        self._now = now
        self._listed = 0
        self._opened = 0  # since the listing
        self._stale_at = 0.0

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
        return max(0, min(RESERVE, limit // _LIMIT_SHARE) - (limit - self.used()))

    def add_keeper(self, keeper: Callable[[], None]) -> None:
        """Have a bound method called, in any thread, when a file took a descriptor of the reserve.

        It is called as long as its object is there, or until `remove_keeper`.
        """
        alive = (each for each in self._keepers if each() is not None)
        self._keepers = (*alive, weakref.WeakMethod(keeper))

    def remove_keeper(self, keeper: Callable[[], None]) -> None:
        """Call it no more; nothing happens if it was not called anyway."""
        self._keepers = tuple(each for each in self._keepers if each() not in (None, keeper))

    def taken(self) -> None:
        """A file that stays open was opened, in any thread: keepers are told if it was one of the
        reserve's."""
        if self._keepers and self.missing():
            for each in self._keepers:
                keeper = each()
                if keeper is not None:
                    keeper()

    def _list(self, now: float) -> None:
        try:
            self._listed = len(os.listdir(_LISTING)) - 1  # without the listing's own
        except FileNotFoundError:
            self._listed = 0
        except OSError:  # there is none left to list them with
            self._listed = self.limit or 0
        self._opened = 0
        end = self._now()
        self._stale_at = end + max(_LISTED_AGAIN, (end - now) / _LISTING_SHARE)


PROCESS: Final = Descriptors()
"""Those of this process. Global, as the process has one limit; it holds no resources."""
