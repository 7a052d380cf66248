"""Handling of inherited resources in a forked child, which closes its copies of descriptors.

A child has copies of its parent's descriptors. As long as they are open, a port accepts connections
that nobody serves, a ``flock`` stays held, and peers do not see that a connection was closed.
Closing the copies must not affect the parent: the child releases no lock and removes nothing from
an epoll set, because the parent shares both. Objects registered with `watch` are notified of the
fork. Tests: tests/unit/core/test_forks.py, tests/fault/test_forks.py.
"""

from __future__ import annotations

import os
import select
import selectors
import socket
import sys
import weakref
from asyncio import AbstractEventLoop
from typing import Final, Protocol

__all__ = ["Descriptor", "Inherited", "close_copy", "watch", "watch_loop"]


class Inherited(Protocol):
    """An object that a forked child inherits from its parent."""

    def forget(self) -> None:
        """Release the child's copies of the parent's resources, without waiting or calling a loop.

        Must not raise. Must not wait for a lock: only the thread that forked exists in the child,
        so the lock may be held by a thread that no longer exists.
        """
        ...


_watched: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()
_loops: Final[weakref.WeakSet[AbstractEventLoop]] = weakref.WeakSet()


def watch(item: Inherited) -> None:
    """Call `item.forget()` in each forked child as long as `item` is referenced."""
    _watched.add(item)


def watch_loop(loop: AbstractEventLoop) -> None:
    """Prevent forked children from changing the epoll set of `loop`.

    A child that leaves a coroutine of its parent's loop (by ``sys.exit()`` or an exception) runs
    and closes its copy of the loop. asyncio then removes descriptors from the epoll set. The parent
    shares this set, so no thread could wake up the parent's loop any more.
    """
    _loops.add(loop)


class Descriptor:
    """An open file descriptor whose copy is closed in each forked child.

    This object does not own the descriptor. The owner keeps this object while the descriptor is
    open, and may keep it longer: a child does not close the number if it was reused for another
    file.
    """

    __slots__ = ("__weakref__", "_fd", "_identity")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._identity = _identity(fd)
        watch(self)

    def forget(self) -> None:
        """Close the child's copy, unless its number was reused."""
        try:
            if _identity(self._fd) != self._identity:
                return
        except OSError:
            return
        close_copy(self._fd)


def close_copy(fd: int) -> None:
    """Replace a child's copy of a descriptor with the null device, so that its number stays in use.

    If the number were reused for another file, the object that owns the descriptor would later
    close that file, or pass it to an epoll set.
    """
    try:
        # Close first, so that a descriptor is free for the null device.
        os.close(fd)
        null = os.open(os.devnull, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return
    _put(null, fd)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _put(source: int, fd: int) -> None:
    """Move an open file to another descriptor number."""
    if source != fd:
        os.dup2(source, fd, inheritable=False)
        os.close(source)


def _forget_loop(loop: AbstractEventLoop) -> None:
    """Give the child's copy of an asyncio loop its own epoll set and self-pipe.

    A uvloop needs neither: when it is closed, it removes from its epoll set only descriptors that
    are already closed.
    """
    selector = getattr(loop, "_selector", None)
    if sys.platform != "linux" or not isinstance(selector, selectors.EpollSelector):
        return
    if loop.is_closed():
        return
    reading, writing = getattr(loop, "_ssock", None), getattr(loop, "_csock", None)
    if not isinstance(reading, socket.socket) or not isinstance(writing, socket.socket):
        return
    try:
        for mine, fresh in zip((reading, writing), socket.socketpair(), strict=True):
            fresh.setblocking(False)
            _put(fresh.detach(), mine.fileno())
        with select.epoll() as poll:
            poll.register(reading.fileno(), select.EPOLLIN)
            os.dup2(poll.fileno(), selector.fileno(), inheritable=False)
    except OSError:
        return


def _after_fork_in_child() -> None:
    for item in list(_watched):
        item.forget()
    # Not again in a grandchild: by then the child may have closed the descriptors of these loops,
    # and may use their numbers for other files.
    loops = list(_loops)
    _loops.clear()
    for loop in loops:
        _forget_loop(loop)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
