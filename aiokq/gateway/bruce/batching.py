"""Batch: collects messages until a limit of time, number or bytes is reached.

The pool batches the AnyPartition messages of topics whose batching mode is `per_topic`. The engine
`bruce` also has two kinds of batches per broker: a batch of PartitionKey messages for each topic,
and a combined batch for all topics that are configured to use it. Tests:
tests/unit/gateway/bruce/test_batching.py.

Source: Bruce's design document, "Batching".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aiokq.gateway.bruce.chunk import ANY_SIZE, Chunk

if TYPE_CHECKING:
    from aiokq.gateway.settings_tables import BatchingSettings, CombinedSettings

__all__ = ["Batch", "BatchLimits", "Now"]


class Now(NamedTuple):
    """The current time.

    Attributes:
        monotonic: seconds of the monotonic clock.
        wall_ms: milliseconds since 1970.
    """

    monotonic: float
    wall_ms: int


class BatchLimits(NamedTuple):
    """Limits of a batch, which is complete when it reaches one of them; None for no limit."""

    time_ms: int | None = None
    messages: int | None = None
    bytes: int | None = None

    @classmethod
    def of(cls, settings: BatchingSettings | CombinedSettings) -> BatchLimits:
        """Return the limits of a table of the configuration."""
        return cls(settings.time_ms, settings.messages, settings.bytes)


class Batch:
    """An incomplete batch.

    Attributes:
        deadline: monotonic seconds at which the batch is complete; None if the batch is empty or
            has no limit of time.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._chunks: list[Chunk] = []
        self._count = 0
        self._size = 0
        self.deadline: float | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, chunk: Chunk, now: Now) -> list[Chunk]:
        """Add messages; return the messages of all batches that are now complete, in order."""
        return [each for batch in self.add_all(chunk, now) for each in batch]

    def add_all(self, chunk: Chunk, now: Now) -> list[list[Chunk]]:
        """Add messages; return the batches that are complete now.

        If the batch has no room for the bytes of a message, the batch is complete without the
        message, which begins the next batch. A message that alone reaches the limit of bytes is a
        complete batch by itself.
        """
        limits = self._limits
        complete: list[list[Chunk]] = []
        rest: Chunk | None = chunk
        while rest is not None:
            space = ANY_SIZE if limits.bytes is None else limits.bytes - self._size
            most = None if limits.messages is None else limits.messages - self._count
            count, _ = rest.fitting(space, max_rows=most)
            if not count:
                if self._count:
                    complete.append(self.take())
                    continue
                count = 1  # a message above the limit is a batch by itself
            if count < len(rest):
                head, rest = rest.split(count)
            else:
                head, rest = rest, None
            self._append(head, now)
            if (limits.messages is not None and self._count >= limits.messages) or (
                limits.bytes is not None and self._size >= limits.bytes
            ):
                complete.append(self.take())
        if self.deadline is not None and self.deadline <= now.monotonic:
            complete.append(self.take())
        return complete

    def _append(self, chunk: Chunk, now: Now) -> None:
        self._chunks.append(chunk)
        self._count += len(chunk)
        self._size += chunk.size
        if self._limits.time_ms is not None:
            age = max(0, now.wall_ms - chunk.load.taken.oldest_ms)
            deadline = now.monotonic + (self._limits.time_ms - age) / 1000
            self.deadline = deadline if self.deadline is None else min(deadline, self.deadline)

    def take(self) -> list[Chunk]:
        """Remove and return all messages."""
        chunks, self._chunks = self._chunks, []
        self._count = self._size = 0
        self.deadline = None
        return chunks
