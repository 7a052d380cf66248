"""Owns what a forked child does about things of its parent: it forgets them.

A child has copies of its parent's descriptors. While it keeps them, a port accepts connections that
nobody serves, a ``flock`` stays held, and peers do not see that a connection was closed. So the
child closes its copies. It does nothing that the parent would notice: no lock is released and
nothing is removed from an epoll set, both of which are shared. Objects learn of the fork by the
same registry. Tests: tests/unit/core/test_forks.py, tests/fault/test_forks.py.
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

__all__ = ["Descriptor", "Inherited", "watch", "watch_loop"]


class Inherited(Protocol):
    """Something that a forked child has of its parent."""

    def forget(self) -> None:
        """In the child: this is the parent's. Must not raise, wait, or call an event loop.

        Only the thread that forked exists here: a lock may be held by one that does not.
        """
        ...


_watched: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()
_loops: Final[weakref.WeakSet[AbstractEventLoop]] = weakref.WeakSet()


def watch(item: Inherited) -> None:
    """Have `item.forget()` called in each forked child, as long as somebody refers to the item."""
    _watched.add(item)


def watch_loop(loop: AbstractEventLoop) -> None:
    """Keep children away from what this loop waits for.

    A child that leaves a coroutine of its parent's loop (by ``sys.exit()``, or an exception) runs
    and closes its copy of the loop. asyncio then removes descriptors from the epoll set, which is
    the parent's too: no thread could wake the parent's loop any more.
    """
    _loops.add(loop)


class Descriptor:
    """An open descriptor that forked children close their copies of.

    It does not own the descriptor. Whoever does keeps this object as long as it is open, and
    may keep it longer: a number that is another file's by then is left alone.
    """

    __slots__ = ("__weakref__", "_fd", "_identity")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._identity = _identity(fd)
        watch(self)

    def forget(self) -> None:
        """In the child: close the copy. The number stays taken, by the null device.

        The object that the number belongs to will close it some time, or ask an epoll set about it.
        """
        try:
            if _identity(self._fd) != self._identity:
                return
            # Closed first, so that there is a free descriptor for the null device.
            os.close(self._fd)
            null = os.open(os.devnull, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            return
        _put(null, self._fd)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _put(source: int, fd: int) -> None:
    """Moves an open file to another number."""
    if source != fd:
        os.dup2(source, fd, inheritable=False)
        os.close(source)


def _forget_loop(loop: AbstractEventLoop) -> None:
    """Gives the child's copy of asyncio's loop an epoll set and a self-pipe of its own.

    uvloop's needs neither: closing it asks the set only about descriptors that are closed above.
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
    for loop in list(_loops):
        _forget_loop(loop)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
