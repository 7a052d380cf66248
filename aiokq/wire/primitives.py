"""Functions that generated codecs call: varints, integer arrays, unknown tagged fields, errors.

The source that `aiokq.wire.compile` generates handles the usual cases inline, and calls these
functions for the other cases.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

from aiokq.core.errors import ProtocolError
from aiokq.core.files import FileRange
from aiokq.wire.fields import Buffer, Fragment
from aiokq.wire.struct import Struct

__all__ = [
    "COPY_BELOW",
    "DECODE_ERRORS",
    "ENCODE_ERRORS",
    "MAX_STRING",
    "FieldNotSupported",
    "IntArrays",
    "Malformed",
    "fail",
    "make_uuid",
    "put_records",
    "read_tags",
    "read_unknown",
    "records_length",
    "string_prefix",
    "tagged_section",
    "unsigned",
    "unsupported",
    "uvarint",
    "uvarint_more",
    "write_tags",
]

MAX_STRING: Final = 0x7FFF
"""Maximum length in bytes of a string and of a compact string, as in Kafka."""

COPY_BELOW: Final = 1024
"""Record data in memory with fewer bytes is copied. Other record data is passed by reference."""


_BUFFERS: Final = frozenset((bytes, bytearray, memoryview))


class Malformed(ValueError):
    """An encoding or decoding error, which generated functions turn into a `ProtocolError`."""


class FieldNotSupported(ProtocolError):
    """A message sets a field that its version lacks, and that is not ignorable."""


DECODE_ERRORS: Final = (struct.error, IndexError, ValueError)
"""Errors that generated decoders turn into a `ProtocolError`, because the bytes are malformed.

`ValueError` includes `Malformed` and the error for invalid UTF-8.
"""

ENCODE_ERRORS: Final = (struct.error, AttributeError, TypeError, ValueError, OverflowError)
"""Errors that generated encoders turn into a `ProtocolError`.

These errors mean that a value does not fit its field.
"""


def fail(detail: str) -> NoReturn:
    raise Malformed(detail)


def unsupported(api: str, version: int, field: str) -> NoReturn:
    """Raise `FieldNotSupported` for a field that is set and that the version lacks."""
    raise FieldNotSupported(
        f"{field} is set, which version {version} cannot carry", api=api, version=version
    )


def uvarint_more(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Finish reading an unsigned varint whose first byte, at `position` - 1, is above 127.

    Returns:
        The value, at most 32 bits wide, and the position after it.
    """
    value = first & 127
    shift = 7
    while True:
        byte = data[position]
        position += 1
        if shift == 28 and byte > 15:
            raise Malformed("varint of more than 32 bits")
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint; return its value and the position after it."""
    first = data[position]
    if first < 128:
        return first, position + 1
    return uvarint_more(data, position + 1, first)


def unsigned(value: int) -> bytes:
    """Return the bytes of an unsigned varint."""
    if value < 128:
        return value.to_bytes(1, "big")
    if value > 0xFFFFFFFF:
        raise Malformed(f"{value} does not fit a varint of 32 bits")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_prefix(value: int) -> bytes:
    """Return the length prefix of a compact string as a varint; `value` is the length plus one."""
    if value > MAX_STRING + 1:
        raise Malformed(f"string of {value - 1} bytes, at most {MAX_STRING} are allowed")
    return unsigned(value)


class IntArrays(dict[int, Callable[..., object]]):
    """Maps a number of elements to the function that packs or unpacks an array of that length.

    All arrays have the number type `code`. Functions for at most 64 elements are cached, because
    most arrays, such as the replicas of a partition, are short.
    """

    __slots__ = ("code", "method")

    def __init__(self, code: str, method: str) -> None:
        super().__init__()
        self.code = code
        self.method = method

    def __missing__(self, count: int) -> Callable[..., object]:
        """Create the function for a count that is not cached."""
        made: Callable[..., object] = getattr(struct.Struct(f">{count}{self.code}"), self.method)
        if count <= 64:
            self[count] = made
        return made


def read_unknown(
    data: Buffer, position: int, end: int, into: dict[int, bytes], tag: int, size: int
) -> int:
    """Store one tagged field that is unknown in the version; return the position after it."""
    stop = position + size
    if stop > end:
        raise Malformed(f"tagged field {tag} of {size} bytes exceeds the message")
    if tag in into:
        raise Malformed(f"tagged field {tag} occurs twice")
    into[tag] = bytes(data[position:stop])
    return stop


def read_tags(data: Buffer, position: int, end: int, struct_: Struct) -> int:
    """Read tagged fields that are all unknown in the version; return the position after them."""
    count, position = uvarint(data, position)
    if count > (end - position) // 2:
        raise Malformed(f"{count} tagged fields in {end - position} bytes")
    kept: dict[int, bytes] = {}
    for _ in range(count):
        tag, position = uvarint(data, position)
        size, position = uvarint(data, position)
        position = read_unknown(data, position, end, kept, tag, size)
    if kept:
        struct_.unknown_tags = kept
    return position


def write_tags(struct_: Struct, write: Callable[[bytes], None]) -> None:
    """Write the tagged fields of a struct, which are all unknown in the version."""
    write(tagged_section({}, struct_.unknown_tags))


def tagged_section(known: dict[int, bytes], unknown: Mapping[int, bytes]) -> bytes:
    """Return the encoded tagged fields of a struct: their number, then the fields sorted by tag."""
    merged = known
    if unknown:
        twice = known.keys() & unknown.keys()
        if twice:
            raise Malformed(f"unknown_tags holds tag {min(twice)} of a known field")
        merged = {**known, **unknown}
    parts = [unsigned(len(merged))]
    for tag in sorted(merged):
        value = merged[tag]
        parts += (unsigned(tag), unsigned(len(value)), value)
    return b"".join(parts)


def records_length(value: object) -> int:
    """Return the length in bytes of record data: one fragment or a sequence of them."""
    if type(value) in _BUFFERS or isinstance(value, FileRange):
        return len(value)  # type: ignore[arg-type]
    if isinstance(value, (list, tuple)):
        return sum(map(records_length, value))
    raise TypeError(f"records are bytes, file ranges or a list of them, not {type(value).__name__}")


def put_records(small: list[bytes], fragments: list[Fragment], value: object, size: int) -> None:
    """Append record data by reference to `fragments`, after the parts in `small`.

    Short data in memory is appended to `small` instead.
    """
    pieces: Sequence[Fragment] = value if isinstance(value, (list, tuple)) else (value,)
    if size < COPY_BELOW and not any(isinstance(piece, FileRange) for piece in pieces):
        small += pieces  # type: ignore[arg-type]  # any buffer can be joined
        return
    fragments.append(b"".join(small))
    small.clear()
    fragments += pieces


_new_uuid = uuid.UUID.__new__
_set = object.__setattr__
_UNKNOWN = uuid.SafeUUID.unknown


def make_uuid(data: Buffer) -> uuid.UUID:
    """Return the UUID that 16 bytes encode.

    This function takes a third of the time of `uuid.UUID(bytes=...)`, because it checks nothing.
    """
    made = _new_uuid(uuid.UUID)
    _set(made, "int", int.from_bytes(data, "big"))
    _set(made, "is_safe", _UNKNOWN)
    return made
