"""BatchBuilder: a batch that the user fills record by record for `Producer.send_batch`."""

from __future__ import annotations

from typing import TypeAlias

from aiokq.core import limits
from aiokq.core.types import Buffer
from aiokq.fastpath.produce.refusals import bad_headers
from aiokq.producer.serializers import Headers

__all__ = ["BatchBuilder", "BuiltRecord", "record_size"]

BuiltRecord: TypeAlias = (
    "tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None]"
)
"""(key, value, headers, timestamp_ms); None as timestamp_ms means the time of `send_batch`."""

HEADER_SIZE = 61
RECORD_OVERHEAD = 36
"""Upper bound of the size of a record without its key, value and headers, in bytes."""


class BatchBuilder:
    """Records that are sent as one batch; created by `Producer.create_batch`.

    Args:
        limit: the largest size of the batch before compression, in bytes.
    """

    __slots__ = ("_closed", "_limit", "_records", "_size")

    def __init__(self, limit: int) -> None:
        limits.count(limit, "limit", 0)
        self._limit = limit
        self._records: list[BuiltRecord] = []
        self._size = HEADER_SIZE
        self._closed = False

    def append(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | None = None,
    ) -> bool:
        """Append a copy of a record; return False if the batch is full or closed.

        Raises:
            TypeError: a key, value or header value that is not bytes-like, headers that are not
                pairs, or a timestamp that is not an int.
            ValueError: `timestamp_ms` is not from 0 to 2**63 - 1.
        """
        if timestamp_ms is not None:
            limits.timestamp_ms(timestamp_ms)
        size = record_size(key, value, headers)
        if self._closed or self._size + size > self._limit:
            return False
        own_headers = [(name, _own(content, name)) for name, content in headers or ()]
        self._records.append((_own(key, "key"), _own(value, "value"), own_headers, timestamp_ms))
        self._size += size
        return True

    def close(self) -> None:
        """Close the batch, so that `append` returns False."""
        self._closed = True

    @property
    def records(self) -> tuple[BuiltRecord, ...]:
        """The appended records, in order."""
        return tuple(self._records)

    def size(self) -> int:
        """Return an upper bound of the batch's size so far, before compression, in bytes."""
        return self._size

    def __len__(self) -> int:
        return len(self._records)


def record_size(key: object, value: object, headers: Headers | None) -> int:
    """Return an upper bound of the size of a record in a batch, in bytes.

    None counts as 0. An object that is not bytes-like also counts as 0; `append` refuses the object
    with TypeError.

    Raises:
        TypeError: headers that are not pairs of a name and a value.
    """
    size = RECORD_OVERHEAD + _length(key) + _length(value)
    try:
        for name, content in headers or ():
            size += 10 + 4 * len(name) + _length(content)
    except (TypeError, ValueError):
        raise bad_headers(headers) from None
    return size


def _length(data: object) -> int:
    if isinstance(data, bytes):
        return len(data)
    try:
        return memoryview(data).nbytes  # type: ignore[arg-type]  # other objects are refused
    except TypeError:
        return 0


def _own(data: Buffer | None, what: str) -> bytes | None:
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        raise TypeError(f"the {what} is a str: encode it, as in {what}={data!r}.encode()")
    return bytes(memoryview(data))
