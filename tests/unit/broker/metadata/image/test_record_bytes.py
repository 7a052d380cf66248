"""Metadata records in every version, compared with the bytes of Kafka's own serde."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokq.broker.log.file_names import CLUSTER_METADATA
from aiokq.broker.metadata.image.features import METADATA_VERSION
from aiokq.broker.metadata.image.record_codec import (
    RECORD_CLASSES,
    decode_metadata_record,
    encode_metadata_record,
    record_version,
)
from aiokq.records.header import iter_headers
from aiokq.records.record import iter_records
from aiokq.wire.cluster_metadata_records import FeatureLevelRecord
from tests.golden.directories import contents
from tests.golden.metadata.samples import samples

GOLDEN = Path(__file__).parents[4] / "golden" / "metadata" / "records.txt"
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


def values(data: bytes) -> Iterator[bytes]:
    """Yield the values of the records in a file of Kafka's metadata log."""
    position = 0
    for header in iter_headers(data):
        batch = data[position : position + header.size]
        position += header.size
        if not header.is_control:
            for record in iter_records(batch, header):
                assert record.value is not None
                yield bytes(record.value)


@pytest.mark.parametrize("name", ["kafka", "kafka-killed", "kafka-twice", "kafka-standalone"])
def test_logs_of_kafka_are_the_same_after_reading_and_writing(name: str, tmp_path: Path) -> None:
    """Kafka's controller wrote these records, and chose their versions."""
    level, compared = 0, Counter[str]()
    for directory in contents.unpack(name, tmp_path):
        for path in sorted((directory / CLUSTER_METADATA).iterdir(), reverse=True):
            if path.suffix not in (".log", ".checkpoint"):  # snapshots first, for the level
                continue
            for value in values(path.read_bytes()):
                record = decode_metadata_record(value)
                if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
                    level = record.feature_level
                assert encode_metadata_record(record, record_version(record, level)) == value
                compared[record.NAME] += 1
    assert level == 29
    assert compared.total() > 150
