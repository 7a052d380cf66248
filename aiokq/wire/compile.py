"""Compiler that turns one version of a message class into an encode and a decode function.

The generated source avoids calls for single fields. A run of fixed-width fields, together with the
length prefix or the count of tagged fields after it, becomes one call of a precompiled
`struct.Struct`. An array of integers takes one pack or unpack call. Nested structs are inlined, and
decoded record data stays a view of the frame. The source is compiled on first use (about a
millisecond) and registered with `linecache`, so that tracebacks and debuggers show it.

The generated decoders are safe for untrusted bytes. They compare every slice end with the end of
the frame, and every count with the remaining bytes divided by the minimum size of an element (for
integers, the unpacking itself fails). They bound every varint, and turn every failure into a
`ProtocolError`. Tests compare the results with those of `aiokq.wire.interpret`.
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
"""Encode function: returns the fragments of `aiokq.wire.encode`, or raises `ProtocolError`."""


def decoder(cls: type[Message], version: int) -> Decoder:
    """Compile the decoder of a message version."""
    return cast("Decoder", DecodeSource(cls, version).compile())


def encoder(cls: type[Message], version: int) -> Encoder:
    """Compile the encoder of a message version."""
    return cast("Encoder", EncodeSource(cls, version).compile())


def source_of(cls: type[Message], version: int) -> str:
    """Return the generated source of both functions, for debugging."""
    return EncodeSource(cls, version).source() + "\n\n" + DecodeSource(cls, version).source()
