"""build_batch(): a batch of records and rows of columns, without Deliveries, for `Cluster.produce`.

Tests: tests/unit/fastpath/test_record_columns.py.
"""

# Hot path: the loops run once per record that the gateway's engine bruce delivers.

from __future__ import annotations

from aiokq.core.errors import RecordTooLarge

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.native import AIOKQ_SOURCE_HASH
    from cython.cimports.aiokq.fastpath.produce._accumulator import (
        Accumulator,
        put_apart,
        put_row_apart,
    )
    from cython.cimports.aiokq.fastpath.produce._batch import Batch, Slot, detach
    from cython.cimports.aiokq.fastpath.produce._columns import (
        Part,
        RecordColumns,
        int32_at,
        row_numbers,
    )
else:
    from aiokq.fastpath.produce.accumulator import Accumulator, put_apart, put_row_apart
    from aiokq.fastpath.produce.batch import Batch, Slot, detach
    from aiokq.fastpath.produce.columns import Part, RecordColumns, int32_at, row_numbers

__all__ = ["build_batch"]


def build_batch(accumulator, slot, parts, timestamp_ms, size=0):
    """Return a new batch of records and rows, without Deliveries.

    The batch may exceed buffer_memory.

    Args:
        accumulator: the Accumulator that owns the batch.
        slot: the Slot that provides topic and partition of the batch.
        parts: `(key, value, headers, timestamp_ms)` tuples and `(columns, rows)` tuples: rows are
            int32 indexes, None for all rows of the columns.
        timestamp_ms: the timestamp of records and rows that have none.
        size: expected size of the batch in bytes.

    Raises:
        RecordTooLarge: the parts do not fit into one batch.
        IndexError: a row is out of range.
        ValueError: there are no records.
    """
    owner: Accumulator = accumulator
    apart: Slot = Slot(slot.topic, slot.partition)
    columns: RecordColumns
    batch: Batch = None
    now: cython.longlong = timestamp_ms
    n: cython.Py_ssize_t
    item: cython.Py_ssize_t
    count: cython.Py_ssize_t
    chosen: Part
    limit = owner.batch_size
    apart.hint = size
    try:
        owner.batch_size = owner.max_record_bytes
        for part in parts:
            if len(part) == 4:
                key, value, headers, time_ms = part
                if time_ms is None:
                    time_ms = timestamp_ms
                batch = _same(batch, put_apart(owner, apart, value, key, time_ms, headers))
                continue
            columns = part[0]
            if part[1] is None:
                for n in range(columns.count):
                    batch = _same(batch, put_row_apart(owner, apart, columns, n, now))
                continue
            chosen = row_numbers(part[1])
            count = chosen.size // 4
            for item in range(count):
                n = int32_at(chosen, item)
                if not 0 <= n < columns.count:
                    raise IndexError(f"row {n} of {columns.count}")
                batch = _same(batch, put_row_apart(owner, apart, columns, n, now))
    except BaseException as error:
        for there in (batch, apart.batch):
            if there is not None:
                there.fail(error)
        raise
    finally:
        owner.batch_size = limit
    if batch is None:
        raise ValueError("a batch has at least one record")
    detach(batch)
    batch.slot = slot
    return batch


@cython.cfunc
@cython.inline
def _same(batch: Batch | None, there: Batch) -> Batch:
    """Return `there` if it is `batch`, or if `batch` is None.

    Raises:
        RecordTooLarge: a second batch was opened.
    """
    if batch is not None and there is not batch:
        raise RecordTooLarge(
            f"these records do not fit into a batch of {batch.accumulator.max_record_bytes} bytes"
        )
    return there


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
