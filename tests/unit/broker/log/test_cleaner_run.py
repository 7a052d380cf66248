"""A cleaning next to readers, appends, retention, limits and shutdown."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import pytest

from aiokq import wire
from aiokq.broker.log import file_names
from aiokq.broker.log.batch_reading import read_batches
from aiokq.broker.log.cleaner import cleaner as cleaner_module
from aiokq.broker.log.cleaner.group_rewriter import group_segments
from aiokq.broker.log.cleaner.log_view import LogView, SegmentView
from aiokq.broker.log.cleaner.offset_map import new_offset_map
from aiokq.broker.log.cleaner.throttle import Throttle
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.log.producer_state import Origin
from aiokq.core.errors import KafkaStorage
from aiokq.core.types import TopicPartition
from aiokq.fastpath import crc32c
from aiokq.fastpath.broker import OffsetMap
from aiokq.records.header import iter_headers
from aiokq.records.record import RawRecord, encode_batch, iter_records
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.harness import Broker
from tests.unit.broker.log.cleaning import CleanedLog, compacted
from tests.unit.broker.log.samples import NOW_MS, TP, append, batch, values

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
LEFTOVERS = (file_names.CLEANED, file_names.SWAP)


class SteppedOffload:
    """Runs work inline, after a loop iteration and a call of the test for each piece of work."""

    def __init__(self) -> None:
        self.steps = 0
        self.before: Callable[[int], None] = lambda step: None

    async def run(self, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        self.steps += 1
        self.before(self.steps)
        await asyncio.sleep(0)
        return fn(*args)

    async def run_sized(self, size: int, threshold: int, fn: Callable[[*Ts], R], *args: *Ts) -> R:
        return fn(*args)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a log of kilobytes take as many steps as one of gigabytes."""
    monkeypatch.setattr(cleaner_module, "STEP", 300)


def filled(offload: SteppedOffload | None = None, **settings: object) -> CleanedLog:
    settings = {"log_cleaner_io_buffer_size": 800, **settings}
    log = CleanedLog(offload=offload, config=compacted(segment_bytes=1500), **settings)
    for turn in range(6):
        for n in range(8):
            log.put((b"k%d" % ((n + turn) % 10), b"%d" % turn * 30))
        log.roll()
    log.put((b"k0", b"newest"))
    return log


async def test_appends_and_reads_go_on_at_every_step() -> None:
    """At any moment a reader sees what it would see without the cleaner, or less."""
    offload = SteppedOffload()
    log = filled(offload)
    model = dict(log.latest)
    everything = {pair[0]: pair for pair in log.pairs}

    def meanwhile(step: int) -> None:
        offset = log.put((b"k%d" % (step % 10), b"meanwhile %d" % step))
        everything[offset] = (offset, b"k%d" % (step % 10), b"meanwhile %d" % step)
        model[b"k%d" % (step % 10)] = b"meanwhile %d" % step
        assert log.latest == model
        offsets = [offset for offset, _, _ in log.pairs]
        assert offsets == sorted(set(offsets))
        assert all(everything[pair[0]] == pair for pair in log.pairs)

    offload.before = meanwhile
    statistics = await log.clean()
    assert offload.steps > 20
    assert statistics is not None
    assert statistics.records_kept < statistics.records_read
    assert log.latest == model


async def test_a_read_that_began_before_the_swap_ends_over_the_old_files() -> None:
    """A response that is being sent must neither change nor break off."""
    log = filled()
    before = log.log.read(0, 1 << 30)
    expected = b"".join(fragment.read() for fragment in before.fragments)
    await log.clean()
    log.directory.purge()
    assert b"".join(fragment.read() for fragment in before.fragments) == expected
    count = sum(
        1 for header, data in read_batches(before.fragments) for _ in iter_records(data, header)
    )
    assert count == 49


async def test_a_reader_slower_than_the_delete_retention_sees_final_values_in_order() -> None:
    """It may miss expired tombstones, as in Kafka, but no value and no order."""
    log = CleanedLog(config=compacted(delete_retention_ms=1000))
    found: dict[bytes | None, bytes | None] = {}
    offset, last = 0, -1
    for turn in range(30):
        for n in range(4):
            log.put((b"k%d" % n, b"%d" % turn), (b"k%d" % (n + 4), None if n % 2 else b"x"))
        log.roll()
        log.clock.now_ms += 2000
        await log.clean_again()
        await log.clean_again()
        [(header, data), *_] = read_batches(log.log.read(offset, 1).fragments)
        for record in iter_records(data, header):
            assert record.offset > last
            last = record.offset
            found[record.key] = record.value
        offset = header.next_offset
    while offset < log.log.log_end_offset:
        for header, data in read_batches(log.log.read(offset, 1).fragments):
            for record in iter_records(data, header):
                assert record.offset > last
                last = record.offset
                found[record.key] = record.value
            offset = header.next_offset
    assert {key: value for key, value in found.items() if value is not None} == log.latest
    assert log.latest == {b"k0": b"29", b"k1": b"29", b"k2": b"29", b"k3": b"29"} | {
        b"k4": b"x",
        b"k6": b"x",
    }


@pytest.mark.parametrize("step", range(1, 40, 3))
async def test_retention_in_the_middle_of_a_run_wins(step: int) -> None:
    """Deleted records must not return with the copy."""
    offload = SteppedOffload()
    log = filled(offload)

    def delete(now: int) -> None:
        if now == step:
            log.log.delete_records(20)
            log.directory.purge()

    offload.before = delete
    await log.clean()
    offload.before = lambda step: None
    if offload.steps < step:
        return
    assert log.log.log_start_offset == 20
    assert min(offset for offset, _, _ in log.pairs) >= 16
    assert not [name for name in log.names if name.endswith(LEFTOVERS)]
    latest = log.latest
    await log.clean_again()
    assert log.latest == latest


async def test_a_run_that_did_not_come_to_its_end_leaves_its_log_dirty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: retention deleted copied segments, and the checkpoint skipped the others."""
    log = filled()
    before = log.pairs
    monkeypatch.setattr(PartitionLog, "swap_segments", lambda *_: False)
    await log.clean()
    assert log.pairs == before
    assert not [name for name in log.names if name.endswith(LEFTOVERS)]
    assert log.directory.checkpoints.cleaned_offsets.get(TP) is None


@pytest.mark.parametrize("step", range(1, 40, 3))
async def test_a_deleted_topic_ends_its_run(step: int) -> None:
    """The directory is renamed during the run, so the cleaner abandons the log and continues."""
    offload = SteppedOffload()
    log = filled(offload)

    def delete(now: int) -> None:
        if now == step:
            log.directory.delete_partition(TP)

    offload.before = delete
    await log.clean()
    assert log.log.topic_partition not in log.directory.logs or offload.steps < step


@pytest.mark.parametrize("step", range(1, 50))
async def test_a_topic_made_anew_under_a_run_has_nothing_of_it(step: int) -> None:
    """The new topic has the same paths, and must not get checkpoint and files of the old run."""
    offload = SteppedOffload()
    log = filled(offload)
    made: list[PartitionLog] = []

    def make_anew(now: int) -> None:
        if now == step:
            log.directory.delete_partition(TP)
            made.append(log.directory.open_partition(TP, None, compacted(), now_ms=NOW_MS))
            append(made[0], batch(b"of another"))

    offload.before = make_anew
    await log.clean()
    if made:
        assert log.directory.checkpoints.cleaned_offsets.get(TP) is None
        left = log.files.listdir(made[0].directory)
        assert not [name for name in left if name.endswith(file_names.TEMPORARY_SUFFIXES)]
        assert values(made[0]) == [(0, b"of another")]


@pytest.mark.parametrize("step", range(1, 45, 4))
async def test_a_run_that_is_cancelled_leaves_no_file(step: int) -> None:
    """Shutdown does not wait for a gigabyte, and files of an unfinished run are removed."""
    offload = SteppedOffload()
    log = filled(offload)
    latest = log.latest
    task = asyncio.get_running_loop().create_task(log.clean())
    offload.before = lambda now: now == step and task.cancel() and None
    try:
        await task
    except asyncio.CancelledError:
        pass
    offload.before = lambda now: None
    assert log.latest == latest
    assert not [name for name in log.names if name.endswith(file_names.CLEANED)]
    log.directory.close()
    again = CleanedLog(log.files, compacted())
    assert again.latest == latest
    assert not [name for name in again.names if name.endswith(LEFTOVERS)]


async def test_the_cleaner_spends_no_more_bytes_a_second_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """log.cleaner.io.max.bytes.per.second leaves the rest of the disk's bandwidth to producers."""
    waits: list[float] = []
    sleep = asyncio.sleep

    async def slept(seconds: float) -> None:
        waits.append(seconds)
        log.clock.now_ms += int(seconds * 1000)
        await sleep(0)

    log = filled(log_cleaner_io_max_bytes_per_second=1000.0)
    size = log.log.size_bytes
    monkeypatch.setattr(asyncio, "sleep", slept)
    began = log.clock.now_ms
    statistics = await log.clean()
    assert statistics is not None
    spent = statistics.bytes_read + statistics.bytes_written
    assert statistics.bytes_read > size
    assert (log.clock.now_ms - began) / 1000 == pytest.approx(spent / 1000, rel=0.3)
    assert max(waits) < 1.0


async def test_tasks_share_one_limit() -> None:
    """Two cleaner threads with 1 MB/s each would exceed the limit."""
    now = 100.0
    throttle = Throttle(lambda: 1000.0, lambda: now)
    assert throttle.portion(1 << 20) == 100
    throttle._free_at = now + 0.02
    loop = asyncio.get_running_loop()
    began = loop.time()
    await throttle.spent(10)
    assert loop.time() - began >= 0.029


async def test_an_unlimited_cleaner_takes_whole_steps() -> None:
    """Kafka's default is the largest float, from which no step size can be computed."""
    throttle = Throttle(lambda: 1.7976931348623157e308, lambda: 0.0)
    assert throttle.portion(4 << 20) == 4 << 20
    await throttle.spent(1 << 40)


async def test_a_full_disk_only_puts_compaction_off() -> None:
    """Records can be read, and the next run may find space; other errors take the disk offline."""
    log = filled()
    latest = log.latest
    log.files.fail("pwritev", errno.ENOSPC, matches=lambda path: path.endswith(file_names.CLEANED))
    with pytest.raises(KafkaStorage, match="free space on the disk"):
        await log.cleaner.clean_all()
    assert log.directory.disk.failure is None
    assert not [name for name in log.names if name.endswith(LEFTOVERS)]
    log.files.fail("pwritev", errno.EIO, matches=lambda path: path.endswith(file_names.CLEANED))
    with pytest.raises(KafkaStorage):
        await log.cleaner.clean_all()
    assert log.directory.disk.failure is not None
    assert log.latest == latest
    assert await log.clean() is None  # an offline directory is skipped


async def test_a_disk_without_room_for_one_log_has_it_for_others() -> None:
    """The dirtiest log fails each time; logs whose cleaning frees space must get their turn."""
    log = filled()
    other = log.directory.open_partition(
        TopicPartition("other", 0), None, compacted(), now_ms=NOW_MS
    )
    for n in range(3):
        append(other, batch(b"%d" % n))
        other.roll(NOW_MS)
    other.update_config(compacted(max_compaction_lag_ms=1))
    log.files.fail("pwritev", errno.ENOSPC, matches=lambda path: "orders-0" in path)
    with pytest.raises(KafkaStorage, match="orders-0 not compacted"):
        await log.cleaner.clean_all()
    assert log.directory.checkpoints.cleaned_offsets.get(other.topic_partition) == 3
    log.files.heal()
    await log.cleaner.clean_all()
    assert log.directory.checkpoints.cleaned_offsets.get(TP)


async def test_a_swap_is_of_so_many_segments_only() -> None:
    """A log that rolled every minute would need thousands of renames at once on the loop."""
    log = CleanedLog(config=compacted())
    for n in range(200):
        log.put((b"k%d" % n, b"x"), roll=True)
    statistics = await log.clean()
    assert statistics is not None
    assert (statistics.segments, statistics.merged_segments) == (200, 4)
    assert len(log.pairs) == 200
    await log.clean_again()
    assert len(log.log.segments) == 2


async def test_a_file_that_is_missing_is_the_disks_trouble_and_not_retentions() -> None:
    """If it were taken for a deletion, the cleaning would be retried at once without end."""
    log = filled()
    log.files.remove(log.log.segments[2].path(file_names.LOG))
    log.log.segments[2].release()
    with pytest.raises(KafkaStorage):
        await log.cleaner.clean_all()
    assert log.directory.disk.failure is not None


async def test_an_error_that_nobody_thought_of_ends_no_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka, the partition becomes uncleanable and the others are compacted."""
    log = filled()
    other = log.directory.open_partition(
        TopicPartition("other", 0), None, compacted(), now_ms=NOW_MS
    )
    for n in range(3):
        append(other, batch(b"%d" % n))
        other.roll(NOW_MS)

    def failing(files: object, view: LogView) -> list[list[SegmentView]]:
        if "orders" in view.name:
            raise ZeroDivisionError("not thought of")
        return group_segments(log.files, view)

    monkeypatch.setattr(cleaner_module, "group_segments", failing)
    await log.cleaner.clean_all()
    assert log.counters.uncleanable_partitions.value == 1
    assert "ZeroDivisionError" in caplog.text
    assert log.directory.checkpoints.cleaned_offsets.get(other.topic_partition) == 3
    assert log.directory.checkpoints.cleaned_offsets.get(TP) is None


@pytest.mark.parametrize("cancelled", [False, True])
async def test_the_memory_of_the_map_is_given_back_off_the_loop(
    monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """Freeing 128 MB takes the kernel 20 ms, which must not block the loop."""
    maps: list[OffsetMap] = []

    def kept(*arguments: object) -> OffsetMap:
        maps.append(new_offset_map(*arguments))  # type: ignore[arg-type]
        return maps[-1]

    monkeypatch.setattr(cleaner_module, "new_offset_map", kept)
    offload = SteppedOffload()
    log = filled(offload)
    task = asyncio.get_running_loop().create_task(log.clean())
    if cancelled:
        offload.before = lambda step: step == 5 and task.cancel() and None
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        await task
    [offsets] = maps
    with pytest.raises(RuntimeError, match="closed"):
        offsets.get(b"k1")


async def test_the_checkpoint_says_what_was_cleaned_after_a_restart() -> None:
    """Without it each start would compact every log from its beginning."""
    log = filled()
    await log.clean()
    cleaned = log.directory.checkpoints.cleaned_offsets.get(TP)
    assert cleaned == log.log.segments[-1].base_offset
    assert (
        log.files.read_bytes("/data/cleaner-offset-checkpoint")
        == f"0\n1\norders 0 {cleaned}\n".encode()
    )
    log.directory.close()
    again = CleanedLog(log.files, compacted())
    assert again.directory.checkpoints.cleaned_offsets.get(TP) == cleaned
    assert await again.clean() is None


async def test_a_topic_made_anew_begins_without_a_checkpoint() -> None:
    """The old checkpoint would mark records as cleaned that never were."""
    log = filled()
    await log.clean()
    log.directory.delete_partition(TP)
    log.directory.open_partition(TP, None, compacted(), now_ms=NOW_MS)
    assert log.directory.checkpoints.cleaned_offsets.get(TP) is None


async def test_logs_that_only_delete_are_left_alone() -> None:
    """Only topics with cleanup.policy=compact are compacted."""
    log = filled()
    log.log.update_config(compacted(cleanup_policy=("delete",)))
    assert await log.clean() is None
    log.log.update_config(compacted(cleanup_policy=("compact", "delete")))
    assert await log.clean() is not None


def test_a_node_compacts_its_offsets_topic_by_itself() -> None:
    """A background job of the node runs the cleaner; the offsets topic needs it first."""

    async def main(world: Simulation) -> None:
        async with Broker(profile="dev") as broker:
            request = wire.FindCoordinatorRequest(key="group", key_type=0)
            await broker.ask(request, 3)
            partition = broker.node.topics.partition("__consumer_offsets", 0)
            assert partition is not None
            for n in range(20):
                record = RawRecord(0, NOW_MS, b"a key", b"%d" % n)
                data = encode_batch([record], crc32c=crc32c)
                partition.append(
                    memoryview(data),
                    list(iter_headers(data)),
                    now_ms=NOW_MS,
                    origin=Origin.COORDINATOR,
                )
            partition.log.roll(NOW_MS)
            await asyncio.sleep(15.5)  # longer than log.cleaner.backoff.ms
            read = partition.log.read(0, 1 << 20)
            [header] = [header for header, _ in read_batches(read.fragments)]
            assert header.base_offset == 19
            assert broker.node.counters.cleaner_runs == 1
            assert broker.node.counters.cleaner_records_removed == 19
            await asyncio.sleep(1.5)  # longer than log.segment.delete.delay.ms
            directory = partition.log.directory
            assert not [
                n for n in broker.files.listdir(directory) if n.endswith(file_names.DELETED)
            ]

    run(1, main)


def test_a_node_without_a_cleaner_leaves_its_logs_alone() -> None:
    """With log.cleaner.enable=false nothing is compacted, as in Kafka."""

    async def main(world: Simulation) -> None:
        async with Broker(profile="dev", log_cleaner_enable=False) as broker:
            await broker.create("t", cleanup_policy="compact")
            partition = broker.node.topics.partition("t", 0)
            assert partition is not None
            for n in range(3):
                data = encode_batch([RawRecord(0, NOW_MS, b"k", b"%d" % n)], crc32c=crc32c)
                partition.append(memoryview(data), list(iter_headers(data)), now_ms=NOW_MS)
            partition.log.roll(NOW_MS)
            await asyncio.sleep(100)
            assert broker.node.counters.cleaner_runs == 0

    run(1, main)
