"""`LoopBinding`, which binds an object to its event loop and process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import NoReturn

from aiokq.core import forks
from aiokq.core.errors import Closed, WrongLoop
from aiokq.fastpath import LoopGuard

__all__ = ["LoopBinding", "refuse_pickling"]


class LoopBinding:
    """Binding of an object to an event loop and process, checked at each use of the object.

    Without the check, a future of another loop would never complete, and a forked child that uses
    its parent's sockets would mix the bytes of two processes.

    Args:
        owner: name of the object in error messages.
        on_fork: called in a forked child, see `forks.Inherited`.

    Attributes:
        guard: makes the same check as `check`, for `aiokq.fastpath`.
    """

    __slots__ = ("__weakref__", "_loop", "_on_fork", "_owner", "_pid", "guard")

    def __init__(self, owner: str, on_fork: Callable[[], None] | None = None) -> None:
        self._owner = owner
        self._on_fork = on_fork
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self.guard = LoopGuard(self.check)

    @property
    def bound(self) -> bool:
        """Whether `bind` was called."""
        return self._loop is not None

    def bind(self) -> None:
        """Bind to the running loop and this process; later calls only check.

        Raises:
            WrongLoop: the object is bound to another loop or process.
            RuntimeError: no loop is running.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._pid = os.getpid()
            forks.watch(self)
            forks.watch_loop(self._loop)
        else:
            self.check()

    def check_bound(self) -> None:
        """Check as `check` does, but do nothing before `bind`.

        Raises:
            WrongLoop: called on another loop, without a loop, or in a forked child.
        """
        if self._loop is not None:
            self.check()

    def time(self) -> float:
        """Return the time in seconds of the bound loop, or of the running loop if not bound.

        After `bind`, any thread may call this method.
        """
        return (self._loop or asyncio.get_running_loop()).time()

    def check(self) -> None:
        """Check that the object is used on its loop and in its process.

        Raises:
            Closed: `bind` was not called.
            WrongLoop: called on another loop, without a loop, or in a forked child.
        """
        if self._loop is None:
            raise Closed(f"{self._owner} is not started: use `async with`, or await start()")
        if os.getpid() != self._pid:
            raise WrongLoop(
                f"{self._owner} was started in process {self._pid} and does not survive a fork: "
                f"create a new one in process {os.getpid()}"
            )
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not self._loop:
            where = "outside any event loop" if running is None else "on another event loop"
            raise WrongLoop(
                f"{self._owner} belongs to the event loop on which it was started, and was used "
                f"{where}: create one per event loop, or make the call by "
                "asyncio.run_coroutine_threadsafe"
            )

    @property
    def forked(self) -> bool:
        """Whether this process is a forked child of the bound process.

        In a forked child, the owner does nothing when it is closed or collected.
        """
        return self._loop is not None and os.getpid() != self._pid

    def forget(self) -> None:
        """Handle a fork, in the child; see `forks.Inherited`."""
        self.guard.forget()
        if self._on_fork is not None:
            self._on_fork()


def refuse_pickling(client: object) -> NoReturn:
    """Refuse to pickle a client, because its event loop and sockets work only in this process.

    Raises:
        WrongLoop: always; the message says what to pickle instead.
    """
    name = type(client).__name__
    raise WrongLoop(
        f"a {name} cannot be pickled or copied: it belongs to its event loop and process. Send "
        f"its settings, and create a {name} from them there; in Spark's handlers and workers call "
        "aiokq.spark.worker_client(settings)"
    )
