"""Conversion of Arrow rows to Kafka records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiokq.spark.exporting.columns import ExportColumns
from aiokq.spark.exporting.json_text import documents, plain_texts

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["Headers", "Row", "rows"]

Headers = list[tuple[str, bytes | None]]

NO_TIME: Final = -1
"""Timestamp that Kafka reports for records without a timestamp; producers must not send it."""


@dataclass(frozen=True)
class Row:
    """A record for `Producer.send_many`, and its partition."""

    record: tuple[bytes | None, bytes | None, Headers | None, int | None]
    partition: int | None


def rows(batch: pa.RecordBatch, columns: ExportColumns) -> Iterator[Row]:
    """Yield the rows of a batch as records, in their order."""
    nothing = [None] * batch.num_rows
    keys = nothing if columns.key is None else _bytes(batch.column(columns.key))
    values: Sequence[bytes | None]
    if columns.value is not None:
        values = _bytes(batch.column(columns.value))
    else:
        values = documents([(name, batch.column(name)) for name in columns.fields or ()])
    times = nothing if columns.timestamp is None else _times(batch.column(columns.timestamp))
    partitions = (
        nothing if columns.partition is None else batch.column(columns.partition).to_pylist()
    )
    for key, value, headers, time, partition in zip(
        keys, values, _all_headers(batch, columns), times, partitions, strict=True
    ):
        yield Row((key, value, headers, time), partition)


def _bytes(column: pa.Array) -> list[bytes | None]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        return _bytes(column.dictionary_decode())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values: list[bytes | None] = column.to_pylist()
        return values
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_string(kind):
        return _bytes(column.cast(pa.binary()))
    if pa.types.is_large_string(kind):
        return _bytes(column.cast(pa.large_binary()))
    return plain_texts(column)


def _times(column: pa.Array) -> list[int | None]:
    return [None if time == NO_TIME else time for time in _milliseconds(column)]


def _milliseconds(column: pa.Array) -> list[int | None]:
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms"))
    elif pa.types.is_timestamp(kind) and kind.unit != "ms":
        # The timestamps are cast to integers before the conversion to milliseconds. A cast from one
        # unit to another would make pyarrow look up the time zone of the column.
        whole = column.cast(pa.int64())
        divisor = {"us": 1000, "ns": 1_000_000}.get(kind.unit)
        if divisor is None:
            column = pc.multiply(whole, 1000)
        else:
            values: list[int | None] = whole.to_pylist()
            return [None if value is None else value // divisor for value in values]
    milliseconds: list[int | None] = column.cast(pa.int64()).to_pylist()
    return milliseconds


def _all_headers(batch: pa.RecordBatch, columns: ExportColumns) -> Sequence[Headers | None]:
    found: list[Headers | None] = [None] * batch.num_rows
    if columns.headers is not None:
        found = [
            None if each is None else [(header["key"], header["value"]) for header in each]
            for each in batch.column(columns.headers).to_pylist()
        ]
    for name, column in columns.header_columns.items():
        for number, value in enumerate(_bytes(batch.column(column))):
            if value is not None:
                found[number] = [*(found[number] or ()), (name, value)]
    return found
