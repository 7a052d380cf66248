"""Conversion of Arrow batches to RecordColumns; pyarrow is imported at the first conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from aiokq.fastpath.produce.columns import RecordColumns

NO_TIMESTAMP_MICROS = -1000
"""The value of a timestamp column for a record without a timestamp."""


def record_columns(kind: type[RecordColumns], batch: pyarrow.RecordBatch) -> RecordColumns:
    """Return the rows of a batch as RecordColumns.

    The bytes of keys, values and headers are shared with the batch, unless a column is a slice or
    has 64-bit offsets.

    Args:
        kind: the class RecordColumns of the producer's core, compiled or pure.

    Raises:
        ValueError: there is no column `value`, or a column is not valid for RecordColumns.
        TypeError: a column has an unsupported type, or a header has no name.
    """
    import pyarrow as pa

    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if "value" not in columns:
        raise ValueError(f"the column `value` is missing: there are {', '.join(columns)}")
    times, partitions = columns.get("timestamp"), columns.get("partition")
    if times is not None:
        if not pa.types.is_timestamp(times.type):
            raise TypeError(f"column timestamp must be a timestamp, not {times.type}")
        if times.type.unit != "us":
            # Values in a coarser unit must fit into int64; nanoseconds are truncated.
            finer = times.type.unit == "ns"
            times = times.cast(pa.timestamp("us", tz=times.type.tz), safe=not finer)
        times = _without_none(times)
    if partitions is not None and not pa.types.is_int32(partitions.type):
        raise TypeError(f"column partition must be int32, not {partitions.type}")
    return kind(
        batch.num_rows,
        value=_binary(columns["value"], "value"),
        key=_binary(columns["key"], "key") if "key" in columns else None,
        headers=_headers(columns["headers"]) if "headers" in columns else None,
        timestamp=None if times is None else _numbers(times),
        partition=None if partitions is None else _numbers(partitions),
    )


def _binary(array: pyarrow.Array, name: str) -> tuple[memoryview | None, memoryview, memoryview]:
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_large_binary(array.type) or kinds.is_large_string(array.type):
        array = array.cast(pa.binary())
    elif not kinds.is_binary(array.type) and not kinds.is_string(array.type):
        raise TypeError(f"column {name} must be binary or string, not {array.type}")
    array = _from_the_start(array)
    bits, offsets, data = array.buffers()
    return _bits(array, bits), _read_only(offsets or pa.py_buffer(bytes(4))), _read_only(data)


def _headers(
    array: pyarrow.Array,
) -> tuple[
    memoryview | None, memoryview, memoryview, memoryview, memoryview | None, memoryview, memoryview
]:
    import pyarrow as pa

    kind = array.type
    if (
        not pa.types.is_list(kind)
        or not pa.types.is_struct(kind.value_type)
        or kind.value_type.num_fields != 2
    ):
        raise TypeError(f"column headers must be a list of (name, value) structs, not {kind}")
    array = _from_the_start(array)
    pairs = _from_the_start(array.values)
    names, values = pairs.field(0), pairs.field(1)
    if pairs.null_count or names.null_count:
        raise TypeError("a header's name is str, not NoneType")
    bits, offsets = array.buffers()[:2]
    rows = _read_only(offsets or pa.py_buffer(bytes(4)))
    _, *named = _binary(names, "headers")
    return _bits(array, bits), rows, named[0], named[1], *_binary(values, "headers")


def _without_none(times: pyarrow.Array) -> pyarrow.Array:
    """Replace -1 ms, Kafka's value for no timestamp, by null, which stands for the time of sending.

    `Columns.to_arrow` writes -1 ms for records that were read without a timestamp.
    """
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    none = pc.equal(times.view("int64"), NO_TIMESTAMP_MICROS)
    return pc.if_else(none, None, times) if pc.any(none).as_py() else times


def _numbers(array: pyarrow.Array) -> tuple[memoryview | None, memoryview]:
    array = _from_the_start(array)
    bits, data = array.buffers()
    return _bits(array, bits), _read_only(data)


def _bits(array: pyarrow.Array, bits: pyarrow.Buffer | None) -> memoryview | None:
    return None if bits is None or not array.null_count else _read_only(bits)


def _read_only(buffer: pyarrow.Buffer | None) -> memoryview:
    """Return a read-only view, because RecordColumns copies the contents of writable buffers."""
    return memoryview(b"" if buffer is None else buffer).toreadonly()


def _from_the_start(array: pyarrow.Array) -> pyarrow.Array:
    """Return an array whose buffers begin with its first row.

    If the array is a slice that begins at a later row, the result is a copy.
    """
    import pyarrow as pa

    if not array.offset:
        return array
    return pa.concat_arrays([array.slice(0, 0), array])
