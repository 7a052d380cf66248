"""Recorder: records the calls of aiokq's producers and consumers as a history.

`RecordedProducer` and `RecordedConsumer` call the clients, and pass the operations to the recorder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Self

from aiokq.testing.history import (
    Assign,
    Final,
    Isolation,
    LastStable,
    ObservedOffsets,
    Offset,
    Operation,
)
from aiokq.testing.history_format import to_json
from aiokq.testing.recorded_consumer import RecordedConsumer
from aiokq.testing.recorded_producer import RecordedProducer

if TYPE_CHECKING:
    from aiokq import Cluster, Consumer, Producer, TopicPartition

__all__ = ["Recorder"]


class Recorder:
    """Collects the operations of a history, in memory or in a file.

    ::

        with Recorder("history.jsonl") as recorder:
            recorded = recorder.producer(producer, "producer-1")
            async with recorded.transaction():
                await recorded.send("orders", b"unique value")

    Args:
        path: path of a file to which each operation is appended when it ends. Each process of a
            machine writes a file of its own; the concatenated files are one history.
        clock: returns the time, in any unit; it must be the same clock for all processes.

    Attributes:
        history: the operations so far; empty if `path` is given.
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
        """Add an operation to the history."""
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
        """Return a consumer whose polls, commits and seeks are recorded.

        Args:
            consumer: the consumer. In a group, its `on_assigned` must be `assigned(process)`.
            process: name of the consumer in the history.
            isolation: the `isolation_level` of the consumer.
            group: the `group_id` of the consumer; None if it is in no group.
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
        """Request the last stable offset of a partition, record it and return it."""
        start = self.clock()
        found = await cluster.offsets(
            (topic, partition), "latest", isolation_level="read_committed"
        )
        offset = 0 if found is None else found.offset
        self.add(LastStable(topic, partition, offset, start, self.clock()))
        return offset

    async def observe_group(
        self, consumer: Consumer, group: str, *, all_commits: bool = False
    ) -> None:
        """Request the committed offsets of a consumer's partitions, and record them.

        Args:
            consumer: a member of the group.
            group: the `group_id` of the consumer.
            all_commits: whether the history has all commits of the group. If so, an offset that was
                not committed in the history is an anomaly.
        """
        start = self.clock()
        offsets = []
        for each in sorted(consumer.assignment(), key=lambda each: (each.topic, each.partition)):
            committed = await consumer.committed(each)
            offsets.append(
                Offset(each.topic, each.partition, -1 if committed is None else committed)
            )
        self.add(ObservedOffsets(group, tuple(offsets), start, self.clock(), all_commits))

    async def finish(self, cluster: Cluster, topic: str, partition: int) -> None:
        """Record the final state of a partition that a recorded consumer has read to its end.

        Raises:
            ValueError: the broker returned no offset for the partition.
            KafkaError: see `Cluster.offsets`.
        """
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
