"""Metadata records in every version, compared with the bytes of Kafka's own serde."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokq.broker.metadata.record_codec import (
    RECORD_CLASSES,
    decode_metadata_record,
    encode_metadata_record,
)
from tests.golden.metadata.samples import samples

GOLDEN = Path(__file__).parents[3] / "golden" / "metadata" / "records.txt"
VALUES = {
    (name, int(version), label): bytes.fromhex(data)
    for name, version, label, data in (
        line.split(" ") for line in GOLDEN.read_text().splitlines() if not line.startswith("#")
    )
}


@pytest.mark.parametrize("record_type", RECORD_CLASSES)
def test_records_are_written_and_read_as_kafkas_serde_does(record_type: int) -> None:
    """One wrong byte in a snapshot, and Apache Kafka refuses the directory."""
    cls = RECORD_CLASSES[record_type]
    compared = 0
    for label, version, record in samples():
        if type(record) is cls:
            golden = VALUES[cls.NAME, version, label]
            assert encode_metadata_record(record, version) == golden, (version, label)
            assert decode_metadata_record(golden) == record, (version, label)
            compared += 1
    assert compared == 5 * (cls.MAX_VERSION + 1)


def test_there_is_a_golden_value_of_every_sample() -> None:
    """A type or version without one would not be compared."""
    assert len(RECORD_CLASSES) == 26
    assert {(record.NAME, version, label) for label, version, record in samples()} == VALUES.keys()
