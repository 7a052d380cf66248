"""Creation of partitions on a full disk: at each file operation, and with crashes in between."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from aiokq import wire
from aiokq.broker.metadata.controller.topic_layout import TopicSpec
from aiokq.core.errors import KafkaStorage
from tests.sim.harness.files import Fault, MemoryFiles
from tests.unit.broker.harness import Broker, batch, offsets, until
from tests.unit.broker.log.test_cleaner_crash import Crash

A, B = "/a", "/b"
PREALLOCATED = {"log_preallocate": True, "log_segment_bytes": 1024 * 1024}
TAKE_SPACE = ("pwritev", "truncate", "rename", "sync_dir")
CREATE = ("mkdirs", "open")


class FullDisk(MemoryFiles):
    """A disk without space for some paths, beginning with a number of file operations on these.

    Attributes:
        affects: selects the paths.
        left: file operations that succeed before the disk is full; None while it is not full.
        error: the error of a full disk.
        removes: whether files can be removed from the full disk.
        lives: file operations before the process ends; None if it does not end.
    """

    def __init__(self, affects: Callable[[str], bool]) -> None:
        super().__init__()
        self.affects = affects
        self.left: int | None = None
        self.error = errno.ENOSPC
        self.removes = True
        self.lives: int | None = None

    def _take_fault(self, operation: str, path: str) -> Fault | None:
        if self.affects(path) and self._changes(operation, path):
            if self.lives is not None:
                self.lives -= 1
                if self.lives < 0:
                    raise Crash(f"{operation} {path}")
            if self.left is not None:
                self.left -= 1
                if self.left < 0 and not (operation == "remove_tree" and self.removes):
                    return Fault(operation, self.error, self.affects, 1, written=3)
        return super()._take_fault(operation, path)

    def _changes(self, operation: str, path: str) -> bool:
        if operation in CREATE:
            return not self.exists(path)
        return operation in (*TAKE_SPACE, "remove_tree")


def of_partition(path: str) -> bool:
    return "/t-0" in path


def below(*directories: str) -> Callable[[str], bool]:
    """Return a predicate for the directories of the topic's partitions in these directories."""
    return lambda path: any(path.startswith(f"{directory}/t-") for directory in directories)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make retries immediate."""
    monkeypatch.setattr("aiokq.core.background.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("aiokq.core.background.LONGEST_PAUSE", 0.001)


async def create(broker: Broker, partitions: int = 2) -> tuple[int, str | None]:
    """Create topic "t"; return error code and message of the response."""
    topic = wire.CreatableTopic(name="t", num_partitions=partitions, replication_factor=1)
    [result] = (await broker.ask(wire.CreateTopicsRequest(topics=[topic]), 7)).topics
    return result.error_code, result.error_message


async def online(broker: Broker) -> list[bool]:
    """Return whether each partition of topic "t" has a leader for clients."""
    request = wire.MetadataRequest(topics=[wire.MetadataRequestTopic(name="t")])
    [topic] = (await broker.ask(request, 9)).topics
    return [partition.leader_id >= 0 for partition in topic.partitions]


def offline_directories(broker: Broker) -> dict[str, KafkaStorage]:
    return broker.node.storage.directories.offline


def opened(broker: Broker) -> Callable[[], bool]:
    return lambda: broker.node.topics.partition("t", 0).is_online


@pytest.mark.parametrize("removes", [True, False])
@pytest.mark.parametrize(
    ("error", "settings"),
    [(errno.ENOSPC, {}), (errno.EDQUOT, {}), (errno.ENOSPC, PREALLOCATED)],
)
async def test_a_creation_without_space_at_any_operation_is_repeated(
    impatient: None, error: int, settings: dict, removes: bool
):
    """The directory stays online, and with it the other partitions."""
    for operations in range(100):
        files = FullDisk(of_partition)
        files.error, files.removes = error, removes
        async with Broker(files, **settings) as broker:
            files.left = operations
            code, message = await create(broker)
            if code == 0:
                files.left = None
                break
            assert (code, "(/data/t-0)" in message) == (56, True)
            assert offline_directories(broker) == {}
            assert await online(broker) == [False, True]
            assert broker.node.counters.offline_partitions.read() == 1
            refused = await broker.produce("t", batch())
            assert (refused.error_code, refused.error_message) == (56, message)
            assert (await broker.produce("t", batch(), partition=1)).error_code == 0
            assert (await create(broker))[0] == 36
            if removes:
                assert "t-0" not in files.listdir("/data")
            files.left = None
            await until(opened(broker))
            assert broker.node.counters.offline_partitions.read() == 0
            assert (await broker.produce("t", batch(3))).base_offset == 0
        async with Broker(files) as again:
            assert offsets((await again.fetch_one("t", 0, 0)).records) == [0, 1, 2]
            assert len(files.listdir("/data/t-0")) == len(files.listdir("/data/t-1"))
    assert operations > 5


async def test_added_partitions_without_space_are_created_later(impatient: None):
    """CreatePartitions answers as CreateTopics does."""
    files = FullDisk(lambda path: "/t-1" in path)
    async with Broker(files) as broker:
        await broker.create("t", 1)
        files.left = 0
        topic = wire.CreatePartitionsTopic(name="t", count=3, assignments=None)
        request = wire.CreatePartitionsRequest(topics=[topic], timeout_ms=1000)
        [result] = (await broker.ask(request, 3)).results
        assert result.error_code == 56
        assert await online(broker) == [True, False, True]
        files.left = None
        await until(lambda: broker.node.topics.partition("t", 1).is_online)


@pytest.mark.parametrize("removes", [True, False])
@pytest.mark.parametrize("settings", [{}, PREALLOCATED])
async def test_a_partition_is_created_in_a_directory_that_has_space(
    impatient: None, settings: dict, removes: bool
):
    """Both directories stay online; regression: the full one was offline until a restart."""
    for operations in range(100):
        files = FullDisk(below(A))
        files.removes = removes
        async with Broker(files, directories=[A, B], **settings) as broker:
            files.left = operations
            assert (await create(broker, 1))[0] == 0
            assert offline_directories(broker) == {}
            done = files.left >= 0
            files.left = None if done else 0
            assert (await broker.produce("t", batch(2))).base_offset == 0
            assert "t-0" in files.listdir(A if done else B)
            assert ("t-0" in files.listdir(A)) == (done or (not removes and operations > 0))
        files.left = None
        async with Broker(files, directories=[A, B]) as again:
            assert offsets((await again.fetch_one("t", 0, 0)).records) == [0, 1]
            assert ("t-0" in files.listdir(A)) != ("t-0" in files.listdir(B))
        if done:
            break
    assert operations > 5


async def test_a_partition_without_space_in_any_directory_waits_for_the_first(impatient: None):
    files = FullDisk(below(A, B))
    async with Broker(files, directories=[A, B]) as broker:
        files.left = 0
        code, message = await create(broker)
        assert (code, "No space left on device" in message) == (56, True)
        assert offline_directories(broker) == {}
        assert await online(broker) == [False, False]
        files.affects = below(A)
        await until(opened(broker))
        await until(lambda: broker.node.topics.partition("t", 1).is_online)
        assert {"t-0", "t-1"} <= set(files.listdir(B))


async def test_a_full_directory_and_a_broken_one_are_told_apart(impatient: None):
    """The full one stays online, and the creation is repeated there."""
    files = FullDisk(below(A))
    async with Broker(files, directories=[A, B]) as broker:
        files.left = 0
        files.fail("mkdirs", errno.EIO, matches=below(B))
        assert (await create(broker, 1))[0] == 56
        assert list(offline_directories(broker)) == [B]
        files.left = None
        await until(opened(broker))


async def test_a_topic_that_was_never_created_for_lack_of_space_leaves_no_files(impatient: None):
    """The next start would take them for those of a topic that is lost."""
    files = FullDisk(of_partition)
    async with Broker(files) as broker:
        files.left = 3
        await create(broker)
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        files.left = None
    async with Broker(files):
        assert not [name for name in files.listdir("/data") if name.startswith("t-0")]


@pytest.mark.parametrize("stays_full", [True, False])
@pytest.mark.parametrize("settings", [{}, PREALLOCATED])
async def test_a_crash_after_a_creation_without_space_leaves_a_partition_that_is_created_later(
    impatient: None, settings: dict, stays_full: bool
):
    """Whatever is left of it; a start on a disk that is still full is not prevented."""
    for operations in range(100):
        for further in range(100):
            files = FullDisk(of_partition)
            broker = Broker(files, **settings)
            await broker.node.open()
            files.left, files.lives = operations, operations + further
            died = full = False
            try:
                await broker.node.metadata.create_topic(TopicSpec(name="t", partitions=2))
            except Crash:
                died = True
            except KafkaStorage:
                full = True
            broker.node.storage.publisher.stop_recovery()  # the node's tasks end with the process
            files.crash()
            files.lives, files.left = None, 0 if stays_full and (died or full) else None
            if further == 0 and died:
                files.left = None  # the disk was not full yet
            async with Broker(files, **settings) as again:
                assert offline_directories(again) == {}
                assert await online(again) == [files.left is None, True]
                files.left = None
                await until(opened(again))
                assert (await again.produce("t", batch(3))).base_offset == 0
            async with Broker(files, **settings) as again:
                assert offsets((await again.fetch_one("t", 0, 0)).records) == [0, 1, 2]
            if not died:
                break
        if not full:
            break
    assert operations > 4
