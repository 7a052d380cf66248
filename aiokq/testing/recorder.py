"""Recorder: writes down what producers and consumers of aiokq do, as a history.

It is told of calls and their outcomes. An outcome that the client does not know is recorded as
unknown: only a record that was never accepted has failed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aiokq.testing.history import (
    Assign,
    EndTransaction,
    Final,
    Isolation,
    LastStable,
    ObservedOffsets,
    Offset,
    Offsets,
    Operation,
    Outcome,
    Poll,
    Polled,
    Send,
)
from aiokq.testing.history_format import to_json

if TYPE_CHECKING:
    from aiokq import (
        Cluster,
        Consumer,
        Producer,
        Record,
        RecordMetadata,
        TopicPartition,
        Transaction,
    )

__all__ = ["RecordedConsumer", "RecordedProducer", "Recorder"]


class Recorder:
    """A history in the making.

    ::

        with Recorder("history.jsonl") as recorder:
            recorded = recorder.producer(producer, "producer-1")
            async with recorded.transaction():
                await recorded.send("orders", b"unique value")

    Args:
        path: a file to which every operation is appended as soon as it ends, so that it survives
            the process. Several processes of one machine write files of their own; concatenated,
            they are one history.
        clock: the time, in the same unit for every process.

    Attributes:
        history: the operations so far; kept only without a path.
    """

    def __init__(
        self,
        path: str | PathLike[str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic_ns,
    ) -> None:
        self.history: list[Operation] = []
        self.clock = clock
        self._output = None if path is None else open(path, "a", encoding="utf-8")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._output is not None:
            self._output.close()

    def add(self, operation: Operation) -> None:
        """Add an operation."""
        if self._output is None:
            self.history.append(operation)
        else:
            self._output.write(to_json(operation) + "\n")
            self._output.flush()

    def producer(self, producer: Producer, process: str) -> RecordedProducer:
        """Return a producer whose sends and transactions are recorded."""
        return RecordedProducer(self, producer, process)

    def consumer(
        self,
        consumer: Consumer,
        process: str,
        *,
        isolation: Isolation,
        group: str | None = None,
    ) -> RecordedConsumer:
        """Return a consumer whose polls are recorded.

        Args:
            consumer: one in a group gets `assigned(process)` as its `on_assigned`.
            process: its name.
            isolation: its `isolation_level`.
            group: its `group_id`.
        """
        return RecordedConsumer(self, consumer, process, Isolation(isolation), group)

    def assigned(self, process: str) -> Callable[[frozenset[TopicPartition]], None]:
        """Return a handler for `on_assigned` that records the assignments of a consumer."""

        def handle(partitions: frozenset[TopicPartition]) -> None:
            now = self.clock()
            listed = tuple(sorted((each.topic, each.partition) for each in partitions))
            if listed:
                self.add(Assign(process, listed, now, now))

        return handle

    async def observe_last_stable(self, cluster: Cluster, topic: str, partition: int) -> int:
        """Ask for the last stable offset of a partition, and record the answer."""
        start = self.clock()
        found = await cluster.offsets(
            (topic, partition), "latest", isolation_level="read_committed"
        )
        offset = 0 if found is None else found.offset
        self.add(LastStable(topic, partition, offset, start, self.clock()))
        return offset

    async def observe_group(self, consumer: Consumer, group: str) -> None:
        """Ask for the committed offsets of a consumer's partitions, and record the answer."""
        start = self.clock()
        offsets = []
        for each in sorted(consumer.assignment(), key=lambda each: (each.topic, each.partition)):
            committed = await consumer.committed(each)
            offsets.append(
                Offset(each.topic, each.partition, -1 if committed is None else committed)
            )
        self.add(ObservedOffsets(group, tuple(offsets), start, self.clock()))

    async def finish(self, cluster: Cluster, topic: str, partition: int) -> None:
        """Record the final state of a partition that a recorded consumer has read to its end."""
        start = self.clock()
        first = await cluster.offsets((topic, partition), "earliest")
        stable = await cluster.offsets(
            (topic, partition), "latest", isolation_level="read_committed"
        )
        end = await cluster.offsets((topic, partition), "latest")
        if first is None or stable is None or end is None:
            raise ValueError(f"{topic}-{partition} has no offsets")
        self.add(
            Final(topic, partition, first.offset, stable.offset, end.offset, start, self.clock())
        )


class RecordedProducer:
    """A producer of aiokq whose sends and transactions are recorded."""

    def __init__(self, recorder: Recorder, producer: Producer, process: str) -> None:
        self._recorder = recorder
        self._producer = producer
        self._process = process
        self._txn: str | None = None
        self._transactions = 0
        self._transaction: Transaction | None = None

    async def send(
        self, topic: str, value: bytes, *, key: bytes | None = None, partition: int | None = None
    ) -> RecordMetadata:
        """Send a record as `Producer.send` does, and record its outcome."""
        from aiokq import BufferFull, ConfigError

        start = self._recorder.clock()
        outcome, metadata, txn = Outcome.UNKNOWN, None, self._txn
        try:
            metadata = await self._producer.send(topic, value, key=key, partition=partition)
            outcome = Outcome.OK
            return metadata
        except (BufferFull, ConfigError, TypeError):
            outcome = Outcome.FAILED  # never accepted
            raise
        finally:
            where = partition if metadata is None else metadata.partition
            offset = None if metadata is None or metadata.offset < 0 else metadata.offset
            self._recorder.add(
                Send(
                    self._process,
                    topic,
                    _text(value),
                    outcome,
                    where,
                    offset,
                    txn,
                    start,
                    self._recorder.clock(),
                )
            )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[str]:
        """Run a transaction as `Producer.transaction` does, and record how it ended.

        Gives the name of the transaction, for `RecordedConsumer.poll`.
        """
        transaction = self._producer.transaction()
        await transaction.__aenter__()
        self._transactions += 1
        # Two processes with one name would share transactions without the time.
        name = f"{self._process}/{self._transactions}@{int(self._recorder.clock())}"
        self._txn, self._transaction = name, transaction
        try:
            yield name
        except BaseException as error:
            async with self._ending(transaction, commit=False):
                await transaction.__aexit__(type(error), error, error.__traceback__)
            raise
        async with self._ending(transaction, commit=True):
            await transaction.__aexit__(None, None, None)

    @asynccontextmanager
    async def _ending(self, transaction: Transaction, *, commit: bool) -> AsyncIterator[None]:
        """Record the end of the transaction: as it was asked for, unless its outcome is known."""
        name, self._txn, self._transaction = self._txn or "", None, None
        start = self._recorder.clock()
        try:
            yield
        finally:
            ended = transaction.outcome_now
            known = {"committed": True, "aborted": False}.get(ended.value if ended else "")
            self._recorder.add(
                EndTransaction(
                    self._process,
                    name,
                    commit if known is None else known,
                    Outcome.UNKNOWN if known is None else Outcome.OK,
                    start,
                    self._recorder.clock(),
                )
            )

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition | tuple[str, int], int],
        consumer: Consumer,
        group: str,
    ) -> None:
        """Commit offsets of a group in the open transaction, and record them."""
        if self._transaction is None:
            raise RuntimeError("send_offsets is called inside transaction()")
        start, outcome = self._recorder.clock(), Outcome.UNKNOWN
        listed = tuple(
            Offset(topic, partition, offset) for (topic, partition), offset in offsets.items()
        )
        try:
            await self._transaction.send_offsets(offsets, consumer.group_metadata())
            outcome = Outcome.OK
        finally:
            self._recorder.add(
                Offsets(
                    self._process, group, listed, outcome, self._txn, start, self._recorder.clock()
                )
            )


class RecordedConsumer:
    """A consumer of aiokq whose polls are recorded."""

    def __init__(
        self,
        recorder: Recorder,
        consumer: Consumer,
        process: str,
        isolation: Isolation,
        group: str | None,
    ) -> None:
        self._recorder = recorder
        self._consumer = consumer
        self._process = process
        self._isolation = isolation
        self._group = group

    async def poll(
        self, timeout: float = 1.0, *, max_records: int | None = None, txn: str | None = None
    ) -> list[Record]:
        """Return records as `Consumer.getmany` does, in one list, and record them.

        Args:
            timeout: seconds to wait for the first record.
            max_records: the maximum number of records.
            txn: the transaction that they are the input of.
        """
        start = self._recorder.clock()
        found = await self._consumer.getmany(timeout=timeout, max_records=max_records)
        records = [record for each in found.values() for record in each]
        if records:
            polled = tuple(
                Polled(r.topic, r.partition, r.offset, _text(r.value or b"")) for r in records
            )
            self._recorder.add(
                Poll(
                    self._process,
                    polled,
                    self._isolation,
                    self._group,
                    txn,
                    start,
                    self._recorder.clock(),
                )
            )
        return records


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")
