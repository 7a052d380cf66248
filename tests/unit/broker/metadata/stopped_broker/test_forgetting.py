"""aiokq log forget-missing: directories that are lost for good; the log of a stopped node."""

from __future__ import annotations

import errno
import uuid

import pytest

from aiokq.broker.log.meta_properties import MetaProperties
from aiokq.broker.log.uuid_text import format_uuid
from aiokq.broker.metadata.earlier.private_file import MIGRATED_LINE
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.image.records import partition_record
from aiokq.broker.metadata.stopped_broker.forgetting import Forgotten, _changes, forget_missing
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.types import TopicPartition
from aiokq.wire.cluster_metadata_records import PartitionChangeRecord, TopicRecord
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import NOW_MS, batch, offsets
from tests.unit.broker.metadata.metadata_logs import NODE
from tests.unit.broker.metadata.quorum_logs import quorum_of_three
from tests.unit.broker.metadata.start.test_missing_directories import (
    A,
    B,
    C,
    filled,
    on,
    unassigned,
    without,
)


def forgotten(files: MemoryFiles, paths: list[str], *, execute: bool) -> Forgotten:
    return forget_missing(files, paths, execute=execute, now_ms=NOW_MS)


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
    plan = forgotten(files, [A], execute=False)
    assert plan.paths == (B,)
    assert plan.partitions == (("t", index),)
    async with on(files, A) as broker:
        assert without(broker) == index
    assert forgotten(files, [A], execute=True) == plan
    for _ in range(2):
        async with on(files, A) as broker:
            assert not broker.node.storage.directories.offline
            partition = broker.node.topics.partition("t", index)
            assert partition.leader_epoch > epoch  # clients ignore older epochs
            assert (await broker.produce("t", batch(), partition=index)).error_code == 0
            assert offsets((await broker.fetch_one("t", 1 - index, 0)).records) == [0, 1, 2]
    assert forgotten(files, [A], execute=True) == ((), ())


def test_a_partition_from_before_directories_were_recorded_gets_a_new_epoch_only() -> None:
    """Regression: such a partition, of a metadata.version below 3.7-IV2, ended the command."""
    image = MetadataImage()
    topic_id = uuid.UUID(int=77)
    image.replay(TopicRecord(name="old", topic_id=topic_id))
    image.replay(partition_record(topic_id, 0, NODE, directory=None))
    [record] = _changes(image, NODE, [TopicPartition("old", 0)], {uuid.UUID(int=500)})
    assert record == PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NODE)


async def test_a_replacement_has_the_partitions_of_the_one_that_was_forgotten():
    """A new disk at the old path is a new directory, and gets the recreated partitions."""
    files, index, _ = await lost()
    forgotten(files, [A], execute=True)
    async with on(files, A, B) as broker:
        [new] = [one for one in broker.node.storage.directories.all if one.path == B]
        assert list(new.logs) == [("t", index)]
    async with on(files, A, B) as broker:
        assert not broker.node.storage.directories.offline


async def test_one_that_was_forgotten_and_comes_back_keeps_the_broker_down():
    """Its old records would mix with newer ones."""
    files = await filled()
    files.rename(B, "/unmounted")
    forgotten(files, [A], execute=True)
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
            forgotten(files, [A], execute=True)
    with pytest.raises(ConfigError, match=r"no meta\.properties"):
        forgotten(files, [A, C], execute=True)
    assert forgotten(files, [A, B], execute=True) == ((), ())


@pytest.mark.parametrize("path", [f"{A}/meta.properties", f"{B}/meta.properties", A, B])
async def test_an_error_of_the_disk_names_its_directory(path: str):
    """Regression: it always named the first directory."""
    files = await filled()
    for operation in ("read_bytes", "listdir"):
        files.fail(operation, errno.EIO, matches=lambda one: one == path)
    named = A if path.startswith(A) else B
    with pytest.raises(KafkaStorage, match=f"log directory {named} cannot be used: Input/output"):
        forgotten(files, [A, B], execute=True)


async def test_one_that_may_have_a_partition_is_forgotten_with_it(monkeypatch: pytest.MonkeyPatch):
    """The directory of the partition was not recorded before a kill."""
    files = await unassigned(monkeypatch)
    plan = forgotten(files, [A], execute=True)
    assert plan.paths == (B,)
    [lost] = plan.partitions
    async with on(files, A) as broker:
        assert not broker.node.storage.directories.offline
        assert (await broker.produce("t", batch(), partition=lost.partition)).base_offset == 0


async def test_the_plan_changes_nothing():
    """Without --execute, the command only tells what would be lost."""
    files = await filled()
    before = {name: files.read_bytes(name) for name in log_files(files)}
    forgotten(files, [A], execute=False)
    assert {name: files.read_bytes(name) for name in log_files(files)} == before


def log_files(files: MemoryFiles) -> list[str]:
    directory = f"{A}/__cluster_metadata-0"
    return [f"{directory}/{name}" for name in files.listdir(directory)]


# The log of a stopped node


async def test_without_the_directory_of_the_metadata_log_nothing_is_known():
    """It may be the lost one, or one that was not named."""
    files = await filled()
    with pytest.raises(ConfigError, match=r"/b/__cluster_metadata-0 is missing"):
        forgotten(files, [B], execute=True)


async def test_two_metadata_logs_are_for_the_user():
    """Only one of them can be the node's."""
    files = await filled()
    files.mkdirs(f"{B}/__cluster_metadata-0")
    for path in log_files(files):
        files.write_atomic(path.replace(A, B, 1), files.read_bytes(path))
    with pytest.raises(KafkaStorage, match="have a metadata log each"):
        forgotten(files, [A, B], execute=True)


async def test_the_file_of_an_earlier_version_is_moved_by_a_start_first():
    """Its topics are not in the metadata log yet."""
    files = await filled()
    files.write_atomic(f"{A}/aiokq-metadata.log", b"some lines\n")
    with pytest.raises(ConfigError, match="written by an earlier version of aiokq"):
        forgotten(files, [A], execute=True)
    files.write_atomic(f"{A}/aiokq-metadata.log", MIGRATED_LINE)
    assert forgotten(files, [A], execute=True).paths == (B,)


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_the_log_of_a_quorum_is_not_changed(kraft_version: int):
    """The other voters would not know the change."""
    files = quorum_of_three(kraft_version)
    plan = forgotten(files, ["/data"], execute=True)
    assert plan == ((), ())
    files.remove("/data/meta.properties")
    ids = MetaProperties("c", NODE, format_uuid(uuid.UUID(int=999)))
    files.write_atomic("/data/meta.properties", ids.encode())
    with pytest.raises(KafkaStorage, match="belongs to a quorum with the voters 1"):
        forgotten(files, ["/data"], execute=True)
