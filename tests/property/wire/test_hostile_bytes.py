"""Bytes that are no message: only ProtocolError, the same from both codecs, and bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from types import FunctionType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokq import wire
from aiokq.core.errors import ProtocolError
from aiokq.wire import compile, interpret
from aiokq.wire.struct import Message
from tests.property.wire.messages import filled, in_version, message_classes, versions

HUGE = [
    b"\x7f\xff\xff\xff",  # the largest 32-bit count or size
    b"\xff\xff\xff\xff",  # -1, or the beginning of an endless varint
    b"\xff\xff\xff\xff\x0f",  # the largest varint
    b"\x80\x00\x00\x00",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x00\x00\x00\x00\x00",
]

FACTOR = 100
"""Bytes of memory that a byte of a frame may cost: a struct of a byte is an object with slots."""

Decode = Callable[[type[Message], bytes, int], Message]

SLACK = 64 * 1024
"""Bytes of memory that decoding may take anyway: for the error, for packers of new lengths."""


def outcome(cls: type[Message], data: bytes, version: int, decode: Decode) -> Message | None:
    """Return the message, or `None` for a ProtocolError; nothing else may come out."""
    try:
        result = decode(cls, data, version)
    except ProtocolError as error:
        # The error itself is let go: with its traceback it would keep what it is measured by.
        refused = (error.api, error.version)
    else:
        assert isinstance(result, cls)
        return result
    assert refused == (cls.NAME, version)
    return None


def assert_both_agree(cls: type[Message], data: bytes, version: int) -> None:
    compiled = outcome(cls, data, version, wire.decode)
    interpreted = outcome(cls, data, version, interpret.decode)
    if compiled != interpreted:
        # A number that is not equal to itself.
        assert compiled is not None
        assert interpreted is not None
        assert repr(compiled) == repr(interpreted)


@pytest.fixture
def traced() -> Iterator[None]:
    """Trace memory, for the tests that measure it: it slows everything down."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


def measured_decoder(cls: type[Message], version: int) -> Decode:
    """Return the compiled decoder, warm and without line numbers.

    For every allocation tracemalloc looks the line up, from the beginning of the function: in
    these, which are long, that takes ten times as long as all the rest.
    """
    decoder = compile.decoder(cls, version)
    assert isinstance(decoder, FunctionType)
    bare = FunctionType(
        decoder.__code__.replace(co_linetable=b""),
        decoder.__globals__,
        decoder.__name__,
        decoder.__defaults__,
    )
    assert outcome(cls, frame_of(cls, version), version, lambda _, data, __: bare(data, 0))
    return lambda _, data, __: bare(data, 0)


def memory(cls: type[Message], data: bytes, version: int, decode: Decode, allowed: int = 0) -> int:
    """Return the most bytes of memory that decoding holds at a time.

    What other threads of the process (the test runner's) allocate meanwhile is counted, too; what
    decoding itself needs is the same each time. So what is over `allowed` is measured again.
    """
    least = -1
    for _ in range(3):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        outcome(cls, data, version, decode)
        _, peak = tracemalloc.get_traced_memory()
        least = peak - before if least < 0 else min(least, peak - before)
        if least < allowed:
            break
    return least


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[str, int, bytes]]:
    kinds = st.sampled_from(["set", "insert", "cut", "drop"])
    return [
        (draw(kinds), draw(st.integers(0, 10**6)), draw(st.sampled_from(HUGE) | st.binary()))
        for _ in range(draw(st.integers(1, 4)))
    ]


def damaged(data: bytes, damage: list[tuple[str, int, bytes]]) -> bytes:
    for kind, where, piece in damage:
        at = where % (len(data) + 1)
        if kind == "set":
            data = data[:at] + piece + data[at + len(piece) :]
        elif kind == "insert":
            data = data[:at] + piece + data[at:]
        elif kind == "cut":
            data = data[:at]
        else:
            data = data[:at] + data[at + len(piece) + 1 :]
    return data


def frame_of(cls: type[Message], version: int, *, structs_in_arrays: int = 2) -> bytes:
    values = filled(cls, structs_in_arrays=structs_in_arrays)
    message = in_version(values, version, flexible=cls.is_flexible(version))
    assert isinstance(message, Message)
    return wire.encode_bytes(message, version)


@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
@settings(max_examples=settings.default.max_examples // 2)
@given(damage=damages(), noise=st.binary(max_size=64))
def test_damaged_messages_raise_only_protocol_errors(
    cls: type[Message], damage: list[tuple[str, int, bytes]], noise: bytes
) -> None:
    """A peer that sends garbage must not take the process down with an IndexError."""
    for version in versions(cls):
        assert_both_agree(cls, damaged(frame_of(cls, version), damage), version)
        assert_both_agree(cls, noise, version)


@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
def test_every_truncation_is_refused(cls: type[Message]) -> None:
    """A frame cut anywhere is no shorter message."""
    for version in versions(cls):
        frame = frame_of(cls, version)
        for size in range(len(frame)):
            with pytest.raises(ProtocolError):
                wire.decode(cls, frame[:size], version)
        with pytest.raises(ProtocolError):
            wire.decode(cls, frame + b"\0", version)


@pytest.mark.usefixtures("traced")
def test_the_measure_sees_what_decoding_holds() -> None:
    """A measure that always gives nothing would make the two tests below pass for ever."""
    strings = wire.MetadataResponse(topics=[wire.MetadataResponseTopic() for _ in range(1000)])
    data = wire.encode_bytes(strings, 13)
    held = memory(wire.MetadataResponse, data, 13, measured_decoder(wire.MetadataResponse, 13))
    assert held > 1000 * 48


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
def test_a_huge_count_anywhere_costs_no_memory(cls: type[Message]) -> None:
    """Four bytes claim two billion elements: no list may be made before the bytes are there."""
    for version in versions(cls):
        decode = measured_decoder(cls, version)
        huge = b"\xff\xff\xff\xff\x0f" if cls.is_flexible(version) else b"\x7f\xff\xff\xff"
        # A second element is read by the same code at another position.
        frame = frame_of(cls, version, structs_in_arrays=1)
        for position in range(len(frame)):
            data = frame[:position] + huge + frame[position + len(huge) :]
            allowed = SLACK + FACTOR * len(data)
            held = memory(cls, data, version, decode, allowed)
            assert held < allowed, (version, position)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
def test_the_smallest_elements_cost_a_constant_multiple_of_the_frame(cls: type[Message]) -> None:
    """Frames of zeros and ones hold as many elements as fit; memory grows with the frame only."""
    for version in versions(cls):
        decode = measured_decoder(cls, version)
        count = b"\x80\x80\x01" if cls.is_flexible(version) else b"\x00\x00\x40\x00"
        frame = frame_of(cls, version)
        for fill in (b"\0", b"\1", b"\2"):
            for position in range(min(len(frame), 24)):
                data = frame[:position] + count + fill * 20_000
                allowed = SLACK + FACTOR * len(data)
                held = memory(cls, data, version, decode, allowed)
                assert held < allowed, (version, fill, position)
