"""Writers of format("aiokq"): rows come as Arrow batches, and are in the log when a task ends.

At least once, as Spark's own connector: a task that fails is run again by Spark, and what it wrote
before stays. What rows become is in write_rows.py, what may be asked for in write_options.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from aiokq.errors import ConfigError, DeliveryFailed
from aiokq.spark.producer_pool import lent_producer
from aiokq.spark.security import named_as_options
from aiokq.spark.write_options import WriteColumns, WriteOptions
from aiokq.spark.write_rows import Chunk, chunks

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa  # type: ignore[import-untyped]

    from aiokq import Delivery, Producer

__all__ = ["KafkaBatchWriter", "KafkaStreamWriter", "Written", "batch_writer", "stream_writer"]

logger = logging.getLogger("aiokq.spark")

OVERWRITE = (
    "Save mode Overwrite not allowed for Kafka. Allowed save modes are Append and ErrorIfExists "
    '(default). Spark lets a source in Python have Append only: add .mode("append")'
)


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver: all of it is acknowledged.

    Attributes:
        rows: so many.
    """

    rows: int


@dataclass(frozen=True)
class Target:
    """Where rows go, and from which columns; what a writer takes along to its tasks."""

    options: WriteOptions
    columns: WriteColumns

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType) -> Target:
        """Checked.

        Raises:
            ConfigError: an option or a column is refused.
        """
        parsed = WriteOptions.parse(options)
        return cls(parsed, WriteColumns.of(schema, parsed.topic))

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows, and wait until each is acknowledged.

        Raises:
            DeliveryFailed: rows were not; with the topic and the partitions.
            BootstrapFailed: no address gave metadata.
            KafkaError: a row was not accepted; the topic is noted.
            ValueError: a row has no topic, or a partition below 0.
            TypeError: a header has no name.
        """
        rows = 0
        kafka = self.options.kafka
        with named_as_options(kafka), lent_producer(kafka) as (client, producer):
            feed = _Feed(producer)
            accepting: Future[None] | None = None
            try:
                for batch in batches:
                    made = chunks(batch, self.columns, self.options.topic)
                    # Spark makes this one while the one before waits for room, or is being sent.
                    if accepting is not None:
                        accepting.result()
                    accepting = client.submit(feed.accept(made))
                    rows += batch.num_rows
                if accepting is not None:
                    accepting.result()
            finally:
                if accepting is not None:
                    accepting.cancel()
            with _without_deliveries():
                client.run(producer.flush())
        return Written(rows)


class _Feed:
    """Gives a producer its records; runs on the loop.

    Memory: `buffer_memory` bounds what a producer holds, and one batch waits for room in it.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._samples: deque[tuple[str, Delivery]] = deque()

    async def accept(self, made: Sequence[Chunk]) -> None:
        """Records in, once there is room for them.

        Raises:
            KafkaError: one of these is refused, or one of those before was not delivered.
        """
        await self._check()
        for topic, rows in made:
            place = f"topic {topic!r}"
            with _noting(f"while writing {len(rows)} rows to {place}"):
                deliveries = await self._producer.send_columns(topic, rows)
            # One of many: `flush` counts them all, this is to stop before the end.
            self._samples.append((place, deliveries[len(deliveries) - 1]))

    async def _check(self) -> None:
        while self._samples and self._samples[0][1].done():
            place, sample = self._samples.popleft()
            with _noting(f"while writing to {place}"):
                await sample


@contextmanager
def _without_deliveries() -> Iterator[None]:
    """There are none to await in a job: the advice would lead nowhere."""
    try:
        yield
    except DeliveryFailed as failed:
        text = failed.message.removesuffix(failed.advice)
        failed.args = (f"{text}; what was written stays, and is written again if this task is",)
        raise


@contextmanager
def _noting(text: str) -> Iterator[None]:
    """Says with an exception where it came from: what Spark shows is the text in the worker."""
    try:
        yield
    except Exception as error:
        error.add_note(text)
        raise


class KafkaBatchWriter(DataSourceArrowWriter):
    """Of `DataFrame.write`."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task; see `Target.write`."""
        return self._target.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All rows are in the log already."""
        logger.info("wrote %s rows", _rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was written stays: a log takes nothing back."""
        logger.warning("the write failed; %s rows were written all the same", _rows(messages))


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Of `DataFrame.writeStream`."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One task of one batch; see `Target.write`."""
        return self._target.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """All rows are in the log already."""
        logger.debug("batch %s: wrote %s rows", batchId, _rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was written stays, and is written again with the batch."""
        logger.warning("batch %s failed; %s rows were written", batchId, _rows(messages))


def _rows(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Written))


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> KafkaBatchWriter:
    """The writer of a batch.

    Only mode "append" and "overwrite" come here. Spark refuses the others, its default among them,
    for every source that is written in Python.

    Raises:
        ConfigError: an option, a column or the save mode is refused.
    """
    if overwrite:
        raise ConfigError(OVERWRITE)
    return KafkaBatchWriter(Target.of(options, schema))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> KafkaStreamWriter:
    """The writer of a stream.

    Args:
        overwrite: output mode "complete": as in Spark's own connector each batch writes all rows
            again, and those written before stay.

    Raises:
        ConfigError: an option or a column is refused.
    """
    return KafkaStreamWriter(Target.of(options, schema))
