"""Streams: the division of a consumer's partitions among several reading tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from aiokq.consumer.reader import BatchStream, Reader
from aiokq.core import limits
from aiokq.core.errors import Closed, ConfigError, KafkaError

if TYPE_CHECKING:
    from aiokq.cluster.loop_binding import LoopBinding
    from aiokq.consumer.positions import PartitionState
    from aiokq.consumer.record_source import RecordSource
    from aiokq.core.types import TopicPartition
    from aiokq.fastpath.consume import Record

__all__ = ["RecordSources", "Stream"]


MAX_STREAMS: Final = 10_000
"""A limit that catches mistakes; each stream uses memory."""


class Stream:
    """A part of a consumer's partitions, for one task; made by `Consumer.streams`.

    Each partition is in exactly one stream, and its records stay in order when it moves to another
    stream. When a stream is closed or its `async with` block ends, its partitions move to the other
    streams; the partitions of the last stream move back to the consumer. Iterating ends when the
    stream or the consumer is closed. In a group, if an exception ends the `async with` block, the
    record that was being processed is delivered again.
    """

    def __init__(
        self, reader: Reader, closed: Callable[[RecordSource, bool], None], binding: LoopBinding
    ) -> None:
        self._reader = reader
        self._closed = closed
        self._binding = binding

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._reader.stream()

    def batches(self) -> BatchStream:
        """Return the batches of this stream; see `Consumer.batches`."""
        self._reader.check()
        return BatchStream(self._reader)

    async def getone(self) -> Record:
        """Return the next record of this stream.

        Raises:
            Closed: the stream or the consumer was closed.
            RuntimeError: another task is reading from this stream.
            KafkaError: a partition cannot be read. Raised once, then other partitions are read.
            Exception: a deserializer or a rebalance handler raised this error.
        """
        return await self._reader.one(())

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are in this stream now. May be called in any thread."""
        return frozenset(self._reader.source.states)

    def close(self) -> None:
        """Close the stream. May be called again.

        Its partitions move to the other streams, or to the consumer if there is no other stream.
        No effect in a forked child.

        Raises:
            WrongLoop: called outside the event loop of the consumer.
        """
        self._close(failed=False)

    async def __aenter__(self) -> Self:
        self._reader.check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(failed=kind is not None)

    def _close(self, *, failed: bool) -> None:
        if self._binding.forked:
            return
        self._binding.check()
        self._closed(self._reader.source, failed)


class RecordSources:
    """The record sources of a consumer: a single source, or one source per stream.

    Args:
        make: returns a new source.
    """

    def __init__(self, make: Callable[[], RecordSource]) -> None:
        self._make = make
        self.main = make()
        self._split: list[RecordSource] = []

    @property
    def open(self) -> list[RecordSource]:
        """The sources that deliver records: those of the streams, or else the single source."""
        return self._split or [self.main]

    @property
    def split(self) -> bool:
        """Whether there are streams."""
        return bool(self._split)

    def divide(self, count: int) -> list[RecordSource]:
        """Make `count` sources, and distribute the partitions to them."""
        limits.whole(count, "count", 1, MAX_STREAMS, error=ConfigError)
        if self._split:
            raise ConfigError("this consumer already has streams: close them first")
        self._split = [self._make() for _ in range(count)]
        states = sorted(self.main.states.values(), key=lambda state: state.tp)
        for state in states:
            self.main.remove(state)
            self.place(state)
        self._hand_on_errors(self.main)
        return list(self._split)

    def place(self, state: PartitionState) -> None:
        """Add a partition to the source that has the fewest partitions."""
        source = min(self.open, key=lambda source: len(source.states))
        source.add(state)

    def close_one(self, source: RecordSource) -> None:
        """Close the source of a stream; its partitions move to the other sources."""
        if source not in self._split:
            return
        self._split.remove(source)
        for state in list(source.states.values()):
            source.remove(state)
            self.place(state)
        self._hand_on_errors(source)
        source.close()

    def _hand_on_errors(self, source: RecordSource) -> None:
        """Move undelivered errors to the sources of their partitions, else to the first source."""
        for about, error in source.take_errors():
            heir = next((other for other in self.open if about in other.states), self.open[0])
            heir.add_error(about, error)

    def report(self, error: KafkaError) -> None:
        """Raise `error`, which concerns no single partition, to the reader of the first source."""
        self.open[0].report(error)

    def close(self, failure: Closed | None = None) -> None:
        for source in (self.main, *self._split):
            source.close(failure)
