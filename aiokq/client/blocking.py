"""run_blocking: user code that blocks, in threads, in order per partition; reading is the caller's.

As `asyncio.to_thread`, with two rules of its own: so many threads and no more, and what concerns
one partition runs one after another. Tests: tests/unit/client/test_blocking.py.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from aiokq.core.types import TopicPartition

__all__ = ["BLOCKING_THREADS", "run_blocking"]

logger = logging.getLogger("aiokq.client")

P = ParamSpec("P")
R = TypeVar("R")

BLOCKING_THREADS: Final = 16
"""Calls that run at a time, of one event loop; others wait for a thread."""


async def run_blocking(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function that blocks in a thread, and wait for what it returns.

    The event loop runs on meanwhile, and heartbeats with it. Where the first argument is of a
    partition (a record, a batch, a TopicPartition), calls about the same partition run one after
    another, in the order they were asked for; others side by side, 16 at most for each event loop.
    The threads are not those of `asyncio.to_thread`, which name resolution needs too.

    Cancelled before it runs, it never does; cancelled later, the wait ends and the function runs
    on, before the next one of its partition. A record is then not finished, and will come again.

    Args:
        function: called with the other arguments, in a copy of the present context.

    Raises:
        TypeError: it is a coroutine function.
        whatever the function raises.
    """
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{function!r} is a coroutine function, which does not block: await it")
    loop = asyncio.get_running_loop()
    calls = _CALLS.get(loop)
    if calls is None:
        calls = _CALLS[loop] = BlockingCalls(BLOCKING_THREADS)
    call = partial(contextvars.copy_context().run, partial(function, *args, **kwargs))
    return await calls.run(_partition_of(args[0]) if args else None, call)


class BlockingCalls:
    """The threads of one event loop, and the line of calls before each partition.

    Args:
        threads: that run at a time; made when needed, and gone with this object.
    """

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, "aiokq-blocking")
        self._last: dict[TopicPartition, asyncio.Future[None]] = {}

    async def run(self, tp: TopicPartition | None, call: Callable[[], R]) -> R:
        """Call it when those before it, about the same partition, have ended."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        before = None
        if tp is not None:
            before = self._last.get(tp)
            self._last[tp] = ended
            ended.add_done_callback(partial(self._forget, tp))
        if before is not None:
            try:
                await asyncio.shield(before)
            except asyncio.CancelledError:
                # Whoever comes next waits for those before, as this one would have.
                before.add_done_callback(lambda _: ended.set_result(None))
                raise
        # Not run_in_executor: a wait that is cancelled there looks as if the function had ended.
        running = self._executor.submit(call)
        running.add_done_callback(partial(_tell, loop, ended))
        waiting = asyncio.wrap_future(running)
        try:
            return await waiting
        except asyncio.CancelledError:
            # On the loop, so that it is logged before whoever comes next has an answer.
            ended.add_done_callback(lambda _: _log_failure(running))
            raise

    def _forget(self, tp: TopicPartition, ended: asyncio.Future[None]) -> None:
        if self._last.get(tp) is ended:
            del self._last[tp]


_CALLS: WeakKeyDictionary[asyncio.AbstractEventLoop, BlockingCalls] = WeakKeyDictionary()


def _partition_of(item: object) -> TopicPartition | None:
    topic, number = getattr(item, "topic", None), getattr(item, "partition", None)
    if isinstance(topic, str) and isinstance(number, int):
        return TopicPartition(topic, number)
    return None


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None], running: Future[R]) -> None:
    """In the thread: the function has ended, or will never run."""
    try:
        loop.call_soon_threadsafe(_set, ended)
    except RuntimeError:
        logger.debug("blocking call outlived its event loop")
        _log_failure(running)


def _set(ended: asyncio.Future[None]) -> None:
    ended.set_result(None)


def _log_failure(running: Future[R]) -> None:
    """Nobody waits for it any more, so nobody else would hear of it."""
    if not running.cancelled() and (error := running.exception()) is not None:
        logger.error("blocking call failed after its wait was cancelled", exc_info=error)
