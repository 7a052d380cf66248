"""Frees file descriptors when few are available, by closing a log file or an idle connection.

The operating system's limit is per process, so the file or idle connection is chosen from the whole
process. If a server has no idle connection, another server of the process closes an idle connection
of its own. An aborted connection keeps its descriptor until the next iteration of its loop. Until
then it is counted as leaving, so that no further connection is closed for the same shortage.

Tests: tests/unit/core/test_descriptor_reserve.py, tests/fault/test_descriptors.py.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Final, Protocol

from aiokq.core import forks
from aiokq.core.descriptors import Descriptors

__all__ = ["PROCESS", "DescriptorHolder", "DescriptorReserve"]


class DescriptorHolder(Protocol):
    """The owner of connections on one loop; it closes idle connections to free descriptors."""

    @property
    def leaving(self) -> int:
        """The number of aborted connections with open descriptors. Context: any thread."""
        ...

    def idle_since(self, behind: int) -> float | None:
        """Return when the connection that `behind` selects became idle, in monotonic seconds.

        Context: any thread.

        Args:
            behind: number of connections that have been idle for longer than the selected one; 0
                selects the connection that has been idle longest.

        Returns:
            The time; None if at most `behind` connections are idle.
        """
        ...

    def make_room(self) -> bool:
        """Abort the connection that has been idle longest. Context: the holder's loop.

        Returns:
            False if no connection is idle.
        """
        ...


class DescriptorCache(Protocol):
    """An owner of descriptors that can be closed and reopened as needed, such as log files."""

    def give_up(self) -> bool:
        """Close one descriptor. Context: any thread.

        Returns:
            False if the cache has no open descriptor.
        """
        ...


class DescriptorReserve:
    """The descriptors reserved for files, and the holders and caches that can free some.

    A forked child starts without holders and caches, because they belong to its parent.

    Attributes:
        descriptors: counts the open descriptors of the process.
    """

    __slots__ = ("__weakref__", "_caches", "_guard", "_members", "_wanted", "descriptors")

    def __init__(self, descriptors: Descriptors) -> None:
        self.descriptors = descriptors
        forks.watch(self)
        self.forget()

    def forget(self) -> None:
        """Remove all holders and caches."""
        # Reentrant, because a holder may be garbage-collected in the thread that has the lock.
        self._guard = threading.RLock()
        # These tuples are replaced and never modified, because any thread reads them.
        self._caches: tuple[weakref.ref[DescriptorCache], ...] = ()
        self._members: tuple[_Member, ...] = ()
        self._wanted = 0  # number of descriptors that calls of `restore` are about to free

    def add(self, holder: DescriptorHolder) -> None:
        """Add a holder of connections, by a weak reference. Context: the holder's loop."""
        member = _Member(holder, asyncio.get_running_loop())
        with self._guard:
            self._members = (*(each for each in self._members if each.holder()), member)

    def add_cache(self, cache: DescriptorCache) -> None:
        """Add a cache, by a weak reference. Descriptors of caches are closed before connections."""
        with self._guard:
            caches = (each for each in self._caches if each() is not None)
            self._caches = (*caches, weakref.ref(cache))

    def remove(self, holder: DescriptorHolder) -> None:
        """Remove a holder of connections. May be called twice."""
        with self._guard:
            members = self._members
            self._members = tuple(each for each in members if each.holder() not in (None, holder))

    def missing(self) -> int:
        """Return how many descriptors of the reserve are in use and will not be closed soon."""
        missing = self.descriptors.missing()
        if missing:
            missing -= self._wanted + sum(each.leaving for each in self._members)
        return max(0, missing)

    def taken(self) -> None:
        """Restore the reserve. Called after a file was opened. Context: any thread."""
        if self._members or self._caches:
            self.restore()

    def restore(self) -> None:
        """Free as many descriptors as are missing from the reserve. Context: any thread."""
        with self._guard:
            wanted = self.missing()
            self._wanted += wanted
        try:
            for _ in range(wanted):
                if not self.make_room():
                    break
        finally:
            with self._guard:
                self._wanted -= wanted

    def make_room(self) -> bool:
        """Close a descriptor of a cache; if no cache has one, abort the connection idle longest.

        Context: any thread.

        Returns:
            False if no cache has a descriptor and no connection is idle. If the connection is on
            another loop, True does not guarantee a free descriptor: the connection may become
            active before it is aborted.
        """
        for each in self._caches:
            cache = each()
            if cache is not None and cache.give_up():
                return True
        return self._choose(frozenset())

    def _choose(self, tried: frozenset[_Member]) -> bool:
        idle = []
        for member in self._members:
            since = member.idle_since()
            if since is not None and member not in tried:
                idle.append((since, member))
        idle.sort(key=lambda each: each[0])
        return any(self._ask(member, tried) for _, member in idle)

    def _ask(self, member: _Member, tried: frozenset[_Member]) -> bool:
        holder, loop = member.holder(), member.loop()
        if holder is None or loop is None:
            return False
        if loop is asyncio._get_running_loop():
            return holder.make_room()
        if not loop.is_running():
            return False  # a stopped loop closes nothing
        self._count(member, 1)
        try:
            loop.call_soon_threadsafe(self._asked, member, tried | {member})
        except RuntimeError:  # the loop was closed before its listener
            self.remove(holder)
            return False
        return True

    def _asked(self, member: _Member, tried: frozenset[_Member]) -> None:
        """Abort a connection of `member` on its loop; if none is idle, try the other members."""
        holder = member.holder()
        done = False
        try:
            done = holder is not None and holder.make_room()
        finally:
            self._count(member, -1)
            if not done:
                self._choose(tried)

    def _count(self, member: _Member, more: int) -> None:
        with self._guard:
            member.asked += more


class _Member:
    """A holder, its loop, and the number of calls of `_asked` that the loop has not run yet.

    The references to holder and loop are weak. A holder can belong to a listener whose loop was
    closed before it. A strong reference would keep this listener alive, and its port in use.
    """

    __slots__ = ("asked", "holder", "loop")

    def __init__(self, holder: DescriptorHolder, loop: asyncio.AbstractEventLoop) -> None:
        self.holder = weakref.ref(holder)
        self.loop = weakref.ref(loop)
        self.asked = 0

    @property
    def leaving(self) -> int:
        """The number of descriptors that will soon be closed; 0 if the loop is not running."""
        holder, loop = self.holder(), self.loop()
        if holder is None or loop is None or not loop.is_running():
            return 0
        return holder.leaving + self.asked

    def idle_since(self) -> float | None:
        holder = self.holder()
        return None if holder is None else holder.idle_since(self.asked)


PROCESS: Final = DescriptorReserve(Descriptors())
"""The reserve of this process; global, because the operating system's limit is per process."""
