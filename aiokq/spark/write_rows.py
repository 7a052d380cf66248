"""Conversion of Arrow batches to columns for a producer, by topic, without a loop over rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq import RecordColumns
from aiokq.spark.write_options import WriteColumns

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["Chunk", "chunks"]

NULL_TOPIC: Final = (
    "The Kafka message data sent to the producer contains a null topic. Use the `topic` option for "
    "setting a default topic."
)
"""The text of Spark's error KAFKA_NULL_TOPIC_IN_DATA."""


class Chunk(NamedTuple):
    """Rows of one topic for one call of `send_columns`."""

    topic: str
    rows: RecordColumns


def chunks(batch: pa.RecordBatch, columns: WriteColumns, topic: str | None) -> list[Chunk]:
    """Return the rows of a batch, topic by topic.

    Rows of one topic stay in order.

    Args:
        topic: topic of all rows; None if each row has its own.

    Raises:
        ValueError: a row has no topic, or a partition below 0.
        TypeError: a header has no name.
    """
    import pyarrow as pa

    if not batch.num_rows:
        return []
    places = {
        field.name: getattr(columns, field.name)
        for field in fields(columns)
        if field.name != "topic" and getattr(columns, field.name) >= 0
    }
    rows = pa.RecordBatch.from_arrays(
        [batch.column(place) for place in places.values()], names=list(places)
    )
    if topic is not None:
        return [Chunk(topic, RecordColumns.from_arrow(rows))]
    topics = batch.column(columns.topic)
    if topics.null_count:
        raise ValueError(NULL_TOPIC)
    return [Chunk(name, RecordColumns.from_arrow(part)) for name, part in _by_topic(rows, topics)]


def _by_topic(rows: pa.RecordBatch, topics: pa.Array) -> Iterator[tuple[str, pa.RecordBatch]]:
    encoded = topics.dictionary_encode()
    if len(encoded.dictionary) == 1:
        yield encoded.dictionary[0].as_py(), rows
        return
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    for number, name in enumerate(encoded.dictionary.to_pylist()):
        yield name, rows.filter(pc.equal(encoded.indices, number))
