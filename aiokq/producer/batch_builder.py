"""BatchBuilder: a batch that the user fills, for `Producer.send_batch` and `Cluster.produce`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from aiokq.core import limits
from aiokq.core.frozen import frozen
from aiokq.core.types import Buffer
from aiokq.fastpath.produce.refusals import bad_headers
from aiokq.producer.serializers import Headers

if TYPE_CHECKING:
    from aiokq.fastpath.produce import RecordColumns

__all__ = ["BatchBuilder", "BatchCompression", "BuiltPart", "BuiltRecord", "record_size"]

BuiltRecord: TypeAlias = (
    "tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None]"
)
"""(key, value, headers, timestamp_ms).

None as timestamp_ms means the time at which `send_batch` or `produce` accepts the batch.
"""

BuiltPart: TypeAlias = "BuiltRecord | tuple[RecordColumns, Buffer | None]"
"""A record, or rows of columns: (columns, int32 indexes), with None for all rows."""

HEADER_SIZE = 61
RECORD_OVERHEAD = 36
"""Upper bound of the size of a record without its key, value and headers, in bytes."""


@frozen
class BatchCompression:
    """The compression of a batch.

    Attributes:
        codec: Kafka's id of the codec, 0 for none.
        level: the level; None for the default of the codec.
        max_ratio: the batch is sent uncompressed if the compressed size of its records exceeds
            their size multiplied by this number; None to always send the batch compressed.
    """

    codec: int = 0
    level: int | None = None
    max_ratio: float | None = None


UNCOMPRESSED = BatchCompression()


class BatchBuilder:
    """Records of one batch; created by `Producer.create_batch` or `Cluster.create_batch`.

    Args:
        limit: the largest size of the batch before compression, in bytes.
        compression: the compression for `Cluster.produce`; `Producer.send_batch` uses the
            compression of the producer instead.
    """

    __slots__ = ("_closed", "_count", "_limit", "_parts", "_size", "compression")

    def __init__(self, limit: int, compression: BatchCompression = UNCOMPRESSED) -> None:
        limits.count(limit, "limit", 0)
        self._limit = limit
        self._parts: list[BuiltPart] = []
        self._count = 0
        self._size = HEADER_SIZE
        self._closed = False
        self.compression = compression

    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> bool:
        """Append a copy of a record; return False if the batch is full or closed.

        Raises:
            TypeError: a key, value or header value that is not bytes-like, headers that are not
                pairs, or a timestamp that is not an int.
            ValueError: `timestamp_ms` is not from 0 to 2**63 - 1.
        """
        if timestamp_ms is not None:
            limits.timestamp_ms(timestamp_ms)
        size = record_size(key, value, headers)
        if self._closed or self._size + size > self._limit:
            return False
        own_headers = [(name, _own(content, name)) for name, content in headers or ()]
        self._parts.append((_own(key, "key"), _own(value, "value"), own_headers, timestamp_ms))
        self._count += 1
        self._size += size
        return True

    def append_columns(self, columns: RecordColumns, rows: Buffer | None = None) -> int:
        """Append rows of columns until the batch is full; return the number of appended rows.

        No Python object is created per row, and the bytes of the rows are not copied: they must not
        change until the batch is sent. The partitions of the rows are ignored.

        Args:
            columns: the columns.
            rows: int32 indexes of the rows, such as a slice of a value of
                `RecordColumns.rows_by_partition`; None for all rows. The indexes must not change
                until the batch is sent.

        Raises:
            IndexError: a row is out of range.
            ValueError: the size of `rows` is not a multiple of 4.
        """
        if self._closed:
            return 0
        space = max(0, self._limit - self._size)
        count, size = columns.fitting(rows, space, overhead=RECORD_OVERHEAD)
        if not count:
            return 0
        if rows is not None:
            rows = memoryview(rows).cast("B")[: 4 * count]
        elif count < len(columns):
            rows = memoryview(array("i", range(count)))
        self._parts.append((columns, rows))
        self._count += count
        self._size += size
        return count

    def close(self) -> None:
        """Close the batch: `append` then returns False, and `append_columns` returns 0."""
        self._closed = True

    @property
    def records(self) -> tuple[BuiltRecord, ...]:
        """The appended records, in order."""
        return tuple(self._records())

    def _records(self) -> Iterator[BuiltRecord]:
        for part in self._parts:
            if len(part) == 4:
                yield part
                continue
            columns, rows = part
            for n in range(len(columns)) if rows is None else memoryview(rows).cast("B").cast("i"):
                key, value, headers, timestamp_ms, _ = columns.record(n)
                yield key, value, headers or [], timestamp_ms

    @property
    def parts(self) -> list[BuiltPart]:
        """The appended records, and the appended rows of columns, in order."""
        return self._parts

    def size(self) -> int:
        """Return an upper bound of the batch's size so far, before compression, in bytes."""
        return self._size

    def __len__(self) -> int:
        return self._count


def record_size(key: object, value: object, headers: Headers | None) -> int:
    """Return an upper bound of the size of a record in a batch, in bytes.

    None counts as 0. An object that is not bytes-like also counts as 0; `append` refuses the object
    with TypeError.

    Raises:
        TypeError: headers that are not pairs of a name and a value.
    """
    size = RECORD_OVERHEAD + _length(key) + _length(value)
    try:
        for name, content in headers or ():
            size += 10 + 4 * len(name) + _length(content)
    except (TypeError, ValueError):
        raise bad_headers(headers) from None
    return size


def _length(data: object) -> int:
    if isinstance(data, bytes):
        return len(data)
    try:
        return memoryview(data).nbytes  # type: ignore[arg-type]  # other objects are refused
    except TypeError:
        return 0


def _own(data: Buffer | None, what: str) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        raise TypeError(f"the {what} is a str: encode it, as in {what}={data!r}.encode()")
    return bytes(memoryview(data))
