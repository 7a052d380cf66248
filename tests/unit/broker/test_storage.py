"""aiokq.broker.storage: opening and closing the data of a node."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import random
import threading
import time

import pytest

from aiokq.broker import storage
from aiokq.broker.log.directories import DirectoriesOpening, LogDirectories
from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.partition_directories import PartitionDirectories
from aiokq.broker.metadata.changes import MetadataChanges
from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog
from aiokq.broker.metadata.log.metadata_reader import MetadataReader, MetadataState
from aiokq.broker.metadata.start.metadata_start import MetadataStart
from aiokq.broker.node import BrokerNode
from aiokq.connection.network import system_environment
from aiokq.core.clock import SystemClock
from aiokq.core.environment import Environment
from aiokq.core.errors import KafkaStorage
from aiokq.core.offload import InlineOffload, ThreadOffload
from aiokq.wire.struct import Message
from tests.unit.broker.harness import Broker, NoNetwork, until
from tests.unit.broker.metadata.start.test_metadata_start import all_files

MARKER = "/data/.kafka_cleanshutdown"


async def test_the_loop_goes_on_while_a_stop_waits_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow sync of the metadata log during a stop must not block the loop."""
    broker = Broker()
    offload = ThreadOffload()
    broker.node = BrokerNode(
        broker.node.settings,
        Environment(broker.clock, random.Random(1), NoNetwork(), broker.files, offload),
        data_dir="/data",
    )
    await broker.node.open()
    syncing, closing, loop_went_on = threading.Event(), threading.Event(), threading.Event()
    append, close = ClusterMetadataLog.append, MetadataChanges.close
    waited: list[bool] = []

    def slow_append(log: ClusterMetadataLog, *records: Message) -> int:
        if not closing.is_set():
            syncing.set()
            waited.append(loop_went_on.wait(10))
        return append(log, *records)

    async def noted_close(changes: MetadataChanges) -> None:
        closing.set()
        await close(changes)

    monkeypatch.setattr(ClusterMetadataLog, "append", slow_append)
    monkeypatch.setattr(MetadataChanges, "close", noted_close)
    change = asyncio.ensure_future(broker.node.producer_ids.next())
    await until(syncing.is_set)
    stop = asyncio.ensure_future(broker.node.close())
    await until(closing.is_set)
    loop_went_on.set()
    await asyncio.gather(change, stop)
    offload.close()
    assert waited == [True]


async def test_nobody_can_compute_the_id_of_a_directory_from_other_random_values() -> None:
    """The salts of unknown users are derived from it; the ids that clients see are not secret.

    Regression: it came from the same generator as they, whose state can be computed from them.
    """
    ids = set()
    for _ in range(2):
        broker = Broker()
        broker.node = BrokerNode(
            broker.node.settings,
            Environment(broker.clock, random.Random(1), NoNetwork(), broker.files, InlineOffload()),
            data_dir="/data",
        )
        await broker.node.open()
        ids.add(broker.node.storage.directories.metadata.directory_id)
        await broker.node.close()
    assert len(ids) == 2
    assert isinstance(system_environment().secure_random, random.SystemRandom)


@pytest.mark.parametrize("step", ["look_for_missing", "lead"])
async def test_a_start_that_fails_keeps_no_file_open(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Regression: a failed start leaked descriptors, so a program that retried ran out of them."""
    closed: list[ClusterMetadataLog] = []
    close = ClusterMetadataLog.close

    def noted_close(log: ClusterMetadataLog, clean: bool = True) -> None:
        closed.append(log)
        close(log, clean)

    def refuse(*_: object, **__: object) -> None:
        raise KafkaStorage("not this directory")

    async with Broker() as before:
        pass
    broker = Broker(before.files)
    with monkeypatch.context() as patched:
        patched.setattr(ClusterMetadataLog, "close", noted_close)
        patched.setattr(MetadataStart, step, refuse)
        with pytest.raises(KafkaStorage, match="not this directory"):
            await broker.node.open()
    assert len(set(closed)) == 1
    assert broker.files.exists("/data/.kafka_cleanshutdown"), "no log was opened"
    async with Broker(broker.files):  # no lock was left
        pass


async def test_a_start_that_cannot_write_its_epoch_leaves_the_directory_clean() -> None:
    """The next start, with free space, has nothing to recover, and no leader epoch rises."""
    async with Broker() as before:
        await before.create("t")
    files = before.files
    files.fail("pwritev", errno.ENOSPC, matches=lambda path: path.endswith(".log"))
    with pytest.raises(KafkaStorage, match="free space"):
        await Broker(files).node.open()
    assert files.exists("/data/.kafka_cleanshutdown")
    async with Broker(files) as again:
        topic = again.node.topics.get("t")
        assert topic is not None
        assert topic.partitions[0].leader_epoch == 0


@pytest.mark.parametrize("separate", [False, True])
async def test_a_new_metadata_directory_beside_old_directories_refuses_the_start(
    separate: bool,
) -> None:
    """Its disk is not mounted. A new metadata log would issue producer ids a second time."""
    settings = {"metadata.log.dir": "/meta"} if separate else {}
    home = "/meta" if separate else "/a"
    async with Broker(directories=("/a", "/b"), **settings) as broker:
        await broker.create("t")
    files = broker.files
    files.rename(home, "/unmounted")
    with pytest.raises(KafkaStorage, match=f"the metadata directory {home} is new"):
        await Broker(files, directories=("/a", "/b"), **settings).node.open()
    assert not files.exists(f"{home}/meta.properties")
    files.rename("/unmounted", home)
    async with Broker(files, directories=("/a", "/b"), **settings) as again:
        assert again.node.topics.get("t") is not None


async def test_every_directory_of_a_new_node_has_a_bootstrap_checkpoint() -> None:
    """It is written beside the start, and before the directories are unlocked."""
    async with Broker(directories=("/a", "/b")) as broker:
        pass
    assert all(broker.files.exists(f"{one}/bootstrap.checkpoint") for one in ("/a", "/b"))


async def test_a_clean_stop_fences_the_broker_and_a_kill_does_not() -> None:
    """Kafka refuses the registration of a broker that seems to run, for a session timeout."""
    async with Broker() as broker:
        image = broker.node.storage.metadata.image
        assert [one.fenced for one in image.brokers.values()] == [False]
    assert [one.fenced for one in image.brokers.values()] == [True]
    killed = Broker(broker.files)
    await killed.node.open()
    image = killed.node.storage.metadata.image
    killed.files.crash()
    async with Broker(killed.files):
        pass
    assert [one.fenced for one in image.brokers.values()] == [False]


async def test_a_metadata_log_that_fails_at_the_stop_leaves_the_others_closed() -> None:
    """The stop tells the failure after it has closed everything."""
    broker = Broker()
    await broker.node.open()
    await broker.create("t")
    broker.files.fail("pwritev", 5, matches=lambda path: "metadata" in path)
    with pytest.raises(KafkaStorage, match="Input/output error"):
        await broker.node.close()
    assert not broker.files.exists("/data/.kafka_cleanshutdown")
    async with Broker(broker.files) as again:
        assert again.node.topics.get("t") is not None


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("operation", ["pwritev", "sync"])
async def test_a_metadata_log_that_was_not_fenced_is_not_closed_cleanly(
    operation: str, *, separate: bool
) -> None:
    """Regression: after a lack of descriptors the directory got the marker of a clean stop."""
    settings = {"metadata_log_dir": "/metadata"} if separate else {}
    home = "/metadata" if separate else "/data"
    async with Broker(**settings) as broker:
        await broker.create("t")
    files = broker.files
    files.write_atomic(f"{home}/.kafka_cleanshutdown", files.read_bytes(MARKER))
    async with Broker(files, **settings) as broker:
        pass
    assert files.exists(f"{home}/.kafka_cleanshutdown")
    broker = Broker(files, **settings)
    await broker.node.open()
    files.fail(operation, errno.EMFILE, matches=lambda path: "__cluster_metadata-0/0" in path)
    with pytest.raises(KafkaStorage, match="Too many open files"):
        await broker.node.close()
    assert not files.exists(f"{home}/.kafka_cleanshutdown")
    async with Broker(files, **settings) as again:
        assert again.node.topics.get("t") is not None
    assert files.exists(MARKER)


# --- the metadata log is read while the directories are opened


def threaded(broker: Broker, offload: ThreadOffload) -> BrokerNode:
    """Return the node of `broker` with an executor that has threads."""
    environment = dataclasses.replace(broker.node.environment, offload=offload)
    environment = dataclasses.replace(environment, clock=SystemClock())
    broker.node.environment = environment
    return broker.node


@pytest.mark.parametrize("step", [(LogDirectory, "open"), (PartitionDirectories, "partitions")])
async def test_the_metadata_log_is_read_while_the_directories_are_opened(
    monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
) -> None:
    """One waits for the disk while the other computes."""
    monkeypatch.setattr(storage, "READ_BESIDE_BYTES", 0)
    async with Broker(directories=("/a", "/b")) as before:
        await before.create("t")
    together, met = threading.Barrier(2), set()
    owner, name = step
    opening, reading = getattr(owner, name), MetadataReader.read

    def open_or_list(*arguments: object, **options: object) -> object:
        if "/a" not in arguments and name not in met:
            met.add(name)
            together.wait(10)
        return opening(*arguments, **options)

    def read(reader: MetadataReader) -> object:
        if "read" not in met:
            met.add("read")
            together.wait(10)
        return reading(reader)

    monkeypatch.setattr(owner, name, open_or_list)
    monkeypatch.setattr(MetadataReader, "read", read)
    offload = ThreadOffload()
    node = threaded(Broker(before.files, directories=("/a", "/b")), offload)
    await node.open()
    try:
        assert met == {name, "read"}
        assert node.topics.get("t") is not None
    finally:
        await node.close()
        offload.close()


@pytest.mark.parametrize("failing", ["log", "directories", "both"])
async def test_a_start_that_is_refused_while_both_threads_run_unlocks_after_both(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Otherwise the next broker would change the log that is being read."""
    monkeypatch.setattr(storage, "READ_BESIDE_BYTES", 0)
    async with Broker(directories=("/a", "/b")) as before:
        await before.create("t")
    files, content = before.files, all_files(before.files, "/")
    locked: list[bool] = []
    opened, finish, reading = threading.Event(), DirectoriesOpening.finish, MetadataReader.read

    def finish_opening(opening: DirectoriesOpening) -> LogDirectories:
        try:
            if failing != "log":
                raise KafkaStorage("the directories are refused")
            return finish(opening)
        finally:
            opened.set()

    def read(reader: MetadataReader) -> MetadataState:
        assert opened.wait(10)
        time.sleep(0.05)
        with pytest.raises(BlockingIOError):
            files.lock("/a/.lock")
        locked.append(True)
        if failing != "directories":
            raise KafkaStorage("the log is refused")
        return reading(reader)

    with monkeypatch.context() as patched:
        patched.setattr(DirectoriesOpening, "finish", finish_opening)
        patched.setattr(MetadataReader, "read", read)
        offload = ThreadOffload()
        said = "the log is refused" if failing == "log" else "the directories are refused"
        with pytest.raises(KafkaStorage, match=said):
            await threaded(Broker(files, directories=("/a", "/b")), offload).open()
        offload.close()
    assert locked == [True]
    assert all_files(files, "/") == content
    assert all(files.exists(f"{one}/.kafka_cleanshutdown") for one in ("/a", "/b"))
    async with Broker(files, directories=("/a", "/b")) as again:
        assert again.node.topics.get("t") is not None


async def test_a_start_that_is_cancelled_while_both_threads_run_unlocks_the_directories(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program that limits the time of a start may start again at once."""
    monkeypatch.setattr(storage, "READ_BESIDE_BYTES", 0)
    async with Broker(directories=("/a", "/b")) as before:
        await before.create("t")
    read, reading, going_on = MetadataReader.read, threading.Event(), threading.Event()

    def slow_read(reader: MetadataReader) -> MetadataState:
        reading.set()
        assert going_on.wait(10)
        return read(reader)

    offload = ThreadOffload()
    with monkeypatch.context() as patched:
        patched.setattr(MetadataReader, "read", slow_read)
        node = threaded(Broker(before.files, directories=("/a", "/b")), offload)
        opening = asyncio.ensure_future(node.open())
        await until(reading.is_set)
        opening.cancel()
        await asyncio.sleep(0)
        going_on.set()
        with pytest.raises(asyncio.CancelledError):
            await opening
    offload.close()
    assert before.files.exists("/a/.kafka_cleanshutdown")
    async with Broker(before.files, directories=("/a", "/b")) as again:
        assert again.node.topics.get("t") is not None
