"""Exceptions of user code in a form that coroutines and iterators can raise.

User code that is called synchronously may raise anything: panics of Rust extensions do not derive
from Exception, and some exceptions mean something else when a coroutine or an iterator raises them.
"""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["INTERRUPTS", "closed_here", "passable"]

INTERRUPTS: Final = (KeyboardInterrupt, SystemExit)
"""Exceptions that end the program; raised again wherever user code raises them."""

_MEANS_SOMETHING_ELSE: Final = (
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    asyncio.CancelledError,
)


def passable(error: BaseException, where: str) -> BaseException:
    """Return an exception of user code as coroutines and iterators can raise it.

    An iterator that raises StopIteration or StopAsyncIteration ends the caller's loop, and an
    awaitable that raises StopIteration returns its value. GeneratorExit would end a generator, and
    CancelledError would look like the cancellation of the calling task. These four exceptions are
    replaced by a RuntimeError with the original as its cause.

    Args:
        where: the user code that raised `error`; begins the message.
    """
    if not isinstance(error, _MEANS_SOMETHING_ELSE):
        return error
    made = RuntimeError(f"{where} raised {type(error).__name__}")
    made.__cause__ = error
    return made


def closed_here(error: GeneratorExit) -> bool:
    """Return whether the calling coroutine is being closed.

    Call it in the `except` clause around an `await` of a coroutine. If the calling coroutine is
    closed, Python closes the awaited coroutine and then raises `error` in the caller, so that the
    traceback of `error` has only the caller's frame. If inner code raised `error`, the traceback
    has frames of that code, too.
    """
    traceback = error.__traceback__
    return traceback is None or traceback.tb_next is None
