"""aiokq.broker.log.file_names: names of segments, partitions and deleted directories."""

from __future__ import annotations

from aiokq.broker.log import file_names
from aiokq.core.types import TopicPartition


def test_partition_directories_are_told_from_all_else() -> None:
    """Topic names may have dashes and digits too."""
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
        assert file_names.parse_partition_directory(name) == partition
        if partition is not None:
            assert file_names.partition_directory(partition) == name


def test_deleted_directories_fit_the_file_system() -> None:
    """A topic's name may have 249 characters, a file name 255."""
    name = file_names.renamed_directory(
        TopicPartition("x" * 249, 7), "0" * 32, file_names.DELETED_DIRECTORY
    )
    assert len(name) == 255
    assert name.endswith("-7." + "0" * 32 + "-delete")
    assert file_names.parse_partition_directory(name) is None


def test_segment_files_are_named_by_their_first_offset() -> None:
    """With twenty digits names sort like numbers."""
    assert file_names.segment_file("/d", 42, file_names.LOG) == "/d/00000000000000000042.log"
    assert file_names.parse_segment_file("00000000000000000042.timeindex") == (42, ".timeindex")
    for other in ("42.log", "0" * 20, "0" * 20 + ".", "0" * 21 + ".log", "\u0660" * 20 + ".log"):
        assert file_names.parse_segment_file(other) is None
    assert file_names.parse_segment_file("leader-epoch-checkpoint") is None
