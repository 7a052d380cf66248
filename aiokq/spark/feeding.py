"""From records to frames: what asyncio reads becomes Arrow, and that a DataFrame.

For streams that Spark reads by itself there is ``format("aiokq")``: this is for records that the
application has in its hands.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from aiokq import RecordBatch, TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.calls import call

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
    memory is bounded by it. It ends when the source does.

    Args:
        source: waiting for the next batch may be cancelled without losing one, as
            ``consumer.batches()`` has it. Async generators have not: what they gather, gather
            before.
        max_rows: a frame is full then; a batch is never divided.
        max_wait: seconds from its first batch.
        columns: of Spark's Kafka source, in the order wanted; all but headers by default.

    Raises:
        ConfigError: a limit that is not positive.
        whatever the source raises; what came before it is handed over first.
    """
    if max_rows < 1 or max_wait <= 0:
        raise ConfigError(f"max_rows={max_rows}, max_wait={max_wait}: more than 0")
    chosen = _chosen(columns)
    batches = aiter(source)
    failure: Exception | None = None
    ended = False
    while failure is None and not ended:
        held: list[RecordBatch[Any]] = []
        rows = 0
        try:
            async with asyncio.timeout(None) as timeout:
                while rows < max_rows:
                    batch = await anext(batches)
                    if not len(batch):
                        continue
                    held.append(batch)
                    rows += len(batch)
                    if len(held) == 1:
                        timeout.reschedule(asyncio.get_running_loop().time() + max_wait)
        except TimeoutError as error:
            failure = None if timeout.expired() else error
        except StopAsyncIteration:
            ended = True
        except Exception as error:  # noqa: BLE001  raised when what came before is handed over
            failure = error
        if held:
            frame = await call(spark, _made, spark, held, chosen)
            offsets = {TopicPartition(b.topic, b.partition): b.next_offset for b in held}
            yield RecordsFrame(frame, rows, offsets)
    if failure is not None:
        raise failure


def _chosen(columns: Iterable[str] | None) -> tuple[str, ...]:
    from aiokq.spark.schema import default_columns

    return default_columns(include_headers=False) if columns is None else tuple(columns)


def _made(
    spark: SparkSession, batches: list[RecordBatch[Any]], columns: tuple[str, ...]
) -> DataFrame:
    """In a thread: decoding takes time, too."""
    table = pa.Table.from_batches([batch.to_arrow(columns) for batch in batches])
    return spark.createDataFrame(table)
