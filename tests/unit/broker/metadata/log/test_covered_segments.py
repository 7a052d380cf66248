"""Damaged segments that a snapshot has replaced: no record is lost with them."""

from __future__ import annotations

import pytest

from aiokq.broker.metadata.log.cluster_metadata_log import LogLimits
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.metadata.metadata_logs import DIRECTORY, memory, opened, read, topic

TOPICS = {f"t{number}" for number in range(9)}


def segments(files: MemoryFiles) -> list[str]:
    return [name for name in files.listdir(DIRECTORY) if name.endswith(".log")]


@pytest.fixture
def files() -> MemoryFiles:
    """A log of several segments before its newest snapshot, and of records after it."""
    made = memory()
    log = opened(made, limits=LogLimits(segment_bytes=300, kept_snapshots=3))
    log.snapshot()
    for number in range(7):
        log.append(*topic(number))
    log.snapshot()
    log.append(*topic(7))
    log.append(*topic(8))
    log.close(clean=False)
    assert len(segments(made)) > 4
    return made


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("clean", [False, True])
def test_records_after_the_snapshot_survive(files: MemoryFiles, number: int, clean: bool) -> None:
    """The recovery of a log would cut it at the damage."""
    name = segments(files)[number]
    before = {one: files.read_bytes(f"{DIRECTORY}/{one}") for one in segments(files)}
    files.corrupt(f"{DIRECTORY}/{name}", 80, 0x10)
    assert set(read(files).image.topics) == TOPICS
    log = opened(files, clean=clean)
    log.append(*topic(10))
    files.power_cut()
    assert set(read(files).image.topics) == TOPICS | {"t10"}
    if not clean:
        kept = [one for one in files.listdir(DIRECTORY) if one.endswith(".corrupt-0")]
        assert kept == [f"{one}.corrupt-0" for one in list(before)[: number + 1]]
        for one in list(before)[:number]:
            assert files.read_bytes(f"{DIRECTORY}/{one}.corrupt-0") == before[one]


def test_sound_segments_stay(files: MemoryFiles) -> None:
    """The older snapshot needs them."""
    before = segments(files)
    opened(files)
    assert segments(files)[: len(before)] == before


def test_a_missing_segment_before_the_snapshot(files: MemoryFiles) -> None:
    """What is before the gap is of no use."""
    first, second, *_ = segments(files)
    files.remove(f"{DIRECTORY}/{second}")
    opened(files).append(*topic(10))
    assert set(read(files).image.topics) == TOPICS | {"t10"}
    assert files.exists(f"{DIRECTORY}/{first}.corrupt-0")
