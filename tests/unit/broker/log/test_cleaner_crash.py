"""Compaction interrupted at any file operation, by a kill and by a power cut.

Recovery finds either the old segments of a group or the new one, never both, and no record is lost
unless its key has a newer one.
"""

from __future__ import annotations

import errno
import itertools
import random
from typing import NamedTuple

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.cleaner.group_rewriter import GroupRewriter
from aiokq.core.errors import KafkaStorage
from tests.sim.harness.files import Fault, MemoryFiles
from tests.unit.broker.log.cleaning import CleanedLog, SteppedClock, compacted
from tests.unit.broker.log.samples import TP

DISCARD = GroupRewriter.discard
Pairs = list[tuple[int, bytes | None, bytes | None]]
TEMPORARY = (file_names.CLEANED, file_names.SWAP, file_names.DELETED, file_names.TEMPORARY)


class Crash(BaseException):
    """The end of the process."""


class MortalFiles(MemoryFiles):
    """A disk whose process ends before file operation number ``ends_at``."""

    ends_at: int | None = None
    done = 0

    def _take_fault(self, operation: str, path: str) -> Fault | None:
        if self.ends_at is not None:
            if self.done >= self.ends_at:
                raise Crash(f"{operation} {path}")
            self.done += 1
        return super()._take_fault(operation, path)


def filled(files: MortalFiles, clock: SteppedClock, groups: int) -> CleanedLog:
    """A durable log of six segments, which are cleaned in ``groups`` groups."""
    log = CleanedLog(files, compacted(segment_bytes=1_000_000), clock=clock)
    for number in range(6):
        for part in range(2):
            log.put(
                *[
                    (b"k%d" % ((number * 3 + part + n) % 9), b"%d-%d-%d" % (number, part, n) * 20)
                    for n in range(4)
                ],
                codec=part * 4,
            )
        if number == 2:
            log.transact(7, 0, (b"k1", b"aborted"))
            log.end(7, log_abort())
        log.roll()
    log.put((b"k0", b"newest"))
    log.log.update_config(compacted(segment_bytes=log.log.size_bytes // groups + 400))
    log.log.flush()
    files.sync_dir("/data/orders-0")
    files.sync_dir("/data")
    files.sync_dir("/")
    return log


def log_abort():  # type: ignore[no-untyped-def]
    from aiokq.records.control import ControlType

    return ControlType.ABORT


def newest(pairs: Pairs) -> dict[bytes | None, bytes | None]:
    """Return the last value of each key that has one."""
    found = {key: value for _, key, value in pairs}
    return {key: value for key, value in found.items() if value is not None}


def reopened(files: MortalFiles, clock: SteppedClock) -> CleanedLog:
    return CleanedLog(files, compacted(), clock=clock)


def by_segment(log: CleanedLog) -> dict[int, list[int]]:
    """Return the offsets of the batches by segment."""
    return {s.base_offset: [h.base_offset for _, h in s.headers()] for s in log.log.segments}


class Run(NamedTuple):
    """A cleaning that was stopped after some operations, and the recovered log."""

    finished: bool
    operations: int
    log: CleanedLog


async def outcome(ends_at: int | None, groups: int, end: str, seed: int = 0) -> Run:
    """Clean, end before an operation by a kill or a power cut or not at all, and recover."""
    clock = SteppedClock()
    files = MortalFiles(now_ms=clock.timestamp_ms)
    log = filled(files, clock, groups)
    files.ends_at = ends_at if ends_at is not None else 1_000_000
    finished = True
    try:
        assert await log.clean() is not None
    except Crash:
        finished = False
    operations, files.ends_at = files.done, None
    if end == "kill":
        files.crash()
    else:
        source = random.Random(seed) if end != "power" else None
        files.power_cut(source, ordered=end != "names")
    return Run(finished, operations, reopened(files, clock))


def on_disk(log: CleanedLog) -> frozenset[tuple[str, bytes]]:
    """Return every file of the partition; equal files mean equal later behaviour."""
    directory = log.log.directory
    return frozenset((name, log.files.read_bytes(f"{directory}/{name}")) for name in log.names)


@pytest.mark.parametrize(
    ("groups", "end"),
    [
        (1, "power"),
        (3, "names"),
        *(
            pytest.param(g, e, marks=pytest.mark.torture)
            for g, e in [(1, "kill"), (1, "pages"), (3, "kill"), (3, "pages"), (3, "power")]
        ),
    ],
)
async def test_a_crash_after_each_file_operation_leaves_the_old_or_the_new_set(
    groups: int, end: str
) -> None:
    """With both sets readers would get offsets twice; with neither, records would be lost."""
    clock = SteppedClock()
    uncleaned = filled(MortalFiles(now_ms=clock.timestamp_ms), clock, groups)
    before, latest = uncleaned.pairs, uncleaned.latest
    finished, operations, reference = await outcome(None, groups, "kill")
    after = reference.pairs
    assert finished
    assert len(after) < len(before)
    clean = by_segment(reference)
    assert len(clean) == groups + 1
    starts = [*sorted(clean), 1 << 62]
    ranges = list(itertools.pairwise(starts))
    outcomes = set()
    seen = set()
    for ends_at in range(operations):
        _, _, log = await outcome(ends_at, groups, end, seed=ends_at)
        left = on_disk(log)
        if left in seen:
            log.directory.close()
            continue
        seen.add(left)
        context = f"before operation {ends_at} of {operations}"
        pairs = log.pairs
        assert newest(pairs) == latest, context
        offsets = [offset for offset, _, _ in pairs]
        assert offsets == sorted(set(offsets)), context
        state = []
        for low, high in ranges:
            found, old, new = (
                [pair for pair in some if low <= pair[0] < high] for some in (pairs, before, after)
            )
            assert found in (old, new), context
            state.append("new" if found == new else "old")
        outcomes.add(tuple(state))
        assert not [name for name in log.names if name.endswith(TEMPORARY)], context
        # the next cleaning completes the work
        log.log.update_config(compacted(segment_bytes=10_000_000))
        await log.clean_again()
        assert log.latest == latest, context
        log.directory.close()
    assert len(outcomes) == groups + 1, outcomes  # the groups are replaced one after the other


@pytest.mark.parametrize("operation", ["pwritev", "sync", "rename", "sync_dir", "truncate", "open"])
async def test_a_disk_that_refuses_any_operation_loses_nothing(operation: str) -> None:
    """ENOSPC and EIO occur at each operation; readers see exactly one of the two sets."""
    for at in range(1, 30):
        clock = SteppedClock()
        files = MortalFiles(now_ms=clock.timestamp_ms)
        log = filled(files, clock, 3)
        latest = log.latest
        count = 0

        def nth(path: str, at: int = at) -> bool:
            nonlocal count
            count += "orders-0" in path
            return count == at

        files.fail(operation, matches=nth)
        try:
            await log.clean()
        except KafkaStorage:
            pass
        files.heal()
        assert log.latest == latest
        files.crash()
        again = reopened(files, clock)
        assert again.latest == latest
        if count < at:
            return


@pytest.mark.parametrize("end", ["go on", "kill", "power"])
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_swap_for_which_a_descriptor_was_missing_is_ended_by_the_next_run(
    end: str, at: int
) -> None:
    """An interrupted swap must be finished before the next run begins.

    Regression: the second copy replaced the first one's `.swap` file, which was then renamed to the
    original's name and deleted a minute later, with the only records of their keys.
    """
    clock = SteppedClock()
    files = MortalFiles(now_ms=clock.timestamp_ms)
    log = filled(files, clock, 3)
    latest = log.latest
    swapped = itertools.count(1)

    def behind_a_swap(path: str) -> bool:
        there = [one for one in files.listdir(path) if one.endswith(file_names.SWAP)]
        return bool(there) and next(swapped) == 2 * at  # the first operation is on the copy itself

    files.fail("sync_dir", errno.EMFILE, matches=behind_a_swap)
    with pytest.raises(KafkaStorage):
        await log.cleaner.clean_all()
    assert log.directory.disk.failure is None
    assert [name for name in log.names if name.endswith(file_names.SWAP)]
    files.heal()
    if end != "go on":
        files.ends_at = files.done + 12  # in the middle of the next run
    try:
        await log.cleaner.clean_all()
    except Crash:
        files.ends_at = None
        files.crash() if end == "kill" else files.power_cut(None)
        log = reopened(files, clock)
    assert log.latest == latest
    assert not [name for name in log.names if name.endswith(file_names.SWAP)]
    log.directory.purge()
    log.directory.close()
    assert reopened(files, clock).latest == latest


async def test_a_copy_that_could_not_be_renamed_is_removed_whole() -> None:
    """The full disk refuses the second of the renames to ``.swap``.

    Regression: `.log.swap` stayed. A later start added it to the log, although its records had been
    cleaned again, into a larger segment.
    """
    clock = SteppedClock()
    files = MortalFiles(now_ms=clock.timestamp_ms)
    log = filled(files, clock, 3)
    latest = log.latest
    last = log.log.segments[4].base_offset
    name = file_names.segment_file("", last, file_names.INDEX) + file_names.CLEANED
    fault = files.fail("rename", errno.ENOSPC, matches=lambda path: path.endswith(name))
    with pytest.raises(KafkaStorage):
        await log.clean()
    assert not fault.times
    assert log.directory.disk.failure is None
    assert not [one for one in log.names if one.endswith((file_names.SWAP, file_names.CLEANED))]
    log.log.update_config(compacted(segment_bytes=10_000_000))
    log.directory.checkpoints.cleaned_offsets.note(TP, 0)
    await log.cleaner.clean_all()
    assert len(log.log.segments) == 2
    log.directory.purge()
    pairs = log.pairs
    log.directory.close()
    again = reopened(files, clock)
    assert again.pairs == pairs
    assert again.latest == latest


def check_indexes(log: CleanedLog) -> None:
    for segment in log.log.segments:
        for position, header in segment.headers():
            assert segment.copy().position_of(header.base_offset) == position


@pytest.mark.parametrize("renamed", [2, 3])
@pytest.mark.parametrize("end", ["kill", "power", "names"])
async def test_a_crash_while_a_copy_is_removed(renamed: int, end: str) -> None:
    """The error occurs after some or all of the renames to ``.swap``.

    Regression: `.log.swap` was removed before `.index.swap`, which a start then made the index of
    the original segment.
    """
    for ends_at in itertools.count(0):
        clock = SteppedClock()
        files = MortalFiles(now_ms=clock.timestamp_ms)
        log = CleanedLog(files, compacted(), clock=clock)
        log.put((b"k9", b"old"))
        for key in (b"k0", b"k1", b"k2"):
            log.put((key, bytes(200)))
        log.roll()
        log.put((b"k9", b"new"), roll=True)
        log.log.flush()
        for directory in ("/data/orders-0", "/data", "/"):
            files.sync_dir(directory)
        log.directory.note_recovery_points()
        log.directory.save(log.directory.checkpoints.recovery_points)
        files.sync_dir("/data")
        latest = log.latest

        def is_interrupted(path: str, files: MortalFiles = files) -> bool:
            names = files.listdir("/data/orders-0")
            return len([one for one in names if one.endswith(file_names.SWAP)]) == renamed

        files.fail("sync_dir" if renamed == 3 else "rename", errno.EMFILE, matches=is_interrupted)

        def discard(copy: GroupRewriter, files: MortalFiles = files, at: int = ends_at) -> None:
            files.ends_at = files.done + at
            DISCARD(copy)
            files.ends_at = None

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GroupRewriter, "discard", discard)
            with pytest.raises((Crash, KafkaStorage)) as stopped:
                await log.clean()
        if stopped.type is KafkaStorage:
            assert ends_at
            assert not [one for one in log.names if one.endswith(TEMPORARY)]
            return
        files.ends_at = None
        if end == "kill":
            files.crash()
        else:
            files.power_cut(random.Random(ends_at) if end == "names" else None, ordered=False)
        log = reopened(files, clock)
        assert not [one for one in log.names if one.endswith(TEMPORARY)]
        assert log.latest == latest
        check_indexes(log)
