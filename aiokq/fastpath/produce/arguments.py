"""Arguments of records: bytes, headers, timestamps and partitions, checked and converted.

Keys and values of type bytes, and headers that are a list or tuple of plain (str, bytes or None)
tuples, are not converted.

Tests: tests/unit/fastpath/test_accumulator.py.
"""

# Hot path, measured by benchmarks/micro/core.py.

from __future__ import annotations

from aiokq.core.errors import RecordTooLarge
from aiokq.fastpath.produce.refusals import (
    bad_headers,
    bad_partition,
    bad_record,
    bad_timestamp,
    no_partition,
    read_once,
)

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        HEADER_SIZE,
        PyBytes_GET_SIZE,
        PyLong_AsLongLongAndOverflow,
        PyUnicode_AsUTF8AndSize,
    )
    from cython.cimports.aiokq.fastpath.native import aiokq_varint_size as varint_size
    from cython.cimports.aiokq.fastpath.produce.states import RECORD_OVERHEAD
else:
    from aiokq.fastpath.produce import pure
    from aiokq.fastpath.produce.states import RECORD_OVERHEAD
    from aiokq.fastpath.pure import HEADER_SIZE

__all__: list[str] = []


_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1


@cython.cfunc
def as_bytes(value, what):
    """Return a bytes-like key or value as bytes.

    Args:
        what: "key" or the like, for the error message.

    Raises:
        TypeError: `value` is not bytes-like.
    """
    if isinstance(value, str):
        raise TypeError(f"a {what} is bytes, not str: encode it: {what}.encode()")
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, memoryview):
        return value.tobytes()
    raise TypeError(
        f"a {what} is bytes, bytearray, memoryview or None, not {type(value).__name__}: "
        "serialize it first"
    )


@cython.cfunc
def plain_headers(headers):
    """Return headers, an iterable of pairs or a dict, as a list of (str, bytes | None).

    Raises:
        TypeError: the headers are not pairs of a str and a bytes-like value or None.
    """
    out = []
    if isinstance(headers, dict):
        headers = headers.items()
    try:
        pairs = iter(headers)
    except TypeError:
        raise bad_headers(headers) from None
    for header in pairs:
        if isinstance(header, (str, bytes)):
            raise bad_headers(header)
        try:
            name, value = header
        except (TypeError, ValueError):
            raise bad_headers(header) from None
        if not isinstance(name, str):
            raise TypeError(f"a header's name is str, not {type(name).__name__}")
        out.append((name, None if value is None else as_bytes(value, "header value")))
    return out


@cython.cfunc
@cython.exceptval(-2)
def checked_timestamp(timestamp_ms: object) -> cython.longlong:
    """Return an explicit timestamp; raise unless it is an int from 0 to the largest int64."""
    number: cython.longlong = _small(timestamp_ms)
    if number < 0:
        raise bad_timestamp(timestamp_ms)
    return number


@cython.cfunc
@cython.exceptval(-2)
def checked_partition(partition: object) -> cython.longlong:
    """Return an explicit partition; raise unless it is an int from 0 to the largest int32."""
    number: cython.longlong = _small(partition)
    if number < 0 or number > _MAX_INT32:
        raise bad_partition(partition)
    return number


@cython.cfunc
@cython.inline
@cython.exceptval(-2)
def _small(value: object) -> cython.longlong:
    """Return `value` if it is an int from 0 to the largest int64, else -1."""
    if not isinstance(value, int) or isinstance(value, bool):
        return -1
    if cython.compiled:
        overflow: cython.int = 0
        number: cython.longlong = PyLong_AsLongLongAndOverflow(value, cython.address(overflow))
        return number if number >= 0 else -1  # beyond int64 the number is -1 as well
    else:
        return value if 0 <= value <= _MAX_INT64 else -1


@cython.cfunc
def record_parts(record):
    """Return a record of send_many as (key, value, headers, timestamp_ms)."""
    length = len(record)
    if length == 2:
        return record[0], record[1], None, None
    if length == 3:
        return record[0], record[1], record[2], None
    return record


@cython.cfunc
def size_of_headers(headers: object) -> cython.Py_ssize_t:
    """Return the encoded size of headers.

    Return -1 if the headers are not a list or tuple of tuples (str, bytes or None). The pure core
    never returns -1: it converts other headers, or raises an error.
    """
    if cython.compiled:
        size: cython.Py_ssize_t
        length: cython.Py_ssize_t = 0
        pair: tuple
        if type(headers) is not list and type(headers) is not tuple:
            return -1
        size = varint_size(len(headers))
        for header in headers:
            if type(header) is not tuple:
                return -1
            pair = header
            if len(pair) != 2:
                return -1
            name = pair[0]
            value = pair[1]
            if type(name) is not str:
                return -1
            PyUnicode_AsUTF8AndSize(name, cython.address(length))
            size += length + varint_size(length)
            if value is None:
                size += 1
            elif type(value) is bytes:
                size += PyBytes_GET_SIZE(value) + varint_size(PyBytes_GET_SIZE(value))
            else:
                return -1
        return size
    else:
        return len(headers_bytes(headers))


if not cython.compiled:
    _NAMES: dict = {}

    def headers_bytes(headers):
        return pure.headers_bytes(headers, plain_headers, _NAMES)


@cython.cfunc
def check_records(
    records: object,
    partition: object,
    route: object,
    partitions: cython.longlong,
    max_record_bytes: cython.Py_ssize_t,
) -> object:
    """Raise the error of the first record that append() would refuse.

    Called before any record of `records` is accepted.

    Args:
        partition: the explicit partition of all records; None if there is none.
        route: the topic's route, for the error.
        partitions: number of partitions of the topic; 0 if it is not known.
        max_record_bytes: maximum size of a batch with a single record.
    """
    n: cython.Py_ssize_t
    size: cython.Py_ssize_t
    record: tuple
    if partition is not None and 0 < partitions <= checked_partition(partition):
        raise no_partition(route, partition)
    if not cython.compiled:
        bound = max_record_bytes - HEADER_SIZE - RECORD_OVERHEAD
        for record in records:
            if (
                type(record) is not tuple
                or len(record) != 2
                or type(record[0]) is not bytes
                or type(record[1]) is not bytes
                or len(record[0]) + len(record[1]) > bound
            ):
                break
        else:
            return None
    for n in range(len(records)):
        if type(records[n]) is not tuple or not 2 <= len(records[n]) <= 4:
            raise bad_record(n)
        record = records[n]
        size = 0
        for m in range(2):
            part = record[m]
            if type(part) is bytes:
                size += len(part)
            elif part is not None:
                size += len(as_bytes(part, "value" if m else "key"))
        if len(record) > 2:
            if record[2]:
                if hasattr(record[2], "__next__"):
                    raise read_once(n)
                headers = plain_headers(record[2])
                size += size_of_headers(headers)
            if len(record) > 3 and record[3] is not None:
                checked_timestamp(record[3])
        if HEADER_SIZE + RECORD_OVERHEAD + size > max_record_bytes:
            raise RecordTooLarge(
                f"record {n} has {size} bytes, more than the {max_record_bytes} "
                "that max_request_size and buffer_memory allow"
            )
    return None


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
