"""aiokq's consumer on Apache Kafka, one node: reading, seeking, and following topics."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator

import pytest

import aiokq
from aiokq import errors
from aiokq.core.types import TopicFilter
from tests.interop.apache.support import (
    BASE_TIME,
    create_topic,
    eventually,
    logged_batches,
    value,
)
from tests.peers.apache_kafka import run_tool

pytestmark = pytest.mark.kafka


async def produce(
    apache, topic: str, count: int, partition: int = 0, first: int = 0, **settings
) -> None:
    async with aiokq.Producer(apache.bootstrap_servers, **settings) as producer:
        records = [(None, value(n), None, BASE_TIME + n) for n in range(first, first + count)]
        await (await producer.send_many(topic, records, partition=partition))


def consumer(apache, *topics: str | TopicFilter, **settings) -> aiokq.Consumer:
    return aiokq.Consumer(
        *topics,
        bootstrap_servers=apache.bootstrap_servers,
        **{"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100, **settings},
    )


async def take(records: AsyncIterator[aiokq.Record], count: int) -> list[aiokq.Record]:
    """Return the next `count` records; fail if they do not come."""
    found: list[aiokq.Record] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            async for record in records:
                found.append(record)
                if len(found) == count:
                    break
    return found


async def test_a_topic_is_read_by_records_batches_and_portions(apache, topic):
    """The three ways of reading share positions: each continues where the previous one stopped."""
    await create_topic(apache, topic)
    await produce(apache, topic, 3000, batch_size=5000)
    async with consumer(apache, topic, max_partition_fetch_bytes=10_000) as reader:
        found = await take(reader, 700)
        while len(found) < 1500:
            for records in (await reader.getmany(timeout=10, max_records=100)).values():
                found += records
        async for batch in reader.batches():
            assert (batch.topic, batch.partition) == (topic, 0)
            found += batch
            assert batch.next_offset == len(found)
            if len(found) >= 2500:
                break
        found += await take(reader, 3000 - len(found))
        assert await reader.position((topic, 0)) == 3000
        assert await reader.getmany() == {}
    assert [record.offset for record in found] == list(range(3000))
    assert [record.value for record in found] == [value(n) for n in range(3000)]
    assert [record.timestamp_ms for record in found] == [BASE_TIME + n for n in range(3000)]
    assert {record.topic for record in found} == {topic}


async def test_streams_share_the_partitions(apache, topic):
    """Each partition is in exactly one stream, in order."""
    await create_topic(apache, topic, 5)
    for partition in range(5):
        await produce(apache, topic, 200, partition)
    seen: list[set[int]] = [set(), set()]
    offsets: dict[int, list[int]] = {n: [] for n in range(5)}
    async with consumer(apache, topic) as reader:

        async def read(stream, partitions: set[int]) -> None:
            async for record in stream:
                partitions.add(record.partition)
                offsets[record.partition].append(record.offset)
                if sum(map(len, offsets.values())) == 1000:
                    await reader.close()

        async with asyncio.timeout(20):
            await asyncio.gather(*map(read, reader.streams(2), seen))
    assert seen[0].isdisjoint(seen[1])
    assert all(numbers == list(range(200)) for numbers in offsets.values())


async def test_assigned_partitions_are_read_from_where_one_seeks(apache, topic):
    """assign, seek, end offsets, positions, lag, pause and resume."""
    await create_topic(apache, topic, 3)
    for partition in range(3):
        await produce(apache, topic, 100, partition)
    async with consumer(apache, auto_offset_reset="none") as reader:
        tps = [(topic, 0), (topic, 2)]
        reader.assign(tps)
        assert reader.assignment() == set(tps)
        with pytest.raises(errors.NoOffsetForPartition):
            await take(reader, 1)
        reader.seek((topic, 0), 90)
        await reader.seek_to_end((topic, 2))
        assert await reader.position((topic, 2)) == 100
        assert [r.offset for r in await take(reader, 10)] == list(range(90, 100))
        assert reader.lag((topic, 0)) == 0
        assert reader.highwater((topic, 0)) == 100
        await reader.seek_to_beginning()
        reader.pause((topic, 0))
        assert reader.paused() == {(topic, 0)}
        assert {r.partition for r in await take(reader, 100)} == {2}
        assert await reader.getmany(timeout=0.3) == {}
        reader.resume((topic, 0))
        assert [(r.partition, r.offset) for r in await take(reader, 100)] == [
            (0, n) for n in range(100)
        ]
        assert await reader.beginning_offsets(tps) == dict.fromkeys(tps, 0)
        assert await reader.end_offsets(tps) == dict.fromkeys(tps, 100)
        assert reader.partitions_for_topic(topic) == {0, 1, 2}
        assert topic in await reader.topics()


async def test_offsets_are_found_by_time(apache, topic):
    """The result is the first record at or after the time, or None; `by_duration` starts there."""
    now = int(time.time() * 1000)
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        for n in range(10):
            age_ms = (10 - n) * 3_600_000 - 1_800_000
            await producer.send(topic, value(n), partition=0, timestamp_ms=now - age_ms)
    async with consumer(apache, topic, auto_offset_reset="by_duration:PT3H") as reader:
        tp = (topic, 0)
        found = await reader.offsets_for_times({tp: now - 5 * 3_600_000})
        assert found[tp].offset == 5
        assert found[tp].timestamp_ms == now - 5 * 3_600_000 + 1_800_000
        assert await reader.offsets_for_times({tp: now + 3_600_000}) == {tp: None}
        assert [r.offset for r in await take(reader, 3)] == [7, 8, 9]


async def test_patterns_and_filters_take_topics_as_they_come(apache, topic):
    """Matching topics are found while running and read from the beginning; others are not."""
    for name in ("a", "b", "x"):
        await create_topic(apache, f"{topic}-{name}")
        await produce(apache, f"{topic}-{name}", 5)
    wanted = TopicFilter(include=f"{topic}-.*", exclude=".*-x.*")
    async with (
        consumer(apache, metadata_max_age_ms=300) as by_regex,
        consumer(apache, wanted, metadata_max_age_ms=300, auto_offset_reset="latest") as by_filter,
    ):
        by_regex.subscribe(pattern=re.compile(f"{topic}-[ax].*"))
        assert {r.topic for r in await take(by_regex, 10)} == {f"{topic}-a", f"{topic}-x"}
        await eventually(lambda: by_filter.position((f"{topic}-b", 0)))
        assert await by_filter.position((f"{topic}-a", 0)) == 5
        assert await by_filter.getmany(timeout=0.1) == {}
        for name in ("a2", "x2"):
            await create_topic(apache, f"{topic}-{name}")
            await produce(apache, f"{topic}-{name}", 5)
        new = await take(by_regex, 10)
        assert {r.topic for r in new} == {f"{topic}-a2", f"{topic}-x2"}
        assert [r.topic for r in await take(by_filter, 5)] == [f"{topic}-a2"] * 5
        assert by_filter.subscription() == {f"{topic}-{name}" for name in ("a", "b", "a2")}


async def test_new_partitions_are_read_while_running(apache, topic):
    """Partitions added to a topic are found within the metadata age and read from the beginning."""
    await create_topic(apache, topic)
    await produce(apache, topic, 5)
    async with (
        consumer(apache, topic, auto_offset_reset="latest", metadata_max_age_ms=300) as reader,
        aiokq.Admin(apache.bootstrap_servers) as admin,
    ):
        assert await reader.position((topic, 0)) == 5
        await admin.create_partitions({topic: 3}, raise_errors=True)
        await eventually(lambda: produce(apache, topic, 4, partition=2))
        assert [(r.partition, r.offset) for r in await take(reader, 4)] == [
            (2, n) for n in range(4)
        ]
        assert reader.assignment() == {(topic, n) for n in range(3)}


async def test_a_consumer_may_come_before_its_topic(apache, topic):
    """The consumer waits for a topic that does not exist yet (kafka4net's case 3)."""
    async with consumer(
        apache, topic, metadata_max_age_ms=300, allow_auto_create_topics=False
    ) as reader:
        assert await reader.getmany(timeout=0.3) == {}
        await create_topic(apache, topic)
        await produce(apache, topic, 400)
        assert [r.offset for r in await take(reader, 400)] == list(range(400))


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
async def test_records_deleted_under_the_position_follow_the_policy(apache, topic, policy):
    """DeleteRecords moves the log start offset: OFFSET_OUT_OF_RANGE, then auto_offset_reset."""
    await create_topic(apache, topic)
    await produce(apache, topic, 100)
    async with (
        consumer(apache, auto_offset_reset=policy) as reader,
        aiokq.Admin(apache.bootstrap_servers) as admin,
    ):
        await admin.delete_records({(topic, 0): 60}, raise_errors=True)
        reader.assign([(topic, 0)])
        reader.seek((topic, 0), 10)
        if policy == "earliest":
            assert [r.offset for r in await take(reader, 40)] == list(range(60, 100))
        elif policy == "latest":
            waiting = asyncio.ensure_future(take(reader, 1))
            await asyncio.sleep(0.5)
            await produce(apache, topic, 1, first=100)
            assert [r.offset for r in await waiting] == [100]
        else:
            with pytest.raises(errors.OffsetOutOfRange, match="10"):
                await take(reader, 1)
            reader.seek((topic, 0), 60)
            assert (await take(reader, 1))[0].offset == 60


async def test_a_bounded_read_ends_where_it_shall(apache, topic):
    """cluster.read takes exact ranges, also empty ones (kafka4net's cases 12-15 and 19)."""
    await create_topic(apache, topic, segment_bytes=1_048_576)
    async with aiokq.Cluster(apache.bootstrap_servers) as cluster:
        assert [batch async for batch in cluster.read((topic, 0), 0, 0)] == []
        assert [batch async for batch in cluster.read((topic, 0))] == []
        async with cluster.producer(batch_size=20_000) as producer:
            for _ in range(3):
                await (await producer.send_many(topic, [(None, bytes(1000))] * 700))
        for start, stop in ((0, 2100), (150, 151), (699, 701), (2099, 2100), (5, 5)):
            found = [
                r.offset async for batch in cluster.read((topic, 0), start, stop) for r in batch
            ]
            assert found == list(range(start, stop))
        assert (await cluster.offsets((topic, 0), "earliest")).offset == 0
        assert (await cluster.offsets((topic, 0), "latest")).offset == 2100
        with pytest.raises(errors.OffsetOutOfRange):
            await cluster.fetch((topic, 0), 5000)


async def test_only_committed_records_are_read_if_asked(apache, topic):
    """Aborted transactions of librdkafka are skipped, open ones are read once committed."""
    from confluent_kafka import Producer

    await create_topic(apache, topic, 2)
    writer = Producer(
        {
            "bootstrap.servers": apache.bootstrap_servers,
            "transactional.id": topic,
            "linger.ms": 1,
            "compression.type": "lz4",
        }
    )
    plain = Producer({"bootstrap.servers": apache.bootstrap_servers})

    def transaction(name: str, *, commit: bool) -> None:
        writer.begin_transaction()
        for n in range(20):
            for partition in (0, 1):
                writer.produce(topic, f"{name} {n}", partition=partition)
                if n % 7 == 0:
                    writer.flush(10)  # makes several batches per transaction
        plain.produce(topic, f"plain within {name}", partition=0)
        assert plain.flush(10) == 0
        writer.flush(10)
        (writer.commit_transaction if commit else writer.abort_transaction)(20)

    def write() -> None:
        writer.init_transactions(20)
        for number, commit in enumerate([True, False, False, True, False, True]):
            transaction(f"{'kept' if commit else 'aborted'} {number}", commit=commit)

    await asyncio.to_thread(write)
    expected = [f"kept {t} {n}" for t in (0, 3, 5) for n in range(20)]
    async with consumer(apache, isolation_level="read_committed") as reader:
        reader.assign([(topic, 1)])
        assert [r.value.decode() for r in await take(reader, 60)] == expected
        reader.assign([(topic, 0)])
        found = [r.value.decode() for r in await take(reader, 66)]
        assert [v for v in found if v.startswith("kept")] == expected
        assert len([v for v in found if v.startswith("plain")]) == 6
        # An open transaction holds back all records after it.
        await asyncio.to_thread(writer.begin_transaction)
        writer.produce(topic, "open", partition=0)
        await asyncio.to_thread(writer.flush, 10)
        await produce(apache, topic, 1)
        assert await reader.getmany(timeout=0.5) == {}
        end = await reader.end_offsets([(topic, 0)])
        assert end[(topic, 0)] == reader.last_stable_offset((topic, 0))
        await asyncio.to_thread(writer.commit_transaction, 20)
        assert [r.value for r in await take(reader, 2)] == [b"open", value(0)]
    async with consumer(apache) as reader:
        reader.assign([(topic, 1)])
        found = [r.value.decode() for r in await take(reader, 120)]
        assert len([v for v in found if v.startswith("aborted")]) == 60
        end = (await reader.end_offsets([(topic, 1)]))[(topic, 1)]
        assert end == 126  # includes six markers, which no reader is handed

        async def at_the_end() -> None:
            assert await reader.getmany(timeout=0.1) == {}
            assert await reader.position((topic, 1)) == end

        await eventually(at_the_end)


async def test_fetch_sessions_carry_over_many_fetches(apache, topic):
    """Incremental fetches (KIP-227) return records of partitions that were idle for long."""
    await create_topic(apache, topic, 20)
    expected: dict[int, list[bytes]] = {n: [] for n in range(20)}
    found: dict[int, list[bytes]] = {n: [] for n in range(20)}
    async with (
        consumer(apache, topic, fetch_max_wait_ms=20) as reader,
        aiokq.Producer(apache.bootstrap_servers) as producer,
    ):
        for n in range(150):
            partition = n * n % 20
            expected[partition].append(value(n))
            await producer.send(topic, value(n), partition=partition)
            for records in (await reader.getmany(timeout=0.05 if n % 3 else 0)).values():
                found[records[0].partition] += [record.value for record in records]
            if n % 30 == 29:  # pausing removes a partition from the session, resuming adds it
                reader.resume(*reader.paused())
                reader.pause((topic, n // 30))
        reader.resume(*reader.paused())
        for record in await take(reader, 150 - sum(map(len, found.values()))):
            found[record.partition].append(record.value)
    assert found == expected


async def test_what_compaction_left_is_read(apache, topic):
    """Reading passes over the offset gaps and empty batches that compaction leaves."""
    await create_topic(
        apache, topic, cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.001
    )
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        for n in range(100):
            await producer.send(topic, value(n), b"%d" % (n % 3), 0)
        await asyncio.sleep(0.15)
        await producer.send(topic, b"last", b"last", 0)

    async def compacted() -> None:
        try:
            batches = logged_batches(apache, topic)
        except FileNotFoundError as error:
            raise AssertionError("Kafka's cleaner is exchanging the segment") from error
        assert sum(batch.count for batch in batches) == 4

    await eventually(compacted)
    async with consumer(apache, topic) as reader:
        found = await take(reader, 4)
        assert await reader.position((topic, 0)) == 101
    assert [(r.offset, r.value) for r in found] == [
        *((n, value(n)) for n in (97, 98, 99)),
        (100, b"last"),
    ]


async def test_a_batch_larger_than_every_limit_comes_through(apache, topic):
    """KIP-74: a batch above fetch_max_bytes and max_partition_fetch_bytes is still returned."""
    await create_topic(apache, topic, 2)
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        for n in range(6):
            await producer.send(topic, bytes([n]) * 700_000, partition=n % 2)
    limits = {
        "fetch_max_bytes": 1000,
        "max_partition_fetch_bytes": 1000,
        "queued_max_bytes": 1000,
    }
    async with consumer(apache, topic, **limits) as reader:
        found = await take(reader, 6)
    assert sorted(r.value[0] for r in found) == list(range(6))
    assert {len(r.value) for r in found} == {700_000}


async def test_cancelled_waits_lose_nothing(apache, topic):
    """A position moves when a record is handed over; timeouts around the call change nothing."""
    await create_topic(apache, topic)
    found: list[int] = []
    async with (
        consumer(apache, topic, fetch_max_wait_ms=20) as reader,
        aiokq.Producer(apache.bootstrap_servers, linger_ms=0) as producer,
    ):
        async with asyncio.timeout(20):
            for n in range(100):
                delivery = producer.send_nowait(topic, value(n))
                for patience in (0.0, 0.0005, 0.005):
                    try:
                        found.append((await asyncio.wait_for(reader.getone(), patience)).offset)
                    except TimeoutError:
                        pass
                await delivery
            while len(found) < 100:
                found.append((await reader.getone()).offset)
    assert found == list(range(100))


async def test_a_topic_deleted_and_made_again_is_read_anew(apache, topic):
    """Fetch uses topic ids: the recreated topic is read from its beginning."""
    await create_topic(apache, topic)
    await produce(apache, topic, 50)
    async with (
        consumer(apache, topic, metadata_max_age_ms=500) as reader,
        aiokq.Admin(apache.bootstrap_servers) as admin,
    ):
        assert len(await take(reader, 50)) == 50
        await admin.delete_topics(topic, raise_errors=True)

        async def gone() -> None:
            assert topic not in await admin.list_topics()

        await eventually(gone)
        await create_topic(apache, topic)
        await produce(apache, topic, 30, first=1000)
        assert [r.value for r in await take(reader, 30)] == [value(n) for n in range(1000, 1030)]


@pytest.mark.full
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_what_javas_performance_tool_wrote_is_read(apache, topic, codec):
    """The tool writes full batches with Java's codecs."""
    await create_topic(apache, topic, 3)
    done = await asyncio.to_thread(
        run_tool, "ProducerPerformance", "--bootstrap-server", apache.bootstrap_servers,
        "--topic", topic, "--num-records", "20000", "--record-size", "300",
        "--throughput", "-1", "--command-property", f"compression.type={codec}",
    )  # fmt: skip
    assert "20000 records sent" in done.stdout, done.stderr
    async with consumer(apache, topic) as reader:
        offsets: dict[int, list[int]] = {n: [] for n in range(3)}
        found = 0
        async with asyncio.timeout(20):
            async for batch in reader.batches():
                for record in batch:
                    assert len(record.value) == 300
                    offsets[record.partition].append(record.offset)
                found += len(batch)
                if found == 20_000:
                    break
    assert all(each == list(range(len(each))) for each in offsets.values())
