"""Commands that change a stopped broker's metadata log are killed at each change of a real disk.

The unit tests do the same, and power cuts, on a simulated disk. Here the commands run in processes
that are ended by SIGKILL, also in the middle of each write. Afterwards the command is run to its
end, and a broker starts on the directory.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import aiokq
from aiokq.broker.log.file_names import CLUSTER_METADATA
from aiokq.broker.metadata.log.metadata_reader import MetadataReader, MetadataState
from aiokq.core.files import OsFiles
from aiokq.fastpath import crc32c
from tests.fault.killed_commands import Commands, Run
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import Broker, batch
from tests.unit.broker.metadata.quorum_logs import quorum_of_three
from tests.unit.broker.metadata.stopped_broker.test_log_repair import CASES

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.timeout(120),
]


START_AFTER = 8
"""A broker starts after each kill of this number: a start takes longer than a command."""


def read(data: Path) -> MetadataState:
    return MetadataReader(OsFiles(), str(data / CLUSTER_METADATA), crc32c).read()


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def topics_of_a_broker(data: Path) -> set[str]:
    """Start a broker on a directory, create a topic, and return all topics."""

    async def main() -> set[str]:
        async with (
            aiokq.EmbeddedCluster(data_dir=data) as kafka,
            aiokq.Admin(kafka.bootstrap_servers) as admin,
        ):
            await admin.create_topics(["new"], raise_errors=True)
            return set(await admin.list_topics())

    return asyncio.run(asyncio.wait_for(main(), 20))


def write_to_disk(files: MemoryFiles, source: str, target: Path) -> None:
    """Write a directory of the in-memory disk to the machine's disk."""
    target.mkdir(parents=True)
    for name in files.listdir(source):
        path = f"{source}/{name}"
        if files.is_dir(path):
            write_to_disk(files, path, target / name)
        else:
            (target / name).write_bytes(files.read_bytes(path))


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands() as running:
        yield running


class Killed:
    """A command that is killed at each change of the disk, and a directory for it.

    Args:
        files, path: the directory as the command finds it.

    Attributes:
        data: a copy of that directory on the machine's disk.
    """

    def __init__(
        self, commands: Commands, command: str, files: MemoryFiles, path: str, root: Path
    ) -> None:
        self.data = root / "data"
        self._source = root / "source"
        self._commands = commands
        self._command = command
        write_to_disk(files, path, self._source)
        self.renew()

    def renew(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.copytree(self._source, self.data)

    def run(self) -> Run:
        """Run the command to its end."""
        return self._commands.run(self._command, self.data)

    def kills(self, least: int = 6) -> Iterator[int]:
        """Kill the command before each change, and within each write; yield the number so far.

        Args:
            least: number of changes that the command makes at least.
        """
        self.renew()
        whole = self.run()
        assert whole.code == 0, whole.error
        assert len(whole.changes) >= least, whole.changes
        number = 0
        for at, change in enumerate(whole.changes):
            for torn in (False, True) if change == "w" else (False,):
                self.renew()
                killed = self._commands.run(self._command, self.data, kill_at=at, torn=torn)
                assert (killed.code, killed.changes) == (-9, whole.changes[: at + 1])
                yield number
                number += 1

    def starts(self, number: int, topics: set[str]) -> None:
        """Check, after some of the kills, that a broker starts and has these topics."""
        if number % START_AFTER == 0:
            assert topics_of_a_broker(self.data) == topics | {"new"}


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_storage_adopt(commands: Commands, tmp_path: Path, kraft_version: int) -> None:
    """The directory is the old quorum's, or this node's alone; the old log is kept whole."""
    killed = Killed(commands, "adopt", quorum_of_three(kraft_version), "/data", tmp_path)
    data = killed.data
    old = contents(data / CLUSTER_METADATA)
    assert killed.run().code == 0
    expected = list(map(repr, read(data).image.records()))
    outcomes = set()
    for number in killed.kills():
        again = killed.run()
        outcomes.add(again.code)
        assert again.code == 0 or "is the only voter" in again.error, again
        assert list(map(repr, read(data).image.records())) == expected
        assert contents(data / f"{CLUSTER_METADATA}.before-adoption-stray") == old
        assert len(list(data.glob("*-stray"))) == 1
        killed.starts(number, {"t"})
    assert outcomes == {0, 1}


@pytest.mark.parametrize("case", CASES)
def test_log_repair(commands: Commands, tmp_path: Path, case: str) -> None:
    """The log is cut at the same record, and all removed bytes are kept.

    An epoch is corrected in place: nothing is removed.
    """
    killed = Killed(commands, "repair", CASES[case](), "/data", tmp_path)
    data = killed.data
    assert killed.run().code == 0
    expected = list(map(repr, read(data).image.records()))
    topics = set(read(data).image.topics)
    removed = removed_bytes(data)
    assert bool(removed) == (case != "epoch")
    for number in killed.kills(2 if case == "epoch" else 6):
        again = killed.run()
        assert again.code == 0, again.error
        assert list(map(repr, read(data).image.records())) == expected
        assert removed_bytes(data) >= removed
        killed.starts(number, topics)


def removed_bytes(data: Path) -> set[bytes]:
    found = (data / CLUSTER_METADATA).glob("*.corrupt-*")
    return {path.read_bytes() for path in found}


def test_log_forget_missing(commands: Commands, tmp_path: Path) -> None:
    """The partitions of the lost directory get new leader epochs; all else stays."""
    files, here = asyncio.run(two_directories())
    killed = Killed(commands, "forget", files, "/a", tmp_path)
    data = killed.data
    before = read(data).image.topics["t"]
    for number in killed.kills():
        again = killed.run()
        assert again.code == 0, again.error
        image = read(data).image
        [broker] = image.brokers.values()
        assert len(broker.log_dirs) == 1
        after = image.topics["t"]
        assert after.topic_id == before.topic_id
        for index, (was, now) in enumerate(zip(before.partitions, after.partitions, strict=True)):
            assert (now == was) == (index in here)
            assert now.leader_epoch >= was.leader_epoch + (index not in here)
        killed.starts(number, {"t"})


async def two_directories() -> tuple[MemoryFiles, set[int]]:
    """Return a disk with partitions in two directories, and the numbers of those in the first."""
    async with Broker(None, directories=("/a", "/b")) as broker:
        await broker.create("t", 6)
        for index in range(6):
            await broker.produce("t", batch(3), partition=index)
        first = broker.node.storage.directories.all[0]
        here = {partition.partition for partition in first.logs}
    return broker.files, here
