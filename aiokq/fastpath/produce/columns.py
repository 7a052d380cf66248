"""RecordColumns: validated columns in Arrow's memory layout, whose rows append_columns() appends.

Tests: tests/unit/fastpath/test_record_columns.py, tests/property/test_columns_parity.py.
"""

# Hot path, measured by benchmarks/micro/core.py. The compiled core calls some of these functions
# once per record.

from __future__ import annotations

import operator
import struct

from aiokq.core import limits

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyBytes_AS_STRING,
        PyBytes_FromStringAndSize,
        PyMem_Free,
        PyMem_Malloc,
        PyObject_GetBuffer,
        int32_t,
    )
    from cython.cimports.aiokq.fastpath.native import aiokq_varint_size as varint_size
else:
    from aiokq.fastpath.pure import varint_size

__all__ = ["RecordColumns"]


_INT32 = struct.Struct("=i")
_INT64 = struct.Struct("=q")


@cython.final
@cython.cclass
class Part:
    """A buffer of RecordColumns, kept alive while it is read; it is never written to."""

    __slots__ = ("data", "size")

    def __dealloc__(self):
        if cython.compiled and self.buffer != cython.NULL:
            PyBuffer_Release(self.buffer)
            PyMem_Free(self.buffer)


@cython.cfunc
def _part(data: object, size: cython.longlong, what: object) -> Part:
    """Return a Part with at least the first `size` bytes of a buffer.

    The bytes are copied unless they belong to a bytes object: they are validated only once, and
    memory under a read-only view (toreadonly()) may still change.

    Raises:
        ValueError: the buffer is shorter than `size` bytes.
    """
    view = memoryview(data).cast("B")
    if len(view) < size:
        raise ValueError(f"{what}: {len(view)} bytes, {size} are required")
    if type(view.obj) is not bytes:
        view = memoryview(bytes(view[:size]))
    return _held(view)


@cython.cfunc
def _contents(data: object) -> Part:
    """Return a Part with the bytes of keys, values or names, copied only if they are writable."""
    view = memoryview(data).cast("B")
    return _held(view if view.readonly else memoryview(bytes(view)))


@cython.cfunc
def _held(view: object) -> Part:
    part: Part = Part.__new__(Part)
    part.data = view
    part.size = len(view)
    if cython.compiled:
        # The Py_buffer is allocated separately; Cursor.__init__ gives the reason.
        held: cython.pointer(Py_buffer) = cython.cast(
            cython.pointer(Py_buffer), PyMem_Malloc(cython.sizeof(Py_buffer))
        )
        if held == cython.NULL:
            raise MemoryError
        try:
            PyObject_GetBuffer(view, held, PyBUF_SIMPLE)
        except BaseException:
            PyMem_Free(held)
            raise
        part.buffer = held
        part.base = cython.cast(cython.p_uchar, held.buf)
    return part


if not cython.compiled:
    # The compiled versions are inline in _columns.pxd: they run once per record.

    def bit(part, n):
        """Return whether row `n` has a value; without validity bits, every row has one."""
        return part is None or part.data[n >> 3] >> (n & 7) & 1

    def int32_at(part, n):
        return _INT32.unpack_from(part.data, 4 * n)[0]

    def int64_at(part, n):
        return _INT64.unpack_from(part.data, 8 * n)[0]


@cython.final
@cython.cclass
class RecordColumns:
    """Records as columns in Arrow's memory layout, for `Producer.send_columns`.

    A column of strings or bytes is (validity bits or None, int32 offsets, bytes), as in `Columns`.
    The bytes of keys, values and names are not copied, except from writable buffers. Bits, offsets
    and numbers, which are validated here, are copied unless they are bytes objects. A row is read
    for the last time when it is accepted: until then, memory under a read-only view must not
    change.

    Args:
        count: number of rows.
        value: the values; a null is a tombstone.
        key: the keys, if there are any.
        headers: (validity bits or None, int32 row offsets, int32 name offsets, names, validity
            bits of the values or None, int32 value offsets, values).
        timestamp: (validity bits or None, int64), microseconds since 1970, truncated to
            milliseconds. A null stands for the time of the call.
        partition: (validity bits or None, int32). A null leaves the choice of the partition to the
            accumulator.

    Raises:
        ValueError: `count` is out of range, a buffer is too short, offsets decrease or exceed the
            data, or a partition or timestamp is negative.
        TypeError: `count` is not an int, or a column does not consist of buffers.
    """

    __slots__ = (
        "count",
        "key_bits",
        "key_offsets",
        "keys",
        "largest",
        "largest_size",
        "name_offsets",
        "names",
        "partition_bits",
        "partitions",
        "row_bits",
        "row_offsets",
        "text_bits",
        "text_offsets",
        "texts",
        "time_bits",
        "times",
        "top_partition",
        "value_bits",
        "value_offsets",
        "values",
    )

    def __init__(self, count, *, value, key=None, headers=None, timestamp=None, partition=None):
        items: cython.Py_ssize_t
        if not isinstance(count, int) or isinstance(count, bool):
            raise TypeError(f"count is an int, not {type(count).__name__}")
        # 32-bit offsets cannot address 2**31 rows. The limit also keeps the computed sizes of
        # buffers from overflowing.
        if not 0 <= count < 1 << 31:
            raise ValueError(f"count {count}: must be from 0 to 2**31 - 1 rows")
        self.count = count
        self.key_bits = self.key_offsets = self.keys = None
        self.row_bits = self.row_offsets = self.name_offsets = self.names = None
        self.text_bits = self.text_offsets = self.texts = None
        self.time_bits = self.times = self.partition_bits = self.partitions = None
        self.value_bits, self.value_offsets, self.values = _binary_parts(value, count, "value")
        if key is not None:
            self.key_bits, self.key_offsets, self.keys = _binary_parts(key, count, "key")
        if headers is not None:
            bits, offsets, name_offsets, names, text_bits, text_offsets, texts = headers
            self.row_bits = _bits_part(bits, count, "headers")
            self.row_offsets = _part(offsets, 4 * (count + 1), "headers")
            items = int32_at(self.row_offsets, count)
            _check_offsets(self.row_offsets, count, items, "headers")
            _, self.name_offsets, self.names = _binary_parts(
                (None, name_offsets, names), items, "names of headers"
            )
            self.text_bits, self.text_offsets, self.texts = _binary_parts(
                (text_bits, text_offsets, texts), items, "values of headers"
            )
        if timestamp is not None:
            bits, data = timestamp
            self.time_bits = _bits_part(bits, count, "timestamp")
            self.times = _part(data, 8 * count, "timestamp")
        if partition is not None:
            bits, data = partition
            self.partition_bits = _bits_part(bits, count, "partition")
            self.partitions = _part(data, 4 * count, "partition")
        _look_over(self)

    @classmethod
    def from_arrow(cls, batch):
        """Return the columns key, value, headers, timestamp and partition of a pyarrow.RecordBatch.

        Other columns are ignored, so that a batch from `to_arrow()` can be sent.

        Raises:
            ValueError: there is no column `value`, or a column is not valid for the class.
            TypeError: a column has an unsupported type, or a header has no name.
        """
        from aiokq.fastpath.produce.arrow import record_columns

        return record_columns(cls, batch)

    def __len__(self):
        return self.count

    def record(self, index):
        """Return a row as (key, value, headers, timestamp_ms, partition), with None for nulls."""
        n: cython.Py_ssize_t
        index = operator.index(index)
        if not 0 <= index < self.count:
            raise IndexError("row index out of range")
        n = index
        headers = None
        if self.row_offsets is not None and bit(self.row_bits, n):
            items = range(int32_at(self.row_offsets, n), int32_at(self.row_offsets, n + 1))
            headers = [_header_at(self, item) for item in items]
        key = value = timestamp = partition = None
        if self.keys is not None and bit(self.key_bits, n):
            key = _slice(self.key_offsets, self.keys, n)
        if bit(self.value_bits, n):
            value = _slice(self.value_offsets, self.values, n)
        if self.times is not None and bit(self.time_bits, n):
            timestamp = int64_at(self.times, n) // 1000
        if self.partitions is not None and bit(self.partition_bits, n):
            partition = int32_at(self.partitions, n)
        return key, value, headers, timestamp, partition

    def size(self, index):
        """Return the size of a row's key, value and encoded headers, in bytes.

        It is the argument of `Accumulator.has_memory`.
        """
        index = operator.index(index)
        if not 0 <= index < self.count:
            raise IndexError("row index out of range")
        return _row_size(self, index)

    def rows_by_partition(self):
        """Return the rows of each partition, in order, as int32 indexes.

        Partitions without rows are left out. The key None, which comes first, has the rows without
        a partition; the others follow in ascending order.
        """
        if self.partitions is None:
            return {None: memoryview(_indexes(self.count)).cast("i")} if self.count else {}
        if cython.compiled and self.top_partition < _COUNTED_PARTITIONS:
            return _sorted_rows(self)
        found = {}
        for n in range(self.count):
            found.setdefault(_partition_at(self, n), []).append(n)
        return {
            partition if partition >= 0 else None: memoryview(
                struct.pack(f"={len(found[partition])}i", *found[partition])
            ).cast("i")
            for partition in sorted(found)
        }

    def fitting(self, rows, max_bytes, *, max_rows=None, overhead=0):
        """Return how many rows, from the first on, fit the limits, and their size with overhead.

        Args:
            rows: int32 indexes; None for all rows.
            max_bytes: limit of the size of the rows, which is the sum of `size` and `overhead` of
                each row.
            max_rows: limit of the number of rows; None for no limit.
            overhead: bytes to add to the size of each row.

        Raises:
            IndexError: a row is out of range.
            ValueError: a limit is negative or too large, or the size of `rows` is not a multiple of
                4.
        """
        chosen: Part = None
        count: cython.Py_ssize_t = self.count
        item: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t
        size: cython.longlong = 0
        more: cython.longlong
        limit: cython.longlong = limits.whole(max_bytes, "max_bytes", 0, limits.INT64_MAX)
        each: cython.longlong = limits.whole(overhead, "overhead", 0, limits.INT32_MAX)
        if rows is not None:
            chosen = row_numbers(rows)
            count = chosen.size // 4
        if max_rows is not None:
            count = min(count, limits.whole(max_rows, "max_rows", 0, limits.INT32_MAX))
        while item < count:
            n = item if chosen is None else int32_at(chosen, item)
            if not 0 <= n < self.count:
                raise IndexError(f"row {n} of {self.count}")
            more = size + _row_size(self, n) + each
            if more > limit:
                break
            size = more
            item += 1
        return item, size

    def __repr__(self):
        return f"<RecordColumns of {self.count} records>"


_COUNTED_PARTITIONS = 1 << 16
"""Rows are sorted with an array of counters if their partitions are below this number."""


@cython.cfunc
def row_numbers(rows: object) -> Part:
    """Return a Part with int32 indexes of rows.

    Raises:
        ValueError: the size of the buffer is not a multiple of 4.
    """
    view = memoryview(rows)
    if view.nbytes % 4:
        raise ValueError(f"rows: {view.nbytes} bytes are not int32 indexes")
    return _part(view, view.nbytes, "rows")


@cython.cfunc
def _indexes(count: cython.Py_ssize_t) -> bytes:
    """Return the int32 numbers from 0 to `count` - 1."""
    if cython.compiled:
        n: cython.Py_ssize_t
        out: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * count)
        at: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), PyBytes_AS_STRING(out))
        for n in range(count):
            at[n] = n
        return out
    else:
        return struct.pack(f"={count}i", *range(count))


@cython.cfunc
def _sorted_rows(columns: RecordColumns) -> dict:
    """Return `rows_by_partition()` by a counting sort, without an object per row."""
    found = {}
    if cython.compiled:
        n: cython.Py_ssize_t
        at: cython.Py_ssize_t
        total: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t = columns.top_partition + 2  # [0]: rows without a partition
        rows: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * columns.count)
        out: cython.pointer(int32_t) = cython.cast(cython.pointer(int32_t), PyBytes_AS_STRING(rows))
        ends: cython.pointer(int32_t) = cython.cast(
            cython.pointer(int32_t), PyMem_Malloc(size * cython.sizeof(int32_t))
        )
        if ends == cython.NULL:
            raise MemoryError
        try:
            for at in range(size):
                ends[at] = 0
            for n in range(columns.count):
                ends[_partition_at(columns, n) + 1] += 1
            for at in range(size):
                n = ends[at]
                ends[at] = total
                total += n
            for n in range(columns.count):
                at = _partition_at(columns, n) + 1
                out[ends[at]] = n
                ends[at] += 1
            view = memoryview(rows).cast("i")
            total = 0
            for at in range(size):
                if ends[at] > total:
                    found[at - 1 if at else None] = view[total : ends[at]]
                    total = ends[at]
        finally:
            PyMem_Free(ends)
    return found


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _partition_at(columns: RecordColumns, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    return int32_at(columns.partitions, n) if bit(columns.partition_bits, n) else -1


@cython.cfunc
def _bits_part(bits: object, count: cython.longlong, what: object) -> Part:
    return None if bits is None else _part(bits, (count + 7) // 8, what)


@cython.cfunc
def _binary_parts(column: object, count: cython.longlong, what: object) -> tuple:
    bits, offsets, data = column
    starts: Part = _part(offsets, 4 * (count + 1), what)
    body: Part = _contents(b"" if data is None else data)
    _check_offsets(starts, count, body.size, what)
    return _bits_part(bits, count, what), starts, body


@cython.cfunc
def _check_offsets(
    part: Part, count: cython.Py_ssize_t, limit: cython.Py_ssize_t, what: object
) -> object:
    n: cython.Py_ssize_t
    at: cython.Py_ssize_t
    last: cython.Py_ssize_t = 0
    for n in range(count + 1):
        at = int32_at(part, n)
        if at < last or at > limit:
            raise ValueError(f"{what}: offset {n} is {at}, must be from {last} to {limit}")
        last = at
    return None


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _span(offsets: Part, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    return int32_at(offsets, n + 1) - int32_at(offsets, n)


@cython.cfunc
def _slice(offsets: Part, data: Part, n: cython.Py_ssize_t) -> bytes:
    return bytes(data.data[int32_at(offsets, n) : int32_at(offsets, n + 1)])


@cython.cfunc
def _header_at(columns: RecordColumns, item: cython.Py_ssize_t) -> tuple:
    # Invalid UTF-8 is replaced, as when a record is read. An error would come too late, because
    # other rows may be accepted already.
    name = str(_slice(columns.name_offsets, columns.names, item), "utf-8", "replace")
    if not bit(columns.text_bits, item):
        return name, None
    return name, _slice(columns.text_offsets, columns.texts, item)


@cython.cfunc
def _look_over(columns: RecordColumns) -> object:
    """Find the largest row and the highest partition.

    Raises:
        ValueError: a partition or timestamp is negative.
    """
    n: cython.Py_ssize_t
    size: cython.Py_ssize_t
    partition: cython.Py_ssize_t
    micros: cython.longlong
    columns.largest = 0
    columns.largest_size = 0
    columns.top_partition = -1
    for n in range(columns.count):
        size = _row_size(columns, n)
        if size > columns.largest_size:
            columns.largest = n
            columns.largest_size = size
        if columns.partitions is not None and bit(columns.partition_bits, n):
            partition = int32_at(columns.partitions, n)
            if partition < 0:
                raise ValueError(f"partition {partition}: partitions are numbered from 0")
            columns.top_partition = max(columns.top_partition, partition)
        if columns.times is not None and bit(columns.time_bits, n):
            micros = int64_at(columns.times, n)
            if micros < 0:
                raise ValueError(
                    f"timestamp of record {n} is negative: {micros} microseconds since 1970"
                )
    return None


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _row_size(columns: RecordColumns, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = 0
    if columns.keys is not None and bit(columns.key_bits, n):
        size += _span(columns.key_offsets, n)
    if bit(columns.value_bits, n):
        size += _span(columns.value_offsets, n)
    if columns.row_offsets is not None and bit(columns.row_bits, n):
        size += row_headers_size(columns, n)
    return size


@cython.cfunc
@cython.exceptval(check=False)
def row_headers_size(columns: RecordColumns, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the encoded size of a row's headers in bytes."""
    item: cython.Py_ssize_t
    length: cython.Py_ssize_t
    first: cython.Py_ssize_t = int32_at(columns.row_offsets, n)
    end: cython.Py_ssize_t = int32_at(columns.row_offsets, n + 1)
    size: cython.Py_ssize_t = varint_size(end - first)
    for item in range(first, end):
        length = _span(columns.name_offsets, item)
        size += length + varint_size(length)
        if bit(columns.text_bits, item):
            length = _span(columns.text_offsets, item)
            size += length + varint_size(length)
        else:
            size += 1
    return size


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
