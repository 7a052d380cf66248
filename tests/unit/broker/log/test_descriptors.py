"""Files of a log directory are all closed in the end, whatever fails."""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import itertools
import logging
import os
import random
import uuid
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.directory import LogDirectory
from aiokq.broker.log.disk_trouble import unusable
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.producer_state import Origin
from aiokq.core.errors import KafkaStorage
from aiokq.core.files import Files, OsFiles
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.records.control import ControlType, EndTransactionMarker, encode_marker
from aiokq.records.header import TRANSACTIONAL_MASK
from tests.sim.harness.files import Fault, MemoryFile, MemoryFiles
from tests.unit.broker.log.samples import NOW_MS, TP, append, batch, config, fetched, seen, values

PATH = "/data"
OTHER = TopicPartition("other", 0)
TOPIC_ID = uuid.UUID("78e51061-7311-48a3-820b-3d847ed4d57b")
ONE = len(batch(b"0"))
DESCRIPTORS = "/dev/fd"


@pytest.fixture(scope="module", autouse=True)
def frozen() -> None:
    """Let the many garbage collections of these tests examine only what these tests make."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def unlogged() -> Iterator[None]:
    """Disable logging: log records that a test keeps refer to errors and their frames."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class TroubledFiles(MemoryFiles):
    """A disk that fails one call, chosen by its number, and tracks its open files."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.fails_at: int | None = None
        self.error = 0
        self._open: weakref.WeakSet[MemoryFile] = weakref.WeakSet()

    def open(self, path, **options) -> MemoryFile:
        file = super().open(path, **options)
        self._open.add(file)
        return file

    def left_open(self) -> list[str]:
        """Return the files that are open."""
        gc.collect()  # a caught exception keeps the locals of its frames alive
        return [file.path for file in self._open if not file.closed]

    def _take_fault(self, operation: str, path: str) -> Fault | None:
        self.calls += 1
        if self.calls == self.fails_at:
            return Fault(operation, self.error, lambda path: True, 1, 5)
        return None

    def copy(self) -> TroubledFiles:
        """Return another disk with the same content."""
        files = TroubledFiles()
        files._root = copy.deepcopy(self._root)
        return files


def open_directory(files: Files, path: str = PATH) -> LogDirectory:
    opened = LogDirectory.open(files, path, crc32c=crc32c, random=random.Random(1), now=lambda: 0.0)
    try:
        opened.begin()
    except OSError as error:
        opened.close(clean=False)
        raise unusable(path, error) from error
    return opened


def open_log(directory: LogDirectory, tp: TopicPartition = TP) -> PartitionLog:
    settings = config(segment_bytes=2 * ONE, index_interval_bytes=0, file_delete_delay_ms=0)
    return directory.open_partition(tp, TOPIC_ID, settings, now_ms=NOW_MS)


def abort(log: PartitionLog) -> None:
    """Abort a transaction of one record, so that its segment has a .txnindex."""
    options = {"producer_id": 9, "producer_epoch": log.log_end_offset % 30_000}
    append(log, batch(b"t", base_sequence=0, attributes=TRANSACTIONAL_MASK, **options))
    marker = encode_marker(
        EndTransactionMarker(ControlType.ABORT, 1), timestamp_ms=NOW_MS, crc32c=crc32c, **options
    )
    append(log, marker, origin=Origin.COORDINATOR)


def killed(*, damaged: bool) -> TroubledFiles:
    """A directory after a kill: logs of several segments, optionally one with a damaged batch."""
    files = TroubledFiles()
    directory = open_directory(files)
    for tp in (TP, OTHER):
        log = open_log(directory, tp)
        for index in range(9):
            append(log, batch(b"%d" % index))
            if index == 3:
                abort(log)
    files.crash()
    if damaged:
        files.corrupt(log_file(8), ONE - 1)
        files.write_atomic(log_file(2).replace(file_names.LOG, file_names.INDEX), b"no index")
        files.write_atomic(log_file(0) + file_names.DELETED, b"left")
    return files


def log_file(base_offset: int) -> str:
    return file_names.segment_file(f"{PATH}/{TP}", base_offset, file_names.LOG)


def live(directory: LogDirectory) -> Iterator[int]:
    """Run operations on a log; yield its acknowledged end from time to time."""
    log = open_log(directory)
    open_log(directory, OTHER)
    yield log.log_end_offset
    for index in range(5):
        append(log, batch(b"%d" % index), leader_epoch=index // 2)
        yield log.log_end_offset
    abort(log)
    yield log.log_end_offset
    pending = log.begin_flush(None)
    with contextlib.suppress(OSError):  # handled by the sender and by the flusher
        fetched(log, log.log_start_offset)
        if pending is not None:
            pending.sync(directory._files)
            log.end_flush(pending)
    assert seen(lambda: log.search_timestamp(NOW_MS, 0)) is not None
    directory.note_recovery_points()
    directory.save(directory.checkpoints.recovery_points)
    log.delete_records(3)
    directory.write_log_starts()
    directory.purge()
    log.roll(NOW_MS)
    directory.delete_partition(OTHER)
    directory.purge()
    yield log.log_end_offset


@pytest.mark.parametrize(
    ("error", "damaged", "every"),
    [
        (errno.EIO, True, 3),
        (errno.EIO, False, 3),
        (errno.EMFILE, True, 3),
        pytest.param(errno.EIO, True, 1, marks=pytest.mark.torture),
        pytest.param(errno.EMFILE, True, 1, marks=pytest.mark.torture),
        pytest.param(errno.EIO, False, 1, marks=pytest.mark.torture),
    ],
)
def test_no_failure_keeps_a_file_open(error: int, damaged: bool, every: int) -> None:
    """Each call to the disk fails once, from opening to closing.

    Only KafkaStorage is raised, no file stays open, the lock is released, and the next start has
    all acknowledged records.
    """
    disk = killed(damaged=damaged)
    for fails_at in itertools.count(1, every):
        files = disk.copy()
        files.fails_at, files.error = fails_at, error
        acknowledged = 0
        directory = None
        with contextlib.suppress(KafkaStorage):
            directory = open_directory(files)
            try:
                for end in live(directory):
                    acknowledged = end
            finally:
                directory.close()
        assert files.left_open() == [], f"call {fails_at} failed"
        happened = files.calls >= fails_at
        files.fails_at = None
        again = open_directory(files)
        log = open_log(again)
        assert log.log_end_offset >= acknowledged, f"call {fails_at} failed"
        values(log, log.log_start_offset)
        again.close()
        if not happened:
            assert fails_at > 100
            return


@pytest.mark.skipif(not os.path.isdir(DESCRIPTORS), reason="cannot count descriptors")
def test_many_lives_keep_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is created, rolled, recovered, deleted and closed, cleanly or not, many times.

    Descriptors are not left to the garbage collector, which may run late.
    """
    for sync in ("fsync", "fdatasync"):  # no power is cut here, and others use the disk too
        monkeypatch.setattr(os, sync, lambda descriptor: None)
    gc.disable()
    try:
        before = len(os.listdir(DESCRIPTORS))
        for number in range(12):
            directory = open_directory(OsFiles(), str(tmp_path))
            for _ in live(directory):
                pass
            directory.close(clean=number % 3 > 0)
            assert len(os.listdir(DESCRIPTORS)) == before
            if number % 3 == 0:
                damage(tmp_path / str(TP))
    finally:
        gc.enable()


def damage(directory: Path) -> None:
    """Damage a batch in the middle of a log and its index, and leave a kill's files."""
    segments = sorted(directory.glob(f"*{file_names.LOG}"))
    with open(segments[-3], "r+b") as file:
        file.seek(ONE - 1)
        file.write(b"X")
    segments[0].with_suffix(file_names.INDEX).write_bytes(b"no")
    (directory / f"{segments[0].name}{file_names.DELETED}").write_bytes(b"left")
