"""`PartitionRecords`, the records of one fetch of one partition, decoded on first access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from aiokq.core.types import TopicPartition
from aiokq.fastpath.consume import Cursor, Record
from aiokq.records.codecs import RecordCodecs
from aiokq.records.header import iter_headers
from aiokq.wire.fetch import FetchPartitionData

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

__all__ = ["PartitionRecords", "arrow_batch"]


def arrow_batch(cursor: Cursor, columns: Iterable[str] | None) -> pyarrow.RecordBatch:
    """Return the remaining records of a cursor as one Arrow batch.

    Raises:
        ImportError: pyarrow is not installed.
        CorruptRecord: a batch is corrupt.
        ValueError: `columns` contains an unknown name.
    """
    names = None if columns is None else tuple(columns)
    parts = [cursor.columns(names)]
    # columns() stops before 2 GiB of data, and before a corrupt batch, whose error the next call
    # raises.
    while not cursor.exhausted:
        parts.append(cursor.columns(names))
    if len(parts) == 1 or not any(map(len, parts[1:])):
        return parts[0].to_arrow()
    import pyarrow as pa

    return pa.concat_batches([part.to_arrow() for part in parts if len(part)])


class PartitionRecords:
    """The records of one fetch of a partition, in offset order; can be iterated repeatedly.

    ``next_offset`` may advance without records, because control batches, aborted transactions and
    compacted records have offsets.

    Attributes:
        topic: name of the topic.
        partition: partition number.
        offset: the offset that was requested; no record has a smaller offset.
        next_offset: the offset to fetch next; equal to ``offset`` at the end of the log.
        high_watermark: the offset after the last record that all in-sync replicas have.
        last_stable_offset: offset of the first record of the oldest open transaction, or the high
            watermark if no transaction is open; -1 if the broker is too old to report it.
        log_start_offset: first offset of the log; -1 if the broker is too old to report it.
        size: size of the fetched data in bytes.
    """

    __slots__ = (
        "_aborted",
        "_codecs",
        "_data",
        "_records",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "next_offset",
        "offset",
        "partition",
        "size",
        "topic",
    )

    def __init__(
        self,
        tp: TopicPartition,
        offset: int,
        data: FetchPartitionData,
        *,
        codecs: RecordCodecs,
        committed_only: bool,
        stop: int | None,
    ) -> None:
        self.topic = tp.topic
        self.partition = tp.partition
        self.offset = offset
        self.high_watermark = data.high_watermark
        self.last_stable_offset = data.last_stable_offset
        self.log_start_offset = data.log_start_offset
        self._codecs = codecs
        self._aborted: list[tuple[int, int]] | None = None
        if committed_only:
            aborted = data.aborted_transactions or []
            self._aborted = [(a.producer_id, a.first_offset) for a in aborted]
        # A decoded response has its records as a memoryview of the frame.
        self._data = data.records if isinstance(data.records, memoryview) else memoryview(b"")
        self.size = len(self._data)
        self._records: tuple[Record, ...] | None = None
        end = offset
        for header in iter_headers(self._data):
            end = max(end, header.next_offset)
        self.next_offset = end if stop is None else min(end, stop)

    @property
    def records(self) -> tuple[Record, ...]:
        """The records, decoded on first access.

        Raises:
            CorruptRecord: a checksum is wrong, or a batch cannot be decoded.
        """
        if self._records is None:
            self._records = tuple(self.cursor())
        return self._records

    def cursor(self) -> Cursor:
        """Return a new cursor, which decodes the records one by one."""
        return Cursor(
            self.topic,
            self.partition,
            self._data,
            start_offset=self.offset,
            stop_offset=self.next_offset,
            codecs=self._codecs,
            aborted=self._aborted,
        )

    def producer_ids(self) -> list[tuple[int, int]]:
        """Return (next offset, producer id) of each fetched batch, in order.

        The next offset is the offset after the batch. The producer id is -1 if the producer was not
        idempotent. Batches without records to return are included.

        Source: KIP-98.
        """
        return [(header.next_offset, header.producer_id) for header in iter_headers(self._data)]

    def to_arrow(self, columns: Iterable[str] | None = None) -> pyarrow.RecordBatch:
        """Return the records as an Arrow record batch, with the columns of Spark's Kafka source.

        Args:
            columns: names of the columns to include; None for all.

        Raises:
            ImportError: pyarrow is not installed (``pip install aiokq[arrow]``).
            CorruptRecord: a checksum is wrong, or a batch cannot be decoded.
            ValueError: `columns` contains an unknown name.
        """
        return arrow_batch(self.cursor(), columns)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Record:
        return self.records[index]

    def __repr__(self) -> str:
        return (
            f"<PartitionRecords {self.topic}-{self.partition} offsets {self.offset} to "
            f"{self.next_offset}>"
        )
