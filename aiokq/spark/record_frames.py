"""Kafka records as DataFrames: consumed batches are converted to Arrow, then to a frame.

These functions are for records that the application has consumed. If Spark is to read the topics
itself, use ``format("aiokq")``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from aiokq import RecordBatch, TopicPartition
from aiokq.errors import ConfigError, CorruptRecord
from aiokq.spark.blocking_calls import call, in_thread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["RecordsFrame", "frame_of", "frames"]


@dataclass(frozen=True)
class RecordsFrame:
    """A frame of records, and the offsets after them.

    Attributes:
        frame: frame with the columns of Spark's Kafka source.
        rows: number of rows.
        offsets: offset of the next record of each partition; pass the offsets to `Consumer.commit`
            when the frame has been processed.
    """

    frame: DataFrame
    rows: int
    offsets: dict[TopicPartition, int]


async def frame_of(
    spark: SparkSession,
    batches: Iterable[RecordBatch[Any]],
    *,
    columns: Iterable[str] | None = None,
) -> DataFrame:
    """Return a frame with the records of batches, for example of ``consumer.batches()``.

    Args:
        columns: columns of Spark's Kafka source, in order; default: all columns except headers.

    Raises:
        ConfigError: `batches` is empty, so the frame would have no schema.
        CorruptRecord: a checksum is wrong, or a batch cannot be decoded.
        ValueError: a column in `columns` does not exist.
    """
    held = list(batches)
    if not held:
        raise ConfigError("frame_of() needs at least one batch")
    return await call(spark, _made, spark, held, _chosen(columns))


async def frames(
    spark: SparkSession,
    source: AsyncIterable[RecordBatch[Any]],
    *,
    max_rows: int = 100_000,
    max_wait: float = 1.0,
    columns: Iterable[str] | None = None,
) -> AsyncIterator[RecordsFrame]:
    """Yield the batches of a source as frames, which are never empty.

    Example: ``async for part in frames(spark, consumer.batches())``. Nothing is read ahead while a
    frame is processed, so memory holds one frame at most. The iteration ends with the source. In a
    consumer group, set ``enable_auto_commit=False`` and commit `RecordsFrame.offsets`. Automatic
    commits could lose records, because they may commit a batch before its frame is processed.

    Args:
        source: iterator of batches. Cancelling the wait for its next batch must not lose a batch;
            this is true of ``consumer.batches()``, but not of async generators.
        max_rows: number of rows at which a frame is complete. Batches are not divided, so a frame
            may have more rows.
        max_wait: maximum seconds from the first batch of a frame until the frame is complete.
        columns: columns of Spark's Kafka source, in order; default: all columns except headers.

    Raises:
        ConfigError: a limit is not positive.
        CorruptRecord: a batch of the log cannot be decoded; the partition pauses until `seek()`.
        Exception: the source raised an error. Batches before the error are yielded first.
    """
    if max_rows < 1 or max_wait <= 0:
        raise ConfigError(f"max_rows={max_rows}, max_wait={max_wait}: must be positive")
    chosen = _chosen(columns)
    batches = aiter(source)
    while True:
        found = await _gather(batches, chosen, max_rows, max_wait)
        if found.parts:
            frame = await call(spark, _frame, spark, found.parts)
            yield RecordsFrame(frame, found.rows, found.offsets)
        if found.failure is not None:
            raise found.failure
        if found.ended:
            return


@dataclass
class _Gathered:
    """Decoded batches for one frame, and the end or failure of the source after these batches."""

    parts: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    ended: bool = False
    failure: Exception | None = None


async def _gather(
    batches: AsyncIterator[RecordBatch[Any]],
    columns: tuple[str, ...],
    max_rows: int,
    max_wait: float,
) -> _Gathered:
    """Take batches until there are `max_rows`, `max_wait` has passed, or the source ends or fails.

    A corrupt batch counts as a failure of the source.
    """
    found = _Gathered()
    now = asyncio.get_running_loop().time
    deadline: float | None = None
    while (
        found.rows < max_rows and found.failure is None and (deadline is None or now() < deadline)
    ):
        try:
            async with asyncio.timeout_at(deadline) as timeout:
                batch = await anext(batches)
        except TimeoutError as error:
            found.failure = None if timeout.expired() else error
            break
        except StopAsyncIteration:
            found.ended = True
            break
        except Exception as error:  # noqa: BLE001  `frames` raises it after the earlier rows
            found.failure = error
            break
        # The batch is decoded before the next batch is requested, because that request marks this
        # batch as processed.
        try:
            part = await in_thread(partial(batch.to_arrow, columns))
        except CorruptRecord as error:
            found.failure = error
            # The second call returns the records before the corrupt batch.
            part = await in_thread(partial(batch.to_arrow, columns))
        if part.num_rows:
            found.parts.append(part)
            found.offsets[TopicPartition(batch.topic, batch.partition)] = batch.next_offset
            found.rows += part.num_rows
            deadline = now() + max_wait if deadline is None else deadline
    return found


def _chosen(columns: Iterable[str] | None) -> tuple[str, ...]:
    from aiokq.spark.schema import default_columns

    return default_columns(include_headers=False) if columns is None else tuple(columns)


def _made(
    spark: SparkSession, batches: list[RecordBatch[Any]], columns: tuple[str, ...]
) -> DataFrame:
    """Decode the batches into one frame; called in a thread, because decoding is slow."""
    return _frame(spark, [batch.to_arrow(columns) for batch in batches])


def _frame(spark: SparkSession, parts: list[pa.RecordBatch]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches(parts))
