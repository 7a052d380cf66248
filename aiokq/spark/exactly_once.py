"""TaskTransaction: the rows and the ledger entry of one task of a stream, as one transaction.

sink.py sends the rows; ledger.py reads the entries. A task is atomic; a batch is not (ADR 17).

Spark may repeat a batch, but does not tell the tasks that the batch is repeated. Therefore a task
first reads the ledger:

- If the ledger has the task's entry for the batch, or the driver's note of the batch, the task
  writes no rows. Its rows are compared with the entry or with the note.
- Otherwise other tasks may have committed rows of the batch in an earlier run of the query. The
  task waits until, in this run, each of these tasks has compared its rows with its entry. Then the
  task writes its own rows in a transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiokq.errors import ConfigError, KafkaError, ProducerFenced
from aiokq.spark.ledger import BatchNote, Ledger, TaskEntry, ledger_of
from aiokq.spark.ledger_topic import PARTITION
from aiokq.spark.producer_pool import lent_producer
from aiokq.spark.security import producer_settings
from aiokq.spark.worker import WorkerClient, worker_client

if TYPE_CHECKING:
    from aiokq import Producer

__all__ = ["TaskContent", "TaskId", "TaskTransaction", "note_batch", "task_transaction"]

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
"""Names of local properties of Spark's streaming jobs: the ids of the query, the batch and the run.

Spark uses the id of the run as the id of the query's job group.

Source: Spark, ``StreamExecution.QUERY_ID_KEY``, ``MicroBatchExecution.BATCH_ID_KEY``.
"""

MARGIN: Final = 30.0
"""Seconds allowed from a transaction's timeout until the coordinator has aborted the transaction.

By default, Kafka's coordinator looks for expired transactions every 10 seconds.
"""

POLL_INTERVAL: Final = 0.1
ABORT_TIMEOUT: Final = 5.0
"""Timeout in seconds for the abort of a failed task's transaction.

If the abort does not succeed, the next attempt at the task aborts the transaction.
"""

SAME_PLAN: Final = (
    "Restart the query with the plan, the options and the number of tasks of that attempt. A plan "
    "whose tasks differ when a batch is repeated (rand(), current_timestamp() of the task, "
    "unordered limits) cannot be written exactly once"
)


@dataclass(frozen=True)
class TaskId:
    """A task of a batch of a streaming query.

    Attributes:
        query: id of the query, from its checkpoint.
        run: id of this run of the query.
        batch: number of the batch.
        task: number of the task in the batch.
    """

    query: str
    run: str
    batch: int
    task: int

    @classmethod
    def current(cls) -> TaskId:
        """Return the id of the task that this process runs.

        Raises:
            ConfigError: the process runs no task of a streaming query.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        found = [
            None if context is None else context.getLocalProperty(name)
            for name in (QUERY_ID, RUN_ID, BATCH_ID)
        ]
        query, run, batch = found
        if context is None or query is None or run is None or batch is None:
            raise ConfigError(
                "option exactlyOnce: this task has no query id or batch number from Spark, so its "
                "rows cannot be written exactly once; leave the option out"
            )
        return cls(query, run, int(batch), context.partitionId())

    @property
    def transactional_id(self) -> str:
        """The transactional id, which depends only on the query and the number of the task."""
        return f"{self.query}-{self.task}"


@dataclass(frozen=True)
class TaskContent:
    """Number and checksum of the rows of a task.

    Attributes:
        query: id of the query.
        rows: number of rows.
        checksum: sum of the checksums of the rows.
    """

    query: str
    rows: int
    checksum: int


class TaskTransaction:
    """Transaction of one attempt of a task; created by `task_transaction`.

    Attributes:
        client: the client of this process.
        producer: producer of the task, inside of a transaction if `is_new`.
        is_new: set by `begin`; True if the rows have to be written, False if the ledger already has
            the batch.
    """

    def __init__(
        self, client: WorkerClient, producer: Producer, ledger: Ledger, id_: TaskId
    ) -> None:
        self.client = client
        self.producer = producer
        self.is_new = False
        self._is_open = False
        self._ledger = ledger
        self._id = id_
        self._timeout = producer.settings.transaction_timeout_ms / 1000

    async def begin(self) -> None:
        """Look up the batch in the ledger, and begin the transaction if the batch is not there.

        Raises:
            ConfigError: the ledger has a later batch than the checkpoint; or another task committed
                rows of the batch in an earlier run, and was not repeated in this run within the
                transaction timeout; or the ledger cannot be used (see `Ledger.refresh`).
            KafkaError: the ledger cannot be read.
        """
        await self._refresh()
        last = self._ledger.tasks.get(self._id.task)
        newest = max((each.batch for each in (last, self._ledger.note) if each), default=-1)
        if newest > self._id.batch:
            raise ConfigError(
                f"option exactlyOnce: the ledger has batch {newest} of this query, and the "
                f"checkpoint continues with batch {self._id.batch}, so it is an old copy: continue "
                "with the newest checkpoint, or begin a new one, which writes all rows again"
            )
        if newest == self._id.batch:
            return
        await self._wait_for_others()
        await self._begin()
        self.is_new = True

    async def _begin(self) -> None:
        await self.producer.begin_transaction()
        self._is_open = True

    async def _refresh(self) -> None:
        await self._ledger.refresh(self.client.cluster, self._timeout + MARGIN)

    def _others(self) -> dict[int, TaskEntry]:
        """Return the entries of this batch from earlier runs; entries without rows are left out."""
        return {
            task: entry
            for task, entry in self._ledger.tasks.items()
            if entry.batch == self._id.batch and entry.run != self._id.run and entry.rows
        }

    async def _wait_for_others(self) -> None:
        others = self._others()
        deadline = time.monotonic() + self._timeout
        while others:
            await asyncio.sleep(POLL_INTERVAL)
            await self._refresh()
            before, others = others, self._others()
            if others != before:
                deadline = time.monotonic() + self._timeout
            elif time.monotonic() > deadline:
                tasks = ", ".join(str(task) for task in sorted(others))
                raise ConfigError(
                    f"option exactlyOnce: an earlier run has committed the rows of task {tasks} of "
                    f"batch {self._id.batch}, and no such task has repeated them within "
                    f"{self._timeout:g} s, so this task cannot tell whether its own rows are "
                    f"already committed. {SAME_PLAN}. If there are fewer cores than tasks now, add "
                    "cores: the tasks wait for each other"
                )

    async def finish(self, rows: int, checksum: int) -> TaskContent:
        """Commit the rows and their ledger entry, or compare the rows with the existing entry.

        If the entry is of an earlier run and the rows are equal, the entry is committed again with
        the id of this run.

        Raises:
            ConfigError: the rows differ from the rows that an earlier attempt committed.
            TransactionAborted: the rows were not committed.
            CommitOutcomeUnknown: no response showed whether the rows were committed; the next
                attempt reads the outcome from the ledger.
            ProducerFenced: another attempt of this task was started.
            KafkaError: the cluster refused a request.
        """
        id_ = self._id
        content = TaskContent(id_.query, rows, checksum)
        if not self.is_new:
            note, found = self._ledger.note, self._ledger.tasks.get(id_.task)
            if found is None or (note is not None and note.batch == id_.batch):
                # The driver has noted the batch as complete. The batch may have had another number
                # of tasks then, so `note_batch` compares the rows of all tasks together.
                return content
            if (found.rows, found.checksum) != (rows, checksum):
                before = f"{found.rows} rows" if found.rows != rows else "other rows"
                raise ConfigError(
                    f"option exactlyOnce: task {id_.task} of batch {id_.batch} has {rows} rows, "
                    f"but an earlier attempt has committed {before} for the task. Nothing was "
                    f"written now. {SAME_PLAN}"
                )
            if found.run == id_.run:
                return content
            # The entry is committed again, because other tasks wait for an entry of this run, which
            # shows that the rows were compared.
            await self._begin()
        entry = TaskEntry(id_.batch, rows, checksum, id_.run)
        key, value = self._ledger.record_of(id_.task, entry)
        # The commit waits for the delivery of the entry and of all rows.
        await self.producer.enqueue(self._ledger.topic, value, key=key, partition=PARTITION)
        # After the commit request the outcome may be unknown, so `abort` must do nothing.
        self._is_open = False
        await self.producer.commit_transaction()
        return content

    async def abort(self) -> None:
        """Abort the transaction, if one is open."""
        if self._is_open:
            await self.producer.abort_transaction()


@contextmanager
def task_transaction(
    kafka: Mapping[str, str], ledger_topic: str, id_: TaskId
) -> Iterator[TaskTransaction]:
    """Yield the transaction of one attempt of a task.

    If the block raises, the transaction is aborted. The producer is started before the ledger is
    read. The start of the producer fences earlier attempts of the task, and ends their open
    transactions.

    Args:
        kafka: ``kafka.*`` options by Kafka's names.

    Raises:
        ConfigError: an option is refused, or the rows cannot be written exactly once; see
            `TaskTransaction.begin`.
        ProducerFenced: another attempt of this task was started.
        KafkaError: the cluster cannot be reached, or refuses a request.
    """
    client = worker_client(kafka)
    ledger = ledger_of(client, ledger_topic, id_.query)
    producer = client.run(_started(client, kafka, id_.transactional_id))
    task = TaskTransaction(client, producer, ledger, id_)
    try:
        client.run(task.begin())
        yield task
    except BaseException as error:
        try:
            client.run(task.abort(), ABORT_TIMEOUT)
        except (KafkaError, TimeoutError) as failure:
            if isinstance(failure, ProducerFenced) and isinstance(error, KafkaError):
                raise failure from error  # ProducerFenced explains, e.g., INVALID_PRODUCER_EPOCH
            error.add_note(f"the transaction could not be aborted: {failure!r}")
        raise
    finally:
        client.run(producer.close(timeout=0))


async def _started(
    client: WorkerClient, kafka: Mapping[str, str], transactional_id: str
) -> Producer:
    settings = {**producer_settings(kafka), "transactional_id": transactional_id}
    producer = client.cluster.producer(**settings)  # type: ignore[arg-type]
    await producer.start()
    return producer


def note_batch(
    kafka: Mapping[str, str], ledger_topic: str, batch: int, tasks: Sequence[TaskContent]
) -> None:
    """Check that a complete batch has as many tasks as the first batch of the query.

    The first batch is noted in the ledger. A batch with another number of tasks is also noted, so
    that it is not written again when the query continues with the right number of tasks.

    Args:
        kafka: ``kafka.*`` options by Kafka's names.
        tasks: number and checksum of the committed rows of each task.

    Raises:
        ConfigError: the batch has another number of tasks than the first batch, or other rows than
            when it was noted.
        KafkaError: the cluster cannot be reached, or refuses a request.
    """
    if not tasks:
        return
    client = worker_client(kafka)
    ledger = ledger_of(client, ledger_topic, tasks[0].query)
    rows, checksum = sum(each.rows for each in tasks), sum(each.checksum for each in tasks)
    with lent_producer(kafka) as (_, producer):
        timeout = producer.settings.transaction_timeout_ms / 1000 + MARGIN
        client.run(ledger.refresh(client.cluster, timeout))
        noted = ledger.note
        wanted = len(tasks) if noted is None else noted.tasks
        if noted is not None and noted.batch == batch:
            if (noted.rows, noted.checksum) != (rows, checksum):
                before = f"{noted.rows} rows" if noted.rows != rows else "other rows"
                raise ConfigError(
                    f"option exactlyOnce: batch {batch} has {rows} rows, but an earlier attempt "
                    f"has committed {before} for the batch. Nothing was written now. {SAME_PLAN}"
                )
        elif noted is None or len(tasks) != wanted:
            key, value = ledger.record_of_note(BatchNote(batch, wanted, rows, checksum))
            client.run(producer.send(ledger.topic, value, key=key, partition=PARTITION))
    if len(tasks) != wanted:
        raise ConfigError(
            f"option exactlyOnce: batch {batch} has {len(tasks)} tasks, and the first batch of the "
            f"query had {wanted}: a repeated batch is written once only if its tasks are the same. "
            f"Put .repartition({wanted}) before writeStream, which gives each batch {wanted} "
            "tasks, and restart the query; it continues without writing this batch again"
        )
