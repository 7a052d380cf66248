"""Control records: transaction markers and other types."""

from __future__ import annotations

import struct

import pytest

from aiokq.core.errors import CorruptRecord
from aiokq.records.control import read_control_type, read_marker
from aiokq.records.header import CONTROL_MASK, read_header
from aiokq.records.record import RawRecord, encode_batch
from tests.unit.records.samples import crc32c


def control(key: bytes | None, value: bytes | None) -> bytes:
    return encode_batch([RawRecord(0, 0, key, value)], crc32c=crc32c, attributes=CONTROL_MASK)


def test_records_of_other_types_are_no_markers() -> None:
    """Kafka's metadata topic has leader changes and snapshot headers, and more types may come."""
    for kind in (2, 3, 6, 99):
        data = control(struct.pack(">hh", 0, kind), b"")
        assert read_marker(data, read_header(data)) is None
    assert read_control_type(struct.pack(">hh", 1, 99) + b"newer") == 99


def test_a_marker_of_an_unknown_codec_is_corrupt() -> None:
    """Regression: `aiokq log verify` ended with an error of the codec, and no finding."""
    data = bytearray(control(struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 5)))
    data[22] |= 7  # the codec, in the low bits of the attributes
    with pytest.raises(CorruptRecord, match="codec 7"):
        read_marker(data, read_header(data))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00", b""),
        (struct.pack(">hh", -1, 1), b""),
        (struct.pack(">hh", 0, 1), None),
        (struct.pack(">hh", 0, 1), b"\x00\x00"),
        (struct.pack(">hh", 0, 0), struct.pack(">hi", -1, 5)),
    ],
)
def test_malformed_markers_are_corrupt(key: bytes | None, value: bytes | None) -> None:
    """A guess could commit an aborted transaction."""
    data = control(key, value)
    with pytest.raises(CorruptRecord):
        read_marker(data, read_header(data))
