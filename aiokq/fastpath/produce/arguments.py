"""Arguments of records: bytes, headers, timestamps and partitions, checked and converted.

The accumulator handles keys, values and headers of the usual types without these functions.

Tests: tests/unit/fastpath/test_accumulator.py.
"""

# hot: benchmarks/micro/core.py.

from __future__ import annotations

from aiokq.fastpath.produce.refusals import bad_headers, bad_partition, bad_timestamp

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised; the Cython compiler requires `import cython`
    import cython

if cython.compiled:
    from cython.cimports.aiokq.fastpath.native import (
        AIOKQ_SOURCE_HASH,
        PyLong_AsLongLongAndOverflow,
    )

__all__: list[str] = []


_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1


@cython.cfunc
def as_bytes(value, what):
    """Return a bytes-like key or value as bytes; the errors say what to write instead."""
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
    """Return headers as a list of (str, bytes | None); the errors say what to write instead."""
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


# ---------------------------------------------------------------- at import

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
