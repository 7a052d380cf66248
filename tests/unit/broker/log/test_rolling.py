"""Rolling: a log gets a new segment by size, by age and when an index is full."""

from __future__ import annotations

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.rolling import RollLimits
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    config,
    open_partition,
    values,
)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def segment_names(files: MemoryFiles, suffix: str = file_names.LOG) -> list[str]:
    return [name for name in files.listdir(DIRECTORY) if name.endswith(suffix)]


def test_a_full_segment_makes_way_for_the_next(files: MemoryFiles) -> None:
    """Reads must cross from one file to the next without a gap."""
    data = batch(b"x" * 300)
    log = open_partition(files, segment_bytes=3 * len(data))
    for _ in range(10):
        append(log, data)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    assert segment_names(files) == [f"{base:020d}.log" for base in (0, 3, 6, 9)]
    assert [offset for offset, _ in values(log)] == list(range(10))
    assert len(log.read(0, 2**31).fragments) == 4


def test_a_segment_rolls_by_the_time_of_its_records(files: MemoryFiles) -> None:
    """Retention by time deletes whole segments, which must not span more than segment.ms."""
    log = open_partition(files, segment_ms=1000)
    append(log, batch(timestamp_ms=NOW_MS))
    append(log, batch(timestamp_ms=NOW_MS + 1000))
    assert len(log.segments) == 1
    append(log, batch(timestamp_ms=NOW_MS + 1001))
    assert len(log.segments) == 2


def test_a_segment_without_timestamps_rolls_by_the_clock(files: MemoryFiles) -> None:
    """Batches of timestamp -1, as of old producers, would otherwise never roll by time."""
    log = open_partition(files, segment_ms=1000)
    append(log, batch(timestamp_ms=-1))
    append(log, batch(timestamp_ms=-1), now_ms=NOW_MS + 1000)
    assert len(log.segments) == 1
    append(log, batch(timestamp_ms=-1), now_ms=NOW_MS + 1001)
    assert len(log.segments) == 2


def test_a_full_index_rolls(files: MemoryFiles) -> None:
    """With entries only up to segment.index.bytes, lookups would walk farther and farther."""
    log = open_partition(files, segment_index_bytes=24, index_interval_bytes=0)
    for _ in range(7):
        append(log, batch())
    assert len(log.segments) > 1
    assert [offset for offset, _ in values(log)] == list(range(7))


@pytest.mark.parametrize("index_bytes", [4, 8, 12, 24])
def test_an_index_with_hardly_any_room_rolls_no_empty_segment(
    files: MemoryFiles, index_bytes: int
) -> None:
    """Two segments of one base offset would share one file (KAFKA-6388)."""
    log = open_partition(files, segment_index_bytes=index_bytes, index_interval_bytes=0)
    for index in range(5):
        append(log, batch(b"%d" % index))
    bases = [segment.base_offset for segment in log.segments]
    assert bases == sorted(set(bases))
    assert [offset for offset, _ in values(log)] == list(range(5))
    log.close()
    assert [offset for offset, _ in values(open_partition(files, clean=False))] == list(range(5))


def test_jitter_takes_logs_apart(files: MemoryFiles) -> None:
    """A thousand logs created together would otherwise all roll in the same second."""
    settings = config(segment_ms=100_000, segment_jitter_ms=50_000)
    limits = [RollLimits.of(settings, f"orders-{index}-0").segment_ms for index in range(8)]
    assert all(50_000 < limit <= 100_000 for limit in limits)
    assert len(set(limits)) == 8
    log = open_partition(files, segment_ms=100_000, segment_jitter_ms=50_000)
    append(log, batch())
    append(log, batch(timestamp_ms=NOW_MS + 100_001))
    assert len(log.segments) == 2


def test_roll_of_an_empty_segment_does_nothing(files: MemoryFiles) -> None:
    """There cannot be two files of the same base offset."""
    log = open_partition(files)
    log.roll(NOW_MS)
    assert len(log.segments) == 1
