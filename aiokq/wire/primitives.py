"""What compiled codecs call: varints, integer arrays, tags of unknown fields, errors.

Owns the slow branches of the generated source; the generator itself is `aiokq.wire.compile`.
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
"""Longest string in bytes, in every version (Kafka refuses longer ones in compact form too)."""

COPY_BELOW: Final = 1024
"""Record data shorter than this many bytes is copied next to its neighbours, not referred to."""


_BUFFERS: Final = frozenset((bytes, bytearray, memoryview))


class Malformed(ValueError):
    """Raised while decoding, with the reason; turned into a `ProtocolError` at the boundary."""


class FieldNotSupported(ProtocolError):
    """A field was set that the version does not have and that must not be dropped silently."""


DECODE_ERRORS: Final = (struct.error, IndexError, ValueError)
"""What generated decoders raise on bytes that are not the message (bad UTF-8: `ValueError`)."""

ENCODE_ERRORS: Final = (struct.error, AttributeError, TypeError, ValueError, OverflowError)
"""What generated encoders can raise on values that do not fit their field."""


def fail(detail: str) -> NoReturn:
    """Raise `Malformed`."""
    raise Malformed(detail)


def unsupported(api: str, version: int, field: str) -> NoReturn:
    """Raise `FieldNotSupported` for a field that holds a value and is absent in the version."""
    raise FieldNotSupported(
        f"{field} is set, which version {version} cannot carry", api=api, version=version
    )


def uvarint_more(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Finish reading an unsigned varint whose first byte, before `position`, was above 127.

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
    """Read an unsigned varint."""
    first = data[position]
    if first < 128:
        return first, position + 1
    return uvarint_more(data, position + 1, first)


def unsigned(value: int) -> bytes:
    """Write an unsigned varint."""
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
    """Write the length prefix (length plus one) of a compact string that needs several bytes."""
    if value > MAX_STRING + 1:
        raise Malformed(f"string of {value - 1} bytes, at most {MAX_STRING} are allowed")
    return unsigned(value)


class IntArrays(dict[int, Callable[..., object]]):
    """Packers or unpackers of arrays of one integer type, by number of elements.

    Those of few elements, such as the replicas of a partition, are kept; others are made anew.
    """

    __slots__ = ("code", "method")

    def __init__(self, code: str, method: str) -> None:
        super().__init__()
        self.code = code
        self.method = method

    def __missing__(self, count: int) -> Callable[..., object]:
        """Make the function for a count not seen before."""
        made: Callable[..., object] = getattr(struct.Struct(f">{count}{self.code}"), self.method)
        if count <= 64:
            self[count] = made
        return made


def read_unknown(
    data: Buffer, position: int, end: int, into: dict[int, bytes], tag: int, size: int
) -> int:
    """Keep one tagged field that the class does not know; returns the position after it."""
    stop = position + size
    if stop > end:
        raise Malformed(f"tagged field {tag} of {size} bytes passes the end")
    if tag in into:
        raise Malformed(f"tagged field {tag} twice")
    into[tag] = bytes(data[position:stop])
    return stop


def read_tags(data: Buffer, position: int, end: int, struct_: Struct) -> int:
    """Read the tagged fields of a struct that knows none; returns the position after them."""
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
    """Write the tagged fields of a struct that knows none."""
    write(tagged_section({}, struct_.unknown_tags))


def tagged_section(known: dict[int, bytes], unknown: Mapping[int, bytes]) -> bytes:
    """Write the tagged fields of a struct, known and unknown ones, in the order of their tags."""
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
    """Return the bytes of a records value: one fragment or a sequence of them."""
    if type(value) in _BUFFERS or isinstance(value, FileRange):
        return len(value)  # type: ignore[arg-type]
    if isinstance(value, (list, tuple)):
        return sum(map(records_length, value))
    raise TypeError(f"records are bytes, file ranges or a list of them, not {type(value).__name__}")


def put_records(small: list[bytes], fragments: list[Fragment], value: object, size: int) -> None:
    """Append record data: by reference, or next to the small parts where it is short itself."""
    pieces: Sequence[Fragment] = value if isinstance(value, (list, tuple)) else (value,)
    if size < COPY_BELOW and not any(isinstance(piece, FileRange) for piece in pieces):
        small += pieces  # type: ignore[arg-type]  # joined: any buffer does
        return
    fragments.append(b"".join(small))
    small.clear()
    fragments += pieces


_new_uuid = uuid.UUID.__new__
_set = object.__setattr__
_UNKNOWN = uuid.SafeUUID.unknown


def make_uuid(data: Buffer) -> uuid.UUID:
    """Build a uuid from 16 bytes, at a third of the cost of the constructor and its checks."""
    made = _new_uuid(uuid.UUID)
    _set(made, "int", int.from_bytes(data, "big"))
    _set(made, "is_safe", _UNKNOWN)
    return made
