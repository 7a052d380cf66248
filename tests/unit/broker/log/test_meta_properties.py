"""meta.properties: aiokq's files, Kafka's, and invalid ones."""

from __future__ import annotations

import random

import pytest

from aiokq.broker.log.meta_properties import MetaProperties, decode_meta_properties, random_id
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.core.errors import ConfigError


def test_what_is_written_is_read() -> None:
    """A restart recognizes its own directory by the ids."""
    ids = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 3, "HifriUFMRDyQJ8TRw4a7xA")
    assert decode_meta_properties(ids.encode(), "p") == ids
    assert b"version=1" in ids.encode()


def test_kafkas_files_are_read() -> None:
    """KRaft's have node.id and a comment, ZooKeeper's have broker.id."""
    kraft = b"#\n#Tue Mar 04 10:00:00 UTC 2025\nnode.id=2\nversion=1\ncluster.id=abc\n"
    assert decode_meta_properties(kraft, "p") == MetaProperties("abc", 2, None)
    zookeeper = b"cluster.id=abc\nversion=0\nbroker.id=5\n"
    assert decode_meta_properties(zookeeper, "p") == MetaProperties("abc", 5, None)


def test_a_flipped_bit_is_refused_or_another_id() -> None:
    """What Kafka refuses is refused; a start compares node id and directory id with the log."""
    right = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 3, "HifriUFMRDyQJ8TRw4a7xA")
    data = right.encode()
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            try:
                found = decode_meta_properties(bytes(flipped), "p")
            except ConfigError:
                continue
            assert found != right
            assert found.directory_id is not None
            assert b"node.id=" in flipped
            assert b"version=1" in flipped


@pytest.mark.parametrize(
    "content",
    [
        b"version=0\nnode.id=1\ncluster.id=a\n",
        b"node.id=1\ncluster.id=a\n",
        b"",
        b"version=2\nnode.id=1\ncluster.id=a\n",
        b"node.id=x\ncluster.id=a\nversion=1",
    ],
)
def test_what_is_neither_is_refused(content: bytes) -> None:
    """The directory may belong to another program."""
    with pytest.raises(ConfigError, match=r"/d/meta\.properties"):
        decode_meta_properties(content, "/d/meta.properties")


@pytest.mark.parametrize("number", ["²", "٣", "-1", "1_0", "2147483648", "9" * 5000])
def test_a_node_id_that_is_none_is_named(number: str) -> None:
    """Regression: a superscript two passed for a digit, and the broker died of a ValueError."""
    content = f"version=1\nnode.id={number}\ncluster.id=a\n".encode()
    with pytest.raises(ConfigError, match=r"/d/meta\.properties has an invalid node\.id"):
        decode_meta_properties(content, "/d/meta.properties")


def test_ids_never_begin_with_a_dash() -> None:
    """Kafka's tools would take such an id on the command line for an option."""
    source = random.Random(0)
    ids = [format_uuid(random_id(source)) for _ in range(2000)]
    assert not [text for text in ids if text.startswith("-")]
    assert len(set(ids)) == len(ids)
