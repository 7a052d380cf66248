"""Snapshots of the metadata log by size: in the background, retried, ended at a stop."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading

import pytest

from aiokq.broker.metadata.log.cluster_metadata_log import LogLimits
from aiokq.broker.metadata.log.snapshot_file import list_snapshots
from aiokq.broker.metadata.snapshots import MetadataSnapshots
from aiokq.core.background import BackgroundWork
from aiokq.core.counters import BrokerCounters
from aiokq.core.offload import InlineOffload, ThreadOffload
from aiokq.core.supervisor import Supervisor
from tests.sim.harness.files import MemoryFile, MemoryFiles
from tests.unit.broker.harness import Broker, until
from tests.unit.broker.metadata.metadata_logs import (
    DIRECTORY,
    config,
    memory,
    opened,
    read,
    topic,
)

LIMITS = LogLimits(snapshot_bytes=4000)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make retries immediate."""
    monkeypatch.setattr("aiokq.core.background.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("aiokq.core.background.LONGEST_PAUSE", 0.001)


class Snapshots:
    """Snapshots of a log, with the counters of failures."""

    def __init__(self, files: MemoryFiles, offload: InlineOffload | ThreadOffload) -> None:
        self.counters = BrokerCounters()
        self.supervisor = Supervisor("test")
        self.log = opened(files, limits=LIMITS)
        self.log.append(*topic(0))
        background = BackgroundWork(self.counters, asyncio.get_running_loop().time)
        self.task = MetadataSnapshots(self.log, offload, self.supervisor, background)

    def append(self, count: int) -> None:
        for number in range(count):
            self.log.append(config(number))
            self.task.begin()


async def test_a_snapshot_is_written_when_the_log_has_grown() -> None:
    """The appends do not write it."""
    files = memory()
    snapshots = Snapshots(files, InlineOffload())
    async with snapshots.supervisor:
        snapshots.append(5)
        assert not list_snapshots(files, DIRECTORY)
        snapshots.append(5)
        assert not list_snapshots(files, DIRECTORY), "the task has not run yet"
        end = snapshots.log.end_offset
        await until(lambda: list_snapshots(files, DIRECTORY))
        assert list_snapshots(files, DIRECTORY)[0].end_offset == end
        snapshots.append(10)
        await until(lambda: len(list_snapshots(files, DIRECTORY)) == 2)
    assert not snapshots.counters.background_failures


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("operation", ["open", "pwritev", "sync", "rename", "sync_dir", "chmod"])
async def test_a_snapshot_that_fails_is_counted_and_tried_again(
    operation: str, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Appends go on, and the log is not cut off before."""
    caplog.set_level(logging.WARNING)
    files = memory()
    snapshots = Snapshots(files, InlineOffload())
    async with snapshots.supervisor:
        snapshots.append(7)
        fault = files.fail(
            operation,
            error,
            matches=lambda path: "checkpoint" in path or operation == "sync_dir",
            times=None,
            written=100,
        )
        snapshots.append(3)
        failures = snapshots.counters.background_failures
        await until(lambda: failures["metadata snapshot"] > 2)
        snapshots.append(2)
        assert snapshots.log.start_offset == 0
        assert not [name for name in files.listdir(DIRECTORY) if name.endswith(".part")]
        files._faults.remove(fault)
        await until(lambda: not snapshots.log.is_snapshot_due)
    assert "background task failed, and is retried: task='metadata snapshot'" in caplog.text
    files.power_cut()
    assert list_snapshots(files, DIRECTORY)
    assert read(files).image.topic_configs("t0") == {"a": f"{1:0500}"}


class Gate:
    """Holds the write of the first snapshot file until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        write = MemoryFile.pwritev

        def write_behind(file: MemoryFile, buffers, position: int) -> int:
            if ".checkpoint" in file.path:
                self.reached.set()
                assert self.opened.wait(10)
            return write(file, buffers, position)

        monkeypatch.setattr(MemoryFile, "pwritev", write_behind)


async def test_changes_do_not_wait_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the append that made a snapshot necessary wrote it, and all others waited."""
    files, offload, gate = memory(), ThreadOffload(), Gate(monkeypatch)
    snapshots = Snapshots(files, offload)
    async with snapshots.supervisor:
        snapshots.append(10)
        await until(gate.reached.is_set)
        end = snapshots.log.end_offset
        for number in range(10):
            await offload.run(snapshots.log.append, config(number))
            snapshots.task.begin()
        assert snapshots.log.end_offset == end + 10
        assert not list_snapshots(files, DIRECTORY)
        gate.opened.set()
        await until(lambda: len(list_snapshots(files, DIRECTORY)) == 2)
    offload.close()


async def test_a_stop_abandons_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor does not wait for it; the log does, and no file is left."""
    files, offload, gate = memory(), ThreadOffload(), Gate(monkeypatch)
    snapshots = Snapshots(files, offload)
    await snapshots.supervisor.start()
    snapshots.append(10)
    await until(gate.reached.is_set)
    await snapshots.supervisor.close()
    assert not gate.opened.is_set()
    closing = asyncio.ensure_future(offload.run(snapshots.log.close))
    await asyncio.sleep(0)
    gate.opened.set()
    await closing
    offload.close()
    assert not list_snapshots(files, DIRECTORY)
    assert not [name for name in files.listdir(DIRECTORY) if name.endswith(".part")]
    assert read(files).image.topic_configs("t0") == {"a": f"{9:0500}"}
    assert not snapshots.counters.background_failures


async def test_a_node_writes_snapshots_of_its_log() -> None:
    """At the start, too, if the last stop was a kill before the snapshot was written."""
    files = MemoryFiles()
    setting = "metadata.log.max.record.bytes.between.snapshots"
    for size, found in ((20_000_000, 0), (2000, 1)):
        broker = Broker(files, **{setting.replace(".", "_"): size})
        await broker.node.open()
        if not found:
            for number in range(10):
                await broker.create(f"t{number}")
        await until(lambda: len(list_snapshots(files, DIRECTORY)) == found)  # noqa: B023
        if found:
            for number in range(10, 30):
                await broker.create(f"t{number}")
            await until(lambda: len(list_snapshots(files, DIRECTORY)) == 2)
            assert broker.node.storage.metadata.start_offset > 0
        files.crash()
    assert len(read(files).image.topics) == 30
