"""Awaitable versions of the calls that block in PySpark, for classic sessions and Spark Connect.

    rows = await bridge.collect(frame)

A blocking call would stop all other work of the event loop. Therefore each call runs in a thread
(blocking_calls.py). handlers.py has foreachBatch for coroutine functions, and record_frames.py
makes frames from records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from aiokq.errors import ConfigError
from aiokq.spark.blocking_calls import call, call_with_tag, in_thread, new_tag
from aiokq.spark.handlers import (
    BatchHandler,
    ClientBatchHandler,
    foreach_batch,
    foreach_batch_with_client,
)
from aiokq.spark.record_frames import RecordsFrame, frame_of, frames

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = [
    "BatchHandler",
    "ClientBatchHandler",
    "RecordsFrame",
    "await_termination",
    "call",
    "chunks",
    "collect",
    "foreach_batch",
    "foreach_batch_with_client",
    "frame_of",
    "frames",
    "to_arrow",
]

LOOK_AGAIN: Final = 0.1
"""Seconds from one check of the query to the next check in `await_termination`."""


async def collect(frame: DataFrame) -> list[Row]:
    """Return all rows of a frame, like `DataFrame.collect`. Cancelling the wait cancels the jobs.

    Raises:
        PySparkException: Spark could not compute the frame.
    """
    return await call(frame.sparkSession, frame.collect)


async def to_arrow(frame: DataFrame) -> pa.Table:
    """Return all rows as an Arrow table, like `DataFrame.toArrow`.

    This function is several times as fast as `collect`.

    Raises:
        PySparkException: Spark could not compute the frame.
    """
    return await call(frame.sparkSession, frame.toArrow)


async def chunks(frame: DataFrame, rows: int = 1000) -> AsyncIterator[list[Row]]:
    """Yield the rows of a frame in lists; memory holds one partition of the frame at most.

    Example: ``async for chunk in bridge.chunks(frame)``. Spark computes a partition when its first
    row is requested. The rate is about 100,000 rows/s; `to_arrow` is much faster if all rows fit in
    memory.

    Args:
        rows: number of rows in a list; the last list may be shorter.

    Raises:
        ConfigError: `rows` is below 1.
        PySparkException: Spark could not compute the frame.
    """
    if rows < 1:
        raise ConfigError(f"rows={rows}: must be at least 1")
    session, tag = frame.sparkSession, new_tag()
    iterator: Iterator[Row] = await call_with_tag(session, tag, frame.toLocalIterator)
    try:
        while chunk := await call_with_tag(session, tag, partial(_taken, iterator, rows)):
            yield chunk
    finally:
        # The iterator is closed in a thread, because `close` blocks if rows are left: PySpark then
        # reads all rows that the JVM has already sent.
        held = [iterator]
        del iterator
        await in_thread(partial(_close, held))


def _taken(iterator: Iterator[Row], rows: int) -> list[Row]:
    return list(islice(iterator, rows))


def _close(held: list[Iterator[Row]]) -> None:
    iterator = held.pop()
    if isinstance(iterator, Generator):
        iterator.close()


async def await_termination(query: StreamingQuery, timeout: float | None = None) -> bool:
    """Wait until a streaming query ends, as `StreamingQuery.awaitTermination` does.

    The wait occupies a thread only for short checks. Cancelling the wait leaves the query running;
    stop it with ``await bridge.call(spark, query.stop)``.

    Args:
        timeout: maximum wait in seconds; None waits without limit.

    Returns:
        False if the query was still running after the timeout.

    Raises:
        StreamingQueryException: the query has failed.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    # awaitTermination takes fractions of a second, though its annotation says int.
    look = partial(query.awaitTermination, 0.01)  # type: ignore[arg-type]
    while not await in_thread(look):
        if deadline is not None and loop.time() >= deadline:
            return False
        await asyncio.sleep(LOOK_AGAIN)
    return True
