"""bootstrap.checkpoint: written in the versions of its level, and read back with every check."""

from __future__ import annotations

import pytest

from aiokq.broker.metadata.controller.registration import feature_records
from aiokq.broker.metadata.log.bootstrap_checkpoint import (
    read_bootstrap_checkpoint,
    write_bootstrap_checkpoint,
)
from aiokq.broker.metadata.log.snapshot_file import write_snapshot
from aiokq.core.errors import KafkaStorage, UnsupportedVersion
from aiokq.fastpath import crc32c
from aiokq.wire.principal_records import UserScramCredentialRecord
from aiokq.wire.struct import Message
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import memory

USER = UserScramCredentialRecord(
    name="alice", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"l", iterations=4096
)


@pytest.fixture
def files() -> MemoryFiles:
    return memory()


def records(level: int) -> list[Message]:
    return [*feature_records([("metadata.version", level), ("group.version", 1)]), USER]


def test_what_is_written_is_read_after_a_power_cut(files: MemoryFiles) -> None:
    """The first leader of the log would begin with other features otherwise."""
    assert read_bootstrap_checkpoint(files, "/data", crc32c) is None
    for level in (25, 29):  # an existing file is replaced
        path = write_bootstrap_checkpoint(
            files, "/data", records(level), timestamp_ms=5, crc32c=crc32c
        )
        assert path == "/data/bootstrap.checkpoint"
        files.power_cut()
        assert read_bootstrap_checkpoint(files, "/data", crc32c) == records(level)


def test_a_record_that_the_level_lacks_is_refused(files: MemoryFiles) -> None:
    """Kafka could not open the directory."""
    with pytest.raises(UnsupportedVersion):
        write_bootstrap_checkpoint(files, "/data", records(10), timestamp_ms=5, crc32c=crc32c)
    assert files.listdir("/data") == []


def test_every_damaged_byte_is_noticed(files: MemoryFiles) -> None:
    """A start with other features than those asked for would be hard to notice later."""
    write_bootstrap_checkpoint(files, "/data", records(25), timestamp_ms=5, crc32c=crc32c)
    path = "/data/bootstrap.checkpoint"
    for position in range(files.stat_size(path)):
        files.corrupt(path, position, 0x20)
        with pytest.raises(KafkaStorage, match=r"restore /data/bootstrap\.checkpoint"):
            read_bootstrap_checkpoint(files, "/data", crc32c)
        files.corrupt(path, position, 0x20)
    assert read_bootstrap_checkpoint(files, "/data", crc32c) == records(25)


def test_a_record_of_a_newer_kafka_is_refused_by_name(files: MemoryFiles) -> None:
    """It cannot be skipped: it may be what the user asked for."""
    write_snapshot(
        files,
        "/data/bootstrap.checkpoint",
        [b"\x01\x7f\x00\x00"],
        epoch=0,
        timestamp_ms=5,
        last_contained_ms=0,
        crc32c=crc32c,
    )
    with pytest.raises(KafkaStorage, match=r"unknown type 127.*use a newer aiokq"):
        read_bootstrap_checkpoint(files, "/data", crc32c)
