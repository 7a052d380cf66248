"""Nodes that are started without one of their log directories."""

from __future__ import annotations

import logging

import pytest

from aiokq import wire
from aiokq.broker.metadata.directory_assignment import DirectoryAssignment
from aiokq.broker.snapshot import take_snapshot
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker, batch, offsets

A, B, C = "/a", "/b", "/c"


def on(files: MemoryFiles | None, *paths: str) -> Broker:
    return Broker(files, directories=paths)


async def filled() -> MemoryFiles:
    """Create one partition with three records in each of two directories."""
    async with on(None, A, B) as broker:
        await broker.create("t", 2)
        for index in range(2):
            await broker.produce("t", batch(3), partition=index)
        assert [len(one.logs) for one in broker.node.storage.directories.all] == [1, 1]
        return broker.files


def without(broker: Broker) -> int:
    """Return which of the two partitions is offline."""
    [index] = [one.index for one in broker.node.topics.get("t").partitions if not one.is_online]
    return index


async def test_partitions_of_one_that_was_left_out_are_offline_and_come_back(caplog):
    """Recreated partitions would look as if their records were lost."""
    files = await filled()
    with caplog.at_level(logging.ERROR):
        async with on(files, A) as broker:
            lost = without(broker)
            answer = await broker.fetch_one("t", lost, 0)
            assert answer.error_code == 56
            assert (await broker.produce("t", batch(), partition=lost)).error_code == 56
            assert offsets((await broker.fetch_one("t", 1 - lost, 0)).records) == [0, 1, 2]
            results = (await broker.ask(wire.DescribeLogDirsRequest(topics=None), 4)).results
            assert {one.log_dir: one.error_code for one in results} == {A: 0, B: 56}
    assert "paths=/b partitions offline=1 first=t-" in caplog.text
    async with on(files, A) as broker:  # the same at the next start
        assert without(broker) == lost
    async with on(files, A, B) as broker:
        for index in range(2):
            assert offsets((await broker.fetch_one("t", index, 0)).records) == [0, 1, 2]


async def test_an_empty_directory_at_its_path_is_not_taken_for_it():
    """The disk is not mounted, and the path is an empty mount point (*Non-obvious* 30)."""
    files = await filled()
    files.rename(B, "/unmounted")
    async with on(files, A, B) as broker:
        lost = without(broker)
        assert (await broker.produce("t", batch(), partition=lost)).error_code == 56
        await broker.create("u", 2)  # new partitions are allowed
    files.remove_tree(B)
    files.rename("/unmounted", B)
    async with on(files, A, B) as broker:
        assert offsets((await broker.fetch_one("t", lost, 0)).records) == [0, 1, 2]


async def test_one_that_moved_is_known_by_its_id():
    """A directory is known by its id, because mount points change."""
    files = await filled()
    files.rename(B, C)
    async with on(files, A, C) as broker:
        for index in range(2):
            assert offsets((await broker.fetch_one("t", index, 0)).records) == [0, 1, 2]


async def test_after_its_topics_were_deleted_it_is_forgotten(caplog):
    """After the loss of a disk the node can be used again."""
    files = await filled()
    async with on(files, A) as broker:
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        await broker.create("t", 2)
        await broker.produce("t", batch(2), partition=1)
    caplog.clear()
    async with on(files, A) as broker:
        assert offsets((await broker.fetch_one("t", 1, 0)).records) == [0, 1]
        assert not broker.node.storage.directories.offline
    assert "missing" not in caplog.text


async def test_one_without_partitions_may_go():
    """A directory without partitions can be removed from `log.dirs`."""
    async with on(None, A, B) as broker:
        await broker.create("t")
        files = broker.files
    async with on(files, A) as broker:
        assert not broker.node.storage.directories.offline
        assert (await broker.produce("t", batch())).error_code == 0


async def test_a_snapshot_of_two_is_one_and_misses_none():
    """All partitions are in the copy."""
    files = await filled()
    async with on(files, A, B) as broker:
        await take_snapshot(broker.node, "/copy")
    async with on(files, "/copy") as broker:
        assert not broker.node.storage.directories.offline
        assert offsets((await broker.fetch_one("t", 1, 0)).records) == [0, 1, 2]


async def unassigned(monkeypatch: pytest.MonkeyPatch) -> MemoryFiles:
    """Create two partitions, and kill the node before it has recorded their directories."""
    with monkeypatch.context() as patch:
        patch.setattr(DirectoryAssignment, "placed", lambda *_: None)
        return await filled()


async def test_one_that_may_have_a_partition_is_missed_at_each_start(
    monkeypatch: pytest.MonkeyPatch,
):
    """The first start without it must not forget that the partition may be there."""
    files = await unassigned(monkeypatch)
    for _ in range(2):
        async with on(files, A) as broker:
            lost = without(broker)
            assert (await broker.produce("t", batch(), partition=lost)).error_code == 56
    async with on(files, A, B) as broker:
        for index in range(2):
            assert offsets((await broker.fetch_one("t", index, 0)).records) == [0, 1, 2]
    async with on(files, A) as broker:  # its directory is recorded now
        assert without(broker) == lost


async def test_a_missing_directory_is_named_by_its_id_without_the_node_file(caplog):
    """Paths are known from a file that may be lost."""
    files = await filled()
    files.remove(f"{A}/aiokq-node.json")
    async with on(files, A) as broker:
        without(broker)
        [path] = broker.node.storage.directories.offline
        assert path.startswith("with directory.id ")
    assert "paths=with directory.id" in caplog.text
