"""Data outside memory is read off the loop, and damaged indexes are rebuilt."""

from __future__ import annotations

import asyncio
import errno
import struct

import pytest

from aiokq import wire
from aiokq.broker.coordinator.shard_log import ShardLog
from aiokq.broker.log import file_names
from aiokq.broker.log.batch_reading import walk_headers
from aiokq.broker.log.cold_reads import AT_ONCE, MOST_TRIES
from aiokq.broker.log.disk_load import ColdRead, DiskLoad
from aiokq.broker.log.partition_log import PartitionLog
from aiokq.broker.maintenance import jobs
from aiokq.core.offload import THREADS
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.coordinator.counter import CounterInstance
from tests.unit.broker.harness import NOW_MS, Broker, batch, offsets, until, watch_offload

RECORDS = 3000
DIRECTORY = "/data/t-0"


async def damaged(*suffixes: str) -> MemoryFiles:
    """A disk with a topic of two segments; the older one's indexes have a wrong entry."""
    async with Broker() as broker:
        await broker.create("t", segment_bytes=1048576, index_interval_bytes=0)
        for index in range(RECORDS // 100):
            value = b"%01000d" % index
            await broker.produce("t", batch(100, value=value, timestamp_ms=NOW_MS + index * 100))
        assert len(broker.node.topics.partition("t", 0).log.segments) > 1
        files = broker.files
    for suffix in suffixes:
        files.corrupt(f"{DIRECTORY}/{0:020d}{suffix}", 1, 0x7F)
    return files


async def since(broker: Broker, timestamp_ms: int, *, error: int | None = 0) -> int:
    asked = wire.ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
    response = await broker.ask(
        wire.ListOffsetsRequest(
            replica_id=-1, topics=[wire.ListOffsetsTopic(name="t", partitions=[asked])]
        ),
        7,
    )
    [found] = response.topics[0].partitions
    assert found.error_code == (found.error_code if error is None else error)
    return found.offset


def made_anew(caplog: pytest.LogCaptureFixture) -> int:
    return caplog.text.count("rebuilding indexes")


async def test_a_fetch_waits_for_the_index(caplog: pytest.LogCaptureFixture):
    """Walking through a gigabyte of batches would block every other client for seconds."""
    async with Broker(await damaged(file_names.INDEX)) as broker:
        found = await broker.fetch_one("t", 0, 450)
        assert found.error_code == 0
        assert offsets(found.records)[0] == 400
        assert made_anew(caplog) == 1
        moved = watch_offload(broker)
        assert offsets((await broker.fetch_one("t", 0, 100)).records)[0] == 100
        assert moved == []
    async with Broker(broker.files) as broker:
        assert offsets((await broker.fetch_one("t", 0, 450)).records)[0] == 400
        assert made_anew(caplog) == 1  # the rebuilt index is written


async def test_a_fetch_does_not_ask_the_index_of_times(caplog: pytest.LogCaptureFixture):
    """Regression: the first read of a full segment took 40 ms more for the unused time index."""
    async with Broker(await damaged(file_names.TIME_INDEX)) as broker:
        assert offsets((await broker.fetch_one("t", 0, 450)).records)[0] == 400
        assert made_anew(caplog) == 0


async def test_retention_waits_for_the_index(caplog: pytest.LogCaptureFixture):
    """It needs the newest timestamp of each segment, without which nothing would be deleted."""
    files = await damaged()
    path = f"{DIRECTORY}/{0:020d}{file_names.TIME_INDEX}"
    files.corrupt(path, files.stat_size(path) - 4, 0x7F)  # the offset of the last entry
    async with Broker(files) as broker:
        topic = broker.node.topics.get("t")
        await broker.node.metadata.alter_topic_configs(
            topic, lambda old: {**old, "retention.ms": "1"}
        )
        broker.clock.now_ms = NOW_MS + 1_000_000
        [retention] = [job for job in jobs(broker.node) if job.name == "retention"]
        await retention.run()
        assert made_anew(caplog) == 1
        assert topic.partitions[0].log.log_start_offset > 0


async def test_retention_waits_for_the_first_timestamp_of_the_newest_segment():
    """Regression: the roll by age was not repeated after the read, and retention left out the log.

    No known path leaves this timestamp unread in the newest segment, so the test removes it.
    """
    async with Broker(await damaged()) as broker:
        topic = broker.node.topics.get("t")
        await broker.node.metadata.alter_topic_configs(
            topic, lambda old: {**old, "retention.ms": "1"}
        )
        broker.clock.now_ms = NOW_MS + 1_000_000
        log = topic.partitions[0].log
        log._segments.active._first_timestamp = None
        [retention] = [job for job in jobs(broker.node) if job.name == "retention"]
        await retention.run()
        assert log.log_start_offset == log.log_end_offset == RECORDS


async def test_compaction_waits_for_the_index(caplog: pytest.LogCaptureFixture):
    """With min.compaction.lag.ms it needs the age of a segment."""
    files = await damaged()
    path = f"{DIRECTORY}/{0:020d}{file_names.TIME_INDEX}"
    files.corrupt(path, files.stat_size(path) - 4, 0x7F)
    async with Broker(files) as broker:
        topic = broker.node.topics.get("t")
        change = {"cleanup.policy": "compact", "min.compaction.lag.ms": "1"}
        await broker.node.metadata.alter_topic_configs(topic, lambda old: old | change)
        broker.clock.now_ms = NOW_MS + 1_000_000
        [cleaner] = [job for job in jobs(broker.node) if job.name == "log cleaner 0"]
        await cleaner.run()
        assert made_anew(caplog) == 1
        assert broker.node.counters.cleaner_runs == 1


@pytest.mark.parametrize("suffix", [file_names.INDEX, file_names.TIME_INDEX])
async def test_a_search_by_time_waits_for_the_index(suffix: str, caplog: pytest.LogCaptureFixture):
    """The search uses both indexes."""
    async with Broker(await damaged(suffix)) as broker:
        assert await since(broker, NOW_MS + 450) == 450
        assert made_anew(caplog) == 1


async def test_what_cannot_be_made_again_is_a_storage_error():
    """The disk is broken; the client gets the error after one read."""
    async with Broker(await damaged(file_names.INDEX)) as broker:
        broker.files.fail(
            "pwritev", errno.EIO, matches=lambda path: path.endswith(file_names.INDEX), times=None
        )
        assert (await broker.fetch_one("t", 0, 450)).error_code == 56
        broker.files.heal()


async def test_a_damaged_segment_is_logged_with_its_path(caplog: pytest.LogCaptureFixture):
    """The operator has to find the file."""
    files = await damaged(file_names.INDEX)
    path = f"{DIRECTORY}/{0:020d}{file_names.LOG}"
    files.corrupt(path, 8, 0x7F)  # the size of the first batch
    async with Broker(files) as broker:
        assert (await broker.fetch_one("t", 0, 450)).error_code != 0
    assert f"damaged segment file={path} " in caplog.text


async def test_indexes_of_the_wrong_size_are_made_again_at_the_start(
    caplog: pytest.LogCaptureFixture,
):
    """Their size is visible without reading them, and they are rebuilt off the loop."""
    files = await damaged()
    files.remove(f"{DIRECTORY}/{0:020d}{file_names.TIME_INDEX}")
    async with Broker(files) as broker:
        assert files.exists(f"{DIRECTORY}/{0:020d}{file_names.TIME_INDEX}")
        caplog.clear()
        assert offsets((await broker.fetch_one("t", 0, 450)).records)[0] == 400
        assert made_anew(caplog) == 0


@pytest.mark.parametrize("offset", [-(1 << 40), 0, 1 << 40])
async def test_offsets_that_cannot_be_end_no_broker(offset: int):
    """A base offset is not covered by a checksum, so an index may be built from a wrong one.

    Regression: its numbers did not fit the file, and that error ended retention and the broker.
    """
    files = await damaged(file_names.INDEX, file_names.TIME_INDEX)
    path = f"{DIRECTORY}/{0:020d}{file_names.LOG}"
    file = files.open(path)
    positions = [at for at, _ in walk_headers(file, 0, file.size())]
    file.pwritev([struct.pack(">q", offset)], positions[-3])
    file.close()
    async with Broker(files) as broker:
        found = await broker.fetch_one("t", 0, 450)
        assert found.error_code in (2, 56)
        topic = broker.node.topics.get("t")
        await broker.node.metadata.alter_topic_configs(
            topic, lambda old: {**old, "retention.ms": "1"}
        )
        [retention] = [job for job in jobs(broker.node) if job.name == "retention"]
        await retention.run()
        assert (await broker.fetch_one("t", 0, RECORDS - 1)).error_code == 0


# --- data that is only on disk


LAST = 1500


def log_of(broker: Broker, partition: int = 0) -> PartitionLog:
    return broker.node.topics.partition("t", partition).log


async def on_disk(**configs: object) -> MemoryFiles:
    """A disk with a topic of several segments after a clean shutdown, with nothing in memory."""
    async with Broker() as broker:
        await broker.create("t", index_interval_bytes=1000, **configs)
        for index in range(LAST // 10):
            value = b"%0200d" % index
            await broker.produce("t", batch(10, value=value, timestamp_ms=NOW_MS + index * 10))
            if index % 12 == 11:
                log_of(broker).roll(NOW_MS)
        assert len(log_of(broker).segments) > 10
    return broker.files


def chilled(broker: Broker, *, stays: bool = False) -> Broker:
    """Evict from memory everything that is on the broker's disk."""
    broker.files.chill_all("/data", stays=stays)
    return broker


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("offset", [0, 1, 77, 1499])
@pytest.mark.parametrize("max_bytes", [1, 30_000, 1_000_000])
async def test_a_fetch_of_what_is_on_the_disk_stalls_nobody(
    stays: bool, offset: int, max_bytes: int
):
    """A fetch of old records must not block the loop, even if they are evicted at once.

    Index, headers up to the offset and the end, and records each took 10 ms on a hard disk.
    """
    async with Broker(await on_disk()) as broker:
        for level in (0, 1):
            chilled(broker, stays=stays)
            found = await broker.fetch_one("t", 0, offset, max_bytes, isolation_level=level)
            assert found.error_code == 0
            first, *_, last = offsets(found.records)
            assert first <= offset <= last
            assert len(found.records) <= max(max_bytes, 3000)
            assert len(found.records) > max_bytes - 6000 or last == LAST - 1


async def test_partitions_of_a_fetch_are_read_together():
    """If each were read alone, a fetch of a thousand would check all of them two thousand times."""
    async with Broker() as broker:
        await broker.create("t", partitions=20, index_interval_bytes=1000)
        for partition in range(20):
            for _ in range(10):
                await broker.produce("t", batch(10, value=bytes(400)), partition=partition)
            log_of(broker, partition).roll(NOW_MS)
        files = broker.files
    async with Broker(files) as broker:
        chilled(broker)
        moved = watch_offload(broker)
        response = await broker.fetch(
            *(("t", partition, 15, 10_000) for partition in range(20)), max_bytes=1_000_000
        )
        for topic in response.responses:
            assert offsets(topic.partitions[0].records)[0] == 10
        assert [fn.__name__ for fn in moved].count("_outcomes") <= 4


@pytest.mark.parametrize("stays", [False, True])
async def test_a_search_by_time_stalls_nobody(stays: bool):
    """It reads the last time index entry of each segment, and both indexes of one segment."""
    async with Broker(await on_disk()) as broker:
        for wanted in (0, 5, 777, LAST - 1):
            chilled(broker, stays=stays)
            assert await since(broker, NOW_MS + wanted) == wanted
        chilled(broker, stays=stays)
        assert await since(broker, NOW_MS + LAST) == -1
    async with Broker(broker.files) as broker:
        chilled(broker, stays=stays)
        assert await since(broker, -3) == LAST - 1  # the largest timestamp


async def test_what_a_node_does_by_itself_stalls_nobody():
    """Retention reads the last timestamps of segments, compaction also the first ones."""
    async with Broker(await on_disk()) as broker:
        change = {"cleanup.policy": "compact", "max.compaction.lag.ms": "1000"}
        topic = broker.node.topics.get("t")
        await broker.node.metadata.alter_topic_configs(
            topic, lambda old: {**old, **change, "min.compaction.lag.ms": "1"}
        )
        broker.clock.now_ms = NOW_MS + 1_000_000
        found = {job.name: job for job in jobs(broker.node)}
        chilled(broker)
        await found["log cleaner 0"].run()
        assert broker.node.counters.cleaner_runs == 1
        await broker.node.metadata.alter_topic_configs(
            topic, lambda old: {"cleanup.policy": "delete", "retention.ms": "1"}
        )
    async with Broker(broker.files) as broker:
        broker.clock.now_ms = NOW_MS + 1_000_000
        chilled(broker)
        [retention] = [job for job in jobs(broker.node) if job.name == "retention"]
        await retention.run()
        assert log_of(broker).log_start_offset == LAST


async def test_what_changes_a_log_reads_nothing():
    """Regression: the first append after a start read a timestamp to decide whether to roll."""
    async with Broker(await on_disk(segment_ms=10_000)) as broker:
        chilled(broker)
        assert (await broker.produce("t", batch(5, timestamp_ms=NOW_MS + 5_000))).error_code == 0
        assert (await broker.produce("t", batch(5, timestamp_ms=NOW_MS + 50_000))).error_code == 0
        assert log_of(broker).segments[-1].base_offset == LAST + 5
        asked = wire.DeleteRecordsPartition(partition_index=0, offset=777)
        response = await broker.ask(
            wire.DeleteRecordsRequest(
                topics=[wire.DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=1000
            ),
            2,
        )
        assert response.topics[0].partitions[0].low_watermark == 777
        asked = wire.OffsetForLeaderPartition(partition=0, leader_epoch=0, current_leader_epoch=-1)
        response = await broker.ask(
            wire.OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[wire.OffsetForLeaderTopic(topic="t", partitions=[asked])],
            ),
            4,
        )
        assert response.topics[0].partitions[0].end_offset == LAST + 10
        assert broker.files.waits == []


async def test_an_error_of_the_disk_is_the_partitions():
    """The error of another thread is raised by the read, and takes the directory offline."""
    async with Broker(await on_disk()) as broker:
        chilled(broker)
        broker.files.fail("pread", errno.EIO, matches=lambda path: path.endswith(file_names.LOG))
        found = await broker.fetch_one("t", 0, 77)
        assert (found.error_code, found.high_watermark, bytes(found.records)) == (56, -1, b"")
        assert (await broker.fetch_one("t", 0, 77)).error_code == 56
        assert broker.node.storage.directories.online == []


class Gate:
    """An executor that starts its work on command."""

    def __init__(self, broker: Broker) -> None:
        self.inner = broker.node.environment.offload.run
        self.open = asyncio.Event()
        self.calls = 0
        broker.node.environment.offload.run = self.run

    async def run(self, fn, *args):
        self.calls += 1
        await self.open.wait()
        return await self.inner(fn, *args)


@pytest.mark.parametrize("what", ["topic", "records", "topic made again"])
async def test_what_is_deleted_while_it_is_read_is_no_trouble_of_the_disk(
    what: str, caplog: pytest.LogCaptureFixture
):
    """Deleted files are renamed or gone, which is no error of the disk.

    Regression: the directory went offline, and the log said that indexes were rebuilt.
    """
    async with Broker(await on_disk()) as broker:
        chilled(broker)
        gate = Gate(broker)
        fetch = asyncio.create_task(broker.fetch_one("t", 0, 77))
        search = asyncio.create_task(since(broker, NOW_MS + 77, error=None))
        await until(lambda: gate.calls == 2)
        broker.node.environment.offload.run = gate.inner
        if what == "records":
            log_of(broker).delete_records(500)
            log_of(broker).purge()
        else:
            await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
            if what == "topic made again":
                await broker.create("t")
        gate.open.set()
        code = (await fetch).error_code
        assert code == {"topic": 3, "records": 1, "topic made again": 1}[what]
        await search
        assert len(broker.node.storage.directories.online) == 1
        if what != "topic made again":
            assert made_anew(caplog) == 0


async def test_who_leaves_takes_nothing_from_the_others():
    """The load that two readers wait for is completed when the first one disconnects."""
    async with Broker(await on_disk()) as broker:
        chilled(broker)
        gate = Gate(broker)
        first = asyncio.create_task(broker.fetch_one("t", 0, 77))
        await until(lambda: gate.calls == 1)
        second = asyncio.create_task(broker.fetch_one("t", 0, 77))
        for _ in range(5):
            await asyncio.sleep(0)
        assert gate.calls == 1
        first.cancel()
        gate.open.set()
        assert 77 in offsets((await second).records)
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_a_look_does_not_wait_for_ever():
    """Data that never becomes available is an error, which clients retry."""
    async with Broker(await on_disk()) as broker:
        segment = log_of(broker).segments[0]
        looks = 0

        def look() -> None:
            nonlocal looks
            looks += 1
            raise ColdRead([DiskLoad(segment, "never", lambda: None)])

        with pytest.raises(ColdRead) as raised:
            await broker.node.cold_reads.read(look)
        assert raised.value.code == 56
        assert looks == MOST_TRIES + 1


async def test_who_reads_on_waits_once():
    """A sequential read must remember where the previous read ended.

    Regression: a read that had to wait forgot that position, and then waited for the index too.
    """
    async with Broker(await on_disk()) as broker:
        await broker.fetch_one("t", 0, 130, 8000)
        moved = watch_offload(broker)
        for offset in (160, 190):
            chilled(broker)
            found = await broker.fetch_one("t", 0, offset, 8000)
            assert offsets(found.records)[0] == offset
        assert [fn.__name__ for fn in moved] == ["_outcomes", "load"] * 2


async def test_nobody_looks_again_before_something_was_read(monkeypatch: pytest.MonkeyPatch):
    """Regression: a fetch of a thousand partitions checked all of them twice before it waited."""
    async with Broker(await on_disk()) as broker:
        log, looks = log_of(broker), []
        read = log.read
        monkeypatch.setattr(log, "read", lambda *a, **k: looks.append(1) or read(*a, **k))
        moved = watch_offload(broker)
        chilled(broker)
        assert 130 in offsets((await broker.fetch_one("t", 0, 135, 8000)).records)
        assert len(looks) == 1 + [fn.__name__ for fn in moved].count("_outcomes")


async def test_what_is_asked_for_twice_is_read_once():
    """Regression: the second end of the load raised an error, and first waiters never woke."""
    async with Broker(await on_disk()) as broker:
        segment, reads = log_of(broker).segments[0], []
        load = DiskLoad(segment, "twice", lambda: reads.append(1))
        gate = Gate(broker)
        first = asyncio.create_task(broker.node.cold_reads.load([load, load]))
        await until(lambda: gate.calls == 1)
        second = asyncio.create_task(broker.node.cold_reads.load([load]))
        gate.open.set()
        async with asyncio.timeout(30):
            await asyncio.gather(first, second)
        assert reads == [1]


async def test_looks_do_not_push_out_what_others_wait_for():
    """With little memory, concurrent readers must not evict each other's data.

    Regression: of forty readers of one segment most got errors, because each needs two headers and
    the segment kept eight.
    """
    files = await damaged()
    async with Broker(files) as broker:
        chilled(broker, stays=True)
        inner = broker.node.environment.offload.run

        async def run(fn, *args):
            await asyncio.sleep(0)
            return await inner(fn, *args)

        broker.node.environment.offload.run = run
        wanted = [100 * index + 50 for index in range(8)] * 5
        found = await asyncio.gather(
            *(
                broker.fetch_one("t", 0, offset, 1_000 * index)
                for index, offset in enumerate(wanted)
            )
        )
        assert [one.error_code for one in found] == [0] * len(wanted)
        assert [offsets(one.records)[0] for one in found] == [offset - 50 for offset in wanted]
        assert not any(segment._loaded for segment in log_of(broker).segments)


async def test_a_slow_disk_leaves_threads_to_others():
    """Reads of old records must leave threads for other work.

    Regression: with twenty such consumers no produce request was handled whose topic needs a flush.
    """
    async with Broker(await on_disk(flush_messages=1)) as broker:
        chilled(broker)
        offload = broker.node.environment.offload
        inner, threads, disk, reading = offload.run, asyncio.Semaphore(THREADS), asyncio.Event(), 0

        async def run(fn, *args):
            nonlocal reading
            async with threads:
                if fn.__name__ in ("_outcomes", "load", "run"):
                    reading += 1
                    await disk.wait()
                return await inner(fn, *args)

        offload.run = run
        readers = [
            asyncio.create_task(one)
            for index in range(20)
            for one in (
                broker.fetch_one("t", 0, index * 70),
                since(broker, NOW_MS + index * 70),
            )
        ]
        await until(lambda: reading == AT_ONCE)
        try:
            async with asyncio.timeout(30):
                assert (await broker.produce("t", batch(5))).error_code == 0
            assert reading == AT_ONCE
        finally:
            disk.set()
            await asyncio.gather(*readers)


async def test_shards_are_loaded_off_the_loop():
    """The log of a shard may be gigabytes outside the page cache."""
    async with Broker() as broker:
        await broker.create("t", index_interval_bytes=1000)
        for _ in range(20):
            await broker.produce("t", batch(5, key=b"\x7f\xff", value=bytes(500)))
            log_of(broker).roll(NOW_MS)
        files = broker.files
    async with Broker(files) as broker:
        log_of(broker).delete_records(3)
        chilled(broker)
        partition = broker.node.topics.partition("t", 0)
        counters = CounterInstance(1, {})
        log = ShardLog(partition, counters, broker.node.cold_reads, 0, commit_timeout=5)
        assert await log.replay(counters.new_shard(None, 0)) == 100
