"""`LoopTime`: counts the time of the event loop that the requests of a connection take.

Tests: ``tests/unit/connection/test_loop_time.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["LoopTime", "StepCounter", "Timed"]

T = TypeVar("T")


class StepCounter(Protocol):
    """Counts the loop time of a coroutine's steps; a step is the work between two waits."""

    def begin(self) -> None:
        """Begin to count the time of a step."""
        ...

    def end(self) -> None:
        """Count the time since `begin`."""
        ...


class LoopTime:
    """Adds up the time for which the loop worked for a connection.

    The work consists of the steps of the connection's task, the receipt of bytes and the sending of
    held output. Waiting does not count.

    Args:
        now: returns the CPU time of the loop's thread in seconds. A monotonic clock would charge a
            client for the CPU time of other processes.
    """

    __slots__ = ("_began", "_now", "_spent")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._spent = 0.0
        self._began: float | None = None

    @property
    def is_running(self) -> bool:
        """Whether time is being counted."""
        return self._began is not None

    def begin(self) -> None:
        """Begin to count; discard the time since a `begin` without an `end`."""
        self._began = self._now()

    def end(self) -> None:
        """Stop counting; do nothing without a `begin`."""
        if self._began is not None:
            self._spent += self._now() - self._began
            self._began = None

    def take(self) -> float:
        """Return the seconds counted since the last call, including the step in progress."""
        spent, self._spent = self._spent, 0.0
        if self._began is not None:
            now = self._now()
            spent += now - self._began
            self._began = now
        return spent


class Timed(Generic[T]):
    """Awaits a coroutine, and counts the loop time of its steps."""

    __slots__ = ("_coro", "_loop_time")

    def __init__(self, coro: Coroutine[Any, Any, T], loop_time: StepCounter) -> None:
        self._coro = coro
        self._loop_time = loop_time

    def __await__(self) -> Generator[Any, Any, T]:
        steps, loop_time = self._coro.__await__(), self._loop_time
        error: BaseException | None = None
        try:
            while True:
                loop_time.begin()
                try:
                    waited = next(steps) if error is None else steps.throw(error)
                except StopIteration as result:
                    return result.value  # type: ignore[no-any-return]
                finally:
                    loop_time.end()
                error = None
                try:
                    yield waited
                except GeneratorExit:
                    raise
                except BaseException as raised:  # noqa: BLE001 - passed on to the coroutine
                    error = raised
        finally:
            steps.close()
