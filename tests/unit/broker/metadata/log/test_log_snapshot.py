"""Snapshots of a metadata log to which records are appended meanwhile, and their ends."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from itertools import count

import pytest

from aiokq.broker.metadata.log.cluster_metadata_log import ClusterMetadataLog, LogLimits
from aiokq.broker.metadata.log.snapshot_file import SnapshotReader, list_snapshots, snapshot_path
from aiokq.core.errors import Closed
from aiokq.fastpath import crc32c
from tests.sim.harness.files import MemoryFile, MemoryFiles
from tests.unit.broker.log.test_cleaner_crash import Crash, MortalFiles
from tests.unit.broker.metadata.metadata_logs import (
    DIRECTORY,
    config,
    memory,
    opened,
    read,
    topic,
)


def during_snapshot(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Call a function before each sync of a snapshot file."""
    sync = MemoryFile.sync

    def sync_after(file: MemoryFile) -> None:
        if ".checkpoint" in file.path:
            action()
        sync(file)

    monkeypatch.setattr(MemoryFile, "sync", sync_after)


def values_of(files: MemoryFiles, directory: str) -> list[list[bytes]]:
    """Return the records of each snapshot, the oldest first."""
    found = []
    for one in list_snapshots(files, directory):
        with SnapshotReader(files, snapshot_path(directory, one), one.epoch, crc32c) as reader:
            found.append(list(reader))
    return found


def unfinished(files: MemoryFiles) -> list[str]:
    return [name for name in files.listdir(DIRECTORY) if name.endswith(".part")]


def test_records_are_appended_while_a_snapshot_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The snapshot has the state at its offset, and the log keeps what follows."""
    files = memory()
    log = opened(files, limits=LogLimits(kept_snapshots=1))
    log.append(*topic(0), config(0))
    end, numbers = log.end_offset, count(1)
    copy = opened_copy(files)

    def append() -> None:
        number = next(numbers)
        log.append(*topic(number), config(number))

    during_snapshot(monkeypatch, append)
    assert log.snapshot().end_offset == end
    assert values_of(files, DIRECTORY) == values_of(copy, DIRECTORY)
    assert (set(log.image.topics), log.end_offset) == ({"t0", "t1"}, end + 3)
    second = log.snapshot()
    assert second.end_offset == end + 3
    assert log.start_offset == second.end_offset
    for seed in range(10):
        files.power_cut(random.Random(seed))
        state = read(files)
        assert set(state.image.topics) == {"t0", "t1", "t2"}
        assert state.image.topic_configs("t0") == {"a": f"{2:0500}"}


def opened_copy(files: MemoryFiles) -> MemoryFiles:
    """Return a copy of a log, with a snapshot during which nothing was appended."""
    copy = memory()
    copy.mkdirs(DIRECTORY)
    for name in files.listdir(DIRECTORY):
        copy.write_atomic(f"{DIRECTORY}/{name}", files.read_bytes(f"{DIRECTORY}/{name}"))
    log = opened(copy, lead=False)
    log.snapshot()
    return copy


def test_only_bytes_behind_a_snapshot_count_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the log would grow by what is appended during each snapshot."""
    files = memory()
    log = opened(files, limits=LogLimits(snapshot_bytes=2000))
    log.append(*topic(0), *(config(number) for number in range(4)))
    assert log.is_snapshot_due
    during_snapshot(monkeypatch, lambda: log.append(*(config(number) for number in range(4))))
    log.snapshot()
    assert log.is_snapshot_due
    monkeypatch.undo()
    log.snapshot()
    assert not log.is_snapshot_due


@pytest.mark.parametrize("abandon", [ClusterMetadataLog.abandon_snapshot, ClusterMetadataLog.close])
def test_an_abandoned_snapshot_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, abandon: Callable[[ClusterMetadataLog], None]
) -> None:
    """A stop does not wait for the disk of a large snapshot; ``close`` waits for its thread."""
    files = memory()
    log = opened(files)
    log.append(*topic(0))
    stops: list[threading.Thread] = []
    write = MemoryFile.pwritev

    def write_and_stop(file: MemoryFile, buffers, position: int) -> int:
        if ".checkpoint" in file.path and not stops:
            stops.append(threading.Thread(target=abandon, args=[log]))
            stops[0].start()
            while not log._abandoned:
                pass
        return write(file, buffers, position)

    monkeypatch.setattr(MemoryFile, "pwritev", write_and_stop)
    with pytest.raises(Closed):
        log.snapshot()
    stops[0].join()
    assert not list_snapshots(files, DIRECTORY)
    assert not unfinished(files)
    with pytest.raises(Exception, match=r"at a stop|is closed"):
        log.snapshot()
    log.close()
    assert set(read(files).image.topics) == {"t0"}


@pytest.mark.parametrize("end", ["kill", "power", "pages"])
def test_a_kill_at_any_file_operation_of_a_snapshot_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Records that were appended and acknowledged meanwhile are there, too."""
    for ends_at in range(100):
        files = MortalFiles()
        files.mkdirs("/data")
        files.sync_dir("/")
        log = opened(files, limits=LogLimits(kept_snapshots=1))
        log.append(*topic(0))
        log.snapshot()
        log.append(*topic(1))
        acknowledged = {"t0", "t1"}

        def append(log: ClusterMetadataLog = log, there: set[str] = acknowledged) -> None:
            log.append(*topic(2))
            there.add("t2")

        finished = True
        with monkeypatch.context() as patched:
            during_snapshot(patched, append)
            files.ends_at, files.done = ends_at, 0
            try:
                log.snapshot()
            except Crash:
                finished = False
        files.ends_at = None
        if end == "kill":
            files.crash()
        else:
            files.power_cut(random.Random(ends_at) if end == "pages" else None)
        found = set(read(files).image.topics)
        assert acknowledged <= found <= {"t0", "t1", "t2"}
        log = opened(files)
        assert not unfinished(files)
        log.append(*topic(3))
        log.snapshot()
        assert set(read(files).image.topics) == found | {"t3"}
        if finished:
            break
    assert ends_at > 15
