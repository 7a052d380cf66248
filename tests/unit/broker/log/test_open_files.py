"""aiokq.broker.log.open_files: the limit on descriptors of old segments."""

from __future__ import annotations

import sys
import threading

from aiokq.broker.log.open_files import OpenFiles
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.log.samples import append, batch, fetched, open_partition

SIZE = len(batch(b"0"))


def log_of(segments: int, limit: int):
    log = open_partition(MemoryFiles(), segment_bytes=SIZE)
    log._segments._open_files._limit = limit
    for index in range(segments):
        append(log, batch(b"%d" % index))
    return log


def open_bases(log) -> list[int]:
    return [segment.base_offset for segment in log.segments if segment.is_open]


def test_the_segment_that_was_not_read_for_longest_is_let_go() -> None:
    """Consumers of a thousand old segments must not take a thousand descriptors."""
    log = log_of(6, limit=2)
    assert open_bases(log) == [5]  # the newest segment
    for offset in (0, 1, 0, 2):
        fetched(log, offset, SIZE)
    assert open_bases(log) == [0, 2, 5]


def test_a_response_that_is_being_sent_keeps_its_file() -> None:
    """If it were closed, the client would get half a response or another file's bytes."""
    log = log_of(6, limit=1)
    sent = log.read(0, SIZE).fragments
    for offset in (1, 2, 3):
        fetched(log, offset, SIZE)
    assert open_bases(log) == [3, 5]
    assert not sent[0].file.closed
    assert sent[0].read()[:8] == bytes(8)


def test_one_read_over_more_segments_than_the_cap_is_whole() -> None:
    """The limit applies to idle files, not to those in use."""
    log = log_of(6, limit=2)
    assert len(fetched(log, 0, 5 * SIZE)) == 5 * SIZE
    assert len(open_bases(log)) == 3


def test_several_threads_may_open_and_close_at_once() -> None:
    """A stop does that when it syncs the logs of thousands of segments.

    If the close of a log failed, the next start would recover the whole directory.
    """
    files = OpenFiles(limit=1)
    failures: list[BaseException] = []

    class Opened:
        def release(self) -> None:
            files.closed(self)

    def use() -> None:
        try:
            for _ in range(3000):
                files.used(Opened())
        except RuntimeError as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures == []
    assert len(files) == 1


def test_files_that_are_closed_or_deleted_do_not_count() -> None:
    """Otherwise open files would be closed because of files that no longer exist."""
    log = log_of(6, limit=4)
    files = log._segments._open_files
    for offset in (0, 1, 2):
        fetched(log, offset, SIZE)
    assert len(files) == 3
    log.delete_records(2)
    log.purge()
    assert len(files) == 1
    log.close()
    assert len(files) == 0


def test_after_a_start_the_newest_segment_counts_too() -> None:
    """Reading one record of each of 10,000 partitions must not take 10,000 descriptors."""
    files = MemoryFiles()
    log = open_partition(files)
    append(log, batch())
    log.close()
    log = open_partition(files)
    log._segments._open_files._limit = 1
    fetched(log)
    assert len(log._segments._open_files) == 1
    log.segments[-1].release()
    assert append(log, batch()).base_offset == 1
    assert len(log._segments._open_files) == 1


def test_out_of_descriptors_old_segments_go_first_and_the_written_ones_too() -> None:
    """Regression: with more partitions than descriptors the newest segments took all of them."""
    log = log_of(3, limit=2)
    fetched(log, 0, SIZE)
    cache = log._segments._open_files
    assert open_bases(log) == [0, 2]
    assert cache.give_up()
    assert open_bases(log) == [2]
    assert cache.give_up()
    assert open_bases(log) == []
    assert not cache.give_up()
    append(log, batch(b"3"))
    assert len(fetched(log, 0, 4 * SIZE)) == 4 * SIZE
    log.close()
    assert not cache.give_up()


def test_a_segment_that_is_given_up_unsynced_is_synced() -> None:
    """The descriptor of a write and that of its sync need not be the same."""
    log = open_partition(MemoryFiles(), segment_bytes=10 * SIZE)
    append(log, batch(b"0"))
    assert log._segments._open_files.give_up()
    log.flush()
    assert log._segments._open_files.give_up()
    append(log, batch(b"1"))
    assert len(fetched(log, 0, 2 * SIZE)) == 2 * SIZE
