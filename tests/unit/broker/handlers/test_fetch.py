"""Fetch: immediate and delayed responses, limits, and errors."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from aiokq.broker.log.cold_reads import MOST_TRIES
from aiokq.broker.log.disk_load import ColdRead, DiskLoad
from aiokq.connection.request_context import RequestContext
from aiokq.records.header import iter_headers
from aiokq.records.legacy import decode_message_set
from tests.unit.broker.harness import Broker, batch, offsets, until, watch_offload


async def filled(broker, topic="t", batches=4, **options):
    """Create a topic with batches of two records each."""
    topic_id = await broker.create(topic)
    for _ in range(batches):
        assert (await broker.produce(topic, batch(2, **options))).error_code == 0
    return topic_id


@pytest.mark.parametrize("version", range(4, 13))
async def test_every_version_reads_what_was_written(version):
    """Versions up to 12 name topics."""
    async with Broker() as broker:
        await filled(broker)
        data = await broker.fetch_one("t", 0, 0, version=version)
        assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 8, 8)
        assert offsets(data.records) == list(range(8))
        assert data.aborted_transactions is None
        if version >= 5:
            assert data.log_start_offset == 0


@pytest.mark.parametrize("version", range(13, 19))
async def test_from_version_13_on_topics_go_by_id(version):
    """An unknown id gets UNKNOWN_TOPIC_ID."""
    async with Broker() as broker:
        topic_id = await filled(broker)
        data = await broker.fetch_one(topic_id, 0, 2, version=version)
        assert offsets(data.records) == [2, 3, 4, 5, 6, 7]
        data = await broker.fetch_one(uuid.UUID(int=3), 0, 0, version=version)
        assert (data.error_code, bytes(data.records)) == (100, b"")


async def test_a_recreated_topic_is_unknown_by_its_old_id():
    """Its offsets belong to other records now."""
    async with Broker() as broker:
        old = await filled(broker)
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        new = await filled(broker)
        assert old != new
        assert (await broker.fetch_one(old, 0, 0, version=13)).error_code == 100
        assert (await broker.fetch_one(new, 0, 0, version=13)).error_code == 0


@pytest.mark.parametrize("version", range(4))
async def test_versions_before_4_are_converted_down_with_legacy(version):
    """Format 0 up to version 1, format 1 in versions 2 and 3; offsets are unchanged."""
    async with Broker(legacy=True) as broker:
        await filled(broker)
        data = await broker.fetch_one("t", 0, 4, version=version)
        assert {header.magic for header in iter_headers(data.records)} == {0 if version < 2 else 1}
        assert [message.offset for message in decode_message_set(data.records)] == [4, 5, 6, 7]


@pytest.mark.parametrize(
    ("operation", "code"), [("zstd", 76), ("damage", 2), ("shorter", 56), ("pread", 56)]
)
async def test_what_cannot_be_converted_down_is_an_error_of_its_partition(operation, code):
    """Closing the connection would fail the other partitions too, and the client would retry."""
    async with Broker(legacy=True) as broker:
        await filled(broker, "good")
        await broker.create("t")
        await broker.produce("t", batch(2, codec=4 if operation == "zstd" else 0))
        path = next(iter(broker.node.topics.partition("t", 0).log.segments)).path(".log")
        if operation == "damage":
            broker.files.corrupt(path, 61)
        elif operation == "shorter":
            broker.files.open(path).truncate(63)
        elif operation == "pread":
            reads = broker.files.fail("pread", matches=lambda name: name == path, times=None)
            assert reads
        response = await broker.fetch(("t", 0, 0), ("good", 0, 0), version=3)
        [bad, good] = [topic.partitions[0] for topic in response.responses]
        assert (bad.error_code, bytes(bad.records)) == (code, b"")
        assert good.error_code == 0
        assert len(list(decode_message_set(good.records))) == 8


async def test_an_offset_within_a_batch_gets_the_whole_batch():
    """Batches are never divided; a client skips records before its offset."""
    async with Broker() as broker:
        await filled(broker)
        assert offsets((await broker.fetch_one("t", 0, 3)).records) == [2, 3, 4, 5, 6, 7]


async def test_a_batch_larger_than_every_limit_still_comes_when_it_is_the_first():
    """KIP-74: otherwise the consumer would never get past it."""
    async with Broker() as broker:
        await filled(broker, value=b"x" * 1000)
        data = await broker.fetch_one("t", 0, 0, 10, max_bytes=10)
        assert offsets(data.records) == [0, 1]


async def test_the_request_limit_is_shared_by_partitions_in_order():
    """Only the first partition with records gets a batch beyond the limit."""
    async with Broker() as broker:
        await filled(broker, "a", value=b"x" * 1000)
        await filled(broker, "b", value=b"x" * 1000)
        response = await broker.fetch(("a", 0, 0), ("b", 0, 0), max_bytes=2500)
        got = {t.topic: offsets(t.partitions[0].records) for t in response.responses}
        assert got == {"a": [0, 1], "b": []}
        response = await broker.fetch(("a", 0, 8), ("b", 0, 0), max_bytes=10)
        got = {t.topic: offsets(t.partitions[0].records) for t in response.responses}
        assert got == {"a": [], "b": [0, 1]}


async def test_the_broker_has_a_limit_of_its_own():
    """fetch.max.bytes protects the broker from consumers without a limit."""
    async with Broker(fetch_max_bytes=2500) as broker:
        await filled(broker, value=b"x" * 1000)
        data = await broker.fetch_one("t", 0, 0, max_bytes=2**31 - 1)
        assert offsets(data.records) == [0, 1]


async def test_offsets_before_the_start_or_behind_the_end_are_1():
    """The log end offset is no error, although no record is there yet."""
    async with Broker() as broker:
        await filled(broker)
        broker.node.topics.partition("t", 0).delete_records(4)
        assert (await broker.fetch_one("t", 0, 3)).error_code == 1
        assert (await broker.fetch_one("t", 0, -1)).error_code == 1
        assert (await broker.fetch_one("t", 0, 9)).error_code == 1
        end = await broker.fetch_one("t", 0, 8)
        assert (end.error_code, bytes(end.records), end.high_watermark) == (0, b"", 8)
        start = await broker.fetch_one("t", 0, 4)
        assert offsets(start.records) == [4, 5, 6, 7]
        assert start.log_start_offset == 4


async def test_an_error_is_answered_with_no_offsets_and_empty_records():
    """Records are empty instead of null, as in Kafka."""
    async with Broker() as broker:
        data = await broker.fetch_one("absent", 0, 0)
        assert (data.error_code, data.high_watermark, bytes(data.records)) == (3, -1, b"")


async def test_leader_epochs_fence_readers_with_older_or_newer_metadata():
    """FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for a newer one."""
    async with Broker() as broker:
        await filled(broker)
        broker.node.topics.partition("t", 0).leader_epoch = 3
        for epoch, code in ((2, 74), (3, 0), (4, 75), (-1, 0)):
            asked = {"current_leader_epoch": epoch}
            data = await broker.fetch_one("t", 0, 0, 1000, asked)
            assert data.error_code == code


async def test_a_reader_whose_log_went_another_way_is_told_where():
    """KIP-595: the response has the diverging epoch and its end, and no records."""
    async with Broker() as broker:
        await filled(broker)
        partition = broker.node.topics.partition("t", 0)
        partition.leader_epoch = 5
        await broker.produce("t", batch(2))
        asked = {"last_fetched_epoch": 0}
        data = await broker.fetch_one("t", 0, 9, 1000, asked, max_wait_ms=60_000)
        assert data.error_code == 0
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 8)
        assert bytes(data.records) == b""
        data = await broker.fetch_one("t", 0, 8, 1000, asked)
        assert data.diverging_epoch is None
        assert offsets(data.records) == [8, 9]


async def test_a_follower_that_is_no_replica_is_6():
    """Another node with a stale configuration must not read beyond the high watermark."""
    async with Broker() as broker:
        await filled(broker)
        assert (await broker.fetch_one("t", 0, 0, version=12, replica_id=7)).error_code == 6


async def test_committed_readers_get_an_empty_list_of_aborted_transactions():
    """Kafka sends them a list, and null to readers of uncommitted records."""
    async with Broker() as broker:
        await filled(broker)
        data = await broker.fetch_one("t", 0, 0, isolation_level=1)
        assert data.aborted_transactions == []
        assert offsets(data.records) == list(range(8))


async def test_zstd_topics_are_not_for_versions_before_10():
    """UNSUPPORTED_COMPRESSION_TYPE, because such a client could not decode the records."""
    async with Broker() as broker:
        await broker.create("t", compression_type="zstd")
        assert (await broker.fetch_one("t", 0, 0, version=9)).error_code == 76
        assert (await broker.fetch_one("t", 0, 0, version=10)).error_code == 0


# The long poll


async def test_what_only_the_disk_has_is_read_off_the_loop():
    """Otherwise one reader of old records would make all clients wait for a slow disk."""
    async with Broker() as broker:
        await filled(broker)
        moved = watch_offload(broker)
        assert (await broker.fetch_one("t", 0, 0)).records
        assert moved == []
        log = broker.node.topics.partition("t", 0).log
        broker.files.chill(log.segments[0].file.path)
        assert len(offsets((await broker.fetch_one("t", 0, 0)).records)) == 8
        assert len(moved) == 1
        assert len(broker.files.waits) == 1


async def test_what_the_disk_cannot_read_is_an_error_of_its_partition():
    """Regression: the connection was closed, and the client repeated the request for ever."""
    async with Broker() as broker:
        await filled(broker)
        await filled(broker, "other")
        path = broker.node.topics.partition("t", 0).log.segments[0].file.path
        broker.files.chill(path)
        broker.files.fail("pread", matches=lambda each: each == path)
        response = await broker.fetch(("t", 0, 0), ("other", 0, 0))
        bad, good = (topic.partitions[0] for topic in response.responses)
        assert (bad.error_code, bad.high_watermark, bytes(bad.records)) == (56, -1, b"")
        assert good.error_code == 0
        assert good.records


async def waiting(broker, *asked, **options):
    task = asyncio.create_task(broker.fetch(*asked, max_wait_ms=60_000, **options))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def records(response, topic="t"):
    return [offsets(t.partitions[0].records) for t in response.responses if t.topic == topic]


async def test_a_fetch_at_the_end_waits_for_the_next_append():
    """The response has the appended records."""
    async with Broker() as broker:
        await filled(broker)
        task = await waiting(broker, ("t", 0, 8))
        assert not task.done()
        await broker.produce("t", batch())
        assert records(await task) == [[8]]


async def test_a_fetch_waits_until_min_bytes_are_there():
    """min_bytes counts over all partitions of the request."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.create("u")
        task = await waiting(broker, ("t", 0, 0), ("u", 0, 0), min_bytes=150)
        await broker.produce("t", batch())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        await broker.produce("u", batch())
        await broker.produce("u", batch())
        response = await task
        assert records(response, "t") == [[0]]
        assert records(response, "u") == [[0, 1]]


async def test_the_deadline_brings_what_there_is():
    """Fewer bytes than min_bytes are returned, or none."""
    async with Broker() as broker:
        await filled(broker, batches=1)
        data = await broker.fetch_one("t", 0, 0, max_wait_ms=5, min_bytes=10_000)
        assert offsets(data.records) == [0, 1]
        data = await broker.fetch_one("t", 0, 2, max_wait_ms=5)
        assert (data.error_code, bytes(data.records)) == (0, b"")


async def test_errors_and_empty_requests_do_not_wait():
    """The client must get the error at once."""
    async with Broker() as broker:
        await filled(broker)
        response = await broker.fetch(("t", 0, 8), ("absent", 0, 0), max_wait_ms=60_000)
        assert [t.partitions[0].error_code for t in response.responses] == [0, 3]
        assert (await broker.fetch(max_wait_ms=60_000)).responses == []


async def test_deletion_wakes_those_who_wait():
    """They get an unknown topic at once instead of after max_wait."""
    async with Broker() as broker:
        await filled(broker)
        task = await waiting(broker, ("t", 0, 8))
        await broker.node.metadata.delete_topic(broker.node.topics.get("t"))
        response = await task
        assert response.responses[0].partitions[0].error_code == 3


async def test_a_client_that_leaves_takes_its_wait_along():
    """Otherwise a reconnecting client could pile up fetches that wait for a minute each."""
    async with Broker() as broker:
        await filled(broker)
        client = RequestContext(9, "127.0.0.1:1", "127.0.0.1", "PLAINTEXT")
        task = await waiting(broker, ("t", 0, 8), client=client)
        assert len(broker.node.purgatory) == 1
        client.disconnected()
        await task
        assert len(broker.node.purgatory) == 0


async def test_a_broker_that_stops_answers_its_waiting_fetches():
    """A stop must not last as long as the longest poll."""
    broker = Broker()
    await broker.node.open()
    await filled(broker)
    task = await waiting(broker, ("t", 0, 8))
    broker.node.purgatory.close()
    assert records(await task) == [[]]
    await broker.node.close()


# sessions


async def test_a_session_is_opened_used_and_tells_only_news():
    """KIP-227 through the handler; the rules are tested with the cache of sessions."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.create("u")
        first = await broker.fetch(("t", 0, 0), ("u", 0, 0), session_epoch=0)
        assert first.session_id > 0
        assert len(first.responses) == 2
        quiet = await broker.fetch(session_id=first.session_id, session_epoch=1)
        assert (quiet.error_code, quiet.responses) == (0, [])
        await broker.produce("u", batch())
        news = await broker.fetch(session_id=first.session_id, session_epoch=2)
        assert [t.topic for t in news.responses] == ["u"]
        assert news.session_id == first.session_id


async def test_an_incremental_fetch_waits_like_any_other():
    """Its partitions come from the session."""
    async with Broker() as broker:
        await broker.create("t")
        first = await broker.fetch(("t", 0, 0), session_epoch=0)
        task = await waiting(broker, session_id=first.session_id, session_epoch=1)
        await broker.produce("t", batch())
        assert records(await task) == [[0]]


async def test_session_errors_are_errors_of_the_whole():
    """FETCH_SESSION_ID_NOT_FOUND for its id, INVALID_FETCH_SESSION_EPOCH for its epoch."""
    async with Broker() as broker:
        await broker.create("t")
        response = await broker.fetch(session_id=99, session_epoch=4)
        assert (response.error_code, response.responses) == (70, [])
        first = await broker.fetch(("t", 0, 0), session_epoch=0)
        response = await broker.fetch(session_id=first.session_id, session_epoch=9)
        assert response.error_code == 71


async def test_versions_before_7_know_no_sessions():
    """Their responses have no field for a session."""
    async with Broker() as broker:
        await filled(broker)
        response = await broker.fetch(("t", 0, 0), version=6)
        assert response.session_id == 0
        assert len(broker.node.fetch_sessions) == 0


async def test_a_partition_that_the_disk_does_not_give_keeps_the_others_from_nothing():
    """Records that leave memory before they can be sent are an error of their partition only.

    It counts as one error, however often the read was repeated.
    """
    async with Broker() as broker:
        for topic in ("cold", "warm"):
            await filled(broker, topic)
        log = broker.node.topics.partition("cold", 0).log
        segment, looks = log.segments[0], []

        def never(*args: object, **options: object) -> None:
            looks.append(args)
            raise ColdRead([DiskLoad(segment, "never", lambda: None)])

        log.read = never
        response = await broker.fetch(("cold", 0, 0), ("warm", 0, 0))
        cold, warm = (topic.partitions[0] for topic in response.responses)
        assert (cold.error_code, bytes(cold.records)) == (56, b"")
        assert offsets(warm.records) == list(range(8))
        assert len(looks) > MOST_TRIES
        assert broker.node.counters.errors["KAFKA_STORAGE_ERROR"] == 1


@pytest.mark.parametrize("comes", [False, True])
async def test_who_waits_for_more_gets_what_only_the_disk_has(*, comes: bool):
    """A fetch that waited for more bytes reads old records off the loop.

    Regression: the old records had left memory when they were sent, so the loop waited for disk.
    """
    async with Broker() as broker:
        await broker.create("t", index_interval_bytes=100)
        for _ in range(40):
            await broker.produce("t", batch(2, value=bytes(100)))
        files = broker.files
    async with Broker(files) as broker:
        wait = 20_000 if comes else 100
        fetch = asyncio.create_task(broker.fetch_one("t", 0, 5, max_wait_ms=wait, min_bytes=20_000))
        await until(lambda: len(broker.node.purgatory))
        files.chill_all("/data")
        if comes:
            await broker.produce("t", batch(2, value=bytes(10_000)))
        data = await fetch
        assert data.error_code == 0
        assert offsets(data.records)[0] == 4
