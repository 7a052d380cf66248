"""Owns what gives up a descriptor when few are left: a log file first, then an idle connection.

The limit is the process's, and so is the choice: a server that has no idle connection gets the
descriptor of one that has, which may run on another loop. A connection that is closed has its
descriptor for another turn of its loop, so those on their way are counted: else each server, and
each file that is opened meanwhile, would have one more closed for the same want.

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
    """What has connections that may be closed, all on one loop."""

    @property
    def leaving(self) -> int:
        """Connections that it has aborted, and that have their descriptors yet. In any thread."""
        ...

    def idle_since(self, behind: int) -> float | None:
        """Since when a connection is idle, on the monotonic clock. In any thread.

        Args:
            behind: how many others have been idle longer than the one that is asked for.

        Returns:
            None if there are not so many.
        """
        ...

    def make_room(self) -> bool:
        """Abort the connection that has been idle longest. On its loop.

        Returns:
            False if there is none.
        """
        ...


class DescriptorCache(Protocol):
    """What holds descriptors that it can have again at any time, such as those of files."""

    def give_up(self) -> bool:
        """Let go of one. In any thread.

        Returns:
            False if it holds none.
        """
        ...


class DescriptorReserve:
    """The descriptors that are kept for files, and the holders of those that are not.

    In a forked child there is no holder and no cache: they are its parent's.

    Attributes:
        descriptors: counts them.
    """

    __slots__ = ("__weakref__", "_caches", "_guard", "_members", "_wanted", "descriptors")

    def __init__(self, descriptors: Descriptors) -> None:
        self.descriptors = descriptors
        forks.watch(self)
        self.forget()

    def forget(self) -> None:
        """Begin without holders."""
        self._guard = threading.RLock()  # not Lock: a holder may be collected while it is held
        # Replaced, never changed, as any thread reads them.
        self._caches: tuple[weakref.ref[DescriptorCache], ...] = ()
        self._members: tuple[_Member, ...] = ()
        self._wanted = 0  # connections that a thread is about to choose

    def add(self, holder: DescriptorHolder) -> None:
        """Choose among its connections, too, until `remove`. On its loop; nothing is kept alive."""
        member = _Member(holder, asyncio.get_running_loop())
        with self._guard:
            self._members = (*(each for each in self._members if each.holder()), member)

    def add_cache(self, cache: DescriptorCache) -> None:
        """Have it give up what it holds before a connection is closed; nothing is kept alive."""
        with self._guard:
            caches = (each for each in self._caches if each() is not None)
            self._caches = (*caches, weakref.ref(cache))

    def remove(self, holder: DescriptorHolder) -> None:
        """Leave its connections alone. Safe twice."""
        with self._guard:
            members = self._members
            self._members = tuple(each for each in members if each.holder() not in (None, holder))

    def missing(self) -> int:
        """How many of the reserve are in use, and are not about to be given back."""
        missing = self.descriptors.missing()
        if missing:
            missing -= self._wanted + sum(each.leaving for each in self._members)
        return max(0, missing)

    def taken(self) -> None:
        """A file that stays open was opened, in any thread."""
        if self._members or self._caches:
            self.restore()

    def restore(self) -> None:
        """Have as many given up as descriptors are missing. In any thread."""
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
        """Have a cache give up a descriptor, or the connection closed that has been idle longest.

        In any thread.

        Returns:
            False if there is none. True is no more than probable where it is another loop's: that
            one may find it at work.
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
            return False  # a loop that was stopped closes nothing
        self._count(member, 1)
        try:
            loop.call_soon_threadsafe(self._asked, member, tried | {member})
        except RuntimeError:  # a loop that was closed before its listener
            self.remove(holder)
            return False
        return True

    def _asked(self, member: _Member, tried: frozenset[_Member]) -> None:
        """On the loop of a holder that was chosen: another one is asked if it has none by now."""
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
    """A holder, with the connections that it was asked for from other threads.

    It keeps neither holder nor loop: a listener whose loop was closed before it must not stay, with
    its port, for this.
    """

    __slots__ = ("asked", "holder", "loop")

    def __init__(self, holder: DescriptorHolder, loop: asyncio.AbstractEventLoop) -> None:
        self.holder = weakref.ref(holder)
        self.loop = weakref.ref(loop)
        self.asked = 0

    @property
    def leaving(self) -> int:
        """Connections whose descriptors come back soon: none on a loop that does not run."""
        holder, loop = self.holder(), self.loop()
        if holder is None or loop is None or not loop.is_running():
            return 0
        return holder.leaving + self.asked

    def idle_since(self) -> float | None:
        holder = self.holder()
        return None if holder is None else holder.idle_since(self.asked)


PROCESS: Final = DescriptorReserve(Descriptors())
"""Global, as the process has one limit; it holds no resources."""
