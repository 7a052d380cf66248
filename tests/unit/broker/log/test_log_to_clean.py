"""aiokq.broker.log.cleaner.log_to_clean: the log that is compacted next, and up to which offset."""

from __future__ import annotations

import pytest

from aiokq.broker.log.cleaner.log_to_clean import LogToClean, log_to_clean, never_compacted
from aiokq.records.control import ControlType
from tests.unit.broker.log.cleaning import DAY_MS, CleanedLog, compacted
from tests.unit.broker.log.samples import NOW_MS


@pytest.fixture
def log() -> CleanedLog:
    return CleanedLog()


def looked_at(log: CleanedLog, cleaned: int | None = None, **config: object) -> LogToClean:
    log.log.update_config(compacted(**config))
    return log_to_clean(log.log, cleaned, log.clock.now_ms)


def test_an_active_segment_alone_is_nothing_to_clean(log: CleanedLog) -> None:
    """Records are appended to it, so a log of one segment is never due."""
    log.put((b"a", b"1"), (b"a", b"2"))
    found = looked_at(log)
    assert (found.first_dirty_offset, found.upper_offset, found.dirty_bytes) == (0, 0, 0)
    assert not found.is_due


def test_the_ratio_is_of_the_bytes_that_no_run_has_cleaned(log: CleanedLog) -> None:
    """min.cleanable.dirty.ratio compares the work with its gain."""
    log.put((b"a", b"x" * 300), roll=True)
    first = log.log.size_bytes
    log.put((b"b", b"x" * 100), roll=True)
    second = log.log.size_bytes - first
    log.put((b"c", b"x" * 900))
    found = looked_at(log, 1, min_cleanable_dirty_ratio=0.5)
    assert (found.clean_bytes, found.dirty_bytes) == (first, second)
    assert found.dirty_ratio == second / (first + second)
    assert not found.is_due
    assert looked_at(log, 1, min_cleanable_dirty_ratio=0.1).is_due
    assert looked_at(log, None, min_cleanable_dirty_ratio=0.99).is_due


@pytest.mark.parametrize("checkpoint", [-5, 1, 99])
def test_a_checkpoint_outside_of_the_log_starts_at_its_start(
    log: CleanedLog, checkpoint: int
) -> None:
    """Retention passed it or the log was truncated, so nothing after the start was cleaned."""
    for n in range(4):
        log.put((b"%d" % n, b"1"), roll=True)
    log.log.delete_records(2)
    assert looked_at(log, checkpoint).first_dirty_offset == 2
    assert looked_at(log, 3).first_dirty_offset == 3


def test_records_younger_than_the_compaction_lag_stay(log: CleanedLog) -> None:
    """min.compaction.lag.ms guarantees readers that they see each record for that time."""
    log.put((b"a", b"1"), roll=True, timestamp_ms=NOW_MS - 1000)
    log.put((b"a", b"2"), roll=True, timestamp_ms=NOW_MS - 10)
    log.put((b"a", b"3"), roll=True, timestamp_ms=NOW_MS - 1000)
    assert looked_at(log, min_compaction_lag_ms=100).upper_offset == 1
    assert looked_at(log, min_compaction_lag_ms=5).upper_offset == 3
    assert looked_at(log).upper_offset == 3


def test_a_record_older_than_the_longest_lag_makes_its_log_due(log: CleanedLog) -> None:
    """max.compaction.lag.ms guarantees that a deleted value is removed in time."""
    log.put((b"big", b"x" * 5000), roll=True)
    log.put((b"a", b"1"), roll=True, timestamp_ms=NOW_MS - DAY_MS)
    settings = {"min_cleanable_dirty_ratio": 0.9}
    assert not looked_at(log, 1, **settings).is_due
    assert not looked_at(log, 1, **settings, max_compaction_lag_ms=DAY_MS).is_due
    assert looked_at(log, 1, **settings, max_compaction_lag_ms=DAY_MS - 1).is_due


def test_the_longest_lag_ends_a_segment_too(log: CleanedLog) -> None:
    """The newest segment cannot be compacted, so max.compaction.lag.ms limits segment.ms too."""
    log.log.update_config(compacted(max_compaction_lag_ms=1000))
    log.put((b"a", b"1"))
    log.clock.now_ms += 1001
    log.put((b"a", b"2"))
    assert [segment.base_offset for segment in log.log.segments] == [0, 1]


def test_an_open_transaction_bounds_what_is_cleaned(log: CleanedLog) -> None:
    """Only whole segments before the last stable offset are cleaned."""
    log.put((b"a", b"1"), roll=True)
    log.put((b"a", b"2"))
    log.transact(1, 0, (b"a", b"3"))
    log.roll()
    log.put((b"a", b"4"), roll=True)
    assert looked_at(log).upper_offset == 1
    log.end(1, ControlType.COMMIT)
    log.roll()
    assert looked_at(log).upper_offset == 5


def test_what_was_never_compacted_is_behind_the_checkpoint_and_finished(log: CleanedLog) -> None:
    """Regression: the metric of an uncleanable log included compacted records."""
    sizes = []
    for key in (b"a", b"b", b"c"):
        before = log.log.size_bytes
        log.put((key, bytes(100 + len(sizes))), roll=True)
        sizes.append(log.log.size_bytes - before)
    log.put((b"d", b"4"))
    assert never_compacted(log.log, None) == sum(sizes)
    assert never_compacted(log.log, 1) == sizes[1] + sizes[2]
    assert never_compacted(log.log, 3) == 0
