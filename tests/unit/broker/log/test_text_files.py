"""Checkpoints, partition.metadata, ids and file names, as Kafka spells them."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.log import names
from aiokq.broker.log.text_files import (
    format_uuid,
    parse_uuid,
    read_offsets,
    read_partition_metadata,
    write_offsets,
    write_partition_metadata,
)
from aiokq.core.errors import CorruptRecord
from aiokq.core.types import TopicPartition
from tests.sim.harness.files import MemoryFiles

TOPIC_ID = uuid.UUID("78e51061-7311-48a3-820b-3d847ed4d57b")


def test_offset_checkpoints_are_kafkas() -> None:
    """Version, count, lines of topic, partition and offset."""
    files = MemoryFiles()
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 0): 12, TopicPartition("a", 10): 0}
    write_offsets(files, "/c", offsets)
    assert files.read_bytes("/c") == b"0\n3\na 0 12\na 10 0\nb 1 7\n"
    assert read_offsets(files, "/c") == offsets
    assert read_offsets(files, "/missing") == {}
    files.open("/empty", create=True)  # as Kafka makes it, until it has something to write
    assert read_offsets(files, "/empty") == {}


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n1\n",
        b"0\n1\na b 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 9223372036854775808\n",
        b"0\n1\na 2147483648 1\n",
        b"0\n1\na 0 -1\n",
        b"0\n1\na 0 1_0\n",
        b"0\n-1\na 0 1\n",
        b"0\n" + b"9" * 5000 + b"\n",
    ],
)
def test_a_malformed_checkpoint_is_refused(content: bytes) -> None:
    """A log start taken from garbage would delete records."""
    files = MemoryFiles()
    files.write_atomic("/c", content)
    with pytest.raises(CorruptRecord):
        read_offsets(files, "/c")


def test_partition_metadata_is_kafkas() -> None:
    """The id tells a re-created topic's directory from its predecessor's."""
    files = MemoryFiles()
    files.mkdirs("/t-0")
    assert read_partition_metadata(files, "/t-0") is None
    write_partition_metadata(files, "/t-0", TOPIC_ID)
    text = files.read_bytes(f"/t-0/{names.PARTITION_METADATA}")
    assert text == b"version: 0\ntopic_id: eOUQYXMRSKOCCz2EftTVew\n"
    assert read_partition_metadata(files, "/t-0") == TOPIC_ID
    for content in (b"", b"version: 1\ntopic_id: eOUQYXMRSKOCCz2EftTVew\n", b"version: 0\n"):
        files.write_atomic(f"/t-0/{names.PARTITION_METADATA}", content)
        with pytest.raises(CorruptRecord):
            read_partition_metadata(files, "/t-0")


def test_ids_are_spelled_as_kafka_does() -> None:
    """22 characters of URL-safe base64, without padding."""
    assert format_uuid(TOPIC_ID) == "eOUQYXMRSKOCCz2EftTVew"
    assert parse_uuid("eOUQYXMRSKOCCz2EftTVew") == TOPIC_ID
    for text in ("", "x", "eOUQYXMRSKOCCz2EftTVew==", "!" * 22):
        with pytest.raises(ValueError):
            parse_uuid(text)


def test_partition_directories_are_told_from_all_else() -> None:
    """Topic names have dashes and digits too."""
    for name, partition in {
        "orders-0": TopicPartition("orders", 0),
        "a-b-12": TopicPartition("a-b", 12),
        "__consumer_offsets-49": TopicPartition("__consumer_offsets", 49),
        "orders": None,
        "-0": None,
        "orders-": None,
        "orders-x": None,
        "orders-00": None,
        "orders-0.abc-delete": None,
        "orders-0.abc-future": None,
        "orders-0.abc-stray": None,
        "meta.properties": None,
    }.items():
        assert names.parse_partition_directory(name) == partition
        if partition is not None:
            assert names.partition_directory(partition) == name


def test_deleted_directories_fit_the_file_system() -> None:
    """A topic's name may have 249 characters; a file's 255."""
    name = names.renamed_directory(TopicPartition("x" * 249, 7), "0" * 32, names.DELETED_DIRECTORY)
    assert len(name) == 255
    assert name.endswith("-7." + "0" * 32 + "-delete")
    assert names.parse_partition_directory(name) is None


def test_segment_files_are_named_by_their_first_offset() -> None:
    """Twenty digits, so that names sort as numbers do."""
    assert names.segment_file("/d", 42, names.LOG) == "/d/00000000000000000042.log"
    assert names.parse_segment_file("00000000000000000042.timeindex") == (42, ".timeindex")
    assert names.parse_segment_file("42.log") is None
    assert names.parse_segment_file("leader-epoch-checkpoint") is None
