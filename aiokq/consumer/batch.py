"""RecordBatch: records of one partition that are delivered together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast

from aiokq.cluster.partition_records import arrow_batch

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from aiokq.consumer.batch_progress import BatchProgress
    from aiokq.fastpath.consume import Cursor, Record

__all__ = ["MakeDeserializer", "RecordBatch", "covers", "open_from"]

R = TypeVar("R")

MakeDeserializer: TypeAlias = "Callable[[Callable[[Record], None]], Callable[[Record], R]]"
"""Type of functions that make a deserializer.

Such a function takes a callback. The deserializer calls the callback with a record before it raises
an error for that record.
"""


class RecordBatch(Generic[R]):
    """Records of one partition in offset order, from one fetch.

    Each iteration decodes the records again; `records` decodes them once and keeps them. The batch
    keeps the fetched bytes in memory.

    An exception of a deserializer concerns one record. Iterating further, or starting a new
    iteration, continues after that record. If `records` raised the exception, the next access
    leaves that record out. If the next batch is requested instead, this batch ends before the
    remaining records, and they are delivered in the next batches.

    Records that an iteration returned before the error count as delivered. `list(batch)` and
    comprehensions lose them, because the unfinished list is discarded. Append to a list in a loop,
    or use `records`, which counts no record as delivered if it raises an error.

    Attributes:
        topic: the name of the records' topic.
        partition: the number of the records' partition.
        base_offset: the offset at which the batch begins; no record of the batch has a smaller
            offset.
        size: the size of the batch's data in memory, in bytes.
    """

    __slots__ = (
        "_count",
        "_cursor",
        "_decoded",
        "_decoding",
        "_deserializer",
        "_length",
        "_progress",
        "_records",
        "base_offset",
        "partition",
        "size",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        base_offset: int,
        *,
        size: int,
        progress: BatchProgress,
        cursor: Callable[[int, int | None], Cursor],
        count: Callable[[int, int | None], int],
        records: int | None,
        deserializer: MakeDeserializer[R] | None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.base_offset = base_offset
        self.size = size
        self._progress = progress
        self._cursor = cursor
        self._count = count
        self._deserializer = deserializer
        self._length = records
        self._records: tuple[R, ...] | None = None
        self._decoded: list[R] = []
        self._decoding: tuple[Cursor, Iterator[R], int | None] | None = None

    @property
    def next_offset(self) -> int:
        """The position after the records that count as delivered.

        Without an error, all records count as delivered. After an error in an iteration, the
        records before the error count, and also the record for which a deserializer raised the
        error. After an error in `records`, only the records that iterations have returned count.
        Once an iteration has gone beyond the error, all records that can be decoded count.
        """
        return self._progress.position

    @property
    def records(self) -> Sequence[R]:
        """All records of the batch, decoded once.

        Raises:
            CorruptRecord: a batch of the log cannot be decoded. The next access returns the records
                before that batch.
            Exception: a deserializer raised this error for a record. The next access leaves that
                record out.
        """
        if self._records is None:
            stop = self._progress.stop
            if self._decoding is None or self._decoding[2] != stop:
                cursor = self._cursor(self.base_offset, stop)
                self._decoded = []
                self._decoding = (
                    cursor,
                    self._made(cursor, partial(self._progress.whole_read_raised, cursor)),
                    stop,
                )
            cursor, decoding, _ = self._decoding
            try:
                self._decoded.extend(decoding)  # keeps the records before an error
            except Exception:
                if cursor.raised is not None:
                    self._progress.met_unreadable(cursor)
                raise
            self._records = tuple(self._decoded)
            self._decoding = None
            self._progress.read_completely(cursor)
        return self._records

    def __iter__(self) -> Iterator[R]:
        if self._records is not None:
            return iter(self._records)
        progress = self._progress
        cursor = self._cursor(progress.start(), progress.stop)
        progress.iteration_started(cursor)
        return self._made(cursor, partial(progress.record_raised, cursor))

    def __len__(self) -> int:
        if self._records is not None:
            return len(self._records)
        stop = self._progress.stop
        if stop is None and self._length is not None:
            return self._length
        length = self._count(self.base_offset, stop)
        if stop is None:
            self._length = length
        return length

    def __getitem__(self, index: int) -> R:
        return self.records[index]

    def __repr__(self) -> str:
        return (
            f"<RecordBatch {self.topic}-{self.partition} offsets {self.base_offset} to "
            f"{self.next_offset}>"
        )

    def to_arrow(self, columns: Iterable[str] | None = None) -> pyarrow.RecordBatch:
        """Return the records as one Arrow batch; needs pyarrow.

        Keys and values are not deserialized. The Arrow batch has memory of its own.

        Args:
            columns: names of columns of Spark's Kafka source, in the order wanted: key, value,
                topic, partition, offset, timestamp, timestampType, headers. All columns by default.

        Raises:
            ImportError: pyarrow is not installed (``pip install aiokq[arrow]``).
            CorruptRecord: a batch of the log cannot be decoded. The next call returns the records
                before that batch.
            ValueError: `columns` contains an unknown name.
        """
        cursor = self._cursor(self.base_offset, self._progress.stop)
        try:
            made = arrow_batch(cursor, columns)
        except Exception:
            if cursor.raised is not None:
                self._progress.met_unreadable(cursor)
            raise
        self._progress.read_completely(cursor)
        return made

    def _made(self, cursor: Cursor, failed: Callable[[Record], None]) -> Iterator[R]:
        if self._deserializer is None:
            return cast("Iterator[R]", cursor)
        return map(self._deserializer(failed), cursor)


def open_from(batch: RecordBatch[R]) -> int | None:
    """Return the position after the records that count as delivered; see `RecordBatch.next_offset`.

    The result is None if the batch has no more records to deliver.
    """
    progress = batch._progress
    return None if progress.whole else progress.position


def covers(batch: RecordBatch[R], offset: int) -> bool:
    """Whether the batch delivers the record at `offset` as a record, and not as an error."""
    return batch._progress.covers(offset)
