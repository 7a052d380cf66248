"""Ledger: what the tasks of streaming queries have committed, in a compacted topic.

A task writes its entry in the same transaction as its rows; exactly_once.py decides what an entry
means for a repeated task. All entries are in partition 0, because a task reads the entries of its
whole query. A process reads the topic once, and later only what was added.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from aiokq import ConfigResource, ConfigResourceType, NewTopic, TopicPartition
from aiokq.errors import (
    ClusterAuthorization,
    ConfigError,
    RequestTimeout,
    TopicAuthorization,
    TopicExists,
)
from aiokq.spark.per_process import PerProcess

if TYPE_CHECKING:
    from aiokq import Cluster
    from aiokq.spark.worker import WorkerClient

__all__ = ["BatchNote", "Ledger", "TaskEntry", "ledger_of"]

PARTITION: Final = 0
VERSION: Final = 1
NOTE: Final = "batch"
"""Last part of the key of a BatchNote; that of a TaskEntry is the number of the task."""

CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    # A cleaner leaves the active segment alone, and each new worker reads the whole topic.
    "segment.bytes": str(4 << 20),
}


@dataclass(frozen=True)
class TaskEntry:
    """What a task has committed.

    Attributes:
        batch: number of the batch.
        rows: number of rows.
        checksum: sum of the checksums of the rows.
        run: run of the query that wrote the rows, or that compared them last.
    """

    batch: int
    rows: int
    checksum: int
    run: str


@dataclass(frozen=True)
class BatchNote:
    """What the driver notes about a complete batch: the first one, and one with other tasks.

    Attributes:
        batch: number of the batch.
        tasks: number of tasks that each batch of the query must have.
        rows: number of rows of the batch.
        checksum: sum of their checksums.
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
        note: the last note of the driver; None if no batch is complete.
    """

    def __init__(self, topic: str, query: str) -> None:
        self.topic = topic
        self.tasks: dict[int, TaskEntry] = {}
        self.note: BatchNote | None = None
        self._query = query
        self._position: int | None = None
        self._reading = asyncio.Lock()

    async def refresh(self, cluster: Cluster, timeout: float) -> None:
        """Read what was committed since the last call; the first call creates a missing topic.

        Args:
            timeout: seconds to wait for the end of transactions that are open in the ledger.

        Raises:
            ConfigError: the topic is not compacted, or was deleted and created again.
            RequestTimeout: a transaction stayed open.
            KafkaError: the topic cannot be read or created.
        """
        async with self._reading:
            place = TopicPartition(self.topic, PARTITION)
            if self._position is None:
                await self._prepare(cluster)
                beginning = await cluster.offsets(place, "earliest")
                self._position = 0 if beginning is None else beginning.offset
            # The end of the log, not the last stable offset: entries that are committed may lie
            # behind an open transaction of another task, and must be known.
            end = await cluster.offsets(place, "latest")
            assert end is not None
            if end.offset < self._position:
                self._forget()
                raise ConfigError(
                    f"option exactlyOnce: topic {self.topic} was deleted and created again while "
                    "the query ran: the batch that the query repeats now may be written twice"
                )
            try:
                async with asyncio.timeout(timeout):
                    await self._read(cluster, place, end.offset)
            except TimeoutError:
                raise RequestTimeout(
                    f"a transaction in topic {self.topic} is still open after {timeout:g} s: "
                    "`aiokq transactions find-hanging` shows it"
                ) from None

    async def _read(self, cluster: Cluster, place: TopicPartition, end: int) -> None:
        assert self._position is not None
        if self._position == end:
            return
        async for batch in cluster.read(
            place, self._position, end, isolation_level="read_committed"
        ):
            for record in batch:
                self._take(record.key, record.value)
            self._position = batch.next_offset

    def _forget(self) -> None:
        self.tasks.clear()
        self.note = None
        self._position = None

    async def _prepare(self, cluster: Cluster) -> None:
        """Create the topic, or check that it keeps the last entry of each task."""
        async with cluster.admin() as admin:
            try:
                await admin.create_topics(
                    NewTopic(self.topic, 1, configs=CONFIGS), raise_errors=True
                )
                return
            except (TopicExists, TopicAuthorization, ClusterAuthorization):
                # Without the permission to create topics, the topic must have been created before.
                pass
            resource = ConfigResource(ConfigResourceType.TOPIC, self.topic)
            try:
                found = await admin.describe_configs([resource], raise_errors=True)
            except (TopicAuthorization, ClusterAuthorization):
                return
            policy = found[resource].entries["cleanup.policy"].value
        if policy != "compact":
            raise ConfigError(
                f"option exactlyOnce: topic {self.topic} has cleanup.policy={policy}, so entries "
                "of the ledger would be deleted by their age: set it to compact, or name another "
                "topic by the option ledgerTopic"
            )

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        query, _, last = (key or b"").decode(errors="replace").rpartition("/")
        if query != self._query:
            return
        if value is None:
            # An operator's tombstone.
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
        """Return key and value of the entry of a task."""
        return self._record(str(task), entry)

    def record_of_note(self, note: BatchNote) -> tuple[bytes, bytes]:
        """Return key and value of a note."""
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
    """Return this process's view of the ledger of a query."""
    process = _of_this_process()
    with process.lock:
        ledgers = process.ledgers.setdefault(client, {})
        return ledgers.setdefault((topic, query), Ledger(topic, query))
