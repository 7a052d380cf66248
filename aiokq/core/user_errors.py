"""Owns the form in which what user code raised goes on; what becomes of the work is its caller's.

User code that is called synchronously may raise anything: the panics of Rust extensions are no
Exceptions, and some exceptions mean something else to a coroutine or an iterator than they meant
where they were raised.
"""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["INTERRUPTS", "closed_here", "passable"]

INTERRUPTS: Final = (KeyboardInterrupt, SystemExit)
"""What ends the program: raised on, wherever user code raises it."""

_MEANS_SOMETHING_ELSE: Final = (
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    asyncio.CancelledError,
)


def passable(error: BaseException, where: str) -> BaseException:
    """What user code raised, as our coroutines and iterators can raise it.

    StopIteration and StopAsyncIteration would pass for the end of a loop or for its next item,
    GeneratorExit for the end of a generator, CancelledError for the cancellation of the task that
    made the call. A RuntimeError stands for them, with the original as its cause.

    Args:
        where: the user code that raised it; begins the message.
    """
    if not isinstance(error, _MEANS_SOMETHING_ELSE):
        return error
    made = RuntimeError(f"{where} raised {type(error).__name__}")
    made.__cause__ = error
    return made


def closed_here(error: GeneratorExit) -> bool:
    """Whether the coroutine that catches this is being closed.

    Call it in the `except` clause around an `await` of a coroutine. Closing ends the awaited
    coroutine first and raises in the closed one itself; what code inside raised has that code's
    frames in its traceback.
    """
    traceback = error.__traceback__
    return traceback is None or traceback.tb_next is None
