"""``aiokq-node.json``: what it has, and starts of a node that has lost or damaged it."""

from __future__ import annotations

import errno
import uuid

import pytest

from aiokq.broker.metadata.start.node_file import NODE_FILE, read_node_file, write_node_file
from tests.unit.broker.harness import Broker
from tests.unit.broker.metadata.metadata_logs import memory

PATH = f"/data/{NODE_FILE}"
PATHS = {uuid.UUID(int=500): "/größe"}


def test_it_is_read_as_written() -> None:
    """A shorter content replaces a longer one."""
    files = memory()
    write_node_file(files, "/data", {uuid.UUID(int=n): "/" for n in range(9)})
    write_node_file(files, "/data", PATHS)
    assert read_node_file(files, "/data") == PATHS
    assert files.listdir("/data") == [NODE_FILE]


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"\xff",
        b'{"version": 2, "paths": {}}',
        b'{"version": 1}',
        b'{"version": 1, "paths": []}',
        b'{"version": 1, "paths": {"x": "/a"}}',
    ],
)
def test_what_cannot_be_read_counts_as_missing(data: bytes | None) -> None:
    """Then the paths are unknown."""
    files = memory()
    if data is not None:
        files.write_atomic(PATH, data)
    assert read_node_file(files, "/data") == {}


async def test_a_start_notes_the_paths_of_its_directories() -> None:
    """Those of directories that are missing now are kept; unchanged paths are not written."""
    async with Broker(directories=("/data", "/more")) as broker:
        first, second = (one.directory_id for one in broker.node.storage.directories.all)
    files = broker.files
    async with Broker(files):
        assert read_node_file(files, "/data") == {first: "/data", second: "/more"}
    files.fail("rename", matches=lambda path: NODE_FILE in path)
    async with Broker(files):
        pass
    files.heal()
    files.rename("/more", "/moved")
    async with Broker(files, directories=("/data", "/moved")):
        assert read_node_file(files, "/data") == {first: "/data", second: "/moved"}


async def test_the_node_starts_without_it(caplog) -> None:
    """It is lost, or cannot be written: only its uses are missing."""
    async with Broker() as broker:
        await broker.create("t")
    files = broker.files
    files.remove(PATH)
    files.fail("open", errno.EACCES, matches=lambda path: NODE_FILE in path, times=None)
    async with Broker(files) as broker:
        assert broker.node.topics.get("t") is not None
    assert "node file not written path=/data" in caplog.text
