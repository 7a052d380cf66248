"""A start that is refused changes no file, and one that is interrupted loses no clean shutdown."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from aiokq.broker import storage
from aiokq.broker.metadata.log.cluster_metadata_log import LogLimits
from aiokq.broker.metadata.log.quorum_state import QuorumState, write_quorum_state
from aiokq.broker.metadata.stopped_broker.formatting import FormatOptions, format_directories
from aiokq.core.errors import ConfigError, KafkaError, KafkaStorage
from aiokq.fastpath import crc32c
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker, batch, offsets
from tests.unit.broker.metadata.kafka_log import KafkaLog

METADATA = "/data/__cluster_metadata-0"
LOG = f"{METADATA}/{0:020d}.log"
MARKERS = ("/data/.kafka_cleanshutdown", "/b/.kafka_cleanshutdown")
STRAY, DELETED = "/b/stray-0", f"/b/t-9.{'0' * 32}-delete"

CHANGES = frozenset(
    {
        *("pwritev", "truncate", "sync", "sync_dir", "rename", "link", "remove", "remove_tree"),
        *("write_atomic", "chmod", "set_modified_ms"),
    }
)


class NotingFiles(MemoryFiles):
    """A disk that notes each operation that changes it, with its path."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[tuple[str, str]] = []

    def _take_fault(self, operation: str, path: str):
        if operation in CHANGES:
            self.changes.append((operation, path))
        return super()._take_fault(operation, path)

    def everything(self) -> dict[str, bytes]:
        return {path: self.read_bytes(path) for path in self.names("/")}


def started(files: MemoryFiles, *directories: str) -> Broker:
    return Broker(files, directories=directories or ("/data", "/b"))


async def stopped() -> NotingFiles:
    """Two directories after a clean stop, with what a start sets aside and removes."""
    files = NotingFiles()
    async with started(files) as broker:
        await broker.create("t", 2)
        for index in range(2):
            await broker.produce("t", batch(3), partition=index)
    for path in (STRAY, DELETED):
        files.mkdirs(path)
        files.write_atomic(f"{path}/{0:020d}.log", batch(1))
    return files


def foreign_quorum(files: MemoryFiles) -> None:
    write_quorum_state(files, METADATA, QuorumState(2, 2, voters=(1, 2, 3)))


def last_epoch(files: MemoryFiles) -> None:
    write_quorum_state(files, METADATA, QuorumState(2**31 - 1, 0, voters=(0,)))


def damaged_quorum_state(files: MemoryFiles) -> None:
    files.write_atomic(f"{METADATA}/quorum-state", b"{}")


def unknown_record(files: MemoryFiles) -> None:
    log = KafkaLog.__new__(KafkaLog)
    log.files = files
    log.reopen()
    log.append(b"\1\x32\0" + b"\0" * 20)


def damaged_metadata(files: MemoryFiles) -> None:
    files.corrupt(LOG, 200)


def damaged_copy_of_an_earlier_version(files: MemoryFiles) -> None:
    files.write_atomic("/b/aiokq-metadata.log", b"?\n?\n")


def another_cluster(files: MemoryFiles) -> None:
    files.write_atomic("/b/meta.properties", b"version=1\nnode.id=0\ncluster.id=another\n")


def another_node(files: MemoryFiles) -> None:
    text = files.read_bytes("/b/meta.properties")
    files.write_atomic("/b/meta.properties", text.replace(b"node.id=0", b"node.id=2"))


def metadata_elsewhere(files: MemoryFiles) -> None:
    files.rename(METADATA, "/b/__cluster_metadata-0")


def partition_in_two_directories(files: MemoryFiles) -> None:
    for index in range(2):
        for source, target in (("/data", "/b"), ("/b", "/data")):
            if files.exists(f"{source}/t-{index}") and not files.exists(f"{target}/t-{index}"):
                files.mkdirs(f"{target}/t-{index}")
                for name in files.listdir(f"{source}/t-{index}"):
                    data = files.read_bytes(f"{source}/t-{index}/{name}")
                    files.write_atomic(f"{target}/t-{index}/{name}", data)
                return


def used_by_another(files: MemoryFiles) -> None:
    files.lock("/b/.lock")


@pytest.mark.parametrize(
    ("refuse", "words"),
    [
        (foreign_quorum, "belongs to a quorum with the voters 0, 1, 2, 3"),
        (last_epoch, "last epoch"),
        (damaged_quorum_state, "quorum-state cannot be read"),
        (unknown_record, "unknown type 50.*nothing was changed"),
        (damaged_metadata, "is damaged at byte"),
        (damaged_copy_of_an_earlier_version, "aiokq-metadata.log"),
        (another_cluster, "belongs to cluster another"),
        (another_node, "belongs to node 2"),
        (metadata_elsewhere, "the metadata log is in /b/"),
        (partition_in_two_directories, "is in two log directories"),
        (used_by_another, "in use"),
    ],
)
async def test_a_refused_start_changes_no_file(
    refuse: Callable[[MemoryFiles], None], words: str
) -> None:
    """Regression: it removed the clean shutdown markers, and wrote them again."""
    files = await stopped()
    refuse(files)
    before = files.everything()
    files.changes.clear()
    with pytest.raises((KafkaStorage, ConfigError), match=words):
        await started(files).node.open()
    assert files.changes == []
    assert files.everything() == before


async def test_a_refused_start_gives_a_new_directory_no_ids() -> None:
    """With ids of its own the directory would belong to the cluster that was refused."""
    files = await stopped()
    foreign_quorum(files)
    files.changes.clear()
    with pytest.raises(KafkaStorage, match="belongs to a quorum"):
        await started(files, "/data", "/b", "/new").node.open()
    assert files.changes == []
    assert files.listdir("/new") == [".lock"]


DYNAMIC = {
    "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:9093",
    "controller_listener_names": "CONTROLLER",
    "controller_quorum_bootstrap_servers": "localhost:9093",
}


@pytest.mark.parametrize(
    ("by", "settings", "is_refused"),
    [
        ("aiokq", {}, True),
        ("aiokq", DYNAMIC, True),
        ("kafka", DYNAMIC, True),
        # Kafka formats a directory for voters in the settings in the same way.
        ("kafka", {}, False),
        ("kafka after its first start", {}, True),
        ("kafka after its first start", DYNAMIC, True),
    ],
)
async def test_a_directory_formatted_without_voters_begins_no_quorum(
    by: str, settings: dict[str, str], is_refused: bool
) -> None:
    """Its node waits to be added to the quorum of other nodes, whose cluster id it has."""
    files = NotingFiles()
    options = FormatOptions(
        node_id=0, cluster_id="MkU3OEVBNTcwNTJENDM2Qg", directories=("/data",), without_voters=True
    )
    format_directories(files, options, random=random.Random(1), timestamp_ms=0, crc32c=crc32c)
    if by == "kafka":
        files.remove_tree(METADATA)
    elif by == "kafka after its first start":
        files.write_atomic(LOG, b"")
    files.write_atomic("/data/.lock", b"")
    before = files.everything()
    files.changes.clear()
    if is_refused:
        with pytest.raises(KafkaStorage, match=r"/data names no voter.*format --standalone"):
            await Broker(files, **settings).node.open()
        assert files.changes == []
        assert files.everything() == before
    else:
        async with Broker(files, **settings) as broker:
            assert broker.node.cluster_id == options.cluster_id


@pytest.mark.parametrize("had_metadata", [True, False])
async def test_a_node_without_metadata_reads_all_its_directories(had_metadata: bool) -> None:
    """Partitions of an unread directory would be no topics, and their logs set aside later."""
    files = await stopped() if had_metadata else MemoryFiles()
    if had_metadata:
        files.remove_tree(METADATA)
    files.fail("listdir", errno.EIO, matches=lambda path: path == "/b")
    with pytest.raises(KafkaStorage, match="log directory /b cannot be used: Input/output error"):
        await started(files).node.open()
    async with started(files) as broker:
        assert [(one.name, len(one.partitions)) for one in broker.node.topics] == (
            [("stray", 1), ("t", 2)] if had_metadata else []
        )


async def test_a_start_that_is_cut_short_does_not_look_like_a_format_without_voters() -> None:
    """The next start makes this node the voter."""
    for changes in range(100):
        files = MortalFiles()
        files.kill_at = changes
        try:
            await Broker(files, **DYNAMIC).node.open()
        except Stop:
            files.kill_at = None
            files.power_cut(random.Random(changes), ordered=False)
        else:
            assert changes > 10
            return
        async with Broker(files, **DYNAMIC) as broker:
            assert broker.node.storage.metadata.kraft_version == 1


async def test_a_log_that_was_moved_away_begins_anew_with_what_is_there() -> None:
    """Its partitions show that the node was no new one, so that it does not wait for others."""
    async with Broker(**DYNAMIC) as broker:
        await broker.create("t")
        await broker.produce("t", batch(3))
    broker.files.rename(METADATA, "/old")
    async with Broker(broker.files, **DYNAMIC) as broker:
        assert broker.files.exists("/data/bootstrap.checkpoint")
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0, 1, 2]


@pytest.mark.parametrize("operation", ["pwritev", "sync"])
async def test_a_start_whose_first_append_fails_does_not_touch_the_markers(operation: str) -> None:
    """The next start has nothing to recover, whatever the disk did with the append."""
    for seed in range(12):
        files = await stopped()
        files.changes.clear()
        files.fail(operation, errno.EIO, matches=lambda path: path == LOG, written=seed * 20)
        with pytest.raises(KafkaStorage):
            await started(files).node.open()
        assert not [path for _, path in files.changes if path in MARKERS]
        files.power_cut(random.Random(seed), ordered=seed % 2 == 0)
        async with started(files) as broker:
            assert {one.clean for one in broker.node.storage.directories.all} == {True}
            for index in range(2):
                data = await broker.fetch_one("t", index, 0)
                assert offsets(data.records) == [0, 1, 2]


async def test_a_start_removes_what_it_finds_after_its_first_append() -> None:
    """The marker goes before a log is opened, and the directories of no topic with it."""
    files = await stopped()
    files.changes.clear()
    async with started(files):
        assert not any(map(files.exists, (*MARKERS, STRAY, DELETED)))
        assert any(name.endswith("-stray") for name in files.listdir("/b"))
        first = [path for operation, path in files.changes if operation == "pwritev"]
        assert first[0] == f"{METADATA}/quorum-state"
        changed = [path for _, path in files.changes]
        assert changed.index(LOG) < changed.index(MARKERS[0])


class Stop(BaseException):
    """The process is killed."""


class MortalFiles(NotingFiles):
    """A disk whose process is killed before one of its changes."""

    kill_at: int | None = None

    def _take_fault(self, operation: str, path: str):
        if operation in CHANGES and self.kill_at is not None:
            if self.kill_at == 0:
                raise Stop
            self.kill_at -= 1
        return super()._take_fault(operation, path)


@pytest.mark.parametrize("end", ["kill", "names in order", "names in any order"])
async def test_a_start_that_is_killed_before_any_change_loses_nothing(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a change of the metadata that the next start acknowledges survives a power cut.

    With small segments the first append begins a new one, whose name is not durable at once.
    """
    for changes in range(100):
        files = MortalFiles()
        monkeypatch.setattr(storage, "_limits", lambda settings: LogLimits())
        async with started(files) as broker:
            for number in range(6):
                await broker.create(f"t{number}")
            topics = {one.name for one in broker.node.topics}
            await broker.produce("t0", batch(3))
        limit = files.stat_size(LOG)
        monkeypatch.setattr(
            storage, "_limits", lambda settings, limit=limit: LogLimits(segment_bytes=limit)
        )
        files.kill_at = changes
        killed = False
        try:
            await started(files).node.open()
        except Stop:
            killed = True
        files.kill_at = None
        files.crash()
        source = random.Random(changes)
        if end != "kill":
            files.power_cut(source, ordered=end == "names in order")
        broker = started(files)
        await broker.node.open()
        await broker.create("late")
        assert {one.name for one in broker.node.topics} == topics | {"late"}
        for random_source in (None, source):
            files.power_cut(random_source, ordered=False)
            broker = started(files)
            await broker.node.open()
            assert {one.name for one in broker.node.topics} == topics | {"late"}
            data = await broker.fetch_one("t0", 0, 0)
            assert offsets(data.records) == [0, 1, 2]
        files.crash()
        if not killed:
            assert changes > 5
            return
    raise AssertionError("the start makes too many changes")


async def test_a_marker_that_a_killed_start_removed_does_not_return() -> None:
    """Regression: the next start found no marker, and did not sync the removal.

    After a power cut the marker was there again, so records were served that were not checked.
    """
    for changes in range(100):
        files = MortalFiles()
        async with started(files) as broker:
            await broker.create("t", 2)
        files.kill_at = changes
        killed = False
        try:
            await started(files).node.open()
        except Stop:
            killed = True
        files.kill_at = None
        files.crash()
        broker = started(files)
        await broker.node.open()
        await broker.produce("t", batch(3))
        files.power_cut()
        assert not any(map(files.exists, MARKERS))
        if not killed:
            assert changes > 5
            return
    raise AssertionError("the start makes too many changes")


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE, errno.EROFS])
@pytest.mark.parametrize("operation", ["remove", "sync_dir"])
async def test_a_directory_whose_marker_stays_is_offline(operation: str, error: int) -> None:
    """Otherwise the next start would not check the records that are appended there."""
    files = await stopped()
    names = {index for index in range(2) if files.exists(f"/b/t-{index}")}
    paths = (MARKERS[1], "/b")
    files.fail(operation, error, matches=lambda path: path in paths)
    async with started(files) as broker:
        directories = broker.node.storage.directories
        assert list(directories.offline) == ["/b"]
        for index in range(2):
            answer = await broker.produce("t", batch(1), partition=index)
            assert (answer.error_code != 0) == (index in names)
    async with started(files) as broker:
        for index in range(2):
            data = await broker.fetch_one("t", index, 0)
            assert offsets(data.records) == [0, 1, 2] + [3] * (index not in names)


@pytest.mark.parametrize("path", ["/data", "/b"])
async def test_a_new_directory_whose_ids_cannot_be_written(path: str) -> None:
    """The metadata directory refuses the start; another one is offline until the next start."""
    files = MemoryFiles()
    files.fail("write_atomic", errno.EROFS, matches=lambda name: name == f"{path}/meta.properties")
    broker = started(files)
    if path == "/data":
        with pytest.raises(KafkaError, match="make the directory writable"):
            await broker.node.open()
    else:
        async with broker:
            assert list(broker.node.storage.directories.offline) == [path]
            await broker.create("t", 2)
    async with started(files) as broker:
        assert broker.node.storage.directories.offline == {}
