"""Bytes that are no message: only ProtocolError, the same from both codecs, and bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq import wire
from aiokq.core.errors import ProtocolError
from aiokq.wire import interpret
from aiokq.wire.struct import Message
from tests.property.wire.messages import filled, in_version, message_classes, pairs, versions

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


def memory(cls: type[Message], data: bytes, version: int) -> int:
    """Return the most bytes of memory that decoding holds at a time."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    outcome(cls, data, version, wire.decode)
    _, peak = tracemalloc.get_traced_memory()
    return peak - before


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


def frame_of(cls: type[Message], version: int) -> bytes:
    message = in_version(filled(cls), version, flexible=cls.is_flexible(version))
    assert isinstance(message, Message)
    return wire.encode_bytes(message, version)


@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
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
def test_a_huge_count_anywhere_costs_no_memory() -> None:
    """Four bytes claim two billion elements: no list may be made before the bytes are there."""
    for cls, version in pairs():
        # The newest version of either form: lengths of 32 bits, lengths of varying size.
        if version not in (cls.MAX_VERSION, (cls.FLEXIBLE_SINCE or 0) - 1):
            continue
        huge = b"\xff\xff\xff\xff\x0f" if cls.is_flexible(version) else b"\x7f\xff\xff\xff"
        frame = frame_of(cls, version)
        for position in range(len(frame)):
            data = frame[:position] + huge + frame[position + len(huge) :]
            assert memory(cls, data, version) < SLACK + FACTOR * len(data), (cls, version, position)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
def test_the_smallest_elements_cost_a_constant_multiple_of_the_frame(cls: type[Message]) -> None:
    """Frames of zeros and ones hold as many elements as fit; memory grows with the frame only."""
    for version in (cls.MIN_VERSION, cls.MAX_VERSION):
        for fill in (b"\0", b"\1", b"\2"):
            for count in (b"\x00\x00\x40\x00", b"\x80\x80\x01"):
                frame = frame_of(cls, version)
                for position in range(min(len(frame), 24)):
                    data = frame[:position] + count + fill * 20_000
                    assert memory(cls, data, version) < SLACK + FACTOR * len(data)
