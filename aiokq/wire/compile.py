"""Compiler of a message class and version into an encode and a decode function.

The generated source is straight-line Python: a run of fixed-width fields, the following length
prefix and the count of tagged fields become one call of a precompiled `struct.Struct`; an array of
integers becomes one unpack; nested structs are inlined, and record data stays a view of the frame.
The source is compiled on first use (about a millisecond) and registered with `linecache`, so that
tracebacks and debuggers show it.

The generator is responsible for safety: it compares every slice end with the end of the frame, and
every count with the remaining bytes divided by the minimum size of an element; it bounds every
varint, and turns every failure into a `ProtocolError`. Tests compare the results with those of
`aiokq.wire.interpret`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, cast

from aiokq.wire.decode_source import DecodeSource
from aiokq.wire.encode_source import EncodeSource
from aiokq.wire.fields import Buffer, Fragment
from aiokq.wire.struct import Message

__all__ = ["Decoder", "Encoder", "decoder", "encoder", "source_of"]


class Decoder(Protocol):
    """Decode function: reads a message that starts at a position."""

    def __call__(self, data: Buffer, position: int, exact: bool = True, /) -> Message:
        """Return the message; if `exact`, raise `ProtocolError` for bytes after it."""


Encoder: TypeAlias = Callable[[Message], list[Fragment]]
"""Encode function: joins small parts, passes record data by reference, raises `ProtocolError`."""


def decoder(cls: type[Message], version: int) -> Decoder:
    """Compile the decoder of a message version."""
    return cast("Decoder", DecodeSource(cls, version).compile())


def encoder(cls: type[Message], version: int) -> Encoder:
    """Compile the encoder of a message version."""
    return cast("Encoder", EncodeSource(cls, version).compile())


def source_of(cls: type[Message], version: int) -> str:
    """Return the generated source of both functions, for debugging."""
    return EncodeSource(cls, version).source() + "\n\n" + DecodeSource(cls, version).source()
