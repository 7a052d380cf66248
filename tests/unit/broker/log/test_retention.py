"""Retention: the segments that policies select, and their deletion from a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from aiokq.broker.log import file_names
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.retention import (
    KAFKA_POLICIES,
    BeforeLogStart,
    Expired,
    RetainedLog,
    TooLarge,
    TooOld,
    expired,
)
from aiokq.core.errors import KafkaStorage, OffsetOutOfRange
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    config,
    open_partition,
    seen,
    values,
)

DAY_MS = 86_400_000


class Part(NamedTuple):
    """The figures of a segment without its files."""

    base_offset: int
    size: int
    timestamp_ms: int = NOW_MS

    def largest_timestamp_ms(self) -> int:
        return self.timestamp_ms


def view(
    segments: Sequence[Part],
    end: int,
    *,
    start: int = 0,
    high_watermark: int | None = None,
    **settings: object,
) -> RetainedLog:
    return RetainedLog(
        segments,
        start,
        end,
        end if high_watermark is None else high_watermark,
        config(**settings),
        NOW_MS,
    )


THREE = [Part(0, 100), Part(10, 100), Part(20, 50)]


# --- Policies


@pytest.mark.parametrize(("start", "count"), [(0, 0), (9, 0), (10, 1), (19, 1), (25, 2), (30, 2)])
def test_segments_before_the_log_start_go_whole(start, count):
    """A segment is deleted when all its records are before the log start, except the newest."""
    assert BeforeLogStart().expired(view(THREE, 30, start=start)) == count


@pytest.mark.parametrize(
    ("limit", "count"), [(-1, 0), (300, 0), (250, 0), (151, 0), (150, 1), (50, 2), (49, 2), (0, 3)]
)
def test_retention_bytes_never_leaves_less_than_it_says(limit, count):
    """retention.bytes is a lower bound for what is kept."""
    assert TooLarge().expired(view(THREE, 30, retention_bytes=limit)) == count


def test_retention_ms_goes_by_the_newest_record_and_stops_at_the_first_that_is_young():
    """Later segments are kept as well, because a gap in the offsets would be a lost record."""
    old = NOW_MS - DAY_MS
    log = [Part(0, 1, old - 1), Part(5, 1, old), Part(6, 1, old - 1), Part(7, 1, NOW_MS)]
    assert TooOld().expired(view(log, 8, retention_ms=DAY_MS)) == 1
    assert TooOld().expired(view(log, 8, retention_ms=DAY_MS - 1)) == 3
    assert TooOld().expired(view(log, 8, retention_ms=-1)) == 0


def test_a_topic_that_is_only_compacted_keeps_what_is_old_or_large():
    """retention.ms has no effect on a compacted topic, and must not delete its keys."""
    settings = {"cleanup_policy": ("compact",), "retention_ms": 0, "retention_bytes": 0}
    log = view([Part(0, 100, 0), *THREE[1:]], 30, **settings)
    assert expired(log, KAFKA_POLICIES) == Expired(0, "")
    both = log._replace(config=log.config._replace(cleanup_policy=("compact", "delete")))
    assert expired(both, KAFKA_POLICIES).segments == 3
    hidden = log._replace(log_start_offset=12)
    assert expired(hidden, KAFKA_POLICIES) == Expired(1, "before the log start")


def test_what_is_not_committed_stays():
    """Followers still need these records; without them none of the replicas could lead."""
    log = view(THREE, 30, high_watermark=19, retention_bytes=0)
    assert expired(log, KAFKA_POLICIES).segments == 1


def test_an_empty_newest_segment_stays():
    """Otherwise it would be deleted and recreated every five minutes."""
    log = view([Part(0, 10, 0), Part(5, 0, 0)], 5, retention_ms=0)
    assert expired(log, KAFKA_POLICIES) == Expired(1, "retention.ms")


def test_a_policy_of_ones_own_counts_beside_kafkas():
    """Users may limit the number of records, for which Kafka has no setting."""

    class AtMost:
        reason = "more than 15 records"

        def expired(self, log: RetainedLog) -> int:
            bases = [segment.base_offset for segment in log.segments[1:]]
            return sum(1 for base in bases if log.log_end_offset - base >= 15)

    found = expired(view(THREE, 30), [*KAFKA_POLICIES, AtMost()])
    assert found == Expired(1, "more than 15 records")


# --- A log


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles(now_ms=lambda: NOW_MS)


def rolled(log: PartitionLog, *timestamps_ms: int) -> None:
    """Write a segment of one record for each time; the newest segment is not finished."""
    for index, timestamp_ms in enumerate(timestamps_ms):
        if index:
            log.roll(NOW_MS)
        append(log, batch(b"%d" % index, timestamp_ms=timestamp_ms))


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_old_segments_go_and_the_log_starts_behind_them(files):
    """A consumer that was too slow gets an error instead of other records."""
    log = open_partition(files, retention_ms=DAY_MS, message_timestamp_before_max_ms=2**63 - 1)
    rolled(log, NOW_MS - 3 * DAY_MS, NOW_MS - 2 * DAY_MS, NOW_MS)
    assert log.retain(KAFKA_POLICIES, NOW_MS) == 2
    assert (log.log_start_offset, bases(log), values(log, 2)) == (2, [2], [(2, b"2")])
    with pytest.raises(OffsetOutOfRange):
        log.read(1, 100)
    assert log.retain(KAFKA_POLICIES, NOW_MS) == 0


def test_a_log_whose_records_are_all_old_goes_on_empty_where_it_ended(files):
    """The newest segment is deleted too; offsets are never reused."""
    log = open_partition(files, retention_ms=DAY_MS)
    rolled(log, NOW_MS - 3 * DAY_MS, NOW_MS - 2 * DAY_MS)
    assert log.retain(KAFKA_POLICIES, NOW_MS) == 2
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (2, 2, 0)
    assert append(log, batch(b"next")).base_offset == 2
    log.close()
    again = open_partition(files, log_start_offset=2)
    assert values(again, 2) == [(2, b"next")]


def test_a_read_that_has_begun_goes_on_over_deleted_segments(files):
    """Deletions neither block reads nor cut them short."""
    log = open_partition(files, retention_bytes=0)
    rolled(log, NOW_MS, NOW_MS)
    read = log.read(0, 10_000)
    log.retain(KAFKA_POLICIES, NOW_MS)
    log.purge()
    assert sum(len(fragment.read()) for fragment in read.fragments) == read.size > 0


def test_files_are_renamed_at_once_and_removed_by_purge(files):
    """file.delete.delay.ms leaves time to undo a mistake by hand."""
    log = open_partition(files, retention_bytes=0)
    rolled(log, NOW_MS, NOW_MS)
    log.retain(KAFKA_POLICIES, NOW_MS)
    assert f"{0:020d}.log{file_names.DELETED}" in files.listdir(DIRECTORY)
    log.purge()
    assert not [name for name in files.listdir(DIRECTORY) if file_names.DELETED in name]


def test_after_a_restart_one_time_entry_tells_the_age(files):
    """Retention over a thousand logs must not load all of their indexes."""
    log = open_partition(files, index_interval_bytes=1)
    rolled(log, NOW_MS - 3 * DAY_MS, NOW_MS)
    log.close()
    log = open_partition(files, retention_ms=DAY_MS)
    files.fail("read_bytes", times=None)  # loading an index would call it
    assert seen(lambda: log.retain(KAFKA_POLICIES, NOW_MS)) == 1
    files.heal()
    assert bases(log) == [1]


def test_a_missing_time_index_is_made_again_from_the_log(files):
    """A lost index must neither keep old records for ever nor delete young ones."""
    log = open_partition(files)
    rolled(log, NOW_MS - 3 * DAY_MS, NOW_MS, NOW_MS)
    log.close()
    files.remove(file_names.segment_file(DIRECTORY, 0, file_names.TIME_INDEX))
    files.remove(file_names.segment_file(DIRECTORY, 1, file_names.TIME_INDEX))
    log = open_partition(files, retention_ms=DAY_MS)
    assert seen(lambda: log.retain(KAFKA_POLICIES, NOW_MS)) == 1


def test_records_without_a_time_are_as_old_as_their_file(files):
    """Records without timestamps must be deleted some time, and not at once."""
    now = [NOW_MS]
    files = MemoryFiles(now_ms=lambda: now[0])
    log = open_partition(files, retention_ms=DAY_MS)
    rolled(log, -1, -1)
    assert log.retain(KAFKA_POLICIES, NOW_MS) == 0
    assert log.retain(KAFKA_POLICIES, NOW_MS + DAY_MS + 1) == 2


def test_epochs_before_the_new_start_are_forgotten(files):
    """A follower must not be referred to an epoch without records."""
    log = open_partition(files, retention_bytes=0)
    append(log, batch(b"a"), leader_epoch=1)
    log.roll(NOW_MS)
    append(log, batch(b"b"), leader_epoch=4)
    log.retain(KAFKA_POLICIES, NOW_MS)
    assert [tuple(entry) for entry in log.epochs.entries] == [(4, 2)]


def test_a_disk_that_refuses_leaves_the_log_readable(files):
    """An I/O error in a background job must not lose acknowledged records."""
    log = open_partition(files, retention_bytes=0)
    rolled(log, NOW_MS, NOW_MS)
    files.fail("open", matches=lambda path: path.endswith(".log"), times=None)
    with pytest.raises(KafkaStorage):
        log.retain(KAFKA_POLICIES, NOW_MS)
    files.heal()
    assert (log.log_start_offset, values(log)) == (0, [(0, b"0"), (1, b"1")])


# --- Rolls by age


def test_an_idle_segment_is_rolled_when_its_time_is_over(files):
    """The newest segment is never compacted, so an idle log would keep its records in it."""
    log = open_partition(files, segment_ms=DAY_MS)
    append(log, batch(b"a", timestamp_ms=NOW_MS))
    assert not log.roll_idle(NOW_MS + DAY_MS)
    assert log.roll_idle(NOW_MS + DAY_MS + 1)
    assert bases(log) == [0, 1]
    assert not log.roll_idle(NOW_MS + 9 * DAY_MS)  # an empty segment stays


def test_an_import_of_old_records_does_not_roll_with_each_look(files):
    """Otherwise records of last year, written today, would get a segment per retention run."""
    log = open_partition(files, segment_ms=DAY_MS)
    append(log, batch(b"a", timestamp_ms=NOW_MS - 300 * DAY_MS))
    assert not log.roll_idle(NOW_MS + DAY_MS)
    assert log.roll_idle(NOW_MS + DAY_MS + 1)


def test_a_segment_that_was_loaded_is_as_old_as_its_last_write(files):
    """Otherwise a broker restarted every day would never roll segments that are idle for a week."""
    log = open_partition(files, segment_ms=7 * DAY_MS)
    append(log, batch(b"a", timestamp_ms=NOW_MS))
    log.close()
    log = open_partition(files, now_ms=NOW_MS + 7 * DAY_MS, segment_ms=7 * DAY_MS)
    assert log.roll_idle(NOW_MS + 7 * DAY_MS + 1)


def test_a_compacted_log_rolls_within_its_largest_compaction_lag(files):
    """max.compaction.lag.ms applies to every record, also in the newest segment."""
    settings = {"cleanup_policy": ("compact",), "max_compaction_lag_ms": 1000}
    log = open_partition(files, **settings)
    append(log, batch(b"a", timestamp_ms=NOW_MS))
    append(log, batch(b"b", timestamp_ms=NOW_MS + 1001))
    assert bases(log) == [0, 1]
    assert log.roll_idle(NOW_MS + 5000)


# --- Preallocation


def test_a_preallocated_file_has_its_size_at_once_and_is_cut_when_it_is_finished(files):
    """Zeros after the last batch of a finished segment would look like a torn tail."""
    log = open_partition(files, preallocate=True, segment_bytes=4096)
    path = file_names.segment_file(DIRECTORY, 0, file_names.LOG)
    assert files.stat_size(path) == 4096
    append(log, batch(b"a"))
    log.roll(NOW_MS)
    append(log, batch(b"b"))
    assert files.stat_size(path) == log.segments[0].size
    assert files.stat_size(file_names.segment_file(DIRECTORY, 1, file_names.LOG)) == 4096
    log.close()
    assert (
        files.stat_size(file_names.segment_file(DIRECTORY, 1, file_names.LOG))
        == log.segments[1].size
    )
    assert values(open_partition(files)) == [(0, b"a"), (1, b"b")]


def test_a_kill_leaves_zeros_that_recovery_removes(files):
    """Unused preallocated bytes are no damage, and are not set aside."""
    log = open_partition(files, preallocate=True, segment_bytes=4096)
    append(log, batch(b"a"))
    log.roll(NOW_MS)
    append(log, batch(b"b"))
    files.crash()
    log = open_partition(files, clean=False)
    assert values(log) == [(0, b"a"), (1, b"b")]
    assert not [name for name in files.listdir(DIRECTORY) if file_names.CORRUPT in name]
