"""RecordBatch: one portion of a partition's records, handed over as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from aiokq.cluster.partition_records import arrow_batch

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from aiokq.fastpath import Cursor, Record

__all__ = ["RecordBatch"]

R = TypeVar("R")


class RecordBatch(Generic[R]):
    """Records of one partition in offset order, as one fetch brought them.

    Iterating it decodes records as they are asked for, each time anew; `records` decodes once and
    keeps them. The fetched bytes live as long as the batch does.

    Attributes:
        topic: the topic.
        partition: its number.
        base_offset: the position before the batch; no record is older.
        next_offset: the position after it.
        size: bytes as they were fetched.
    """

    __slots__ = (
        "_cursor",
        "_deserialize",
        "_length",
        "_records",
        "base_offset",
        "next_offset",
        "partition",
        "size",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        data: memoryview,
        base_offset: int,
        next_offset: int,
        *,
        cursor: Callable[[], Cursor],
        records: int | None,
        deserialize: Callable[[Record], R] | None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.size = len(data)
        self._cursor = cursor
        self._deserialize = deserialize
        self._length = records
        self._records: tuple[R, ...] | None = None

    @property
    def records(self) -> Sequence[R]:
        """All records; decoded once.

        Raises:
            CorruptRecord: a checksum does not fit, or a batch cannot be decoded.
        """
        if self._records is None:
            self._records = tuple(self)
            self._length = len(self._records)
        return self._records

    def __iter__(self) -> Iterator[R]:
        if self._records is not None:
            return iter(self._records)
        if self._deserialize is not None:
            return map(self._deserialize, self._cursor())
        return cast("Iterator[R]", iter(self._cursor()))

    def __len__(self) -> int:
        if self._length is None:
            self._length = self._count()
        return self._length

    def __getitem__(self, index: int) -> R:
        return self.records[index]

    def __repr__(self) -> str:
        return (
            f"<RecordBatch {self.topic}-{self.partition} offsets {self.base_offset} to "
            f"{self.next_offset}>"
        )

    def to_arrow(self, columns: Iterable[str] | None = None) -> pyarrow.RecordBatch:
        """The records as Arrow columns, straight from the fetched bytes; needs pyarrow.

        Keys and values are as they were received, also where there are deserializers.

        Args:
            columns: of Spark's Kafka source: key, value, topic, partition, offset, timestamp,
                timestampType, headers; in the order wanted, all by default.

        Raises:
            CorruptRecord: a checksum does not fit, or a batch cannot be decoded.
            ValueError: no such column.
        """
        return arrow_batch(self._cursor(), columns)

    def _count(self) -> int:
        """By decoding, where the headers do not tell."""
        cursor = self._cursor()
        count = len(cursor.columns(()))
        while not cursor.exhausted:  # columns end before what the next call raises
            count += len(cursor.columns(()))
        return count
