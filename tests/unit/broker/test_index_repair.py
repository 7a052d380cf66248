"""An index that is damaged inside is found by a read, and made again off the loop."""

from __future__ import annotations

import errno
import struct

import pytest

from aiokq import wire
from aiokq.broker.log import names
from aiokq.broker.log.walk import walk_headers
from aiokq.broker.maintenance import jobs
from tests.sim.harness.files import MemoryFiles
from tests.unit.broker.harness import NOW_MS, Broker, batch, offsets, watch_offload

RECORDS = 3000
DIRECTORY = "/data/t-0"


async def damaged(*suffixes: str) -> MemoryFiles:
    """A disk with a topic of two segments; an entry of the older one's indexes is wrong."""
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


async def since(broker: Broker, timestamp_ms: int) -> int:
    asked = wire.ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms)
    response = await broker.ask(
        wire.ListOffsetsRequest(
            replica_id=-1, topics=[wire.ListOffsetsTopic(name="t", partitions=[asked])]
        ),
        5,
    )
    [found] = response.topics[0].partitions
    assert found.error_code == 0
    return found.offset


async def test_a_fetch_waits_for_the_index():
    """To walk through a gigabyte of batches would stop every other client for seconds."""
    async with Broker(await damaged(names.INDEX)) as broker:
        moved = watch_offload(broker)
        found = await broker.fetch_one("t", 0, 450)
        assert found.error_code == 0
        assert offsets(found.records)[0] == 400
        assert [fn.__name__ for fn in moved] == ["rebuilt"]
        assert offsets((await broker.fetch_one("t", 0, 100)).records)[0] == 100
        assert len(moved) == 1
    async with Broker(broker.files) as broker:
        moved = watch_offload(broker)
        assert offsets((await broker.fetch_one("t", 0, 450)).records)[0] == 400
        assert moved == []  # it is on disk, too


async def test_a_fetch_does_not_ask_the_index_of_times():
    """The first read of a full segment took 40 ms more of the loop, for what it does not need."""
    async with Broker(await damaged(names.TIME_INDEX)) as broker:
        moved = watch_offload(broker)
        assert offsets((await broker.fetch_one("t", 0, 450)).records)[0] == 400
        assert moved == []


async def test_retention_waits_for_the_index():
    """It asks each segment for its newest record: without an answer nothing would ever go."""
    files = await damaged()
    path = f"{DIRECTORY}/{0:020d}{names.TIME_INDEX}"
    files.corrupt(path, files.stat_size(path) - 4, 0x7F)  # the offset of the last entry
    async with Broker(files) as broker:
        topic = broker.node.topics.get("t")
        await broker.node.topics.alter_configs(topic, lambda old: {**old, "retention.ms": "1"})
        broker.clock.now_ms = NOW_MS + 1_000_000
        [retention] = [job for job in jobs(broker.node) if job.name == "retention"]
        moved = watch_offload(broker)
        await retention.run()
        assert [fn.__name__ for fn in moved] == ["rebuilt"]
        assert topic.partitions[0].log.log_start_offset > 0


async def test_compaction_waits_for_the_index():
    """With min.compaction.lag.ms it asks how old a segment is."""
    files = await damaged()
    path = f"{DIRECTORY}/{0:020d}{names.TIME_INDEX}"
    files.corrupt(path, files.stat_size(path) - 4, 0x7F)
    async with Broker(files) as broker:
        topic = broker.node.topics.get("t")
        change = {"cleanup.policy": "compact", "min.compaction.lag.ms": "1"}
        await broker.node.topics.alter_configs(topic, lambda old: old | change)
        broker.clock.now_ms = NOW_MS + 1_000_000
        [cleaner] = [job for job in jobs(broker.node) if job.name == "log cleaner 0"]
        moved = watch_offload(broker)
        await cleaner.run()
        assert moved[0].__name__ == "rebuilt"
        assert broker.node.counters.cleaner_runs == 1


@pytest.mark.parametrize("suffix", [names.INDEX, names.TIME_INDEX])
async def test_a_search_by_time_waits_for_the_index(suffix: str):
    """Both indexes are looked at."""
    async with Broker(await damaged(suffix)) as broker:
        moved = watch_offload(broker)
        assert await since(broker, NOW_MS + 450) == 450
        assert [fn.__name__ for fn in moved] == ["rebuilt", "run"]


async def test_what_cannot_be_made_again_is_a_storage_error():
    """The disk is broken: the client is told, and asks no more than that once."""
    async with Broker(await damaged(names.INDEX)) as broker:
        broker.files.fail(
            "pwritev", errno.EIO, matches=lambda path: path.endswith(names.INDEX), times=None
        )
        assert (await broker.fetch_one("t", 0, 450)).error_code == 56
        broker.files.heal()


async def test_indexes_of_the_wrong_size_are_made_again_at_the_start():
    """That is seen without reading them, and off the loop."""
    files = await damaged()
    files.remove(f"{DIRECTORY}/{0:020d}{names.TIME_INDEX}")
    async with Broker(files) as broker:
        assert files.exists(f"{DIRECTORY}/{0:020d}{names.TIME_INDEX}")
        moved = watch_offload(broker)
        assert offsets((await broker.fetch_one("t", 0, 450)).records)[0] == 400
        assert moved == []


@pytest.mark.parametrize("offset", [-(1 << 40), 0, 1 << 40])
async def test_offsets_that_cannot_be_end_no_broker(offset: int):
    """A checksum does not cover a base offset: an index made of a wrong one had numbers that no
    file can hold, and the error of it ended retention, and the broker with it."""
    files = await damaged(names.INDEX, names.TIME_INDEX)
    path = f"{DIRECTORY}/{0:020d}{names.LOG}"
    file = files.open(path)
    positions = [at for at, _ in walk_headers(file, 0, file.size())]
    file.pwritev([struct.pack(">q", offset)], positions[-3])
    file.close()
    async with Broker(files) as broker:
        found = await broker.fetch_one("t", 0, 450)
        assert found.error_code in (2, 56)
        topic = broker.node.topics.get("t")
        await broker.node.topics.alter_configs(topic, lambda old: {**old, "retention.ms": "1"})
        [retention] = [job for job in jobs(broker.node) if job.name == "retention"]
        await retention.run()
        assert (await broker.fetch_one("t", 0, RECORDS - 1)).error_code == 0
