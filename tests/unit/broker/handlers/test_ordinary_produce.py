"""The fast path of Produce must behave as the general path, or leave a request to it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import uuid
from itertools import pairwise

import pytest

from aiokq import wire
from aiokq.broker.handlers import h00_produce
from aiokq.connection.request_context import CloseConnection, RequestContext
from aiokq.connection.turn import BATCHES_PER_REQUEST, REQUESTS_PER_TURN
from aiokq.core.errors import KafkaStorage
from tests.unit.broker.harness import NOW_MS, Broker, batch, offsets, until
from tests.unit.broker.log.test_flusher import slow
from tests.unit.broker.transactional_client import (
    TRANSACTIONAL,
    TransactionalClient,
    read_committed,
    world,
)


@pytest.fixture
def looked_into(monkeypatch):
    """The requests that were left to the general path."""
    requests = []
    handle = h00_produce.handle

    async def noting(topics, admission, configs, host, turn, request, call):
        requests.append(request)
        return await handle(topics, admission, configs, host, turn, request, call)

    monkeypatch.setattr(h00_produce, "handle", noting)
    return requests


def request(*parts, acks=-1):
    """Return a request of (topic, partition, records)."""
    topics: dict[object, list[wire.PartitionProduceData]] = {}
    for topic, partition, records in parts:
        data = wire.PartitionProduceData(index=partition, records=records)
        topics.setdefault(topic, []).append(data)
    return wire.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            wire.TopicProduceData(
                partition_data=data,
                **({"topic_id": topic} if isinstance(topic, uuid.UUID) else {"name": topic}),
            )
            for topic, data in topics.items()
        ],
    )


def results(response):
    return [
        (each.index, each.error_code, each.base_offset)
        for topic in response.responses
        for each in topic.partition_responses
    ]


@pytest.mark.parametrize("version", range(3, 14))
async def test_many_partitions_of_many_topics(version, looked_into):
    """Java sends one request to a broker for all partitions that are ready."""
    async with Broker() as broker:
        first, second = await broker.create("a", 3), await broker.create("b", 2)
        if version < 13:
            first, second = "a", "b"
        parts = [(first, 2, batch(3)), (first, 0, batch(1)), (second, 1, batch(2))]
        for times in range(2):
            response = await broker.ask(request(*parts), version)
            assert results(response) == [(2, 0, 3 * times), (0, 0, times), (1, 0, 2 * times)]
        stored = await broker.fetch_one("a", 2, 0)
        assert offsets(stored.records) == [0, 1, 2, 3, 4, 5]
        counters = broker.node.counters
        assert (counters.batches_appended, counters.records_appended) == (6, 12)
        assert counters.record_bytes_appended == 2 * sum(len(data) for _, _, data in parts)
        assert looked_into == []


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_acknowledgements(acks, looked_into):
    """With acks=0 there is no response."""
    async with Broker() as broker:
        await broker.create("t")
        assert (await broker.produce("t", batch(), acks=acks) is None) == (acks == 0)
        assert broker.node.topics.partition("t", 0).log.log_end_offset == 1
        assert looked_into == []


@pytest.mark.parametrize("version", [3, 11, 12, 13])
@pytest.mark.parametrize("committed", [True, False])
async def test_only_batches_whose_transaction_has_to_be_verified_are_looked_into(
    version, committed, looked_into
):
    """From version 12 on, the first batch in a partition adds it to the transaction at once.

    Before, it asks the coordinator; later batches, and their retries, find it in the log.
    """
    async with world() as broker:
        topic = await broker.create("t", 2)
        client = TransactionalClient(broker, version=2 if version >= 12 else 1)
        assert await client.initialize() == 0
        named = topic if version >= 13 else "t"
        for transaction in range(1, 3):
            for partition in range(2):
                if version < 12:
                    assert await client.add("t", partition) == 0
                for times in range(5):
                    result = await client.send(named, 2, partition=partition, version=version)
                    assert result.error_code == 0
                    if times == 3:
                        last = client.sequences[named, partition] - 2
                        again = await client.send(
                            named, 2, partition=partition, version=version, sequence=last
                        )
                        assert (again.error_code, again.base_offset) == (0, result.base_offset)
            verified = 2 * transaction if version < 12 else 0
            assert len(looked_into) == verified
            assert await client.end(committed) == 0
        if not committed:
            assert len((await read_committed(broker, "t"))[1]) == 2
        assert len(looked_into) == verified


@pytest.mark.parametrize("settings", [{}, {"message_timestamp_type": "LogAppendTime"}])
async def test_all_partitions_of_a_request_join_the_transaction_by_one_record(
    settings, looked_into
):
    """On both paths, although one partition does not exist and one batch comes too early."""
    async with world() as broker:
        await broker.create("t", 4, **settings)
        client = TransactionalClient(broker)
        await client.initialize()

        def records():
            return sum(
                each.log.log_end_offset
                for each in broker.node.topics.get("__transaction_state").partitions
            )

        def of(*partitions, sequence=0):
            data = batch(
                attributes=TRANSACTIONAL,
                producer_id=client.producer_id,
                producer_epoch=client.epoch,
                base_sequence=sequence,
            )
            made = request(*(("t", each, data) for each in partitions))
            made.transactional_id = client.transactional_id
            return made

        before = records()
        assert results(await broker.ask(of(0, 1), 12)) == [(0, 0, 0), (1, 0, 0)]
        assert records() == before + 1
        assert bool(looked_into) == bool(settings)
        answered = await broker.ask(of(1, 2, 9, 3, sequence=1), 12)
        assert results(answered) == [(1, 0, 1), (2, 45, -1), (9, 3, -1), (3, 45, -1)]
        assert records() == before + 2
        topics = (await client.describe()).topics
        assert [(each.topic, each.partitions) for each in topics] == [("t", [0, 1, 2, 3])]
        assert await client.end() == 0
        assert await read_committed(broker, "t", 1) == ([0, 1, 2], [])


@pytest.mark.parametrize("settings", [{}, {"message_timestamp_type": "LogAppendTime"}])
async def test_a_partition_with_a_newer_epoch_does_not_join_the_transaction(settings):
    """Its batch is refused; the marker of the transaction would be refused, too."""
    async with world() as broker:
        await broker.create("t", 2, **settings)
        client = TransactionalClient(broker)
        await client.initialize()
        newer = wire.WritableTxnMarker(
            producer_id=client.producer_id,
            producer_epoch=client.epoch + 2,
            transaction_result=False,
            topics=[wire.WritableTxnMarkerTopic(name="t", partition_indexes=[1])],
            coordinator_epoch=0,
        )
        await broker.ask(wire.WriteTxnMarkersRequest(markers=[newer]), 1)
        data = batch(
            attributes=TRANSACTIONAL,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            base_sequence=0,
        )
        both = request(("t", 0, data), ("t", 1, data))
        both.transactional_id = client.transactional_id
        assert results(await broker.ask(both, 12)) == [(0, 0, 0), (1, 47, -1)]
        [topic] = (await client.describe()).topics
        assert (topic.topic, topic.partitions) == ("t", [0])


async def test_no_partition_joins_a_transaction_whose_commit_may_have_to_wait(looked_into):
    """The batch waits on the general path until the coordinator's record is on the disk."""
    async with world() as broker:
        await broker.create("t")
        client = TransactionalClient(broker)
        await client.initialize()
        synced = wire.IncrementalAlterConfigsResource(
            resource_type=2,
            resource_name="__transaction_state",
            configs=[
                wire.IncrementalAlterConfigsAlterableConfig(
                    name="flush.messages", config_operation=0, value="1"
                )
            ],
        )
        altered = await broker.ask(wire.IncrementalAlterConfigsRequest(resources=[synced]), 1)
        assert altered.responses[0].error_code == 0, altered
        assert (await client.send("t")).error_code == 0
        assert len(looked_into) == 1
        assert (await client.send("t")).error_code == 0
        assert len(looked_into) == 1


async def test_a_batch_outside_the_open_transaction_is_looked_into(looked_into):
    """Of another epoch, or not transactional: the responses are those of the general path."""
    async with world() as broker:
        await broker.create("t")
        client = TransactionalClient(broker)
        await client.initialize()
        await client.wrote("t")
        looked_into.clear()
        client.epoch += 1
        assert (await client.send("t", sequence=0)).error_code == 47
        client.epoch -= 1
        assert len(looked_into) == 1
        outside = batch(producer_id=client.producer_id, producer_epoch=0, base_sequence=1)
        assert (await broker.produce("t", outside, transactional_id="t")).error_code == 48
        assert (await broker.produce("t", outside)).error_code == 48
        assert (await client.send("t")).error_code == 0
        broker.node.topics.partition("t", 0).log.producers.distrust_open_transactions()
        assert (await client.send("t")).error_code == 19
        assert len(looked_into) == 2


async def test_duplicates_and_gaps_of_idempotent_producers(looked_into):
    """A duplicate gets its first offset, a gap OUT_OF_ORDER_SEQUENCE_NUMBER; nothing is written."""
    async with Broker() as broker:
        await broker.create("t", 2)
        one = batch(2, producer_id=5, producer_epoch=0, base_sequence=0)
        two = batch(2, producer_id=5, producer_epoch=0, base_sequence=2)
        late = batch(2, producer_id=5, producer_epoch=0, base_sequence=9)
        assert results(await broker.ask(request(("t", 0, one)), 9)) == [(0, 0, 0)]
        assert results(await broker.ask(request(("t", 0, one)), 9)) == [(0, 0, 0)]
        assert broker.node.counters.records_appended == 2
        response = await broker.ask(request(("t", 0, late), ("t", 1, one)), 9)
        assert results(response) == [(0, 45, -1), (1, 0, 0)]
        assert (
            "sequence 9 of producer 5 does not follow"
            in response.responses[0].partition_responses[0].error_message
        )
        assert results(await broker.ask(request(("t", 0, two)), 9)) == [(0, 0, 2)]
        assert broker.node.counters.errors == {"OUT_OF_ORDER_SEQUENCE_NUMBER": 1}
        assert looked_into == []


@pytest.mark.parametrize("version", [7, 10, 13])
async def test_a_disk_that_refuses_is_56_for_those_on_it(version, looked_into):
    """The error occurs during the write; partitions appended before it succeed."""
    async with Broker(directories=("/a", "/b")) as broker:
        ids = [await broker.create(name) for name in ("t", "u")]
        names = ids if version >= 13 else ["t", "u"]
        logs = [broker.node.topics.partition(name, 0).log for name in ("t", "u")]
        assert logs[0].directory[:2] != logs[1].directory[:2]
        broken = f"{logs[1].directory}/"
        write = type(logs[1].segments[-1].file).pwritev

        def refuse(file, buffers, position):
            if file.path.startswith(broken):
                raise OSError(errno.EIO, "I/O error")
            return write(file, buffers, position)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(logs[1].segments[-1].file), "pwritev", refuse)
            both = request((names[0], 0, batch()), (names[1], 0, batch()))
            response = await broker.ask(both, version)
        assert results(response) == [(0, 0, 0), (0, 56, -1)]
        assert logs[0].log_end_offset == 1
        assert looked_into == []
        both = request((names[0], 0, batch()), (names[1], 0, batch()))
        assert results(await broker.ask(both, version)) == [(0, 0, 1), (0, 56, -1)]


async def test_a_refusal_with_acks_0_closes_the_connection(looked_into):
    """It is the only way to tell the client; the rest of the request is appended."""
    async with Broker() as broker:
        await broker.create("t", 2)
        late = batch(producer_id=5, producer_epoch=0, base_sequence=0)
        await broker.ask(request(("t", 0, late)), 9)
        late = batch(producer_id=5, producer_epoch=0, base_sequence=9)
        with pytest.raises(CloseConnection):
            await broker.ask(request(("t", 0, late), ("t", 1, batch()), acks=0), 9)
        assert broker.node.topics.partition("t", 1).log.log_end_offset == 1
        assert looked_into == []


@pytest.mark.parametrize("acks", [0, -1])
async def test_a_refused_request_is_let_go_at_once(acks, looked_into):
    """Its memory is charged until the response, and must not wait for a garbage collection."""
    async with Broker() as broker:
        await broker.create("t")
        late = batch(producer_id=5, producer_epoch=0, base_sequence=0)
        await broker.ask(request(("t", 0, late)), 9)
        late = batch(producer_id=5, producer_epoch=0, base_sequence=9)
        fragments = wire.encode_request(
            request(("t", 0, late), acks=acks), version=9, correlation_id=7, client_id="test"
        )
        memory = bytearray(b"".join(bytes(each) for each in fragments)[4:])
        context = RequestContext(1, "peer:1", "peer", "PLAINTEXT")
        gc.disable()
        try:
            with contextlib.suppress(CloseConnection):
                assert await broker.node.dispatcher.handle(context, memoryview(memory))
            memory.append(0)  # raises BufferError while a view of it exists
        finally:
            gc.enable()
        assert broker.node.counters.errors == {"OUT_OF_ORDER_SEQUENCE_NUMBER": 1}
        assert looked_into == []


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup_policy": "compact"},
        {"compression_type": "gzip"},
        {"message_timestamp_type": "LogAppendTime"},
        {"message_timestamp_before_max_ms": "1000"},
        {"flush_messages": "1"},
        {"flush_ms": "1"},
        {"max_message_bytes": "60"},
    ],
    ids=lambda settings: next(iter(settings)),
)
async def test_settings_that_concern_records_are_looked_into(settings, looked_into):
    """Such configs take effect on both paths while the topic is in use."""
    async with Broker() as broker:
        await broker.create("t", **settings)
        await broker.create("plain")
        await broker.produce("t", batch())
        assert len(looked_into) == 1
        topic = broker.node.topics.get("plain")
        configs = {name.replace("_", "."): value for name, value in settings.items()}
        await broker.produce("plain", batch())
        assert len(looked_into) == 1
        await broker.node.metadata.alter_topic_configs(topic, lambda _: configs)
        await broker.produce("plain", batch())
        assert len(looked_into) == 2
        await broker.node.metadata.alter_topic_configs(topic, lambda _: {})
        await broker.produce("plain", batch())
        assert len(looked_into) == 2


async def test_a_retry_of_what_waits_for_a_flush_waits_as_well(looked_into):
    """Also if the flush policy was removed since: a power cut may still take the batch back."""
    broker = Broker()
    disk = slow(broker, 0)
    async with broker:
        await broker.create("t", flush_messages=1)
        topic = broker.node.topics.get("t")
        once = batch(producer_id=5, producer_epoch=0, base_sequence=0)
        disk.stands_still = True
        first = asyncio.ensure_future(broker.produce("t", once))
        await until(lambda: disk.waiting)
        disk.stands_still = False
        [sync] = disk.waiting
        await broker.node.metadata.alter_topic_configs(topic, lambda _: {})
        again = asyncio.ensure_future(broker.produce("t", once))
        for _ in range(10):
            await asyncio.sleep(0)
        answered = first.done() or again.done()
        sync.set_result(None)
        assert not answered
        assert [answer.base_offset for answer in await asyncio.gather(first, again)] == [0, 0]
        assert len(looked_into) == 2
        assert (await broker.produce("t", batch())).base_offset == 1
        assert len(looked_into) == 2


async def test_what_may_be_refused_is_looked_into_whole(looked_into):
    """A request with one such part appends nothing before the whole request is validated."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.create("__consumer_offsets")
        good = ("t", 0, batch())
        bad = [
            ("absent", 0, batch()),
            ("t", 1, batch()),
            ("t", -1, batch()),
            ("__consumer_offsets", 0, batch()),
            ("t", 0, batch(timestamp_ms=NOW_MS + 3_600_001)),
            ("t", 0, batch(value=b"v" * 1_048_600)),
        ]
        for number, part in enumerate(bad, 1):
            response = await broker.ask(request(good, part), 9)
            first, second = results(response)
            assert (first[1], second[1] != 0) == (0, True)
            assert len(looked_into) == number
        assert broker.node.topics.partition("t", 0).log.log_end_offset == len(bad)


async def test_a_large_request_lets_others_have_their_turn(looked_into):
    """More than 4 MB are appended in several iterations of the loop."""
    async with Broker() as broker:
        await broker.create("t", 5)
        part = batch(value=b"v" * 900_000)
        await broker.ask(request(*(("t", n, part) for n in range(4))), 9)
        assert looked_into == []
        await broker.ask(request(*(("t", n, part) for n in range(5))), 9)
        assert len(looked_into) == 1


async def test_many_small_batches_let_others_have_their_turn(looked_into):
    """Their cost is not in their bytes: 4 MB may hold more than 50,000 batches."""
    async with Broker() as broker:
        await broker.create("t")
        await broker.ask(request(*[("t", 0, batch())] * 1023), 9)
        assert looked_into == []
        turns = []
        many = asyncio.ensure_future(broker.ask(request(*[("t", 0, batch())] * 5000), 9))
        while not many.done():
            turns.append(broker.node.topics.partition("t", 0).log.log_end_offset)
            await asyncio.sleep(0)
        ends = [*turns, 6023]
        most = BATCHES_PER_REQUEST * (REQUESTS_PER_TURN + 1)
        assert max(end - begin for begin, end in pairwise(ends)) <= most
        assert [each.base_offset for each in (await many).responses[0].partition_responses] == list(
            range(1023, 6023)
        )
        assert len(looked_into) == 1


async def test_segments_end_where_they_are_full(looked_into):
    """A batch larger than a segment is rejected, even if max.message.bytes allows it."""
    async with Broker() as broker:
        await broker.create("t", segment_bytes=1_048_576, max_message_bytes=2_000_000)
        for base_offset in range(3):
            answer = await broker.produce("t", batch(value=b"v" * 600_000))
            assert (answer.error_code, answer.base_offset) == (0, base_offset)
        log = broker.node.topics.partition("t", 0).log
        assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
        assert looked_into == []
        assert (await broker.produce("t", batch(value=b"v" * 1_048_600))).error_code == 18
        assert looked_into == []


async def test_a_partition_without_its_log_is_looked_into(looked_into):
    """Its directory failed or it is being recovered; the response says which."""
    async with Broker() as broker:
        await broker.create("t", 2)
        broker.node.topics.partition("t", 1).take_offline(KafkaStorage("its directory failed"))
        response = await broker.ask(request(("t", 0, batch()), ("t", 1, batch())), 9)
        assert results(response) == [(0, 0, 0), (1, 56, -1)]
        assert len(looked_into) == 1


async def test_more_in_sync_replicas_than_there_are_replicas_are_not_asked_for(looked_into):
    """Kafka does not ask for more replicas than a topic has, as with min.insync.replicas=2 here."""
    async with Broker() as broker:
        await broker.create("t", min_insync_replicas=2)
        assert (await broker.produce("t", batch(), acks=1)).error_code == 0
        assert looked_into == []
        assert (await broker.produce("t", batch(), acks=-1)).error_code == 0
        assert looked_into == []


async def test_short_frames_are_left_to_the_general_path(looked_into):
    """Frames of no byte, of one byte, or of an API key only."""
    async with Broker() as broker:
        for frame in (b"", b"\0", b"\0\0", b"\0\0\0\x09"):
            with pytest.raises(Exception, match="header"):
                await broker.frame(frame)
        assert broker.node.dispatcher._ordinary.answer(broker.client, memoryview(b"")) is None
