"""Writers of format("aiokq"); a task ends when all of its rows are acknowledged.

Delivery is at least once, as in Spark's own connector: Spark repeats a failed task, and the rows
that the failed attempt had written stay in the log. With the option exactlyOnce a task of a stream
is a transaction (exactly_once.py). write_rows.py turns rows into records, and write_options.py
checks the options.
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
from aiokq.spark.checksums import batch_checksum
from aiokq.spark.exactly_once import TaskContent, TaskId, note_batch, task_transaction
from aiokq.spark.producer_pool import lent_producer
from aiokq.spark.security import named_as_options
from aiokq.spark.write_options import WriteColumns, WriteOptions
from aiokq.spark.write_rows import Chunk, chunks

if TYPE_CHECKING:
    from concurrent.futures import Future

    import pyarrow as pa  # type: ignore[import-untyped]

    from aiokq import Delivery, Producer
    from aiokq.spark.worker import WorkerClient

__all__ = ["KafkaBatchWriter", "KafkaStreamWriter", "Written", "batch_writer", "stream_writer"]

logger = logging.getLogger("aiokq.spark")

OVERWRITE = (
    "Save mode Overwrite not allowed for Kafka. Allowed save modes are Append and ErrorIfExists "
    '(default). Spark allows Python sources Append only: add .mode("append")'
)


@dataclass
class Written(WriterCommitMessage):
    """Result of a task, all of whose rows are acknowledged.

    Attributes:
        rows: number of rows.
        content: number and checksum of the rows, as in the ledger; None without exactlyOnce.
    """

    rows: int
    content: TaskContent | None = None


@dataclass(frozen=True)
class Target:
    """The destination and the columns of the rows."""

    options: WriteOptions
    columns: WriteColumns

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, streaming: bool) -> Target:
        """Return the checked options and columns.

        Raises:
            ConfigError: an option or a column is refused.
        """
        parsed = WriteOptions.parse(options, streaming=streaming)
        return cls(parsed, WriteColumns.of(schema, parsed.topic))

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows, and wait until each is acknowledged.

        Raises:
            DeliveryFailed: rows were not acknowledged; the error names the topic and partitions.
            BootstrapFailed: no bootstrap address answered.
            KafkaError: a row was not accepted; a note names the topic.
            ValueError: a row has no topic, or a partition below 0.
            TypeError: a header has no name.
        """
        kafka = self.options.kafka
        with named_as_options(kafka), lent_producer(kafka) as (client, producer):
            rows = self._send(client, producer, batches)
            with _without_deliveries():
                client.run(producer.flush())
        return Written(rows)

    def write_once(self, batches: Iterator[pa.RecordBatch], ledger: str) -> Written:
        """Commit all rows as one transaction, or check that an earlier attempt committed them.

        Args:
            ledger: topic of the ledger.

        Raises:
            ConfigError: the rows cannot be written exactly once; the message has a remedy.
            KafkaError: the rows are not committed; with CommitOutcomeUnknown they may be.
            ValueError, TypeError: see `write`.
        """
        kafka, id_ = self.options.kafka, TaskId.current()
        counted = _Counted(batches, self.columns)
        with named_as_options(kafka), task_transaction(kafka, ledger, id_) as task:
            if task.is_new:
                self._send(task.client, task.producer, counted.batches())
            else:
                deque(counted.batches(), maxlen=0)
            content = task.client.run(task.finish(counted.rows, counted.checksum))
        return Written(content.rows, content)

    def _send(
        self, client: WorkerClient, producer: Producer, batches: Iterator[pa.RecordBatch]
    ) -> int:
        """Pass all rows to a producer; return their number."""
        rows = 0
        feed = _Feed(producer)
        accepting: Future[None] | None = None
        try:
            for batch in batches:
                made = chunks(batch, self.columns, self.options.topic)
                # The producer takes a batch while Spark computes the next batch.
                if accepting is not None:
                    accepting.result()
                accepting = client.submit(feed.accept(made))
                rows += batch.num_rows
            if accepting is not None:
                accepting.result()
        finally:
            if accepting is not None:
                accepting.cancel()
        return rows


class _Counted:
    """Counts rows and adds up their checksums while batches are iterated."""

    def __init__(self, batches: Iterator[pa.RecordBatch], columns: WriteColumns) -> None:
        self.rows = self.checksum = 0
        self._batches = batches
        self._columns = columns

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            self.checksum += batch_checksum(batch, self._columns)
            yield batch


class _Feed:
    """Feeder of rows to a producer; runs on the event loop.

    The producer holds at most `buffer_memory` bytes. One more Arrow batch waits until memory is
    free.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._samples: deque[tuple[str, Delivery]] = deque()

    async def accept(self, made: Sequence[Chunk]) -> None:
        """Pass rows to the producer; wait for buffer memory.

        Raises:
            KafkaError: a row was refused, or an earlier row was not delivered.
        """
        await self._check()
        for topic, rows in made:
            place = f"topic {topic!r}"
            with _noting(f"while writing {len(rows)} rows to {place}"):
                deliveries = await self._producer.send_columns(topic, rows)
            # One delivery per call is kept and checked before later calls, so that most failures
            # are noticed early. `flush` or the commit checks all deliveries.
            self._samples.append((place, deliveries[len(deliveries) - 1]))

    async def _check(self) -> None:
        while self._samples and self._samples[0][1].done():
            place, sample = self._samples.popleft()
            with _noting(f"while writing to {place}"):
                await sample


@contextmanager
def _without_deliveries() -> Iterator[None]:
    """In a DeliveryFailed, replace the advice to await deliveries, which a Spark job cannot do."""
    try:
        yield
    except DeliveryFailed as failed:
        text = failed.message.removesuffix(failed.advice)
        failed.args = (
            f"{text}; written rows stay in the log, and are written again if Spark "
            "retries the task",
        )
        raise


@contextmanager
def _noting(text: str) -> Iterator[None]:
    """Add a note to exceptions; Spark shows it with the traceback of the worker."""
    try:
        yield
    except Exception as error:
        error.add_note(text)
        raise


class KafkaBatchWriter(DataSourceArrowWriter):
    """Writer of `DataFrame.write`."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task; see `Target.write`."""
        return self._target.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of rows, which are already in the topic."""
        logger.info("wrote %s rows", _rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the number of rows that the tasks had written; they stay in the topic."""
        logger.warning(
            "the write failed; %s rows were written and stay in the log", _rows(messages)
        )


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """Writer of `DataFrame.writeStream`."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task of a batch; see `Target.write` and `Target.write_once`."""
        ledger = self._target.options.ledger
        if ledger is not None:
            return self._target.write_once(iterator, ledger)
        return self._target.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the number of rows, which are already in the topic.

        With the option exactlyOnce, the batch is first checked; see `note_batch`.

        Raises:
            ConfigError: the batch has another number of tasks than the first batch, or other rows
                than an earlier attempt committed.
            KafkaError: the cluster cannot be reached, or refuses a request.
        """
        options = self._target.options
        if options.ledger is not None:
            contents = [each.content for each in messages if isinstance(each, Written)]
            found = [content for content in contents if content is not None]
            with named_as_options(options.kafka):
                note_batch(options.kafka, options.ledger, batchId, found)
        logger.debug("batch %s: wrote %s rows", batchId, _rows(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the number of written rows; without exactlyOnce, a retry writes them again."""
        logger.warning("batch %s failed; %s rows were written", batchId, _rows(messages))


def _rows(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.rows for message in messages if isinstance(message, Written))


def batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> KafkaBatchWriter:
    """Return the writer of a batch.

    Raises:
        ConfigError: an option, a column or the save mode is refused.
    """
    if overwrite:
        raise ConfigError(OVERWRITE)
    return KafkaBatchWriter(Target.of(options, schema, streaming=False))


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> KafkaStreamWriter:
    """Return the writer of a stream.

    Args:
        overwrite: whether the output mode is "complete". In this mode each batch writes all rows of
            the result again; the rows of earlier batches stay in the log, as in Spark's own
            connector.

    Raises:
        ConfigError: an option or a column is refused.
    """
    return KafkaStreamWriter(Target.of(options, schema, streaming=True))
