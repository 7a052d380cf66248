"""Selection of logs to clean: many logs, several cleaners, one event loop."""

from __future__ import annotations

import asyncio
import errno

import pytest

from aiokq.broker.log.cleaner import manager as manager_module
from aiokq.broker.log.cleaner.manager import LogCleanerManager
from aiokq.broker.log.cold_reads import ColdReads
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.core.offload import InlineOffload
from aiokq.core.types import TopicPartition
from tests.unit.broker.log.cleaning import DAY_MS, CleanedLog, compacted
from tests.unit.broker.log.samples import NOW_MS, append, batch


def managed(log: CleanedLog) -> LogCleanerManager:
    return LogCleanerManager(
        log.clock, lambda: [log.directory], log.counters, ColdReads(InlineOffload())
    )


def add(log: CleanedLog, number: int, clean: int = 0, dirty: int = 1, **config: object):  # type: ignore[no-untyped-def]
    """Add a partition with clean and dirty records, each in its own segment."""
    name = TopicPartition("many", number)
    added = log.directory.open_partition(name, None, compacted(**config), now_ms=NOW_MS)
    for _ in range(clean + dirty):
        append(added, batch(b"x" * 100, timestamp_ms=NOW_MS))
        added.roll(NOW_MS)
    log.directory.checkpoints.cleaned_offsets.note(name, clean)
    return added


async def taken(manager: LogCleanerManager) -> list[PartitionLog]:
    """Take all logs that are due, in order."""
    logs = []
    while (found := await manager.take_dirtiest()) is not None:
        logs.append(found[1].log)
    return logs


async def test_the_dirtiest_of_those_that_are_due_comes_first() -> None:
    """The ratio says where cleaning frees most; a log whose lag has expired is due in any case."""
    log = CleanedLog()
    setting = {"min_cleanable_dirty_ratio": 0.2}
    half = add(log, 1, 5, 5, **setting)
    most = add(log, 2, 1, 9, **setting)
    add(log, 3, 9, 1, **setting)
    late = add(log, 4, 19, 1, **setting, max_compaction_lag_ms=DAY_MS)
    add(log, 5, 5, 0, **setting, max_compaction_lag_ms=DAY_MS)
    manager = managed(log)
    assert await taken(manager) == [most, half]
    assert log.counters.cleaner_dirty_percent.value == 10  # of the logs that were not taken
    log.clock.now_ms += DAY_MS + 1
    assert await taken(manager) == [late]
    manager.give_back(half)
    assert await taken(manager) == [half]


async def test_thousands_of_logs_are_looked_at_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one loop iteration requests would wait for all logs, every fifteen seconds."""
    monkeypatch.setattr(manager_module, "AT_ONCE", 10)
    log = CleanedLog()
    for number in range(100):
        add(log, number)
    turns = 0
    done = False

    async def others() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.get_running_loop().create_task(others())
    assert await managed(log).take_dirtiest() is not None
    done = True
    await beside
    assert turns >= 300 // 12


async def test_two_cleaners_never_take_the_same_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both iterate over all logs, with other tasks in between."""
    monkeypatch.setattr(manager_module, "AT_ONCE", 2)
    log = CleanedLog()
    logs = [add(log, number) for number in range(9)]
    manager = managed(log)
    first, second, third = await asyncio.gather(*(taken(manager) for _ in range(3)))
    assert len(first + second + third) == 9
    assert {id(one) for one in first + second + third} == {id(one) for one in logs}


async def test_a_log_that_is_deleted_meanwhile_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was the dirtiest when it was examined; its paths may belong to a new log by now."""
    monkeypatch.setattr(manager_module, "AT_ONCE", 1)
    log = CleanedLog()
    add(log, 0, 0, 9)
    other = add(log, 1, 5, 5)

    async def delete() -> None:
        await asyncio.sleep(0)
        log.directory.delete_partition(TopicPartition("many", 0))

    beside = asyncio.get_running_loop().create_task(delete())
    found = await managed(log).take_dirtiest()
    await beside
    assert found is not None
    assert found[1].log is other


async def test_nothing_is_read_from_the_disk_unless_a_lag_asks_for_it() -> None:
    """Reading a batch of each segment of each log would block the loop at a start."""
    log = CleanedLog()
    add(log, 1, 0, 5)
    log.directory.close()
    again = CleanedLog(log.files)
    again.directory.open_partition(TopicPartition("many", 1), None, compacted(), now_ms=NOW_MS)
    log.files.fail("preadinto", errno.EIO)
    log.files.fail("pread", errno.EIO)
    assert len(await taken(managed(again))) == 1
    assert not again.counters.uncleanable_partitions.value
    assert not again.counters.uncleanable_bytes.value


async def test_a_log_that_cannot_be_looked_at_is_uncleanable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Kafka; a warning every fifteen seconds would not help."""
    log = CleanedLog()
    add(log, 1, 0, 5)
    other = add(log, 2, 0, 5)
    log.directory.close()
    again = CleanedLog(log.files)
    for number in (1, 2):
        again.directory.open_partition(
            TopicPartition("many", number),
            None,
            compacted(max_compaction_lag_ms=DAY_MS, index_interval_bytes=4096),
            now_ms=NOW_MS,
        )
    log.files.corrupt(f"{other.directory}/{0:020d}.log", 16)
    manager = managed(again)
    [found] = await taken(manager)
    assert found.topic_partition.partition == 1
    assert await taken(manager) == []
    assert again.counters.uncleanable_partitions.value == 1
    assert again.counters.uncleanable_bytes.value == other.size_bytes
    assert caplog.text.count("no longer compacted") == 1
    again.directory.delete_partition(TopicPartition("many", 2))
    assert await taken(manager) == []
    assert not again.counters.uncleanable_partitions.value
    assert not again.counters.uncleanable_bytes.value


async def test_what_was_put_off_comes_again_when_all_is_resumed() -> None:
    """A lack of disk space for one log must not keep others from being compacted."""
    log = CleanedLog()
    first, second = add(log, 1, 0, 9), add(log, 2, 5, 5)
    manager = managed(log)
    manager.put_off(first)
    assert await taken(manager) == [second]
    manager.resume()
    assert await taken(manager) == [first]


async def test_a_lag_that_is_over_is_a_metric() -> None:
    """The metric shows whether max.compaction.lag.ms is kept."""
    log = CleanedLog()
    add(log, 1, 0, 2, max_compaction_lag_ms=DAY_MS)
    gauge = log.counters.cleaner_max_delay_seconds
    log.clock.now_ms = NOW_MS + DAY_MS
    assert await managed(log).take_dirtiest() is not None  # it was never compacted
    assert gauge.value == 0
    log.clock.now_ms = NOW_MS + DAY_MS + 90_000
    assert await managed(log).take_dirtiest() is not None
    assert gauge.value == 90
