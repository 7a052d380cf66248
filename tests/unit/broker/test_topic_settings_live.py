"""Topic configs changed on a running broker: each takes effect without a restart.

EFFECTS names one test per row of the table; the last test checks that no row is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiokq import wire
from aiokq.broker.log import file_names
from aiokq.broker.maintenance import jobs
from aiokq.broker.metadata.configs.topic_configs import TOPIC_CONFIGS
from aiokq.records import compression
from aiokq.records.header import iter_headers
from tests.sim.harness.simulation import Simulation, run
from tests.unit.broker.handlers.test_configs import SET, alter, describe
from tests.unit.broker.harness import NOW_MS, Broker, batch

DAY_MS = 86_400_000
EFFECTS: dict[str, Callable[[Broker], Awaitable[None]]] = {}


def effect(name: str):
    def note(test):
        EFFECTS[name] = test
        return test

    return note


def log_of(broker: Broker):
    return broker.node.topics.partition("t", 0).log


async def change(broker: Broker, **settings: object) -> None:
    changes = [(name.replace("_", "."), SET, str(value)) for name, value in settings.items()]
    assert await alter(broker, "t", *changes) == (0, None)


async def produce(broker: Broker, data: bytes | None = None) -> int:
    return (await broker.produce("t", batch() if data is None else data)).error_code


async def run_job(broker: Broker, name: str) -> None:
    [job] = [job for job in jobs(broker.node) if job.name == name]
    await job.run()


async def retention(broker: Broker) -> None:
    await run_job(broker, "retention")


async def written(broker: Broker, *values: bytes | None, **options: object) -> None:
    """Write a finished segment for each value of one key."""
    for value in values:
        assert await produce(broker, batch(value=value, **options)) == 0
        log_of(broker).roll(NOW_MS)


async def cleaned(broker: Broker) -> list[int]:
    """Run the cleaner; return the base offsets of the batches that still have records."""
    await run_job(broker, "log cleaner 0")
    return [header.base_offset for header in stored_headers(broker) if header.count]


def stored_headers(broker: Broker):
    log = log_of(broker)
    read = log.read(log.log_start_offset, 10**9)
    return list(iter_headers(b"".join(fragment.read() for fragment in read.fragments)))


@effect("cleanup.policy")
async def test_a_topic_becomes_compacted_and_deletes_again(broker: Broker) -> None:
    """Records without a key are rejected from then on, and DeleteRecords too."""
    keyless = batch(key=None)
    assert await produce(broker, keyless) == 0
    await change(broker, cleanup_policy="compact")
    assert await produce(broker, keyless) == 87
    request = wire.DeleteRecordsRequest(
        topics=[
            wire.DeleteRecordsTopic(
                name="t", partitions=[wire.DeleteRecordsPartition(partition_index=0, offset=1)]
            )
        ]
    )
    refused = await broker.ask(request, 2)
    assert refused.topics[0].partitions[0].error_code == 44
    await change(broker, cleanup_policy="compact,delete", retention_bytes=0)
    await retention(broker)
    assert log_of(broker).log_start_offset == 1
    await change(broker, cleanup_policy="delete")
    assert await produce(broker, keyless) == 0


@effect("compression.type")
async def test_batches_are_stored_in_another_codec(broker: Broker) -> None:
    """From the next batch on, whatever codec the producer chose."""
    data = batch(50, value=b"x" * 100)
    await produce(broker, data)
    await change(broker, compression_type="zstd")
    await produce(broker, data)
    await change(broker, compression_type="uncompressed")
    await produce(broker, data)
    codecs = [header.codec for header in stored_headers(broker)]
    assert codecs == [compression.NONE, compression.ZSTD, compression.NONE]


def level_of(name: str, low: int, high: int):
    async def test_a_level_takes_effect(broker: Broker) -> None:
        """A higher level makes smaller batches of the same records."""
        noise = bytes((n * n * 31 + n // 7) % 251 for n in range(4000))
        data = batch(40, value=noise)
        await change(broker, **{"compression.type": name, f"compression.{name}.level": low})
        await produce(broker, data)
        await change(broker, **{f"compression.{name}.level": high})
        await produce(broker, data)
        first, second = stored_headers(broker)
        assert second.size < first.size

    return test_a_level_takes_effect


effect("compression.gzip.level")(level_of("gzip", 1, 9))
effect("compression.lz4.level")(level_of("lz4", 1, 12))
effect("compression.zstd.level")(level_of("zstd", -50, 19))


@effect("delete.retention.ms")
async def test_tombstones_stay_as_long_as_it_says_now(broker: Broker) -> None:
    """The value applies to tombstones that the cleaner meets later, as in Kafka.

    The cleaner writes a horizon when it first meets a tombstone. With the default of a day, users
    who must delete data for legal reasons wait too long.
    """
    await change(broker, cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    await written(broker, b"v", None)
    await change(broker, delete_retention_ms=5000)
    assert await cleaned(broker) == [1]
    for passed_ms, left in ((4999, [1, 2]), (1, [3])):
        broker.clock.now_ms += passed_ms
        await written(broker, b"v", key=b"another")
        assert await cleaned(broker) == left


@effect("min.cleanable.dirty.ratio")
async def test_a_log_is_dirty_enough_from_then_on(broker: Broker) -> None:
    """The first run cleans records that were never cleaned, whatever the ratio."""
    await change(broker, cleanup_policy="compact", min_cleanable_dirty_ratio=0.9)
    await written(broker, b"x" * 100, b"y" * 100)
    assert await cleaned(broker) == [1]
    await written(broker, b"z" * 100)
    assert await cleaned(broker) == [1, 2]
    await change(broker, min_cleanable_dirty_ratio=0.1)
    assert await cleaned(broker) == [2]


@effect("min.compaction.lag.ms")
async def test_younger_records_are_compacted_from_then_on(broker: Broker) -> None:
    """Readers no longer get the guarantee to see each record for an hour."""
    await change(broker, cleanup_policy="compact", min_compaction_lag_ms=3_600_000)
    await written(broker, b"1", b"2")
    assert await cleaned(broker) == [0, 1]
    await change(broker, min_compaction_lag_ms=0)
    assert await cleaned(broker) == [1]


@effect("max.compaction.lag.ms")
async def test_older_records_are_compacted_from_then_on(broker: Broker) -> None:
    """The dirty ratio is low, so there is little to gain."""
    await change(broker, cleanup_policy="compact", min_cleanable_dirty_ratio=0.9)
    await written(broker, b"x" * 1000)
    assert await cleaned(broker) == [0]
    await written(broker, b"1", timestamp_ms=NOW_MS - DAY_MS)
    assert await cleaned(broker) == [0, 1]
    await change(broker, max_compaction_lag_ms=DAY_MS - 1)
    assert await cleaned(broker) == [1]


@effect("flush.messages")
async def test_acknowledged_is_durable_from_then_on(broker: Broker) -> None:
    """A user who sets it to 1 before maintenance of the machine must not need a restart."""
    await produce(broker)
    assert log_of(broker).recovery_point == 0
    await change(broker, flush_messages=1)
    await produce(broker)
    assert log_of(broker).recovery_point == 2
    await change(broker, flush_messages=2)
    await produce(broker)
    assert log_of(broker).recovery_point == 2
    await produce(broker)
    assert log_of(broker).recovery_point == 4


@effect("flush.ms")
async def test_what_waits_to_be_flushed_waits_no_longer_than_it_says_now(broker: Broker) -> None:
    """A user lowers it from an hour to a second for fear of a power cut."""
    await change(broker, flush_ms=3_600_000)
    await produce(broker)
    await change(broker, flush_ms=1000)
    await asyncio.sleep(0.9)
    assert log_of(broker).recovery_point == 0
    await asyncio.sleep(0.2)
    assert log_of(broker).recovery_point == 1


def throttled(name: str):
    async def test_only_a_list_of_replicas_is_taken(broker: Broker) -> None:
        """With one node there is nothing to throttle, but mistakes in the list are found early."""
        for value in ("*", "0:0,1:0", ""):
            await change(broker, **{name: value})
        code, message = await alter(broker, "t", (name, SET, "0"))
        assert (code, "partition:broker" in message) == (40, True)
        assert await produce(broker) == 0

    return test_only_a_list_of_replicas_is_taken


for _name in ("follower", "leader"):
    effect(f"{_name}.replication.throttled.replicas")(
        throttled(f"{_name}.replication.throttled.replicas")
    )


@effect("unclean.leader.election.enable")
async def test_a_topic_of_one_replica_keeps_its_leader(broker: Broker) -> None:
    """The only replica is in sync, so no election can be unclean."""
    for value in ("true", "false"):
        await change(broker, unclean_leader_election_enable=value)
        assert await produce(broker) == 0
    code, _ = await alter(broker, "t", ("unclean.leader.election.enable", SET, "maybe"))
    assert code == 40


@effect("file.delete.delay.ms")
async def test_deleted_files_stay_as_long_as_it_says_now(broker: Broker) -> None:
    """The value applies to later deletions."""
    await produce(broker)
    await change(broker, file_delete_delay_ms=7000)
    log = log_of(broker)
    log.roll(NOW_MS)
    log.delete_records(1)
    broker.node.purge_later()

    def left() -> int:
        return sum(name.endswith(file_names.DELETED) for name in broker.files.listdir("/data/t-0"))

    await asyncio.sleep(6.9)
    assert left()
    await asyncio.sleep(0.2)
    assert not left()


@effect("index.interval.bytes")
async def test_the_next_segment_has_an_index_as_dense_as_it_says(broker: Broker) -> None:
    """As in Kafka a segment keeps the interval that it began with."""
    log = log_of(broker)
    await produce(broker)
    for interval in (1, 1_000_000):
        await change(broker, index_interval_bytes=interval)
        log.roll(NOW_MS)
        for _ in range(5):
            await produce(broker)
    log.roll(NOW_MS)
    sizes = [
        broker.files.stat_size(segment.path(file_names.INDEX))
        for segment in log.segments
        if segment.size
    ]
    assert sizes == [0, 4 * 8, 0]


@effect("max.message.bytes")
async def test_larger_batches_are_taken_or_refused(broker: Broker) -> None:
    """Users raise it because a producer is being rejected."""
    data = batch(value=b"x" * 2000)
    await change(broker, max_message_bytes=1000)
    assert await produce(broker, data) == 10
    await change(broker, max_message_bytes=3000)
    assert await produce(broker, data) == 0


@effect("message.timestamp.after.max.ms")
async def test_times_of_the_future_are_taken_or_refused(broker: Broker) -> None:
    """Kafka's default is one hour."""
    data = batch(timestamp_ms=NOW_MS + 2 * 3_600_000)
    assert await produce(broker, data) == 32
    await change(broker, message_timestamp_after_max_ms=DAY_MS)
    assert await produce(broker, data) == 0


@effect("message.timestamp.before.max.ms")
async def test_times_of_the_past_are_taken_or_refused(broker: Broker) -> None:
    """By default any past time is accepted."""
    data = batch(timestamp_ms=NOW_MS - DAY_MS)
    assert await produce(broker, data) == 0
    await change(broker, message_timestamp_before_max_ms=1000)
    assert await produce(broker, data) == 32


@effect("message.timestamp.type")
async def test_records_get_the_time_of_their_append(broker: Broker) -> None:
    """Existing records keep their timestamps."""
    await produce(broker)
    await change(broker, message_timestamp_type="LogAppendTime")
    broker.clock.now_ms = NOW_MS + 5000
    result = await broker.produce("t", batch())
    assert result.log_append_time_ms == NOW_MS + 5000
    first, second = stored_headers(broker)
    assert (first.timestamp_type, second.timestamp_type) == (0, 1)
    assert second.max_timestamp_ms == NOW_MS + 5000


@effect("min.insync.replicas")
async def test_more_replicas_than_there_are_is_no_reason_to_refuse(broker: Broker) -> None:
    """Kafka asks for no more replicas than a topic has; otherwise nobody could write to it."""
    await change(broker, min_insync_replicas=2)
    assert await produce(broker) == 0


@effect("preallocate")
async def test_the_next_segment_has_its_whole_size_at_once(broker: Broker) -> None:
    """A finished segment is truncated to its content."""
    await change(broker, preallocate="true", segment_bytes=1_048_576)
    log = log_of(broker)
    await produce(broker)
    log.roll(NOW_MS)
    assert broker.files.stat_size(log.segments[-1].path(file_names.LOG)) == 1_048_576
    await produce(broker)
    await change(broker, preallocate="false")
    log.roll(NOW_MS)
    older, newest = log.segments[-2:]
    assert broker.files.stat_size(older.path(file_names.LOG)) == older.size
    assert broker.files.stat_size(newest.path(file_names.LOG)) == 0


@effect("retention.bytes")
async def test_a_smaller_size_lets_segments_go(broker: Broker) -> None:
    """Users lower it because a disk is full, so the next retention run must apply it."""
    log = log_of(broker)
    for _ in range(4):
        await produce(broker)
        log.roll(NOW_MS)
    await retention(broker)
    assert log.log_start_offset == 0
    await change(broker, retention_bytes=2 * log.segments[0].size)
    await retention(broker)
    assert log.log_start_offset == 2


@effect("retention.ms")
async def test_a_shorter_time_lets_segments_go(broker: Broker) -> None:
    """Topics are often emptied by hand in this way."""
    await produce(broker)
    await retention(broker)
    assert log_of(broker).log_start_offset == 0
    await change(broker, retention_ms=1000)
    broker.clock.now_ms += 1001
    await retention(broker)
    assert (log_of(broker).log_start_offset, log_of(broker).size_bytes) == (1, 0)


@effect("segment.bytes")
async def test_the_present_segment_ends_where_it_says_now(broker: Broker) -> None:
    """It applies to the current segment, not only to the next one."""
    data = batch(value=b"x" * 400_000)
    for _ in range(3):
        await produce(broker, data)
    assert len(log_of(broker).segments) == 1
    await change(broker, segment_bytes=1_048_576)
    await produce(broker, data)
    assert len(log_of(broker).segments) == 2


@effect("segment.index.bytes")
async def test_the_next_segment_ends_when_its_index_is_full(broker: Broker) -> None:
    """As in Kafka an index keeps the size that it began with."""
    log = log_of(broker)
    await produce(broker)
    await change(broker, segment_index_bytes=16, index_interval_bytes=1)
    log.roll(NOW_MS)
    before = len(log.segments)
    for _ in range(8):
        await produce(broker)
    assert len(log.segments) > before + 1


@effect("segment.ms")
async def test_the_present_segment_ends_when_it_says_now(broker: Broker) -> None:
    """By the time of its records, or by the retention run if they have no timestamps."""
    await produce(broker)
    await produce(broker, batch(timestamp_ms=NOW_MS + 3_000_000))
    assert len(log_of(broker).segments) == 1
    await change(broker, segment_ms=60_000)
    await produce(broker, batch(timestamp_ms=NOW_MS + 3_000_000))
    assert len(log_of(broker).segments) == 2
    broker.clock.now_ms += 3_100_000
    await retention(broker)
    assert len(log_of(broker).segments) == 3


@effect("segment.jitter.ms")
async def test_segments_end_earlier_by_a_part_of_it(broker: Broker) -> None:
    """Logs that were created together do not all roll together."""
    await change(broker, segment_ms=60_000)
    await produce(broker)
    await produce(broker, batch(timestamp_ms=NOW_MS + 59_999))
    assert len(log_of(broker).segments) == 1
    await change(broker, segment_jitter_ms=60_000)
    await produce(broker, batch(timestamp_ms=NOW_MS + 59_999))
    assert len(log_of(broker).segments) == 2


@pytest.mark.parametrize("name", sorted(EFFECTS))
def test_a_changed_setting_takes_effect_on_a_running_broker(name: str) -> None:
    """A config that waits for a restart would leave a topic unbounded unnoticed."""

    async def main(world: Simulation) -> None:
        async with Broker() as broker:
            await broker.create("t")
            await EFFECTS[name](broker)
            described = await describe(broker, "t", name)
            assert described.configs[0].config_source == 1  # the source is the topic

    run(1, main)


for _test in EFFECTS.values():  # run by the parametrized test, which supplies the broker
    _test.__test__ = False


def test_every_row_of_the_table_is_tried() -> None:
    """Storing and showing a config without applying it would be worse than rejecting it."""
    assert EFFECTS.keys() == TOPIC_CONFIGS.keys()


def test_the_job_runs_by_itself_at_the_brokers_interval() -> None:
    """The test does not call retention itself."""

    async def main(world: Simulation) -> None:
        async with Broker(**{"log.retention.check.interval.ms": 5000}) as broker:
            await broker.create("t", retention_ms=1)
            await broker.produce("t", batch())
            broker.clock.now_ms += DAY_MS
            await asyncio.sleep(4.9)
            assert log_of(broker).log_start_offset == 0
            await asyncio.sleep(0.2)
            assert log_of(broker).log_start_offset == 1
            assert broker.node.counters.segments_deleted == 1

    run(1, main)


def test_records_from_before_there_was_a_flush_ms_are_flushed() -> None:
    """Nobody may append for hours, and these records were the reason to set it."""

    async def main(world: Simulation) -> None:
        async with Broker() as broker:
            await broker.create("t")
            await produce(broker)
            await change(broker, flush_ms=1000)
            await asyncio.sleep(1.1)
            assert log_of(broker).recovery_point == 1

    run(1, main)


def test_a_log_that_cannot_be_read_keeps_no_other_from_its_retention() -> None:
    """One bad file must not let all other logs fill the disk."""

    async def main(world: Simulation) -> None:
        async with Broker() as broker:
            for topic in ("a", "t"):
                await broker.create(topic, retention_ms=1)
                await broker.produce(topic, batch())
            broker.node.topics.partition("a", 0).log.retire()
            broker.clock.now_ms += DAY_MS
            await retention(broker)
            assert log_of(broker).log_start_offset == 1

    run(1, main)
