"""Kafka's metadata log on disk: segments, snapshots, and the state after a kill."""

from __future__ import annotations

import pytest

from aiokq.broker.kraft.metadata_files import MetadataEnd, MetadataFiles
from aiokq.core.errors import KafkaStorage
from aiokq.fastpath import crc32c
from aiokq.wire.cluster_metadata_records import RemoveTopicRecord
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.kraft.kafka_log import (
    DIRECTORY,
    ORDERS,
    OTHER,
    KafkaLog,
    config,
    partition,
    topic,
)


@pytest.fixture
def log() -> KafkaLog:
    """A log with a leader's first record and a topic."""
    made = KafkaLog(MemoryFiles())
    made.lead(1)
    made.append(topic(), partition())
    return made


def found(log: KafkaLog) -> MetadataFiles:
    files = MetadataFiles.find(log.files, ["/data"], crc32c)
    assert files is not None
    return files


def test_the_log_is_read_to_its_end(log: KafkaLog) -> None:
    """Control records change nothing here, but take offsets."""
    log.roll()
    log.append(config("retention.ms", "5"), epoch=2)
    metadata = found(log).read()
    assert metadata.topic_configs("orders") == {"retention.ms": "5"}
    assert (metadata.end_offset, metadata.epoch) == (4, 2) == found(log).end()


def test_the_newest_snapshot_stands_for_what_was_before(log: KafkaLog) -> None:
    """Older segments may be deleted, and are not read if they exist."""
    log.snapshot(topic("wrong"))
    log.append(RemoveTopicRecord(topic_id=ORDERS), epoch=2)
    log.snapshot(topic("other", OTHER), partition(0, OTHER), epoch=2)
    assert set(found(log).read().topics) == {"other"}
    log.files.remove(log.path)
    log.roll()
    log.append(config("a", "b", "other"), epoch=3)
    metadata = found(log).read()
    assert metadata.topic_configs("other") == {"a": "b"}
    assert found(log).end() == MetadataEnd(log.end, 3)


def test_a_snapshot_may_lie_in_the_middle_of_a_segment(log: KafkaLog) -> None:
    """Records that the snapshot has are not applied twice."""
    log.append(RemoveTopicRecord(topic_id=ORDERS))
    log.snapshot()
    log.append(topic("next", OTHER))
    assert set(found(log).read().topics) == {"next"}


def test_a_snapshot_is_read_though_nobody_may_write_to_it(log: KafkaLog) -> None:
    """Kafka's snapshots have mode 0400; opened for writing too, they were readable to root only."""
    log.files.chmod(log.snapshot(topic("other", OTHER)), 0o400)
    assert set(found(log).read().topics) == {"other"}


def test_the_end_is_found_without_reading_all(log: KafkaLog) -> None:
    """The index is used, also at full size with zeros after its entries, as a kill leaves it."""
    for number in range(2000):
        log.append(config("a", str(number)))
    position = len(log.files.read_bytes(log.path))
    last = log.end
    log.append(config("a", "last"))
    index = last.to_bytes(4, "big") + position.to_bytes(4, "big") + bytes(8000)
    log.files.write_atomic(log.path.replace(".log", ".index"), index)
    files = found(log)
    assert files.end() == (log.end, 1)
    log.files.write_atomic(log.path.replace(".log", ".index"), b"\xff" * 16)
    assert files.end() == (log.end, 1)


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\0\0\0\0\0\0\0\5\0\0\0\x50...", b"\xff" * 70])
def test_what_a_kill_left_at_the_end_is_passed_over(log: KafkaLog, tail: bytes) -> None:
    """Kafka truncates it; aiokq leaves it in place for Kafka to find."""
    log.write(tail)
    assert set(found(log).read().topics) == {"orders"}
    assert found(log).end() == (3, 1)
    damaged = log.files.read_bytes(log.path)
    log.files.write_atomic(log.path, damaged[:100] + b"\1" + damaged[101:])
    assert found(log).end() == (1, 1)


@pytest.mark.parametrize("damage", ["torn", "flipped", "gap", "newer"])
def test_metadata_that_cannot_be_understood_says_what_to_do(log: KafkaLog, damage: str) -> None:
    """Starting with half of the topics would be worse than not starting."""
    path = log.snapshot(topic(), partition())
    data = log.files.read_bytes(path)
    if damage == "torn":
        log.files.write_atomic(path, data[:-1])
    elif damage == "flipped":
        log.files.write_atomic(path, data[:-20] + b"?" + data[-19:])
    elif damage == "gap":
        log.end += 10
        log.roll()
        log.append(topic("late", OTHER))
    else:
        log.append(b"\x01\x02\x63")
    with pytest.raises(KafkaStorage, match="move that directory away; the broker then serves"):
        found(log).read()


def test_a_directory_without_anything_in_it_is_none(log: KafkaLog) -> None:
    """Two directories with metadata are rejected as well."""
    files = MemoryFiles()
    files.mkdirs(DIRECTORY)
    assert MetadataFiles.find(files, ["/data"], crc32c) is None
    log.files.mkdirs("/more/__cluster_metadata-0")
    log.files.write_atomic(f"/more/__cluster_metadata-0/{0:020d}.log", b"")
    with pytest.raises(KafkaStorage, match=r"metadata\.log\.dir"):
        MetadataFiles.find(log.files, ["/data", "/more"], crc32c)
