"""Compiles (message class, version) into encode and decode functions; owns the generated source.

The source is straight-line Python: a run of fixed-width fields, the length prefix behind it and
the count of tagged fields become one call of a precompiled `struct.Struct`, an array of integers
one unpack, nested structs are inlined, record data stays a view of the frame. It is compiled on
first use (about a millisecond) and registered with `linecache`, so that tracebacks and debuggers
show it.

Safety is in the generator, not in the messages: every slice end is compared with the end of the
frame, every count with the bytes left over the least size of an element, every varint is bounded,
and whatever goes wrong leaves as `ProtocolError`. `aiokq.wire.interpret` is the oracle for all.
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
    """Reads a message from a position; to the end of the data, unless told that more may follow."""

    def __call__(self, data: Buffer, position: int, exact: bool = True, /) -> Message:
        """Return the message; raises `ProtocolError`."""


Encoder: TypeAlias = Callable[[Message], list[Fragment]]
"""Writes a message: small parts joined, record data by reference; raises `ProtocolError`."""


def decoder(cls: type[Message], version: int) -> Decoder:
    """Compile the decoder of a message version."""
    return cast("Decoder", DecodeSource(cls, version).compile())


def encoder(cls: type[Message], version: int) -> Encoder:
    """Compile the encoder of a message version."""
    return cast("Encoder", EncodeSource(cls, version).compile())


def source_of(cls: type[Message], version: int) -> str:
    """Return the generated source of both directions, to be read by people."""
    return EncodeSource(cls, version).source() + "\n\n" + DecodeSource(cls, version).source()
