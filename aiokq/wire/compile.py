"""Compiler that turns one version of a message class into an encode and a decode function.

The generated source avoids calls for single fields. It reads or writes a run of fixed-width fields,
and the length or count that follows them, with one call of a precompiled `struct.Struct`. An array
of integers takes one call, too. Nested structs are inlined, and decoded record data stays a view of
the frame. Compiling the source takes about a millisecond. The source is registered with
`linecache`, so that tracebacks and debuggers show it.

The generated decoders are safe for untrusted bytes. They check that every slice ends within the
frame, that the rest of the frame can contain as many elements as an array claims to have, and that
no varint is too long. They turn every failure into a `ProtocolError`. Tests compare the results
with those of `aiokq.wire.interpret`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Protocol, TypeAlias, cast

from aiokq.wire.decode_source import DecodeSource
from aiokq.wire.encode_source import EncodeSource
from aiokq.wire.fields import Buffer, Fragment
from aiokq.wire.struct import Message

__all__ = [
    "Decoder",
    "DecoderInSteps",
    "Encoder",
    "EncoderInSteps",
    "decoder",
    "decoder_in_steps",
    "encoder",
    "encoder_in_steps",
    "source_of",
]


class Decoder(Protocol):
    """A generated decode function."""

    def __call__(self, data: Buffer, position: int, exact: bool = True, /) -> Message:
        """Return the message that starts at `position`.

        Raises:
            ProtocolError: the bytes are not such a message, or bytes follow the message and `exact`
                is true.
        """


Encoder: TypeAlias = Callable[[Message], list[Fragment]]
"""A generated encode function: returns fragments or raises, as `aiokq.wire.encode` does."""


DecoderInSteps: TypeAlias = "Callable[[Buffer, int, bool], Generator[None, None, Message]]"
"""A generated decode function that yields after each `ELEMENTS_PER_STEP` elements of arrays."""

EncoderInSteps: TypeAlias = "Callable[[Message], Generator[None, None, list[Fragment]]]"
"""A generated encode function that yields after each `ELEMENTS_PER_STEP` elements of arrays."""


def decoder(cls: type[Message], version: int) -> Decoder:
    """Compile the decoder of a message version."""
    return cast("Decoder", DecodeSource(cls, version).compile())


def encoder(cls: type[Message], version: int) -> Encoder:
    """Compile the encoder of a message version."""
    return cast("Encoder", EncodeSource(cls, version).compile())


def decoder_in_steps(cls: type[Message], version: int) -> DecoderInSteps:
    """Compile the decoder of a message version as a generator."""
    return cast("DecoderInSteps", DecodeSource(cls, version, in_steps=True).compile())


def encoder_in_steps(cls: type[Message], version: int) -> EncoderInSteps:
    """Compile the encoder of a message version as a generator."""
    return cast("EncoderInSteps", EncodeSource(cls, version, in_steps=True).compile())


def source_of(cls: type[Message], version: int) -> str:
    """Return the generated source of the encoder and the decoder, for debugging."""
    return EncodeSource(cls, version).source() + "\n\n" + DecodeSource(cls, version).source()
