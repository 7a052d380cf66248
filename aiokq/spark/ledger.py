"""Ledger: the batches that the tasks of a streaming query have committed, read from a topic.

A task writes its entry in the same transaction as its rows; exactly_once.py decides what an entry
means for a repeated task. For each query, a process reads the whole topic once, and later only new
records.
ledger_topic.py creates and reads the topic.
"""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from aiokq.errors import ConfigError
from aiokq.spark.ledger_topic import LedgerTopic
from aiokq.spark.per_process import PerProcess

if TYPE_CHECKING:
    from aiokq import Cluster
    from aiokq.spark.worker import WorkerClient

__all__ = ["BatchNote", "Ledger", "TaskEntry", "ledger_of"]

VERSION: Final = 1
NOTE: Final = "batch"
"""Last part of the key of a BatchNote. The key of a TaskEntry ends with the task number."""


@dataclass(frozen=True)
class TaskEntry:
    """Ledger entry of a task for the last batch that the task has committed.

    Attributes:
        batch: number of the batch.
        rows: number of rows.
        checksum: sum of the checksums of the rows.
        run: id of the last run that wrote or compared the rows.
    """

    batch: int
    rows: int
    checksum: int
    run: str


@dataclass(frozen=True)
class BatchNote:
    """Ledger entry of the driver for a complete batch.

    The driver writes a note for the first batch of the query, and for each complete batch that had
    another number of tasks than the first batch. The query then fails, and does not write that
    batch again when it is restarted.

    Attributes:
        batch: number of the batch.
        tasks: number of tasks of the first batch of the query.
        rows: number of rows of the batch.
        checksum: sum of the checksums of the rows.
    """

    batch: int
    tasks: int
    rows: int
    checksum: int


class Ledger:
    """The entries of one query; used on the event loop only.

    Attributes:
        topic: name of the ledger's topic.
        tasks: the last entry of each task.
        note: the last note of the driver; None if there is none.
    """

    def __init__(self, topic: str, query: str) -> None:
        self.topic = topic
        self.tasks: dict[int, TaskEntry] = {}
        self.note: BatchNote | None = None
        self._query = query
        self._source = LedgerTopic(topic, "the option ledgerTopic")
        self._reading = asyncio.Lock()

    async def refresh(self, cluster: Cluster, timeout: float) -> None:
        """Read the entries that were committed since the last call; see `LedgerTopic.added`.

        Args:
            timeout: seconds to wait for the end of transactions that are open in the ledger.

        Raises:
            ConfigError: the topic is not compacted, was deleted and created again, or has an entry
                that cannot be read.
            KafkaError: the topic cannot be read or created.
        """
        async with self._reading:
            async for key, value in self._source.added(cluster, timeout):
                self._take(key, value)

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        query, _, last = (key or b"").decode(errors="replace").rpartition("/")
        if query != self._query:
            return
        if value is None:
            # Only operators write tombstones, to remove entries.
            if last == NOTE:
                self.note = None
            elif last.isdigit():
                self.tasks.pop(int(last), None)
            return
        try:
            document = json.loads(value)
            if document.pop("version") != VERSION:
                raise ValueError("it is of another version of aiokq")
            if last == NOTE:
                self.note = BatchNote(**document)
            else:
                self.tasks[int(last)] = TaskEntry(**document)
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(
                f"option exactlyOnce: topic {self.topic} has an entry of this query that cannot be "
                f"read: {error}"
            ) from error

    def record_of(self, task: int, entry: TaskEntry) -> tuple[bytes, bytes]:
        """Return key and value of the record for the entry of a task."""
        return self._record(str(task), entry)

    def record_of_note(self, note: BatchNote) -> tuple[bytes, bytes]:
        """Return key and value of the record for a note."""
        return self._record(NOTE, note)

    def _record(self, last: str, content: TaskEntry | BatchNote) -> tuple[bytes, bytes]:
        document = {"version": VERSION, **asdict(content)}
        key = f"{self._query}/{last}".encode()
        return key, json.dumps(document, separators=(",", ":")).encode()


class _Ledgers:
    """The ledgers of this process, by client, topic and query."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ledgers: WeakKeyDictionary[WorkerClient, dict[tuple[str, str], Ledger]] = (
            WeakKeyDictionary()
        )


_of_this_process = PerProcess(_Ledgers)


def ledger_of(client: WorkerClient, topic: str, query: str) -> Ledger:
    """Return the process's `Ledger` for a client, a topic and a query."""
    process = _of_this_process()
    with process.lock:
        ledgers = process.ledgers.setdefault(client, {})
        return ledgers.setdefault((topic, query), Ledger(topic, query))
