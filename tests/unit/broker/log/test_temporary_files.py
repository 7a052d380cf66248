"""A crash at any step of replacing segments leaves either the old ones or the new ones."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.temporary_files import settle_temporary_files
from aiokq.records.record import RawRecord, encode_batch
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import DIRECTORY, NOW_MS, crc32c, open_partition, values

OLD = {0: [0, 1, 2, 3], 4: [4, 5, 6, 7], 8: [8, 9], 10: [10, 11]}
"""Base offset and offsets of each segment; the last segment is never cleaned."""

NEW = {0: [1, 3, 7], 8: [9]}
"""The first three segments after two cleanings."""


def path(base_offset: int, suffix: str) -> str:
    return file_names.segment_file(DIRECTORY, base_offset, suffix)


def segment(offsets: list[int]) -> bytes:
    return b"".join(
        encode_batch(
            [RawRecord(offset, NOW_MS + offset, b"k", b"%d" % offset)],
            crc32c=crc32c,
            leader_epoch=0,
        )
        for offset in offsets
    )


def write(files: MemoryFiles, name: str, data: bytes) -> None:
    file = files.open(name, create=True)
    file.pwritev([data], 0)
    file.sync()


def filled() -> MemoryFiles:
    files = MemoryFiles()
    files.mkdirs(DIRECTORY)
    for base_offset, offsets in OLD.items():
        write(files, path(base_offset, file_names.LOG), segment(offsets))
        for suffix in (file_names.INDEX, file_names.TIME_INDEX):
            write(files, path(base_offset, suffix), b"")
    for directory in ("/", "/data", DIRECTORY):
        files.sync_dir(directory)
    return files


def offsets(files: MemoryFiles, *, clean: bool) -> list[int]:
    log = open_partition(files, clean=clean)
    found = [offset for offset, _ in values(log)]
    log.close()
    assert not [n for n in files.listdir(DIRECTORY) if n.endswith(file_names.TEMPORARY_SUFFIXES)]
    return found


class Crash(Exception):
    """The end of the process."""


def replace(files: MemoryFiles, steps: int) -> None:
    """Kafka's `LocalLog.replaceSegments` for two cleaned segments; crashes after `steps` steps."""
    left = iter(range(steps))

    def step() -> None:
        if next(left, None) is None:
            raise Crash

    for base_offset, kept in NEW.items():
        for suffix in (file_names.LOG, file_names.INDEX, file_names.TIME_INDEX):
            step()
            data = segment(kept) if suffix == file_names.LOG else b""
            write(files, path(base_offset, suffix) + file_names.CLEANED, data)
    for base_offset in sorted(NEW, reverse=True):
        for suffix in (file_names.LOG, file_names.INDEX, file_names.TIME_INDEX):
            step()
            name = path(base_offset, suffix)
            files.rename(name + file_names.CLEANED, name + file_names.SWAP)
    for base_offset in (0, 4, 8):
        for suffix in (file_names.LOG, file_names.INDEX, file_names.TIME_INDEX):
            step()
            files.rename(path(base_offset, suffix), path(base_offset, suffix) + file_names.DELETED)
    for base_offset in NEW:
        for suffix in (file_names.LOG, file_names.INDEX, file_names.TIME_INDEX):
            step()
            files.rename(path(base_offset, suffix) + file_names.SWAP, path(base_offset, suffix))
    for base_offset in (0, 4, 8):
        for suffix in (file_names.LOG, file_names.INDEX, file_names.TIME_INDEX):
            step()
            files.remove(path(base_offset, suffix) + file_names.DELETED)


STEPS = 6 + 6 + 9 + 6 + 9
OLD_OFFSETS = [offset for kept in OLD.values() for offset in kept]
NEW_OFFSETS = [*NEW[0], *NEW[8], *OLD[10]]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("power", [True, False])
def test_a_crash_during_a_swap_leaves_the_old_segments_or_the_new(clean: bool, power: bool) -> None:
    """Both would restore deleted records; neither would lose the segments."""
    for steps in range(STEPS + 1):
        files = filled()
        try:
            replace(files, steps)
        except Crash:
            pass
        if power:
            files.power_cut(random.Random(steps))
            whole = None
        else:
            files.crash()
            whole = steps >= 12
        found = offsets(files, clean=clean)
        assert found in (OLD_OFFSETS, NEW_OFFSETS), steps
        if whole is not None:
            assert found == (NEW_OFFSETS if whole else OLD_OFFSETS), steps
        assert offsets(files, clean=True) == found


@pytest.mark.parametrize("operation", ["remove", "rename"])
def test_the_finish_may_be_interrupted_too(operation: str) -> None:
    """In a crash loop each start gets a little further, and none makes it worse."""
    for steps in range(STEPS + 1):
        for failed in range(12):
            files = filled()
            try:
                replace(files, steps)
            except Crash:
                pass
            files.crash()
            calls = iter(range(failed))
            files.fail(operation, errno.EIO, matches=lambda _, c=calls: next(c, None) is None)
            try:
                settle_temporary_files(files, DIRECTORY)
            except OSError:
                pass
            files.heal()
            files.crash()
            expected = NEW_OFFSETS if steps >= 12 else OLD_OFFSETS
            assert offsets(files, clean=False) == expected, (steps, failed)


@pytest.mark.parametrize("steps", [12, 15, 21, 24])
def test_the_power_may_fail_in_the_finish_too(steps: int) -> None:
    """Any of the names may survive: a copy, and originals beside it."""
    for seed in range(60):
        files = filled()
        with contextlib.suppress(Crash):
            replace(files, steps)
        files.crash()
        files.sync_dir(DIRECTORY)
        source = random.Random(seed)
        calls = iter(range(source.randrange(12)))
        files.fail("rename", errno.EIO, matches=lambda _, c=calls: next(c, None) is None)
        with contextlib.suppress(OSError):
            settle_temporary_files(files, DIRECTORY)
        files.heal()
        files.power_cut(source, ordered=False)
        assert offsets(files, clean=False) == NEW_OFFSETS, seed


def test_a_split_is_finished() -> None:
    """One segment was split into two, which replace it."""
    files = filled()
    for base_offset, kept in ((4, [4, 5]), (6, [6, 7])):
        write(files, path(base_offset, file_names.LOG) + file_names.SWAP, segment(kept))
    assert offsets(files, clean=True) == OLD_OFFSETS
    assert files.exists(path(6, file_names.LOG))


def test_nothing_is_synced_where_nothing_was_left() -> None:
    """A start opens a thousand directories, and each sync waits for the disk."""
    files = filled()
    files.fail("sync_dir", times=None)
    settle_temporary_files(files, DIRECTORY)
