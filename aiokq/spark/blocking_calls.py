"""Calls of Spark that block, in threads, each with a tag to cancel its jobs by.

What an application awaits is in bridge.py. A wait that is cancelled ends when the thread is free
again: no call and no job is left running behind the caller's back.
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
"""Calls that run at a time in this process; others wait for a thread."""
INTERRUPT_AGAIN: Final = 0.1
"""Seconds; a call that is cancelled may not have started its job yet, or start another one."""


class _Threads:
    """The threads of this process; made when needed, at most so many, and kept.

    PySpark pins a thread of the JVM to each thread of Python: with a thread per call both would
    be made each time. Interrupting has a thread of its own, as calls may fill the others.
    """

    def __init__(self) -> None:
        self.calls = ThreadPoolExecutor(THREADS, "aiokq-spark")
        self.interrupts = ThreadPoolExecutor(1, "aiokq-spark-interrupt")


_these_threads = PerProcess(_Threads)


async def call(
    session: SparkSession, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function that asks Spark and blocks, in a thread, and wait for what it returns.

    ``await call(spark, frame.write.parquet, "/data/orders")``. The event loop runs on meanwhile.
    Jobs that the function starts have a tag of this call. Cancelling the wait cancels them, waits
    until the function has ended, and only then raises `CancelledError`. What Spark keeps by thread
    (a scheduler's pool, a job's description) is to be set in the function, and holds for it alone.

    Args:
        session: the session that the function uses; classic or Connect.
        function: called in a copy of the present context.

    Raises:
        whatever the function raises.
    """
    return await call_with_tag(session, new_tag(), partial(function, *args, **kwargs))


def new_tag() -> str:
    """A tag that no other call has, of any process."""
    return f"aiokq-{uuid.uuid4()}"


async def call_with_tag(session: SparkSession, tag: str, function: Callable[[], T]) -> T:
    """As `call`, where several calls are one to Spark, as those of an iterator."""
    return await in_thread(
        partial(_tagged, session, tag, function), partial(_interrupted, session, tag)
    )


async def in_thread(function: Callable[[], T], interrupt: Callable[[], None] | None = None) -> T:
    """Call a function in one of the threads; the wait ends when it has ended, not before.

    Args:
        interrupt: called, again and again, while a wait that was cancelled is not over.
    """
    threads = _these_threads()
    loop = asyncio.get_running_loop()
    work = partial(contextvars.copy_context().run, function)
    running: Future[T] = threads.calls.submit(work)
    ended: asyncio.Future[None] = loop.create_future()
    running.add_done_callback(partial(_tell, loop, ended))
    try:
        await asyncio.shield(ended)
    except asyncio.CancelledError:
        if not running.cancel():
            await _end(threads, interrupt, ended)
            logger.debug("a cancelled call of Spark has ended: %r", running.exception())
        raise
    return running.result()


def _tagged(session: SparkSession, tag: str, work: Callable[[], T]) -> T:
    """In the thread: whatever the session runs here has the tag.

    The thread is used again: what `work` sets for its thread (a tag, a scheduler's pool, a job's
    description) is gone for the next call.
    """
    restore: Callable[[], object]
    if _is_connect(session):
        session.addTag(tag)
        restore = session.clearTags
    else:
        context = session.sparkContext
        # As pyspark.util.inheritable_thread_target has them. Tags are among them.
        jvm_context = context._jsc.sc()
        restore = partial(jvm_context.setLocalProperties, jvm_context.getLocalProperties().clone())
        context.addJobTag(tag)
        # Else tasks that wait are left to wait, and keep their slots.
        context.setInterruptOnCancel(True)
    try:
        return work()
    finally:
        try:
            restore()
        except Exception:  # the session is gone, and its tags with it; what `work` did counts
            logger.debug("what the thread had for tag %s was not taken back", tag, exc_info=True)


def _is_connect(session: SparkSession) -> bool:
    """A classic session knows the tags of the asking thread only, its context those of all."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


async def _end(
    threads: _Threads, interrupt: Callable[[], None] | None, ended: asyncio.Future[None]
) -> None:
    """Interrupt a call until it has ended; a further cancellation changes nothing."""
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
    except Exception:  # the session is gone or out of reach: the call ends by that, too
        logger.debug("jobs with the tag %s were not cancelled", tag, exc_info=True)


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None], _: Future[T]) -> None:
    """In the thread: the call has ended."""
    try:
        loop.call_soon_threadsafe(_set, ended)
    except RuntimeError:
        logger.debug("a call of Spark outlived its event loop")


def _set(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
