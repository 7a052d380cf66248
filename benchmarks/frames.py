"""Frames as bytes, for clients that write them with a plain socket."""

from __future__ import annotations

from collections.abc import Iterable

from aiokq.core.files import FileRange
from aiokq.wire.fields import Fragment


def joined(fragments: Iterable[Fragment]) -> bytes:
    """Return an encoded message as one bytes object; no fragment may be a range of a file."""
    parts: list[bytes | bytearray | memoryview] = []
    for fragment in fragments:
        assert not isinstance(fragment, FileRange)
        parts.append(fragment)
    return b"".join(parts)
