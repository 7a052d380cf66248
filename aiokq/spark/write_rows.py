"""Rows as Arrow has them, as records for a producer; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from aiokq.spark.write_options import WriteColumns

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["Chunk", "Record", "chunks", "pieces"]

PIECE_BYTES: Final = 4 << 20
"""So much of a batch is turned into records at a time: rows of 1 MB come ten thousand a batch."""
NULL_TOPIC: Final = (
    "The Kafka message data sent to the producer contains a null topic. Use the `topic` option for "
    "setting a default topic."
)
"""Spark's KAFKA_NULL_TOPIC_IN_DATA."""

Headers: TypeAlias = "list[tuple[str, bytes | None]]"
Record: TypeAlias = (
    "tuple[bytes | None, bytes | None]"
    " | tuple[bytes | None, bytes | None, Headers | None, int | None]"
)


class Chunk(NamedTuple):
    """Records that go in one call.

    Attributes:
        partition: of all of them; None if each key picks its own.
        records: (key, value), or (key, value, headers, timestamp_ms).
    """

    topic: str
    partition: int | None
    records: list[Record]


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in slices of about `PIECE_BYTES`; nothing is copied."""
    rows = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def chunks(batch: pa.RecordBatch, columns: WriteColumns, topic: str | None) -> list[Chunk]:
    """The rows of a batch as records.

    Rows of one partition stay in order. Sent one chunk after another they do so in the log, too.

    Args:
        topic: of all rows; if not given each row has its own.

    Raises:
        ValueError: a row has no topic.
    """
    if not batch.num_rows:
        return []
    keys = repeat(None) if columns.key < 0 else _binary(batch.column(columns.key))
    values = _binary(batch.column(columns.value))
    records: list[Record]
    if columns.headers < 0 and columns.timestamp < 0:
        records = list(zip(keys, values, strict=False))
    else:
        headers = repeat(None) if columns.headers < 0 else _headers(batch.column(columns.headers))
        times = repeat(None) if columns.timestamp < 0 else _times(batch.column(columns.timestamp))
        records = list(zip(keys, values, headers, times, strict=False))
    if topic is None:
        topics = batch.column(columns.topic)
        if topics.null_count:
            raise ValueError(NULL_TOPIC)
        unique = topics.unique()
        if len(unique) == 1:
            topic = unique[0].as_py()
    if topic is not None and columns.partition < 0:
        return [Chunk(topic, None, records)]
    names = repeat(topic) if topic is not None else topics.to_pylist()
    partitions = (
        repeat(None) if columns.partition < 0 else batch.column(columns.partition).to_pylist()
    )
    return _grouped(names, partitions, records)


def _grouped(
    topics: Iterable[str], partitions: Iterable[int | None], records: Iterable[Record]
) -> list[Chunk]:
    """A chunk for each topic and partition.

    Where rows that name their partition follow rows that do not, or the other way round, new ones
    are begun: a key may pick the very partition that another row names.
    """
    done: list[Chunk] = []
    open_: dict[tuple[str, int | None], Chunk] = {}
    explicit: bool | None = None
    for topic, partition, record in zip(topics, partitions, records, strict=False):
        if (partition is not None) is not explicit:
            explicit = partition is not None
            done += open_.values()
            open_ = {}
        chunk = open_.get((topic, partition))
        if chunk is None:
            chunk = open_[topic, partition] = Chunk(topic, partition, [])
        chunk.records.append(record)
    return [*done, *open_.values()]


def _binary(column: pa.Array) -> list[bytes | None]:
    import pyarrow as pa

    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())  # of text: its UTF-8, as Spark casts it
    values: list[bytes | None] = column.to_pylist()
    return values


def _headers(column: pa.Array) -> list[Headers | None]:
    pairs = column.values
    names, values = (pairs.field(n).to_pylist() for n in range(2))
    flat = list(zip(names, values, strict=True))
    ends = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [
        flat[start:end] if present else None
        for start, end, present in zip(ends, ends[1:], valid, strict=False)
    ]


def _times(column: pa.Array) -> list[int | None]:
    """Milliseconds since 1970; what is finer is cut off."""
    import pyarrow as pa

    # Not in one step: a cast of a time in a zone to another unit would look the zone up.
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if value is None else value // 1000 for value in micros]
