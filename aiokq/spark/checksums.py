"""Checksums of records and rows. The order of the records or rows does not matter.

Equal checksums show that a repeated write has the same content as the first write.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from aiokq.spark.write_options import WriteColumns

__all__ = ["batch_checksum", "checksum"]


def checksum(key: bytes | None, value: bytes | None) -> int:
    """Return the checksum of one record; the checksums of several records are added."""
    sizes = b"%d %d" % (-1 if key is None else len(key), -1 if value is None else len(value))
    return zlib.crc32(value or b"", zlib.crc32(key or b"", zlib.crc32(sizes)))


def batch_checksum(batch: pa.RecordBatch, columns: WriteColumns) -> int:
    """Return the sum of the checksums of a batch's rows. Only `columns` are included."""
    nothing = [None] * batch.num_rows
    keys = nothing if columns.key < 0 else _bytes(batch.column(columns.key))
    values = _bytes(batch.column(columns.value))
    others = [
        batch.column(place)
        for place in (columns.topic, columns.partition, columns.timestamp, columns.headers)
        if place >= 0
    ]
    total = sum(map(checksum, keys, values))
    if not others:
        return total
    # One CRC covers all columns of a row, so that the sum changes if two rows exchange values.
    for key, value, *rest in zip(keys, values, *map(_plain, others), strict=True):
        total += zlib.crc32(repr(rest).encode(), checksum(key, value))
    return total


def _bytes(column: pa.Array) -> list[bytes | None]:
    import pyarrow as pa

    found: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    return found


def _plain(column: pa.Array) -> list[object]:
    import pyarrow as pa

    # Timestamps are converted to integers, because Python's datetime has a narrower range and is
    # slow to create.
    timed = pa.types.is_timestamp(column.type)
    found: list[object] = (column.cast(pa.int64()) if timed else column).to_pylist()
    return found
