"""aiokq.broker.log.directories: placement of partitions, and failure of one directory."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import re
from pathlib import Path

import pytest

from aiokq import wire
from aiokq.broker.log.directories import LogDirectories
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.files import Files, OsFiles
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker, batch, offsets
from tests.unit.broker.log.samples import NOW_MS, TP, append, config, values
from tests.unit.broker.log.samples import batch as sample

A, B = "/a", "/b"


def open_directories(
    files: Files, *paths: str, node_id: int | None = None, seed: int = 1
) -> LogDirectories:
    opened = LogDirectories.open(
        files,
        paths or (A, B),
        crc32c=crc32c,
        random=random.Random(seed),
        now=lambda: 0.0,
        node_id=node_id,
    )
    opened.begin()
    return opened


def close(directories: LogDirectories) -> None:
    for directory in directories.all:
        directory.close()


def two(files: MemoryFiles | None = None, **settings: object) -> Broker:
    return Broker(files, directories=(A, B), **settings)


def places(broker: Broker) -> dict[str, list[str]]:
    return {
        directory.path: sorted(map(str, directory.logs))
        for directory in broker.node.storage.directories.all
    }


async def describe(broker: Broker, version: int = 4):
    return await broker.ask(wire.DescribeLogDirsRequest(topics=None), version)


def under(path: str):
    return lambda name: name.startswith(path + "/")


async def until_offline(broker: Broker, topic: str, index: int) -> None:
    for _ in range(10):
        if not broker.node.topics.partition(topic, index).is_online:
            return
        await asyncio.sleep(0)
    raise AssertionError("it is still online")


def test_each_directory_has_an_id_of_its_own_in_one_cluster() -> None:
    """Kafka detects a copied directory by it; the ids of cluster and node are the same in all."""
    files = MemoryFiles()
    first = open_directories(files, A, node_id=7)
    cluster = first.properties.cluster_id
    close(first)
    with pytest.raises(KafkaStorage, match="the metadata directory /b is new, but /a is not"):
        open_directories(files, B, A)
    both = open_directories(files, A, B)
    assert [d.path for d in both.all] == [A, B]
    assert {(d.properties.cluster_id, d.properties.node_id) for d in both.all} == {(cluster, 7)}
    assert len({d.properties.directory_id for d in both.all}) == 2


def test_a_copied_directory_and_one_of_another_cluster_are_refused() -> None:
    """Records of two clusters, or the same records twice, would be served."""
    files = MemoryFiles()
    close(open_directories(files, A))
    close(open_directories(files, B, seed=2))
    with pytest.raises(ConfigError, match="belongs to cluster"):
        open_directories(files, A, B)
    files.write_atomic(f"{B}/meta.properties", files.read_bytes(f"{A}/meta.properties"))
    with pytest.raises(ConfigError, match="is a copy"):
        open_directories(files, A, B)
    with pytest.raises(ConfigError, match="named twice"):
        open_directories(files, A, A)
    close(open_directories(files, A))  # no lock was left


def test_a_refused_start_leaves_a_clean_shutdown_clean() -> None:
    """Regression: the marker was removed, so the next start recovered every log as after a kill."""
    files = MemoryFiles()
    markers = [f"{path}/.kafka_cleanshutdown" for path in (A, B)]
    close(open_directories(files, A))
    close(open_directories(files, B, seed=2))
    files.write_atomic(markers[0], b'{"version":0,"brokerEpoch":12}')
    with pytest.raises(ConfigError, match="belongs to cluster"):
        open_directories(files, A, B)
    assert files.read_bytes(markers[0]) == b'{"version":0,"brokerEpoch":12}'
    assert files.exists(markers[1])
    files.remove(markers[0])  # as after a kill
    with pytest.raises(ConfigError, match="belongs to cluster"):
        open_directories(files, A, B)
    assert not files.exists(markers[0])


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("d", "d/orders-0", "d/orders-0 is inside log directory {root}/d:"),
        ("d/sub", "d", "d/sub is inside log directory {root}/d:"),
        ("d", "link/sub", "link/sub is inside log directory {root}/d:"),
        ("d", "link", "named twice: {root}/d, {root}/link"),
        ("d", "./d/", "named twice: {root}/d, {root}/./d/"),
    ],
)
def test_a_directory_inside_another_refuses_the_start(
    tmp_path: Path, first: str, second: str, words: str
) -> None:
    """Regression: the deletion of topic `orders` deleted the log directory `d/orders-0`."""
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "d")
    paths = [f"{tmp_path}/{first}", f"{tmp_path}/{second}"]
    with pytest.raises(ConfigError, match=re.escape(words.format(root=tmp_path))):
        open_directories(OsFiles(), *paths)
    assert list((tmp_path / "d").iterdir()) == []  # nothing was created or locked


def test_directories_side_by_side_may_share_the_beginning_of_their_names(tmp_path: Path) -> None:
    """`/data/d10` is not inside `/data/d1`."""
    close(open_directories(OsFiles(), f"{tmp_path}/d1", f"{tmp_path}/d10"))


def test_one_that_is_in_use_refuses_the_start() -> None:
    """The disk works, but two brokers are configured with the same directory."""
    files = MemoryFiles()
    held = open_directories(files, B)
    with pytest.raises(KafkaStorage, match="in use"):
        open_directories(files, B, A)
    close(held)
    close(open_directories(files, A))


async def test_new_partitions_go_where_the_fewest_are():
    """As in Kafka, partitions are counted by number, not by size."""
    async with two() as broker:
        await broker.create("t", 5)
        assert places(broker) == {A: ["t-0", "t-2", "t-4"], B: ["t-1", "t-3"]}
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        await broker.create("u", 1)
        await broker.create("v", 2)
        assert places(broker) == {A: ["u-0", "v-1"], B: ["v-0"]}
        files = broker.files
    async with two(files) as broker:
        assert places(broker) == {A: ["u-0", "v-1"], B: ["v-0"]}


async def test_a_partition_with_records_in_two_directories_refuses_the_start():
    """The operator has to decide which of them is right, as in Kafka."""
    async with two() as broker:
        await broker.create("t")
        await broker.produce("t", batch(2))
        files = broker.files
    files.mkdirs(f"{B}/t-0")
    for name in files.listdir(f"{A}/t-0"):
        files.write_atomic(f"{B}/t-0/{name}", files.read_bytes(f"{A}/t-0/{name}"))
    with pytest.raises(KafkaStorage, match="in two log directories, /a/t-0 and /b/t-0"):
        await two(files).node.open()
    files.remove_tree(f"{B}/t-0")
    async with two(files):
        pass


@pytest.mark.parametrize("refusing", [A, B])
@pytest.mark.parametrize("name", ["00000000000000000000.log", "partition.metadata"])
async def test_what_a_refused_creation_left_does_not_keep_the_node_from_starting(
    refusing: str, name: str
):
    """The disk failed, the partition was created in the other directory, and has records there."""
    kept = B if refusing == A else A
    async with two() as broker:
        if refusing == B:
            await broker.create("first")  # makes it the emptier one
        broker.files.fail(
            "open",
            errno.EIO,
            matches=lambda path: path.startswith(f"{refusing}/t-0/{name}"),
            times=None,
        )
        await broker.create("t")
        assert (await broker.produce("t", batch(2))).base_offset == 0
        files = broker.files
    files.heal()
    async with two(files) as broker:
        assert "t-0" in places(broker)[kept]
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0, 1]
        assert not any(name == "t-0" for name in files.listdir(refusing))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_a_disk_that_refuses_takes_its_partitions_offline_and_no_others(number: int):
    """All its partitions get KAFKA_STORAGE_ERROR, also for reads; a restart has all records."""
    async with two() as broker:
        await broker.create("t", 4)
        for index in range(4):
            await broker.produce("t", batch(2), partition=index)
        broker.files.fail("pwritev", number, matches=under(A), times=None)
        assert (await broker.produce("t", batch(), partition=0)).error_code == 56
        await until_offline(broker, "t", 2)
        for index in (0, 2):
            assert (await broker.produce("t", batch(), partition=index)).error_code == 56
            assert (await broker.fetch_one("t", index, 0)).error_code == 56
        for index in (1, 3):
            assert (await broker.produce("t", batch(), partition=index)).base_offset == 2
            assert offsets((await broker.fetch_one("t", index, 0)).records) == [0, 1, 2]
        files = broker.files
    assert not files.exists(f"{A}/.kafka_cleanshutdown")
    assert files.exists(f"{B}/.kafka_cleanshutdown")
    files.heal()
    async with two(files) as broker:
        for index, expected in enumerate(([0, 1], [0, 1, 2]) * 2):
            assert offsets((await broker.fetch_one("t", index, 0)).records) == expected
            assert (await broker.produce("t", batch(), partition=index)).error_code == 0


async def test_metadata_says_who_is_offline():
    """No leader, an offline replica, and LEADER_NOT_AVAILABLE, as in Kafka with one node."""
    async with two() as broker:
        await broker.create("t", 2)
        broker.files.fail("pwritev", matches=under(A), times=None)
        await broker.produce("t", batch(), partition=0)
        await until_offline(broker, "t", 0)
        request = wire.MetadataRequest(topics=None)
        [topic] = (await broker.ask(request, 12)).topics
        offline, online = topic.partitions
        assert (offline.error_code, offline.leader_id, offline.offline_replicas) == (5, -1, [0])
        assert (offline.replica_nodes, offline.isr_nodes) == ([0], [0])
        assert (online.error_code, online.leader_id, online.offline_replicas) == (0, 0, [])


async def test_topics_go_on_changing_while_another_directory_is_offline():
    """New partitions are placed elsewhere; the metadata log is in the first directory."""
    async with two() as broker:
        await broker.create("t", 2)
        broker.files.fail("pwritev", matches=under(B), times=None)
        await broker.produce("t", batch(), partition=1)
        await until_offline(broker, "t", 1)
        await broker.create("u", 2)
        assert places(broker)[A] == ["t-0", "u-0", "u-1"]
        await broker.produce("u", batch(3))
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        assert (await broker.node.producer_ids.next()) == 0
        files = broker.files
    files.heal()
    async with two(files) as broker:
        assert [topic.name for topic in broker.node.topics] == ["u"]
        assert offsets((await broker.fetch_one("u", 0, 0)).records) == [0, 1, 2]
        assert [name for name in files.listdir(B) if name.endswith("-stray")]
        assert (await broker.node.producer_ids.next()) == 1000
    async with Broker(files, directories=(A,)) as broker:
        assert [topic.name for topic in broker.node.topics] == ["u"]
    with pytest.raises(KafkaStorage, match=r"metadata log is in /a/__cluster_metadata-0, but"):
        await Broker(files, directories=(B, A)).node.open()
    async with Broker(files, directories=(B, A), metadata_log_dir=A) as broker:
        assert [topic.name for topic in broker.node.topics] == ["u"]


async def ended(broker: Broker) -> KafkaStorage:
    """Return the error with which a node ended."""
    with pytest.raises(KafkaStorage) as caught:
        await broker.node.run_until(asyncio.Event())
    return caught.value


@pytest.mark.parametrize("change", [True, False])
async def test_a_node_whose_metadata_directory_fails_stops(change: bool):
    """As in Kafka: without the metadata log no topic can change. The message names the log.

    The failure may be one of a partition's log in the same directory, or one of the metadata log.
    """
    broker = two()
    await broker.node.open()
    broker.node._failure = asyncio.get_running_loop().create_future()
    await broker.create("t", 2)
    await broker.produce("t", batch(2), partition=1)
    broker.files.fail("pwritev", errno.ENOSPC, matches=under(A), times=None)
    if change:
        with pytest.raises(KafkaStorage, match="No space left"):
            await broker.node.producer_ids.next()
    else:
        assert (await broker.produce("t", batch(), partition=0)).error_code == 56
    await until_offline(broker, "t", 0)
    assert (
        "the metadata log has failed: log directory /a is offline" in (await ended(broker)).message
    )
    with contextlib.suppress(KafkaStorage):
        await broker.node.close()
    broker.files.heal()
    async with two(broker.files) as broker:
        assert offsets((await broker.fetch_one("t", 1, 0)).records) == [0, 1]


@pytest.mark.parametrize(
    ("paths", "metadata", "words"),
    [
        ((A,), A, "log directory /a is offline until the broker restarts: "),
        ((A, B), A, "the metadata log has failed: log directory /a is offline until "),
        ((A, B), B, "the metadata log has failed: log directory /b is offline until "),
        ((A,), "/m", "the metadata log has failed: metadata log directory /m is offline until "),
        ((A, B), "/m", "the metadata log has failed: metadata log directory /m is offline until "),
    ],
)
async def test_the_last_message_names_the_metadata_directory_and_what_to_do(
    paths: tuple[str, ...], metadata: str, words: str
):
    """Regression: with one log directory, a separate metadata directory was called that one."""
    settings = {} if metadata == paths[0] else {"metadata_log_dir": metadata}
    broker = Broker(directories=paths, **settings)
    await broker.node.open()
    broker.node._failure = asyncio.get_running_loop().create_future()
    broker.files.fail("pwritev", errno.EIO, matches=under(metadata), times=None)
    with pytest.raises(KafkaStorage):
        await broker.node.producer_ids.next()
    await asyncio.sleep(0)
    message = (await ended(broker)).message
    assert message.startswith(words)
    assert "Input/output error; check the disk, then start the broker again" in message
    with contextlib.suppress(KafkaStorage):
        await broker.node.close()


async def test_the_metadata_log_may_be_in_a_directory_of_its_own():
    """metadata.log.dir need not be a log directory; it has no partitions, and the same ids."""
    broker = Broker(directories=(A, B), metadata_log_dir="/m")
    async with broker:
        await broker.create("t", 2)
        assert set(places(broker)) == {A, B}
        files = broker.files
        assert {one.path for one in broker.node.storage.directories.online} == {A, B}
    assert files.is_dir("/m/__cluster_metadata-0")
    assert not files.exists(f"{A}/__cluster_metadata-0")
    async with Broker(files, directories=(A, B), metadata_log_dir="/m") as broker:
        assert [topic.name for topic in broker.node.topics] == ["t"]
    for path in (A, B):  # each alone belongs to another start
        assert files.exists(f"{path}/.kafka_cleanshutdown")
    broker = Broker(files, directories=(A, B), metadata_log_dir="/m")
    await broker.node.open()
    broker.node._failure = asyncio.get_running_loop().create_future()
    files.fail("pwritev", errno.EIO, matches=under("/m"), times=None)
    with pytest.raises(KafkaStorage):
        await broker.node.producer_ids.next()
    await asyncio.sleep(0)
    assert (await ended(broker)).message.startswith(
        "the metadata log has failed: metadata log directory /m is offline"
    )
    assert (await broker.produce("t", batch())).error_code == 0  # until it stops
    with contextlib.suppress(KafkaStorage):
        await broker.node.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE, errno.ENFILE])
async def test_a_directory_that_cannot_be_read_is_offline(error: int):
    """Regression: without a descriptor it stayed online, and its partitions were created again.

    The new logs were empty, in the other directory.
    """
    async with two() as broker:
        for index in range(6):
            await broker.create(f"t{index}")
            await broker.produce(f"t{index}", batch(3))
        for name in [one.topic for one in broker.node.storage.directories.all[0].logs]:
            await broker.node.metadata.delete_topic(broker.node.topics.get(name))
        before = places(broker)
        assert (before[A], len(before[B])) == ([], 3)
    broker.files.fail("listdir", error, matches=lambda path: path == B)
    async with two(broker.files) as broker:
        assert list(broker.node.storage.directories.offline) == [B]
        assert not any(topic.partitions[0].is_online for topic in broker.node.topics)
    async with two(broker.files) as broker:
        assert places(broker) == before


async def test_a_missing_partition_may_be_in_an_offline_log_directory():
    """Created again in another directory, it would lose its records (*Non-obvious* 25)."""
    async with two() as broker:
        await broker.create("t", 2)
        await broker.produce("t", batch(3), partition=1)
        files = broker.files
    files.fail("mkdirs", errno.EIO, matches=lambda path: path == B, times=None)
    async with two(files) as broker:
        assert (await broker.fetch_one("t", 1, 0)).error_code == 56
        assert (await broker.produce("t", batch(), partition=1)).error_code == 56
        assert (await broker.produce("t", batch(), partition=0)).error_code == 0
        assert not files.is_dir(f"{A}/t-1")
        by_path = {result.log_dir: result for result in (await describe(broker)).results}
        assert (by_path[A].error_code, by_path[B].error_code) == (0, 56)
    files.heal()
    async with two(files) as broker:
        assert offsets((await broker.fetch_one("t", 1, 0)).records) == [0, 1, 2]


async def test_without_the_directory_that_has_the_metadata_nothing_begins_anew():
    """A directory added today has no topics; a start with it alone would hide all topics."""
    async with Broker(directories=(A,)) as broker:
        await broker.create("t")
        files = broker.files
    files.fail("mkdirs", errno.EIO, matches=lambda path: path == A, times=None)
    with pytest.raises(KafkaStorage, match="/a cannot be used"):
        await two(files).node.open()


async def test_when_the_last_one_fails_the_node_ends_after_its_answers():
    """The process exits with that error; until then requests get KAFKA_STORAGE_ERROR.

    The metadata log is on another disk, which has not failed.
    """
    broker = Broker(directories=(A, B), metadata_log_dir="/m")
    await broker.node.open()
    broker.node._failure = asyncio.get_running_loop().create_future()
    await broker.create("t", 2)
    await broker.produce("t", batch(2), partition=1)
    broker.files.fail(
        "pwritev", errno.ENOSPC, matches=lambda name: not under("/m")(name), times=None
    )
    assert (await broker.produce("t", batch(), partition=0)).error_code == 56
    await until_offline(broker, "t", 0)
    assert not broker.node._failure.done()
    assert (await broker.produce("t", batch(), partition=1)).error_code == 56
    await until_offline(broker, "t", 1)
    assert "every log directory is offline" in (await ended(broker)).message
    await broker.node.close()
    broker.files.heal()
    async with Broker(broker.files, directories=(A, B), metadata_log_dir="/m") as broker:
        assert offsets((await broker.fetch_one("t", 1, 0)).records) == [0, 1]


async def test_without_descriptors_a_request_fails_and_the_directory_stays():
    """EMFILE is no failure of the disk, and passes when connections are closed."""
    async with two(log_segment_bytes=1048576) as broker:
        await broker.create("t", 2)
        await broker.produce("t", batch(2))
        broker.files.fail("open", errno.EMFILE, matches=under(A))
        broker.node.topics.partition("t", 0).log.segments[0].release()
        assert (await broker.fetch_one("t", 0, 1, max_bytes=1)).error_code in (0, 56)
        broker.files.heal()
        assert offsets((await broker.fetch_one("t", 0, 0)).records) == [0, 1]
        assert (await broker.produce("t", batch())).error_code == 0


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_log_dirs_are_described_with_sizes_and_lag(version: int):
    """`kafka-log-dirs` shows this."""
    async with two() as broker:
        await broker.create("t", 2)
        await broker.produce("t", batch(3), partition=1)
        a, b = (await describe(broker, version)).results
        assert [(p.partition_index, p.partition_size) for p in a.topics[0].partitions] == [(0, 0)]
        [one] = b.topics[0].partitions
        size = broker.node.topics.partition("t", 1).log.size_bytes
        assert (one.partition_index, one.partition_size, one.offset_lag) == (1, size, 0)
        if version >= 4:
            assert 0 < b.usable_bytes < b.total_bytes
        request = wire.DescribeLogDirsRequest(
            topics=[wire.DescribableLogDirTopic(topic="t", partitions=[0])]
        )
        a, b = (await broker.ask(request, version)).results
        assert (len(a.topics), len(b.topics)) == (1, 0)


@pytest.mark.parametrize(("number", "offline"), [(errno.EIO, [A]), (errno.ENOSPC, [])])
def test_a_partition_is_not_placed_where_nothing_can_be_written(number, offline) -> None:
    """The next directory takes it. Unlike in Kafka, a full disk does not fail for that."""
    files = MemoryFiles()
    directories = open_directories(files)
    files.fail("mkdirs", number, matches=under(A))
    from aiokq.broker.log.config import LogConfig

    partition = TopicPartition("t", 0)
    directories.open_partition(partition, None, LogConfig(), now_ms=0, is_new=True)
    assert directories.directory_of(partition) is directories.all[1]
    assert list(directories.offline) == offline


def test_a_log_created_elsewhere_for_lack_of_space_leaves_its_directory_clean() -> None:
    """Otherwise each start would check all logs of the directory, until the disk has space."""
    files = MemoryFiles()
    open_directories(files)
    files.crash()
    directories = open_directories(files)
    files.fail("mkdirs", errno.ENOSPC, matches=under(A))
    directories.open_partition(TP, None, config(), now_ms=0, is_new=False)
    assert directories.directory_of(TP) is directories.all[1]
    close(directories)
    assert [directory.clean for directory in open_directories(files).all] == [True, True]


@pytest.mark.parametrize("every", [1, 5])
def test_after_a_kill_the_names_of_what_is_flushed_are_made_durable_too(every: int) -> None:
    """The kill came before the first flush; records synced later must survive a power cut."""
    files, settings = MemoryFiles(), config(flush_messages=every)
    written = open_directories(files, A).open_partition(
        TP, None, settings, now_ms=NOW_MS, is_new=True
    )
    append(written, sample(b"kept"))
    files.crash()
    again = open_directories(files, A).open_partition(
        TP, None, settings, now_ms=NOW_MS, is_new=False
    )
    assert again.recovery_point == 1
    files.power_cut()
    found = open_directories(files, A)
    found.find(lambda partition, topic_id: True)
    found.begin()
    assert found.directory_of(TP) is not None
    log = found.open_partition(TP, None, settings, now_ms=NOW_MS, is_new=False)
    assert values(log) == [(0, b"kept")]


def test_the_first_flush_after_a_kill_syncs_the_name_of_the_partition() -> None:
    """Without a flush policy the name was not synced when the partition was opened."""
    files = MemoryFiles()
    append(
        open_directories(files, A).open_partition(TP, None, config(), now_ms=NOW_MS, is_new=True),
        sample(b"kept"),
    )
    files.crash()
    directories = open_directories(files, A)
    directories.find(lambda partition, topic_id: True)
    directories.begin()
    log = directories.open_partition(TP, None, config(), now_ms=NOW_MS, is_new=False)
    pending = log.begin_flush(None)
    assert pending is not None
    assert set(pending.directories) == {log.directory, A}
