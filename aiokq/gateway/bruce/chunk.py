"""Load and Chunk: the messages of the pool while the engine `bruce` holds them.

A Load has the messages of one call of `accept`. The router and the dispatchers divide it into
chunks: rows of the load that have the same route and the same number of failed attempts. No object
is created per message.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aiokq.gateway import load as loads

if TYPE_CHECKING:
    from aiokq import RecordColumns
    from aiokq.fastpath.gateway import Taken
    from aiokq.gateway.engine import TopicState

__all__ = ["ANY_SIZE", "Chunk", "Load", "in_order"]

ANY_SIZE: Final = 2**62
"""A limit of bytes that no rows exceed."""


class Load(loads.Load):
    """Messages of one topic that the engine has taken together.

    Attributes:
        topic: their topic.
        columns: the messages as columns; a row with a partition key has a partition.
        mapped: whether the partitions of the topic were known when the columns were made.
        restamped: the columns with times of arrival as timestamps, for a topic that refuses the
            messages' timestamps; None until they are needed.
        number: position in the order in which loads were accepted.
    """

    __slots__ = ("columns", "mapped", "number", "restamped", "topic")

    def __init__(
        self,
        number: int,
        topic: TopicState,
        taken: Taken,
        columns: RecordColumns,
        *,
        mapped: bool = True,
    ) -> None:
        super().__init__(taken)
        self.number = number
        self.topic = topic
        self.columns = columns
        self.mapped = mapped
        self.restamped: RecordColumns | None = None


class Chunk:
    """Rows of a load, in order.

    Attributes:
        load: the load.
        rows: the indexes of the rows, as int32.
        size: bytes of keys and values, and of headers if there are any.
        partition: partition of the messages; None for AnyPartition messages.
        attempts: failed attempts to deliver the messages.
        group: chunks of different groups are not sent in one message set.
        restamped: whether the messages are sent with the time of arrival.
    """

    __slots__ = ("attempts", "group", "load", "partition", "restamped", "rows", "size")

    def __init__(
        self,
        load: Load,
        rows: memoryview,
        size: int,
        partition: int | None = None,
        attempts: int = 0,
        group: object = None,
        *,
        restamped: bool = False,
    ) -> None:
        self.load = load
        self.rows = rows
        self.size = size
        self.partition = partition
        self.attempts = attempts
        self.group = group
        self.restamped = restamped

    @classmethod
    def of(cls, load: Load, rows: memoryview, partition: int | None = None) -> Chunk:
        """Return a chunk, with the size of its rows."""
        _, size = load.columns.fitting(rows, ANY_SIZE)
        return cls(load, rows, size, partition)

    @property
    def topic(self) -> str:
        return self.load.topic.name

    @property
    def columns(self) -> RecordColumns:
        """The columns from which the rows are sent."""
        restamped = self.load.restamped if self.restamped else None
        return self.load.columns if restamped is None else restamped

    def __len__(self) -> int:
        return len(self.rows)

    def fitting(
        self, max_bytes: int, *, max_rows: int | None = None, overhead: int = 0
    ) -> tuple[int, int]:
        """Return how many messages fit, counted from the first, and their size with overheads."""
        return self.columns.fitting(
            self.rows, max(max_bytes, 0), max_rows=max_rows, overhead=overhead
        )

    def split(self, count: int) -> tuple[Chunk, Chunk]:
        """Return the first `count` messages, and the others."""
        _, size = self.fitting(ANY_SIZE, max_rows=count)
        return (
            self._with(self.rows[:count], size),
            self._with(self.rows[count:], self.size - size),
        )

    def without(self, positions: set[int]) -> Chunk | None:
        """Return the messages that are not at `positions`; None if there are none."""
        kept = array("i", (row for at, row in enumerate(self.rows) if at not in positions))
        if not kept:
            return None
        rows = memoryview(kept)
        _, size = self.columns.fitting(rows, ANY_SIZE)
        return self._with(rows, size)

    def numbers(self) -> Sequence[int]:
        """Return the indexes of the messages in `load.taken`."""
        if len(self.rows) == self.load.taken.count:
            return range(len(self.rows))
        return self.rows

    def _with(self, rows: memoryview, size: int) -> Chunk:
        return Chunk(
            self.load,
            rows,
            size,
            self.partition,
            self.attempts,
            self.group,
            restamped=self.restamped,
        )

    def __repr__(self) -> str:
        where = "any partition" if self.partition is None else f"partition {self.partition}"
        return f"<Chunk of {len(self)} messages for {self.topic}, {where}>"


def in_order(chunks: list[Chunk]) -> list[Chunk]:
    """Return chunks in the order in which their messages arrived."""
    return sorted(chunks, key=lambda chunk: (chunk.load.number, chunk.rows[0]))
