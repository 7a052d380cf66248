"""aiokq.broker.log.partition_metadata: the topic id of a partition's directory."""

from __future__ import annotations

import random
import uuid

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.partition_metadata import (
    is_damaged_id,
    read_partition_metadata,
    write_partition_metadata,
)
from aiokq.core.errors import CorruptRecord
from tests.sim.harness.files import MemoryFiles

TOPIC_ID = uuid.UUID("78e51061-7311-48a3-820b-3d847ed4d57b")


def test_partition_metadata_is_kafkas() -> None:
    """The id distinguishes a recreated topic's directory from its predecessor's."""
    files = MemoryFiles()
    files.mkdirs("/t-0")
    assert read_partition_metadata(files, "/t-0") is None
    write_partition_metadata(files, "/t-0", TOPIC_ID)
    text = files.read_bytes(f"/t-0/{file_names.PARTITION_METADATA}")
    assert text == b"version: 0\ntopic_id: eOUQYXMRSKOCCz2EftTVew\n"
    assert read_partition_metadata(files, "/t-0") == TOPIC_ID
    for content in (b"", b"version: 1\ntopic_id: eOUQYXMRSKOCCz2EftTVew\n", b"version: 0\n"):
        files.write_atomic(f"/t-0/{file_names.PARTITION_METADATA}", content)
        with pytest.raises(CorruptRecord):
            read_partition_metadata(files, "/t-0")


def test_a_flipped_bit_is_another_id_or_refused() -> None:
    """Nothing is accepted that Kafka's reader refuses, such as a vertical tab for a line feed."""
    files = MemoryFiles()
    files.mkdirs("/t-0")
    path = f"/t-0/{file_names.PARTITION_METADATA}"
    write_partition_metadata(files, "/t-0", TOPIC_ID)
    right, other_ids = files.read_bytes(path), 0
    for position in range(len(right)):
        for bit in range(8):
            data = bytearray(right)
            data[position] ^= 1 << bit
            files.write_atomic(path, bytes(data))
            try:
                found = read_partition_metadata(files, "/t-0")
            except CorruptRecord:
                continue
            assert found is not None
            assert is_damaged_id(found, TOPIC_ID)
            other_ids += 1
            write_partition_metadata(files, "/t-0", found)
            assert files.read_bytes(path) == data
    assert 50 < other_ids < 22 * 8


def test_another_topic_id_is_not_a_damaged_one() -> None:
    """A topic that was recreated has another random id."""
    assert not is_damaged_id(TOPIC_ID, TOPIC_ID)
    assert not is_damaged_id(uuid.UUID(int=0), TOPIC_ID)
    source = random.Random(1)
    ids = [uuid.UUID(int=source.getrandbits(128)) for _ in range(300)]
    assert not any(is_damaged_id(one, other) for one in ids for other in ids)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_last_line_may_end_without_a_line_feed(end: bytes) -> None:
    """As Kafka writes the file for the metadata log."""
    files = MemoryFiles()
    files.mkdirs("/t-0")
    content = b"version: 0\ntopic_id: eOUQYXMRSKOCCz2EftTVew" + end
    files.write_atomic(f"/t-0/{file_names.PARTITION_METADATA}", content)
    assert read_partition_metadata(files, "/t-0") == TOPIC_ID
