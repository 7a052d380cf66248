"""Subscriptions and assignments that members exchange, decoded as in Java."""

from __future__ import annotations

import struct

import pytest

from aiokq.assign.model import Assignment, Subscription
from aiokq.assign.protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from aiokq.core.errors import ProtocolError
from aiokq.core.types import TopicPartition

WHOLE = Subscription(("t",), (TopicPartition("t", 0),), 3, "r", None, b"u")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, Subscription(("t",), user_data=b"u")),
        (1, Subscription(("t",), WHOLE.owned, user_data=b"u")),
        (2, Subscription(("t",), WHOLE.owned, 3, user_data=b"u")),
        (3, WHOLE),
        (4, WHOLE),
        (32767, WHOLE),
    ],
)
def test_bytes_beyond_a_version_are_skipped(version: int, expected: Subscription) -> None:
    """Regression: bytes that Java's leaders accept made aiokq's leader fail, and so the group."""
    data = struct.pack(">h", version) + encode_subscription(WHOLE)[2:] + b"more"
    assert decode_subscription(data) == expected
    assert decode_assignment(encode_assignment(Assignment(())) + b"more") == Assignment(())


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\1\x7f\xff\xff\xff"])
def test_what_is_no_subscription_is_refused(data: bytes) -> None:
    """Versions below 0, and counts that exceed the data."""
    with pytest.raises(ProtocolError):
        decode_subscription(data)
