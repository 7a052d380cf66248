"""aiokq.broker.log.partition_metadata: the topic id of a partition's directory."""

from __future__ import annotations

import uuid

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.partition_metadata import (
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
