"""aiokq.broker.metadata.missing_directories: nodes started without one of their log directories."""

from __future__ import annotations

import logging

import pytest

from aiokq import wire
from aiokq.broker.metadata.missing_directories import forget_missing
from aiokq.broker.snapshot import take_snapshot
from aiokq.core.errors import ConfigError, KafkaStorage
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
    async with on(files, B, A) as broker:
        for index in range(2):
            assert offsets((await broker.fetch_one("t", index, 0)).records) == [0, 1, 2]


async def test_an_empty_directory_at_its_path_is_not_taken_for_it():
    """The disk is not mounted, and the path is an empty mount point."""
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
    async with on(files, C, A) as broker:
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


async def lost() -> tuple[MemoryFiles, int, int]:
    """Lose directory B; return the files, its partition, and the last epoch of consumers."""
    files = await filled()
    files.crash()
    if files.exists(f"{A}/.kafka_cleanshutdown"):
        files.remove(f"{A}/.kafka_cleanshutdown")
    async with on(files, A, B) as broker:  # each unclean start increases the epochs
        [directory] = [one for one in broker.node.storage.directories.all if one.path == B]
        [partition] = directory.logs
        epoch = broker.node.topics.partition(*partition).leader_epoch
    files.remove_tree(B)
    return files, partition.partition, epoch


async def test_one_that_is_lost_can_be_forgotten_and_its_partitions_begin_anew():
    """One partition of a hundred was on the lost disk."""
    files, index, epoch = await lost()
    plan = forget_missing(files, [A], execute=False)
    assert plan.paths == (B,)
    assert plan.partitions == (("t", index),)
    async with on(files, A) as broker:
        assert without(broker) == index
    assert forget_missing(files, [A], execute=True) == plan
    for _ in range(2):
        async with on(files, A) as broker:
            assert not broker.node.storage.directories.offline
            partition = broker.node.topics.partition("t", index)
            assert partition.leader_epoch > epoch  # clients ignore older epochs
            assert (await broker.produce("t", batch(), partition=index)).error_code == 0
            assert offsets((await broker.fetch_one("t", 1 - index, 0)).records) == [0, 1, 2]
    assert forget_missing(files, [A], execute=True) == ((), ())


async def test_a_replacement_has_the_partitions_of_the_one_that_was_forgotten():
    """A new disk at the old path is a new directory, and gets the recreated partitions."""
    files, index, _ = await lost()
    forget_missing(files, [A], execute=True)
    async with on(files, A, B) as broker:
        [new] = [one for one in broker.node.storage.directories.all if one.path == B]
        assert list(new.logs) == [("t", index)]
    async with on(files, A, B) as broker:
        assert not broker.node.storage.directories.offline


async def test_one_that_was_forgotten_and_comes_back_keeps_the_broker_down():
    """Its old records would mix with newer ones."""
    files = await filled()
    files.rename(B, "/unmounted")
    forget_missing(files, [A], execute=True)
    async with on(files, A) as broker:
        for index in range(2):
            await broker.produce("t", batch(), partition=index)
    files.rename("/unmounted", B)
    with pytest.raises(KafkaStorage, match="in two log directories"):
        async with on(files, A, B):
            pass


async def test_nothing_is_forgotten_of_a_broker_that_runs_or_is_not_there():
    """A mistyped path must not be taken for a lost disk."""
    files = await filled()
    async with on(files, A, B):
        with pytest.raises(KafkaStorage, match="stop the broker that uses it"):
            forget_missing(files, [A], execute=True)
    with pytest.raises(ConfigError, match=r"no meta\.properties"):
        forget_missing(files, [A, C], execute=True)
    assert forget_missing(files, [A, B], execute=True) == ((), ())


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
