"""Messages of the gateway's clients: every field to the byte, and every limit."""

from __future__ import annotations

import itertools
import mmap
import struct
import time
from typing import Any

import pytest

from aiokq.gateway.client import (
    GatewayClientError,
    InvalidMessage,
    MessageTooLarge,
    TopicTooLarge,
    WrongType,
    encode,
)
from tests.gateway_messages import NOW, vectors


def fields(message: bytes) -> tuple[int | None, bytes, int, bytes, bytes]:
    """Partition key, topic, timestamp, key and value, read field by field."""
    at = 0

    def number(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(f">{form}", message, at)
        at += struct.calcsize(f">{form}")
        assert isinstance(value, int)
        return value

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return message[at - size : at]

    assert number("i") == len(message)
    api_key = number("h")
    assert api_key in (256, 257)
    assert (number("h"), number("h")) == (0, 0)
    partition_key = number("I") if api_key == 257 else None
    topic = take(number("h"))
    timestamp = number("q")
    key = take(number("i"))
    value = take(number("i"))
    assert at == len(message)
    return partition_key, topic, timestamp, key, value


def test_the_golden_vectors_are_encoded_to_the_byte() -> None:
    """The examples, which the C libraries of Bruce and Dory write, and the limits of all fields."""
    for expected, topic, key, value, timestamp_ms, partition_key in vectors():
        fields: dict[str, Any] = {"timestamp_ms": timestamp_ms, "partition_key": partition_key}
        assert encode(topic, value, key=key, **fields) == expected


def test_every_field_is_encoded_at_its_limits() -> None:
    """A sign or a size that is wrong at a limit."""
    for partition_key, topic, timestamp_ms, key, value in itertools.product(
        (None, -(2**31), -1, 0, 1, 2**31 - 1, 2**31, 2**32 - 1),
        (b"t", b"\xff" * 249, b"x" * 32767),
        (-(2**63), -1, 0, NOW, 2**63 - 1),
        (b"", b"k", b"\x00" * 70000),
        (b"", b"v", b"\xff" * 70000),
    ):
        message = encode(
            topic, value, key=key, partition_key=partition_key, timestamp_ms=timestamp_ms
        )
        unsigned = None if partition_key is None else partition_key % 2**32
        assert fields(message) == (unsigned, topic, timestamp_ms, key, value)


@pytest.mark.parametrize(
    ("topic", "arguments", "error"),
    [
        ("", {}, InvalidMessage),
        ("x" * 32768, {}, TopicTooLarge),
        ("ä" * 16384, {}, TopicTooLarge),
        ("t", {"partition_key": 2**32}, InvalidMessage),
        ("t", {"partition_key": -(2**31) - 1}, InvalidMessage),
        ("t", {"timestamp_ms": 2**63}, InvalidMessage),
        ("t", {"timestamp_ms": -(2**63) - 1}, InvalidMessage),
    ],
)
def test_a_field_beyond_its_limit_is_refused(
    topic: str, arguments: dict[str, int], error: type[GatewayClientError]
) -> None:
    """A field that does not fit must not be cut or wrapped."""
    with pytest.raises(error) as caught:
        encode(topic, b"v", **arguments)
    assert type(caught.value) is error
    assert isinstance(caught.value, ValueError)


def test_a_message_of_two_gigabytes_is_refused_before_it_is_copied() -> None:
    """The size is an int32. The mapping costs no memory as long as nobody reads it."""
    large = memoryview(mmap.mmap(-1, 2**31))
    room = 2**31 - 1 - 28 - 1
    with pytest.raises(MessageTooLarge) as caught:
        encode("t", large[: room + 1])
    assert (caught.value.size, caught.value.limit) == (2**31, 2**31 - 1)
    with pytest.raises(MessageTooLarge):
        encode("t", large[: room - 3], partition_key=0)
    with pytest.raises(MessageTooLarge):
        encode("t", b"1", key=large[:room])


def test_the_time_of_a_message_is_now() -> None:
    """Unless the program gives another."""
    before = time.time_ns() // 1_000_000
    timestamp = fields(encode("t", b""))[2]
    assert before <= timestamp <= time.time_ns() // 1_000_000


def test_any_bytes_are_accepted_and_text_is_refused_with_the_fix() -> None:
    """A str as value would need an encoding, which the program has to choose."""
    wide = memoryview(struct.pack("=3i", 1, 2, 3)).cast("i")
    assert fields(encode("t", wide, timestamp_ms=0))[4] == wide.tobytes()
    assert fields(encode("t", bytearray(b"v"), key=memoryview(b"k")))[3:] == (b"k", b"v")
    assert fields(encode("tör", b""))[1] == "tör".encode()
    with pytest.raises(TypeError, match=r"value is a str: encode it, for example with \.encode"):
        encode("t", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key is of type int, and must be bytes"):
        encode("t", b"", key=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [None, 5, 1.5, "5", object(), [1], {}])
@pytest.mark.parametrize("name", ["topic", "value", "key", "partition_key", "timestamp_ms"])
def test_an_argument_of_a_wrong_type_is_named(name: str, wrong: Any) -> None:
    """Regression: the error was that of a line of `encode`, such as struct.error."""
    optional = {"partition_key": None, "timestamp_ms": None}
    numbers: tuple[type, ...] = (int,) if name in optional else ()
    texts: tuple[type, ...] = (str,) if name == "topic" else ()
    if isinstance(wrong, numbers + texts) or (wrong is None and name in optional):
        return
    arguments = {"topic": "t", "value": b"v", name: wrong}
    kind = "str" if isinstance(wrong, str) and name in ("value", "key") else type(wrong).__name__
    with pytest.raises(WrongType, match=f"^{name} is (a|of type) {kind}") as caught:
        encode(**arguments)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, InvalidMessage)


def test_numbers_and_bytes_of_other_classes() -> None:
    """Such as numpy's, and parts of larger buffers."""

    class Number:
        def __index__(self) -> int:
            return 7

    number: Any = Number()
    assert encode("t", b"v", partition_key=number, timestamp_ms=number) == encode(
        "t", b"v", partition_key=7, timestamp_ms=7
    )
    every_second = memoryview(b"v-a-l")[::2]
    assert encode("t", every_second, timestamp_ms=0) == encode("t", b"val", timestamp_ms=0)
    wide: Any = memoryview(b"topictop").cast("i")
    assert fields(encode(wide, b""))[1] == b"topictop"
    released = memoryview(b"v")
    released.release()
    with pytest.raises(InvalidMessage, match="value cannot be read: operation forbidden"):
        encode("t", released)
    with pytest.raises(InvalidMessage, match="topic cannot be encoded as UTF-8: surrogates"):
        encode("\udcff", b"v")
