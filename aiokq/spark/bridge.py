"""Spark for asyncio: what blocks in PySpark, to be awaited; classic and Spark Connect.

    rows = await bridge.collect(frame)

Spark's calls freeze an event loop that makes them: none of its timers run meanwhile. Here each is
made in a thread (blocking_calls.py); cancelling the wait cancels the jobs. Nothing is bound to a
loop, so all of it works under one `asyncio.run` after another. Streams that call a coroutine
function are in handlers.py, frames made of records in record_frames.py.
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
"""Seconds between two looks at a query that is waited for."""


async def collect(frame: DataFrame) -> list[Row]:
    """All rows of a frame; `DataFrame.collect`. Cancelling the wait cancels the jobs.

    Raises:
        PySparkException: whatever Spark raises.
    """
    return await call(frame.sparkSession, frame.collect)


async def to_arrow(frame: DataFrame) -> pa.Table:
    """All rows of a frame as Arrow, several times as fast as `collect`; `DataFrame.toArrow`.

    Raises:
        PySparkException: whatever Spark raises.
    """
    return await call(frame.sparkSession, frame.toArrow)


async def chunks(frame: DataFrame, rows: int = 1000) -> AsyncIterator[list[Row]]:
    """The rows of a frame, so many at a time; memory holds one partition of it at most.

    ``async for chunk in bridge.chunks(frame)``. Spark computes a partition when its rows are asked
    for. About 100,000 rows/s: where all fit in memory, `to_arrow` is faster by far.

    Args:
        rows: of a chunk; the last one may be shorter.

    Raises:
        ConfigError: fewer than one row.
        PySparkException: whatever Spark raises.
    """
    if rows < 1:
        raise ConfigError(f"rows={rows}: at least 1")
    session, tag = frame.sparkSession, new_tag()
    iterator: Iterator[Row] = await call_with_tag(session, tag, frame.toLocalIterator)
    try:
        while chunk := await call_with_tag(session, tag, partial(_taken, iterator, rows)):
            yield chunk
    finally:
        # Ending it early drains what the JVM has sent already: not on the event loop.
        held = [iterator]
        del iterator
        await in_thread(partial(_close, held))


def _taken(iterator: Iterator[Row], rows: int) -> list[Row]:
    return list(islice(iterator, rows))


def _close(held: list[Iterator[Row]]) -> None:
    """Iterators of PySpark are generators, and stop the job when they are gone."""
    iterator = held.pop()
    if isinstance(iterator, Generator):
        iterator.close()


async def await_termination(query: StreamingQuery, timeout: float | None = None) -> bool:
    """Wait until a streaming query ends; `StreamingQuery.awaitTermination`.

    Holds no thread while it waits. Cancelling the wait leaves the query running: `query.stop` is
    for that, ``await bridge.call(spark, query.stop)``.

    Args:
        timeout: seconds.

    Returns:
        False if it still ran after the timeout.

    Raises:
        StreamingQueryException: the query has failed.
    """
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    # It takes fractions of a second, though its types do not say so.
    look = partial(query.awaitTermination, 0.01)  # type: ignore[arg-type]
    while not await in_thread(look):
        if deadline is not None and loop.time() >= deadline:
            return False
        await asyncio.sleep(LOOK_AGAIN)
    return True
