"""Columns: the records of a cursor in Arrow's memory layout, without an object per record.

Tests: tests/unit/fastpath/test_columns.py, tests/property/test_core_parity.py.
"""

# Hot path, measured by benchmarks/micro/core.py. Functions are long, to avoid calls per record.

from __future__ import annotations

from aiokq.core.errors import CorruptRecord

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.consume._cursor import (
        Cursor,
        end_cursor,
        leave_batch,
        move_up_to,
        open_next,
        raise_corrupt,
    )
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        PyBytes_AS_STRING,
        PyBytes_FromStringAndSize,
        PyBytes_GET_SIZE,
        PyUnicode_DecodeUTF8,
        aiokq_add,
        aiokq_is_ascii,
        aiokq_micros,
        int32_t,
        int64_t,
        memcpy,
    )
    from cython.cimports.aiokq.fastpath.records import (
        aiokq_parse_header,
        aiokq_parse_record,
        aiokq_record,
    )
else:
    from aiokq.fastpath.consume import pure
    from aiokq.fastpath.consume.cursor import (
        Cursor,
        end_cursor,
        leave_batch,
        move_up_to,
        open_next,
        raise_corrupt,
        take_records,
    )

__all__ = ["COLUMN_NAMES", "Columns"]


_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1


COLUMN_NAMES = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
"""The columns of Spark's Kafka source, in the order of its schema."""


@cython.final
@cython.cclass
class Columns:
    """Records of one partition as columns in Arrow's memory layout.

    Attributes:
        topic: topic of all rows.
        partition: partition of all rows.
        count: the number of rows.
        names: the requested columns. Each attribute below is None if its column is not requested.
        key: (validity bits or None, int32 offsets, bytes).
        value: the same layout as `key`.
        offset: offsets of the records, int64.
        timestamp: microseconds since 1970, int64, as in Spark.
        timestamp_type: values of `Record.timestamp_type`, int32.
        headers: (validity bits or None, int32 row offsets, int32 name offsets, names, validity
            bits of the values or None, int32 value offsets, values); a row without headers is
            null.
    """

    __slots__ = (
        "count",
        "headers",
        "key",
        "names",
        "offset",
        "partition",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(self, topic, partition, names):
        self.topic = topic
        self.partition = partition
        self.names = names
        self.count = 0
        self.key = None
        self.value = None
        self.offset = None
        self.timestamp = None
        self.timestamp_type = None
        self.headers = None

    def __len__(self):
        return self.count

    def to_arrow(self):
        """Return a pyarrow.RecordBatch with the schema of Spark's Kafka source; needs pyarrow.

        The buffers are shared, not copied.
        """
        from aiokq.fastpath.consume.arrow import record_batch

        return record_batch(self)


def _check_names(names):
    if names is None:
        return COLUMN_NAMES
    chosen = tuple(names)
    for name in chosen:
        if name not in COLUMN_NAMES:
            raise ValueError(f"no column {name!r}: there are {', '.join(COLUMN_NAMES)}")
    return chosen


@cython.cfunc
def columns_of(cursor: Cursor, names: object, max_bytes: object) -> Columns:
    columns: Columns = Columns(cursor.topic, cursor.partition, _check_names(names))
    most: cython.longlong = _MAX_INT64 if max_bytes is None else max_bytes
    if cython.compiled:
        return _native_columns(cursor, columns, most)
    else:
        return _listed_columns(cursor, columns, most)


@cython.final
@cython.cclass
class _Buffer:
    """A growing buffer; its block is a bytes object, which Arrow can keep alive."""

    __slots__ = ("base", "block", "capacity")


@cython.cfunc
def _buffer() -> _Buffer:
    buffer: _Buffer = _Buffer.__new__(_Buffer)
    if cython.compiled:
        buffer.block = None
        buffer.base = cython.NULL
        buffer.capacity = 0
    return buffer


@cython.cfunc
def _reserve(buffer: _Buffer, used: cython.Py_ssize_t, extra: cython.Py_ssize_t) -> object:
    """Make room for `extra` bytes after the first `used` bytes."""
    if cython.compiled:
        base: cython.p_uchar
        capacity: cython.Py_ssize_t = used + extra
        if buffer.block is None or capacity > buffer.capacity:
            if buffer.block is not None:
                capacity = max(capacity, 2 * buffer.capacity)
            block = PyBytes_FromStringAndSize(cython.NULL, capacity)
            base = cython.cast(cython.p_uchar, PyBytes_AS_STRING(block))
            if used:
                memcpy(base, buffer.base, used)
            buffer.block = block
            buffer.base = base
            buffer.capacity = capacity
    return None


@cython.cfunc
def _filled(buffer: _Buffer, used: cython.Py_ssize_t) -> object:
    return memoryview(buffer.block if buffer.block is not None else b"")[:used]


@cython.cfunc
def _native_columns(cursor: Cursor, columns: Columns, max_bytes: cython.longlong) -> Columns:
    """Decode columns from the bytes of the batches, without an object per record."""
    if cython.compiled:
        fields = cython.declare(aiokq_record)
        at: cython.pointer(cython.const[cython.uchar])
        name: cython.pointer(cython.const[cython.uchar]) = cython.NULL
        text: cython.pointer(cython.const[cython.uchar]) = cython.NULL
        name_size: int64_t = 0
        text_size: int64_t = 0
        _: cython.longlong
        offset: cython.longlong
        timestamp: cython.longlong
        payload: cython.Py_ssize_t
        ahead: cython.Py_ssize_t
        most: cython.Py_ssize_t
        taken: cython.longlong = 0
        rows: cython.Py_ssize_t = 0
        items: cython.Py_ssize_t = 0
        key_used: cython.Py_ssize_t = 0
        value_used: cython.Py_ssize_t = 0
        name_used: cython.Py_ssize_t = 0
        text_used: cython.Py_ssize_t = 0
        key_nulls: cython.Py_ssize_t = 0
        value_nulls: cython.Py_ssize_t = 0
        row_nulls: cython.Py_ssize_t = 0
        text_nulls: cython.Py_ssize_t = 0
        want_key: cython.bint = "key" in columns.names
        want_value: cython.bint = "value" in columns.names
        want_headers: cython.bint = "headers" in columns.names
        want_offset: cython.bint = "offset" in columns.names
        want_timestamp: cython.bint = "timestamp" in columns.names
        want_type: cython.bint = "timestampType" in columns.names
        problem: object = None
        other: bytes
        key_bits: _Buffer = _buffer()
        key_offsets: _Buffer = _buffer()
        keys: _Buffer = _buffer()
        value_bits: _Buffer = _buffer()
        value_offsets: _Buffer = _buffer()
        values: _Buffer = _buffer()
        offsets: _Buffer = _buffer()
        timestamps: _Buffer = _buffer()
        types: _Buffer = _buffer()
        row_bits: _Buffer = _buffer()
        row_offsets: _Buffer = _buffer()
        name_offsets: _Buffer = _buffer()
        names: _Buffer = _buffer()
        text_bits: _Buffer = _buffer()
        text_offsets: _Buffer = _buffer()
        texts: _Buffer = _buffer()
        while problem is None:
            if rows > 0 and taken >= max_bytes:
                break
            try:
                if cursor.remaining == 0 and not open_next(cursor):
                    break
            except CorruptRecord:
                if rows == 0:
                    raise
                cursor.deferred = True
                break
            taken += cursor.opened_bytes
            payload = cursor.record_end - cursor.record
            # Memory for all remaining bytes is reserved at once, so that no buffer of keys or
            # values has to grow unless batches are compressed.
            ahead = payload + (cursor.size - cursor.at)
            if rows > 0 and (
                key_used + payload > _MAX_INT32
                or value_used + payload > _MAX_INT32
                or text_used + payload > _MAX_INT32
                # An invalid UTF-8 byte of a header name is replaced by three bytes.
                or name_used + 3 * payload > _MAX_INT32
                or rows + cursor.remaining >= _MAX_INT32
            ):
                break
            # A wrong record count must not cause a large allocation. Therefore `most` is limited by
            # the payload: a record has at least seven bytes.
            most = min(cursor.remaining, payload // 7)
            if want_key:
                _reserve(keys, key_used, ahead)
                _reserve(key_offsets, 4 * rows, 4 * (most + 1))
                _reserve(key_bits, (rows + 7) >> 3, (most >> 3) + 2)
            if want_value:
                _reserve(values, value_used, ahead)
                _reserve(value_offsets, 4 * rows, 4 * (most + 1))
                _reserve(value_bits, (rows + 7) >> 3, (most >> 3) + 2)
            if want_offset:
                _reserve(offsets, 8 * rows, 8 * most)
            if want_timestamp:
                _reserve(timestamps, 8 * rows, 8 * most)
            if want_type:
                _reserve(types, 4 * rows, 4 * most)
            if want_headers:
                _reserve(row_offsets, 4 * rows, 4 * (most + 1))
                _reserve(row_bits, (rows + 7) >> 3, (most >> 3) + 2)
            while cursor.remaining > 0:
                if not aiokq_parse_record(cursor.record, cursor.record_end, cython.address(fields)):
                    problem = "a malformed record"
                    break
                offset = cursor.base_offset + fields.offset_delta
                if offset < cursor.position or fields.offset_delta > cursor.last_delta:
                    problem = "record offsets are not increasing"
                    break
                if offset >= cursor.stop:
                    move_up_to(cursor, cursor.stop)
                    end_cursor(cursor)
                    break
                if cursor.remaining == 1 and fields.end != cursor.record_end:
                    problem = "bytes after the last record"
                    break
                if fields.header_count > 0:
                    at = fields.headers
                    for _ in range(fields.header_count):
                        at = aiokq_parse_header(
                            at,
                            fields.end,
                            cython.address(name),
                            cython.address(name_size),
                            cython.address(text),
                            cython.address(text_size),
                        )
                        if at == cython.NULL:
                            break
                    if at != fields.end:
                        problem = "a malformed header"
                        break
                if want_key:
                    _put_int32(key_offsets.base, rows, key_used)
                    if fields.key_size < 0:
                        key_nulls += 1
                        _put_bit(key_bits.base, rows, 0)
                    else:
                        _put_bit(key_bits.base, rows, 1)
                        memcpy(keys.base + key_used, fields.key, fields.key_size)
                        key_used += fields.key_size
                if want_value:
                    _put_int32(value_offsets.base, rows, value_used)
                    if fields.value_size < 0:
                        value_nulls += 1
                        _put_bit(value_bits.base, rows, 0)
                    else:
                        _put_bit(value_bits.base, rows, 1)
                        memcpy(values.base + value_used, fields.value, fields.value_size)
                        value_used += fields.value_size
                if want_offset:
                    _put_int64(offsets.base, rows, offset)
                if want_timestamp:
                    if cursor.time_type == 1:
                        timestamp = cursor.base_timestamp
                    else:
                        timestamp = aiokq_add(cursor.base_timestamp, fields.timestamp_delta)
                    _put_int64(timestamps.base, rows, aiokq_micros(timestamp))
                if want_type:
                    _put_int32(types.base, rows, cursor.time_type)
                if want_headers:
                    _put_int32(row_offsets.base, rows, items)
                    if fields.header_count == 0:
                        row_nulls += 1
                        _put_bit(row_bits.base, rows, 0)
                    else:
                        _put_bit(row_bits.base, rows, 1)
                        payload = fields.end - fields.headers
                        _reserve(names, name_used, payload)
                        _reserve(texts, text_used, payload)
                        _reserve(name_offsets, 4 * items, 4 * (fields.header_count + 1))
                        _reserve(text_offsets, 4 * items, 4 * (fields.header_count + 1))
                        _reserve(text_bits, (items + 7) >> 3, (fields.header_count >> 3) + 2)
                        at = fields.headers
                        for _ in range(fields.header_count):
                            at = aiokq_parse_header(
                                at,
                                fields.end,
                                cython.address(name),
                                cython.address(name_size),
                                cython.address(text),
                                cython.address(text_size),
                            )
                            _put_int32(name_offsets.base, items, name_used)
                            _put_int32(text_offsets.base, items, text_used)
                            if aiokq_is_ascii(name, name_size):
                                memcpy(names.base + name_used, name, name_size)
                                name_used += name_size
                            else:
                                # Arrow's strings must be valid UTF-8: invalid bytes are replaced,
                                # as in a Record.
                                other = PyUnicode_DecodeUTF8(
                                    cython.cast(cython.p_char, name), name_size, b"replace"
                                ).encode()
                                _reserve(names, name_used, PyBytes_GET_SIZE(other) + payload)
                                memcpy(
                                    names.base + name_used,
                                    PyBytes_AS_STRING(other),
                                    PyBytes_GET_SIZE(other),
                                )
                                name_used += PyBytes_GET_SIZE(other)
                            if text_size < 0:
                                text_nulls += 1
                                _put_bit(text_bits.base, items, 0)
                            else:
                                _put_bit(text_bits.base, items, 1)
                                memcpy(texts.base + text_used, text, text_size)
                                text_used += text_size
                            items += 1
                rows += 1
                cursor.record = fields.end
                cursor.remaining -= 1
                cursor.handed += 1
                cursor.last_offset = offset
                cursor.last_epoch = cursor.epoch
                cursor.position = offset + 1
            if problem is not None and cursor.position >= cursor.stop:
                problem = None  # as in _bad_record() of cursor.py
                end_cursor(cursor)
            if cursor.remaining == 0 and cursor.opened:
                leave_batch(cursor)
        if problem is not None and rows == 0:
            raise_corrupt(cursor, problem, None)
        columns.count = rows
        if want_key:
            columns.key = _binary_views(key_bits, key_nulls, key_offsets, rows, keys, key_used)
        if want_value:
            columns.value = _binary_views(
                value_bits, value_nulls, value_offsets, rows, values, value_used
            )
        if want_offset:
            columns.offset = _filled(offsets, 8 * rows)
        if want_timestamp:
            columns.timestamp = _filled(timestamps, 8 * rows)
        if want_type:
            columns.timestamp_type = _filled(types, 4 * rows)
        if want_headers:
            _reserve(row_offsets, 4 * rows, 4)
            _put_int32(row_offsets.base, rows, items)
            columns.headers = (
                _filled(row_bits, (rows + 7) >> 3) if row_nulls else None,
                _filled(row_offsets, 4 * (rows + 1)),
                *_binary_views(text_bits, 0, name_offsets, items, names, name_used)[1:],
                *_binary_views(text_bits, text_nulls, text_offsets, items, texts, text_used),
            )
    return columns


@cython.cfunc
def _binary_views(
    bits: _Buffer,
    nulls: cython.Py_ssize_t,
    offsets: _Buffer,
    rows: cython.Py_ssize_t,
    data: _Buffer,
    used: cython.Py_ssize_t,
) -> tuple:
    """Return a column of bytes in Arrow's layout.

    The end of the last value is added to `offsets`, which has only the start of each value.
    """
    if cython.compiled:
        _reserve(offsets, 4 * rows, 4)
        _put_int32(offsets.base, rows, used)
    return (
        _filled(bits, (rows + 7) >> 3) if nulls else None,
        _filled(offsets, 4 * (rows + 1)),
        _filled(data, used),
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int32(
    base: cython.p_uchar, at: cython.Py_ssize_t, value: cython.Py_ssize_t
) -> cython.void:
    if cython.compiled:
        cython.cast(cython.pointer(int32_t), cython.cast(cython.p_void, base))[at] = value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int64(base: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    if cython.compiled:
        cython.cast(cython.pointer(int64_t), cython.cast(cython.p_void, base))[at] = value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_bit(base: cython.p_uchar, at: cython.Py_ssize_t, value: cython.uchar) -> cython.void:
    """Set bit `at` to `value`; setting the first bit of a byte clears the byte's other bits."""
    if cython.compiled:
        if at & 7 == 0:
            base[at >> 3] = value
        else:
            base[at >> 3] |= value << (at & 7)


if not cython.compiled:

    def _listed_columns(cursor, columns, max_bytes):
        """Fill the columns from Record objects, which is as slow as iterating over the records."""
        records = []
        held = taken = 0
        while not records or taken < max_bytes:
            try:
                if cursor.remaining == 0 and not open_next(cursor):
                    break
                taken += cursor.opened_bytes
                # An invalid UTF-8 byte of a header name is replaced by three bytes.
                held += 3 * len(cursor.inner)
                if records and held > _MAX_INT32:
                    break
                records += take_records(cursor, cursor.remaining)
            except CorruptRecord:
                if not records:
                    raise
                cursor.deferred = True
                break
        columns.count = len(records)
        names = columns.names
        if "key" in names:
            columns.key = pure.binary_column([record.key for record in records])
        if "value" in names:
            columns.value = pure.binary_column([record.value for record in records])
        if "offset" in names:
            columns.offset = pure.packed("q", [record.offset for record in records])
        if "timestamp" in names:
            columns.timestamp = pure.packed(
                "q",
                [(record.timestamp_ms * 1000 + 2**63) % 2**64 - 2**63 for record in records],
            )
        if "timestampType" in names:
            columns.timestamp_type = pure.packed("i", [record.timestamp_type for record in records])
        if "headers" in names:
            columns.headers = pure.headers_column([record.headers for record in records])
        return columns


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
