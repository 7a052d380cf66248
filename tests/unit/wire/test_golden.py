"""Every message in every version, compared with the bytes of Apache Kafka's own classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokq import wire
from aiokq.wire.struct import Message
from tests.property.wire.messages import filled, in_version, message_classes, pairs, versions

LINES = (Path(__file__).parents[2] / "golden" / "wire" / "frames.txt").read_text().splitlines()
FRAMES = {
    (name, int(version)): bytes.fromhex(data)
    for name, version, data in (line.split(" ") for line in LINES if not line.startswith("#"))
}


def test_there_is_a_frame_for_every_message_version() -> None:
    """A version without a golden frame would not be tested."""
    assert len(FRAMES) >= 547
    assert {(cls.__name__, version) for cls, version in pairs()} == FRAMES.keys()


@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
def test_messages_are_written_and_read_as_kafka_writes_them(cls: type[Message]) -> None:
    """A round trip only shows that encoder and decoder agree."""
    for version in versions(cls):
        message = in_version(filled(cls), version, flexible=cls.is_flexible(version))
        assert isinstance(message, Message)
        golden = FRAMES[cls.__name__, version]
        assert wire.encode_bytes(message, version) == golden, version
        assert wire.decode(cls, golden, version) == message, version
