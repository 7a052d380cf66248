"""PerProcess: factory of objects that exist once per process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["PerProcess"]

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Factory of an object that exists once per process; a forked child makes a new object.

    The factory can be called in any thread. Create factories only at import, because each factory
    registers a fork hook, which is never removed.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        # The lock is replaced, because another thread of the parent process may have held it at the
        # fork.
        self._lock = threading.Lock()
        self._made: T | None = None
        self._pid = os.getpid()

    def __call__(self) -> T:
        with self._lock:
            # The process id is compared, because a fork by C code does not run Python's fork hooks.
            if self._made is None or self._pid != os.getpid():
                self._made, self._pid = self._make(), os.getpid()
            return self._made
