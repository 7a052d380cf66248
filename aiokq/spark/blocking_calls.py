"""Threads for blocking calls to Spark; each call has a tag, by which its jobs can be cancelled.

If the wait for a running call is cancelled, `CancelledError` is raised only after the call has
ended. The public functions are in bridge.py.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from aiokq.spark.per_process import PerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["INTERRUPT_AGAIN", "THREADS", "call", "call_with_tag", "in_thread", "new_tag"]

logger = logging.getLogger("aiokq.spark")

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 16
"""Maximum number of simultaneous calls in this process; further calls wait for a thread."""
INTERRUPT_AGAIN: Final = 0.1
"""Seconds between two interrupts of a cancelled call.

One interrupt is not enough, because the call may start another job afterwards.
"""


class _Threads:
    """Thread pools of this process: at most THREADS threads for calls, one thread for interrupts.

    PySpark pins a JVM thread to each Python thread, so a new Python thread for each call would also
    need a new JVM thread. Interrupts have a thread of their own, because calls may occupy all other
    threads.
    """

    def __init__(self) -> None:
        self.calls = ThreadPoolExecutor(THREADS, "aiokq-spark")
        self.interrupts = ThreadPoolExecutor(1, "aiokq-spark-interrupt")


_these_threads = PerProcess(_Threads)


async def call(
    session: SparkSession, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run a blocking function that uses Spark, and return its result.

    Example: ``await call(spark, frame.write.parquet, "/data/orders")``. The function runs in a
    thread, so the event loop is not blocked. If the wait is cancelled, the jobs of the function are
    cancelled, and `CancelledError` is raised when the function has ended. Thread-local settings of
    Spark (scheduler pool, job description) have to be set in the function; they apply to this call
    only.

    Args:
        session: the session that the function uses; classic or Connect.
        function: called with a copy of the caller's `contextvars` context.

    Raises:
        Exception: the exception that the function raised.
    """
    return await call_with_tag(session, new_tag(), partial(function, *args, **kwargs))


def new_tag() -> str:
    return f"aiokq-{uuid.uuid4()}"


async def call_with_tag(session: SparkSession, tag: str, function: Callable[[], T]) -> T:
    """Run `function` like `call`, with the given tag. Several calls may share a tag."""
    return await in_thread(
        partial(_tagged, session, tag, function), partial(_interrupted, session, tag)
    )


async def in_thread(function: Callable[[], T], interrupt: Callable[[], None] | None = None) -> T:
    """Run a function in one of the threads, and return its result.

    If the wait for a running function is cancelled, `CancelledError` is raised only after the
    function has ended.

    Args:
        interrupt: function that is called repeatedly after the wait was cancelled, until `function`
            has ended.
    """
    threads = _these_threads()
    loop = asyncio.get_running_loop()
    work = partial(contextvars.copy_context().run, function)
    running: Future[T] = threads.calls.submit(work)
    ended: asyncio.Future[None] = loop.create_future()
    running.add_done_callback(partial(_notify, loop, ended))
    try:
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        if not running.cancel():
            await _end(threads, interrupt, ended)
            logger.debug("a cancelled call to Spark has ended: %r", running.exception())
        raise
    return running.result()


def _tagged(session: SparkSession, tag: str, work: Callable[[], T]) -> T:
    """Run `work` in this thread; the jobs that `work` starts have the tag.

    Threads are reused, so thread-local settings that `work` changes (tags, scheduler pool, job
    description) are restored for the next call. In Spark Connect, all tags of the thread are
    cleared instead.
    """
    restore: Callable[[], object]
    if _is_connect(session):
        session.addTag(tag)
        restore = session.clearTags
    else:
        context = session.sparkContext
        # The local properties, which include the tags, are copied here and restored after the call,
        # as in pyspark.util.inheritable_thread_target.
        jvm_context = context._jsc.sc()
        restore = partial(jvm_context.setLocalProperties, jvm_context.getLocalProperties().clone())
        context.addJobTag(tag)
        # Without this setting, blocked tasks of a cancelled job would not be interrupted, and would
        # keep their slots.
        context.setInterruptOnCancel(True)
    try:
        return work()
    finally:
        try:
            restore()
        except Exception:  # the session and its tags are gone; `work` may have succeeded anyway
            logger.debug(
                "thread-local settings were not restored after the call with tag %s",
                tag,
                exc_info=True,
            )


def _is_connect(session: SparkSession) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect.")


async def _end(
    threads: _Threads, interrupt: Callable[[], None] | None, ended: asyncio.Future[None]
) -> None:
    """Interrupt a call repeatedly until it has ended; ignore further cancellations."""
    interrupting: Future[None] | None = None
    while not ended.done():
        if interrupt is not None and (interrupting is None or interrupting.done()):
            interrupting = threads.interrupts.submit(interrupt)
        try:
            await asyncio.wait([ended], timeout=INTERRUPT_AGAIN)
        except asyncio.CancelledError:
            continue


def _interrupted(session: SparkSession, tag: str) -> None:
    try:
        if _is_connect(session):
            session.interruptTag(tag)
        else:
            session.sparkContext.cancelJobsWithTag(tag)
    except Exception:  # the session is gone or unreachable, which ends the call as well
        logger.debug("cannot cancel the jobs with the tag %s", tag, exc_info=True)


def _notify(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None], _: Future[T]) -> None:
    """Notify the loop that the call has ended; runs in the thread of the call."""
    try:
        loop.call_soon_threadsafe(_set, ended)
    except RuntimeError:
        logger.debug("a call to Spark outlived its event loop")


def _set(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
