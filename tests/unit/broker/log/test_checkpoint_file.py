"""aiokq.broker.log.checkpoint_file: offset checkpoints, as Kafka writes them."""

from __future__ import annotations

import pytest

from aiokq.broker.log.checkpoint_file import read_offsets, write_offsets
from aiokq.core.errors import CorruptRecord
from aiokq.core.types import TopicPartition
from tests.sim.harness.files import MemoryFiles


def test_offset_checkpoints_are_kafkas() -> None:
    """The file has a version, a count, and lines of topic, partition and offset."""
    files = MemoryFiles()
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a", 0): 12, TopicPartition("a", 10): 0}
    write_offsets(files, "/c", offsets)
    assert files.read_bytes("/c") == b"0\n3\na 0 12\na 10 0\nb 1 7\n"
    assert read_offsets(files, "/c") == offsets
    assert read_offsets(files, "/missing") == {}
    files.open("/empty", create=True)  # Kafka creates it empty, before it has anything to write
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
    """A log start from a damaged file would delete records."""
    files = MemoryFiles()
    files.write_atomic("/c", content)
    with pytest.raises(CorruptRecord):
        read_offsets(files, "/c")
