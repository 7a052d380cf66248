"""The encoding of headers in the pure core.

Tests: tests/property/test_core_parity.py.
"""

# Hot path, measured by benchmarks/micro/core.py (column "pure").

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from aiokq.fastpath.pure import VARINT

Pairs: TypeAlias = Sequence[tuple[str, bytes | None]]


def headers_bytes(
    headers: Iterable[Any], plain: Callable[[Iterable[Any]], Pairs], names: dict[Any, bytes]
) -> bytes:
    """Return the encoded headers of a record, beginning with their count.

    Args:
        headers: pairs as the caller passed them.
        plain: converts the headers to a list of plain pairs, or raises an error.
        names: cache of encoded header names, which this function fills. Header names are few and
            repeat.
    """
    if type(headers) is not list and type(headers) is not tuple:
        headers = plain(headers)
    parts = [VARINT[len(headers)]]
    for header in headers:
        if type(header) is not tuple or len(header) != 2:
            return headers_bytes(plain(headers), plain, names)
        name, value = header
        if type(name) is not str:
            return headers_bytes(plain(headers), plain, names)
        encoded = names.get(name)
        if encoded is None:
            encoded = name.encode()
            encoded = VARINT[len(encoded)] + encoded
            if len(names) >= 1024:
                names.clear()
            names[name] = encoded
        parts.append(encoded)
        if type(value) is bytes:
            parts.append(VARINT[len(value)])
            parts.append(value)
        elif value is None:
            parts.append(b"\x01")
        else:
            return headers_bytes(plain(headers), plain, names)
    return b"".join(parts)
