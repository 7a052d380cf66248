"""Conversion of exceptions of user code, so that coroutines and iterators can raise them.

User code that is called synchronously may raise any exception, even one that does not derive from
Exception, such as a panic of a Rust extension. Some exceptions must be converted, because Python
interprets them as signals if a coroutine or an iterator raises them.
"""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["INTERRUPTS", "closed_here", "is_for_caller", "passable", "place_of"]

INTERRUPTS: Final = (KeyboardInterrupt, SystemExit)
"""Exceptions that end the program; raised again wherever user code raises them."""

_MEANS_SOMETHING_ELSE: Final = (
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    asyncio.CancelledError,
)


def passable(error: BaseException, where: str) -> BaseException:
    """Return `error`, or an error to raise in its place from a coroutine or an iterator.

    An iterator that raises StopIteration or StopAsyncIteration ends the caller's loop, and an
    awaitable that raises StopIteration returns its value. GeneratorExit would end a generator, and
    CancelledError would look like the cancellation of the calling task. These four exceptions are
    replaced by a RuntimeError with the original as its cause.

    Args:
        where: the user code that raised `error`, as the first words of the message.
    """
    if not isinstance(error, _MEANS_SOMETHING_ELSE):
        return error
    made = RuntimeError(f"{where} raised {type(error).__name__}")
    made.__cause__ = error
    return made


def closed_here(error: GeneratorExit) -> bool:
    """Return whether the calling coroutine is being closed.

    Call this in an `except GeneratorExit` clause around an `await` of a coroutine. If the calling
    coroutine is closed, Python closes the awaited coroutine and then raises `error` in the caller,
    so that the traceback of `error` has only the caller's frame. If code inside the `await` raised
    `error`, the traceback has frames of that code, too.
    """
    traceback = error.__traceback__
    return traceback is None or traceback.tb_next is None


def is_for_caller(error: BaseException) -> bool:
    """Return whether an exception concerns the calling coroutine, not the code that it calls.

    This is so if the exception ends the program or cancels the current task, or if the calling
    coroutine is being closed. Code of the user may raise CancelledError and GeneratorExit itself;
    these are errors of that code. Call this in an `except` clause of the coroutine.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        return closed_here(error)
    return isinstance(error, INTERRUPTS)


def place_of(error: BaseException, frames: int) -> str:
    """Return the last files, lines and functions of a traceback, the innermost last.

    They are shown in place of the text of an exception that may contain a secret.
    """
    import traceback

    found = traceback.extract_tb(error.__traceback__, limit=-frames)
    return " > ".join(f"{one.filename}:{one.lineno} in {one.name}" for one in found)
