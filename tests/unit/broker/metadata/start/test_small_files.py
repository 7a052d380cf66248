"""Damage in the small files of a log directory: noticed or repaired at the start of a node.

The log itself and its snapshots: ``tests/unit/broker/metadata/log/test_metadata_reader.py``.
"""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import re
from collections.abc import Callable

import pytest

from aiokq.core.errors import KafkaError
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker, batch

CLUSTER = "/data/__cluster_metadata-0/"
DYNAMIC = {
    "controller_quorum_bootstrap_servers": "localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller_listener_names": "CONTROLLER",
}


async def stopped(**settings: object) -> dict[str, bytes]:
    """Return the files of a node with a topic of three records, after two clean stops."""
    files = MemoryFiles()
    for number in range(2):
        async with Broker(files, log_index_interval_bytes=1, **settings) as broker:
            if not number:
                await broker.create("t")
                for _ in range(3):
                    await broker.produce("t", batch(1))
            await written(broker)
    return contents(files)


def contents(files: MemoryFiles, path: str = "/data") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in files.listdir(path):
        inside = f"{path}/{name}"
        if files.is_dir(inside):
            found |= contents(files, inside)
        else:
            found[inside] = files.read_bytes(inside)
    return found


def disk(files: dict[str, bytes], **changed: bytes) -> MemoryFiles:
    made = MemoryFiles()
    for path, data in files.items():
        made.mkdirs(path.rpartition("/")[0])
        made.write_atomic(path, data)
    return made


async def written(broker: Broker) -> None:
    """Wait until ``bootstrap.checkpoint`` was checked."""
    for _ in range(10):
        await asyncio.sleep(0)
    assert broker.files.exists("/data/bootstrap.checkpoint")


async def served(files: MemoryFiles, **settings: object) -> tuple[int, int]:
    """Start a node and stop it; return log end offset and leader epoch of the topic."""
    async with Broker(files, **settings) as broker:
        partition = broker.node.topics.get("t").partitions[0]
        found = partition.log.log_end_offset, partition.leader_epoch
        await written(broker)
    return found


async def test_a_damaged_bootstrap_checkpoint_is_written_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kafka reads it at each start, although the log has its records, and refuses the directory."""
    before = await stopped()
    path = "/data/bootstrap.checkpoint"
    files = disk(before)
    files.corrupt(path, 100)
    with caplog.at_level(logging.WARNING):
        assert await served(files) == (3, 0)
    assert "bootstrap.checkpoint damaged, writing it again" in caplog.text
    assert files.read_bytes(path) == before[path]


@pytest.mark.parametrize("operation", ["open", "pwritev", "rename"])
async def test_a_bootstrap_checkpoint_that_cannot_be_written_concerns_one_directory(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: the other directories got no file, and the log promised another attempt."""
    files = MemoryFiles()
    name = "bootstrap.checkpoint"
    files.fail(operation, matches=lambda path: path.startswith(f"/data/{name}"))
    with caplog.at_level(logging.WARNING):
        async with Broker(files, directories=("/data", "/b")):
            for _ in range(10):
                await asyncio.sleep(0)
            assert not files.exists(f"/data/{name}")
            assert files.exists(f"/b/{name}")
    assert "not written, the next start writes it path=/data error=" in caplog.text
    async with Broker(files, directories=("/data", "/b")) as broker:
        await written(broker)


async def test_a_wrong_topic_id_of_the_metadata_log_is_corrected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kafka refuses the directory: the log has another topic id than the metadata has."""
    before = await stopped()
    path = CLUSTER + "partition.metadata"
    files = disk(before)
    files.write_atomic(path, before["/data/t-0/partition.metadata"])
    with caplog.at_level(logging.WARNING):
        assert await served(files) == (3, 0)
    assert "topic id of the metadata log was wrong" in caplog.text
    assert files.read_bytes(path) == before[path]


@pytest.mark.parametrize("damage", ["a character", "a line feed", "the end"])
async def test_records_are_served_though_the_topic_id_beside_them_is_damaged(damage: str) -> None:
    """The directory was set aside as another topic's, and the partition was served empty."""
    before = await stopped()
    path = "/data/t-0/partition.metadata"
    right = before[path]
    wrong = {
        "a character": right[:24] + (b"B" if right[24:25] == b"A" else b"A") + right[25:],
        "a line feed": right.replace(b"\n", b"\x0b"),
        "the end": right[:20],
    }[damage]
    files = disk(before)
    files.write_atomic(path, wrong)
    assert await served(files) == (3, 0)
    assert files.read_bytes(path) == right


@pytest.mark.parametrize("marker", [b"{", b'{"version": 0, "brokerEpoch": 999}'])
async def test_a_marker_that_is_damaged_or_of_another_registration_is_no_clean_stop(
    marker: bytes,
) -> None:
    """As on Kafka, a new leader epoch begins: the directory may be a copy of an earlier state."""
    files = disk(await stopped())
    files.write_atomic("/data/.kafka_cleanshutdown", marker)
    assert await served(files) == (3, 1)
    assert await served(files) == (3, 1)


async def test_markers_of_each_of_several_directories_count() -> None:
    """Only the partitions of the directory with the wrong marker get a new epoch."""
    files = MemoryFiles()
    directories = ("/a", "/b")
    async with Broker(files, directories=directories) as broker:
        await broker.create("t", 2)
    files.write_atomic("/b/.kafka_cleanshutdown", b'{"version":0,"brokerEpoch":999}')
    async with Broker(files, directories=directories) as broker:
        topic = broker.node.topics.get("t")
        assert {
            one.log.directory.partition("/t-")[0]: one.leader_epoch for one in topic.partitions
        } == {"/a": 0, "/b": 1}


async def outcome(files: MemoryFiles, **settings: object) -> tuple[int, str]:
    """Return the log end offset of the topic, or the message of a refused start."""
    try:
        end_offset, _ = await served(files, **settings)
    except KafkaError as error:
        return 0, error.message
    return end_offset, ""


SMALL_FILES: dict[str, str] = {
    "/data/meta.properties": r"belongs to|meta\.properties|is new|voters",
    "/data/.kafka_cleanshutdown": "",
    "/data/bootstrap.checkpoint": "",
    CLUSTER + "quorum-state": "quorum-state|voters",
    CLUSTER + "partition.metadata": "",
    CLUSTER + "leader-epoch-checkpoint": "",
    CLUSTER + "*.timeindex": "",
    CLUSTER + "*.snapshot": "",
    "/data/aiokq-node.json": "",
    "/data/log-start-offset-checkpoint": "",
    "/data/recovery-point-offset-checkpoint": "",
    "/data/replication-offset-checkpoint": "",
    "/data/t-0/partition.metadata": "",
    "/data/t-0/leader-epoch-checkpoint": "",
    "/data/t-0/*.index": "",
    "/data/t-0/*.timeindex": "",
    "/data/t-0/*.snapshot": "",
}
"""For each small file, the error with which a broker may refuse to start; empty if it may not.

Patterns stand for names with offsets; files ``*.snapshot`` have the state of producers.
"""

OTHER_FILES = (
    *(CLUSTER + "*.log", CLUSTER + "*.checkpoint", "/data/t-0/*.log"),  # tested by other modules
    *("/data/.lock", CLUSTER + "*.index"),  # empty
)


@pytest.mark.parametrize("settings", [{}, DYNAMIC])
async def test_each_kind_of_file_is_damaged_in_a_test(settings: dict[str, object]) -> None:
    patterns = (*SMALL_FILES, *OTHER_FILES)
    names = await stopped(**settings)
    assert [name for name in names if not any(fnmatch.fnmatch(name, one) for one in patterns)] == []


@pytest.mark.parametrize("pattern", SMALL_FILES)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "bits",
    [
        pytest.param(lambda position: [position % 8] if not position % 9 else [], id="some"),
        pytest.param(lambda position: range(8), marks=pytest.mark.torture, id="all"),
    ],
)
async def test_a_flipped_bit_loses_no_record(
    pattern: str, dynamic: bool, bits: Callable[[int], list[int]]
) -> None:
    """The node starts and has repaired the file, or it names the file, and changes nothing."""
    settings = DYNAMIC if dynamic else {}
    before = await stopped(**settings)
    path = max(fnmatch.filter(before, pattern))
    assert before[path]
    for position in range(len(before[path])):
        for bit in bits(position):
            files = disk(before)
            files.corrupt(path, position, 1 << bit)
            damaged = contents(files)
            end_offset, refusal = await outcome(files, **settings)
            if refusal:
                assert SMALL_FILES[pattern], (position, bit)
                assert re.search(SMALL_FILES[pattern], refusal), refusal
                assert contents(files) == damaged
                continue
            assert end_offset == 3, (position, bit)
            if path.endswith(("partition.metadata", "bootstrap.checkpoint")):
                assert files.read_bytes(path) == before[path], (position, bit)
