"""`run_blocking`: runs blocking user code in threads, in order per partition.

The function differs from `asyncio.to_thread` in two points: it does not use the threads of the
loop's default executor, and calls about the same partition run one after another. Tests:
tests/unit/client/test_blocking.py.
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
"""The maximum number of concurrent calls per event loop; further calls wait for a thread."""


async def run_blocking(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a blocking function in a thread and return its result.

    The event loop keeps running, so that heartbeats are sent. If the first argument belongs to a
    partition (a record, a batch, a TopicPartition), calls about the same partition run one after
    another, in the order of the calls. Other calls run concurrently, 16 at most per event loop. The
    threads are not those of `asyncio.to_thread`, because name resolution needs those threads, too.

    If the call is cancelled before the function runs, the function never runs. If the call is
    cancelled later, the wait ends, but the function runs to its end. The next call about the same
    partition starts only after that. In both cases the caller gets CancelledError. In a group, if
    this error ends the consumer's `async with` block, the record that was being processed is not
    committed and will be delivered again.

    Args:
        function: called with the other arguments, in a copy of the current context.

    Raises:
        TypeError: the function is a coroutine function.
        Exception: the exception that the function raises.
    """
    if inspect.iscoroutinefunction(function):
        raise TypeError(
            f"{function!r} is a coroutine function, which does not block: await it instead"
        )
    loop = asyncio.get_running_loop()
    calls = _CALLS.get(loop)
    if calls is None:
        calls = _CALLS[loop] = BlockingCalls(BLOCKING_THREADS)
    call = partial(contextvars.copy_context().run, partial(function, *args, **kwargs))
    return await calls.run(_partition_of(args[0]) if args else None, call)


class BlockingCalls:
    """The threads of one event loop, and the last call of each partition.

    Args:
        threads: the maximum number of threads. A thread is started when needed, and ends with this
            object.
    """

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, "aiokq-blocking")
        self._last: dict[TopicPartition, asyncio.Future[None]] = {}

    async def run(self, tp: TopicPartition | None, call: Callable[[], R]) -> R:
        """Run `call` after the earlier calls of the same partition have ended."""
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
                # The next call of the partition must still wait for the call before this one.
                before.add_done_callback(lambda _: ended.set_result(None))
                raise
        # run_in_executor is not used: the future that it returns is done as soon as the wait is
        # cancelled, although the function still runs.
        running = self._executor.submit(call)
        running.add_done_callback(partial(_notify, loop, ended))
        waiting = asyncio.wrap_future(running)
        try:
            return await waiting
        except asyncio.CancelledError:
            # Log on the loop, before the next call of the partition starts.
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


def _notify(
    loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None], running: Future[R]
) -> None:
    """Notify the loop, from any thread, that the function has ended or will never run."""
    try:
        loop.call_soon_threadsafe(_set, ended)
    except RuntimeError:
        logger.debug("blocking call outlived its event loop")
        _log_failure(running)


def _set(ended: asyncio.Future[None]) -> None:
    ended.set_result(None)


def _log_failure(running: Future[R]) -> None:
    """Log the exception of a call for which nothing waits any more."""
    if not running.cancelled() and (error := running.exception()) is not None:
        logger.error("blocking call failed after its wait was cancelled", exc_info=error)
