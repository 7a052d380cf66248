"""From records to frames: what asyncio reads becomes Arrow, and that a DataFrame.

For streams that Spark reads by itself there is ``format("aiokq")``: this is for records that the
application has in its hands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from dataclasses import dataclass
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
    """Records as a frame, and where they end.

    Attributes:
        frame: with the columns of Spark's Kafka source.
        rows: how many.
        offsets: of the next record of each partition, as `Consumer.commit` takes them: commit when
            the work on the frame is done.
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
    """A frame of batches, as ``consumer.batches()`` gives them.

    Args:
        columns: of Spark's Kafka source, in the order wanted; all but headers by default.

    Raises:
        ConfigError: no batch: without one there is no schema.
        CorruptRecord: a checksum does not fit, or a batch cannot be decoded.
        ValueError: no such column.
    """
    held = list(batches)
    if not held:
        raise ConfigError("frame_of() needs a batch at least")
    return await call(spark, _made, spark, held, _chosen(columns))


async def frames(
    spark: SparkSession,
    source: AsyncIterable[RecordBatch[Any]],
    *,
    max_rows: int = 100_000,
    max_wait: float = 1.0,
    columns: Iterable[str] | None = None,
) -> AsyncIterator[RecordsFrame]:
    """Frames of what a source of batches gives, one after another, none of them empty.

    ``async for part in frames(spark, consumer.batches())``. A frame has what came until there
    were ``max_rows`` or ``max_wait`` was over; nothing is read ahead while it is worked on, so
    memory is bounded by it. It ends when the source does. In a group set
    ``enable_auto_commit=False`` and commit `RecordsFrame.offsets`: automatic commit counts a batch
    as finished when the next one is asked for, which is before the work on its frame.

    Args:
        source: waiting for the next batch may be cancelled without losing one, as
            ``consumer.batches()`` has it. Async generators have not: what they gather, gather
            before.
        max_rows: a frame is full then; a batch is never divided.
        max_wait: seconds from its first batch.
        columns: of Spark's Kafka source, in the order wanted; all but headers by default.

    Raises:
        ConfigError: a limit that is not positive.
        CorruptRecord: a batch of the log cannot be decoded: the partition rests until `seek()`.
        whatever the source raises. What came before an error is handed over first.
    """
    if max_rows < 1 or max_wait <= 0:
        raise ConfigError(f"max_rows={max_rows}, max_wait={max_wait}: more than 0")
    chosen = _chosen(columns)
    batches = aiter(source)
    now = asyncio.get_running_loop().time
    failure: Exception | None = None
    ended = False
    while failure is None and not ended:
        parts: list[pa.RecordBatch] = []
        offsets: dict[TopicPartition, int] = {}
        rows = 0
        deadline: float | None = None
        while rows < max_rows and failure is None and (deadline is None or now() < deadline):
            try:
                async with asyncio.timeout_at(deadline) as timeout:
                    batch = await anext(batches)
            except TimeoutError as error:
                failure = None if timeout.expired() else error
                break
            except StopAsyncIteration:
                ended = True
                break
            except Exception as error:  # noqa: BLE001  raised when what came before is handed over
                failure = error
                break
            # Before the next one is asked for: until then a batch that cannot be decoded as a whole
            # counts only as far as it can.
            try:
                part = await in_thread(partial(batch.to_arrow, chosen))
            except CorruptRecord as error:
                failure = error
                part = await in_thread(partial(batch.to_arrow, chosen))  # what is before the damage
            if part.num_rows:
                parts.append(part)
                offsets[TopicPartition(batch.topic, batch.partition)] = batch.next_offset
                rows += part.num_rows
                deadline = now() + max_wait if deadline is None else deadline
        if parts:
            yield RecordsFrame(await call(spark, _frame, spark, parts), rows, offsets)
    if failure is not None:
        raise failure


def _chosen(columns: Iterable[str] | None) -> tuple[str, ...]:
    from aiokq.spark.schema import default_columns

    return default_columns(include_headers=False) if columns is None else tuple(columns)


def _made(
    spark: SparkSession, batches: list[RecordBatch[Any]], columns: tuple[str, ...]
) -> DataFrame:
    """In a thread: decoding takes time, too."""
    return _frame(spark, [batch.to_arrow(columns) for batch in batches])


def _frame(spark: SparkSession, parts: list[pa.RecordBatch]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches(parts))
