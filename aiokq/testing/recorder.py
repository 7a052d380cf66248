"""Recorder: writes down what producers and consumers of aiokq do, as a history.

It collects operations and asks for offsets; `RecordedProducer` and `RecordedConsumer` make calls.
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

    async def observe_group(
        self, consumer: Consumer, group: str, *, all_commits: bool = False
    ) -> None:
        """Ask for the committed offsets of a consumer's partitions, and record the answer.

        Args:
            consumer: a member of the group.
            group: its `group_id`.
            all_commits: whether the history has each commit of the group, so that an offset that
                none of them set is condemned.
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
