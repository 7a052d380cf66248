"""Conversion of Columns to an Arrow batch; pyarrow is imported at the first conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from aiokq.fastpath.consume.columns import Columns


def record_batch(columns: Columns) -> pyarrow.RecordBatch:
    """Return `columns` with the schema of Spark's Kafka source; the buffers are not copied."""
    import pyarrow as pa

    count = columns.count

    def binary(
        parts: tuple[memoryview | None, memoryview, memoryview], kind: pyarrow.DataType, rows: int
    ) -> pyarrow.Array:
        return pa.Array.from_buffers(
            kind, rows, [None if part is None else pa.py_buffer(part) for part in parts]
        )

    def fixed(data: memoryview, kind: pyarrow.DataType) -> pyarrow.Array:
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])

    arrays = []
    for name in columns.names:
        match name:
            case "key" if columns.key is not None:
                arrays.append(binary(columns.key, pa.binary(), count))
            case "value" if columns.value is not None:
                arrays.append(binary(columns.value, pa.binary(), count))
            case "topic":
                arrays.append(pa.repeat(pa.scalar(columns.topic, pa.string()), count))
            case "partition":
                arrays.append(pa.repeat(pa.scalar(columns.partition, pa.int32()), count))
            case "offset" if columns.offset is not None:
                arrays.append(fixed(columns.offset, pa.int64()))
            case "timestamp" if columns.timestamp is not None:
                arrays.append(fixed(columns.timestamp, pa.timestamp("us", tz="UTC")))
            case "timestampType" if columns.timestamp_type is not None:
                arrays.append(fixed(columns.timestamp_type, pa.int32()))
            case "headers" if columns.headers is not None:
                valid, rows, name_offsets, names, value_bits, value_offsets, values = (
                    columns.headers
                )
                items = len(name_offsets) // 4 - 1
                pairs = pa.StructArray.from_arrays(
                    [
                        binary((None, name_offsets, names), pa.string(), items),
                        binary((value_bits, value_offsets, values), pa.binary(), items),
                    ],
                    fields=[
                        pa.field("key", pa.string(), nullable=False),
                        pa.field("value", pa.binary()),
                    ],
                )
                arrays.append(
                    pa.Array.from_buffers(
                        pa.list_(pairs.type),
                        count,
                        [None if valid is None else pa.py_buffer(valid), pa.py_buffer(rows)],
                        children=[pairs],
                    )
                )
            case _:
                raise ValueError(f"these columns have no {name!r}")
    return pa.RecordBatch.from_arrays(arrays, names=list(columns.names))
