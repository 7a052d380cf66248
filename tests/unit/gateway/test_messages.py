"""The format of messages, to the byte."""

from __future__ import annotations

import pytest

from aiokq.gateway.messages import encode

STAMP = 1_700_000_000_000


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            encode(b"t", b"", b"hi", STAMP),
            "0000001f0100000000000001740000018bcfe5680000000000000000026869",
        ),
        (
            encode(b"orders", b"u7", b'{"n":1}', STAMP, 0xFFFFFFFF),
            "0000002f010100000000ffffffff00066f72646572730000018bcfe56800"
            "000000027537000000077b226e223a317d",
        ),
        (
            encode(b"web.log", b"", b"", STAMP),
            "0000002301000000000000077765622e6c6f670000018bcfe568000000000000000000",
        ),
    ],
)
def test_the_examples_of_the_format(message: bytes, expected: str):
    """Byte-identical to what the C libraries of Bruce and Dory write."""
    assert message.hex() == expected


def test_a_partition_key_is_signed_or_unsigned():
    """Both name the same 32 bits."""
    assert encode(b"t", b"", b"", 0, -1) == encode(b"t", b"", b"", 0, 2**32 - 1)
    with pytest.raises(ValueError, match="it is from -2"):
        encode(b"t", b"", b"", 0, 2**32)


@pytest.mark.parametrize("topic", [b"", b"x" * 32768])
def test_topics_have_a_size(topic: bytes):
    """Its size is a positive int16."""
    with pytest.raises(ValueError, match="the topic"):
        encode(topic, b"", b"", 0)


def test_a_timestamp_has_64_bits():
    """A larger number is an error of the caller."""
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        encode(b"t", b"", b"", 2**63)
