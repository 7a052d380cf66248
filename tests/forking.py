"""A forked child in the middle of a test."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")

LIMIT = 30
"""Seconds until a child that hangs is killed."""


def fork() -> int:
    """Call os.fork() without the warning that Python 3.12 and later give if threads run."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return os.fork()


def in_child(work: Callable[[], object]) -> str:
    """Runs `work` in a forked child; what it returned, or its traceback, as text."""
    read, write = os.pipe()
    child = fork()
    if child == 0:
        signal.alarm(LIMIT)
        try:
            said = str(work())
        except BaseException:
            said = traceback.format_exc()
        os.write(write, said.encode()[:60_000])
        os._exit(0)  # the test goes on in the parent only
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with {status}: {said}"
    return said


class LivingChild:
    """A forked child that does nothing until the block ends: it has what its parent had."""

    def __enter__(self) -> LivingChild:
        read, write = os.pipe()
        ready, tell = os.pipe()
        self.pid = fork()
        if self.pid == 0:
            signal.alarm(LIMIT)
            os.close(write)
            os.write(tell, b"!")
            os.read(read, 1)
            os._exit(0)
        os.close(read)
        os.close(tell)
        os.read(ready, 1)
        os.close(ready)
        self._end = write
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._end)
        os.waitpid(self.pid, 0)
