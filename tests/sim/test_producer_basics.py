"""A producer of a scripted cluster in virtual time: ways to send, batching, flush and close."""

# ruff: noqa: PT012  exceptions are raised in the middle of a block, as in a program

from __future__ import annotations

import asyncio
import inspect
import random
from typing import Any

import pytest

from aiokq.core.errors import (
    BufferFull,
    Closed,
    DeliveryFailed,
    InvalidTopic,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from aiokq.producer.producer import Producer
from tests.sim.producer_world import Silence, producer, simulate, times


def test_a_record_is_acknowledged_with_its_partition_and_offset() -> None:
    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            meta = await p.send("orders", b"value", key=b"k", headers=[("h", b"v")])
            assert (meta.topic, meta.partition, meta.offset) == ("orders", 0, 0)
            assert (await p.send("orders", b"next")).offset == 1
        (first, second) = kafka.log("orders").batches
        assert first.records[0].key == b"k"
        assert list(first.records[0].headers) == [("h", b"v")]
        assert second.records[0].value == b"next"

    simulate(body)


def test_all_ways_to_send_but_send_nowait_are_coroutine_functions() -> None:
    """Programs pass them to create_task(), which does not accept other awaitables."""
    for name in ("send", "enqueue", "send_many", "flush", "close", "send_batch"):
        assert inspect.iscoroutinefunction(getattr(Producer, name)), name
    assert not inspect.iscoroutinefunction(Producer("localhost:9092").send_nowait)


def test_records_sent_within_linger_share_a_batch() -> None:
    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=50) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            deliveries = [p.send_nowait("orders", b"%d" % n) for n in range(10)]
            metas = [await delivery for delivery in deliveries]
            assert [meta.offset for meta in metas] == list(range(10))
            assert 0.05 <= world.loop.time() - start < 0.08
        assert len(kafka.log("orders").batches) == 1

    simulate(body)


def test_a_full_batch_does_not_linger() -> None:
    """linger_ms applies only to batches that are not full."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=60_000, batch_size=1000) as p:
            await p.partitions_for("orders")
            deliveries = [p.send_nowait("orders", b"x" * 100) for _ in range(25)]
            start = world.loop.time()
            await deliveries[0]
            assert world.loop.time() - start < 1
        assert len(kafka.values("orders")) == 25

    simulate(body)


def test_flush_does_not_wait_for_linger() -> None:
    """In other clients a flush took as long as linger_ms; here it closes the batches."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=30_000) as p:
            delivery = p.send_nowait("orders", b"v")
            start = world.loop.time()
            await p.flush()
            assert delivery.done()
            assert world.loop.time() - start < 1

    simulate(body)


def test_batches_linger_again_after_a_flush() -> None:
    """A flush affects only the records sent before it."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=1000) as p:
            await p.send_many("orders", [(None, b"1")])
            await p.flush()
            start = world.loop.time()
            p.send_nowait("orders", b"2")
            await p.send("orders", b"3")
            assert world.loop.time() - start >= 1

    simulate(body)


def test_close_sends_lingering_batches() -> None:
    """In other clients closing lost records that were not sent yet."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka, linger_ms=20_000)
        await p.start()
        for n in range(5):
            await p.enqueue("orders", b"%d" % n)
        report = await p.close()
        assert (report.delivered, report.failed, report.unsent) == (5, 0, 0)
        assert report.complete
        assert len(kafka.values("orders")) == 5
        assert world.loop.time() < 5

    simulate(body)


def test_close_ends_at_its_timeout_and_reports_unsent_records() -> None:
    """In other clients shutdown hung if a broker did not respond."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka)
        await p.start()
        await p.send("orders", b"first")
        kafka.faults.append(times(99, Silence()))
        delivery = await p.enqueue("orders", b"stuck")
        start = world.loop.time()
        report = await p.close(timeout=2.0)
        assert 1.999 < world.loop.time() - start < 4.0
        assert (report.delivered, report.failed, report.unsent) == (1, 0, 1)
        assert report.unsent_by_partition == {("orders", 0): 1}
        error = delivery.exception()
        assert isinstance(error, Closed)
        assert error.may_have_been_written

    simulate(body)


def test_close_is_safe_twice_and_concurrently() -> None:
    """In other clients a second close raised or waited for ever."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka, linger_ms=1000)
        await p.start()
        p.send_nowait("orders", b"v")
        first, second = await asyncio.gather(p.close(), p.close())
        assert first == second == await p.close()
        assert first.delivered == 1

    simulate(body)


def test_cancelling_close_aborts_and_still_closes_the_sockets() -> None:
    """A caller without time to drain must not leak connections and tasks."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka)
        await p.start()
        await p.send("orders", b"first")
        kafka.faults.append(times(99, Silence()))
        delivery = await p.enqueue("orders", b"stuck")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(p.close(), 0.5)
        assert isinstance(delivery.exception(), Closed)
        await asyncio.sleep(2)
        assert kafka[1].connections == 0
        assert (await p.close()).unsent == 1

    simulate(body)


def test_records_sent_after_close_are_refused() -> None:
    """In other clients a send after close was lost or never returned."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            kept = p.send_nowait
            await p.send("orders", b"v")
        for attempt in (kept, p.send_nowait):
            with pytest.raises(Closed):
                attempt("orders", b"late")
        for call in (p.send("orders", b""), p.enqueue("orders", b""), p.send_many("orders", [])):
            with pytest.raises(Closed):
                await call
        with pytest.raises(Closed):
            await p.start()

    simulate(body)


def test_the_error_of_a_producer_that_was_not_started_says_so() -> None:
    """Constructors touch no loop, so a forgotten start() is noticed only here."""

    async def body(world: Any, kafka: Any) -> None:
        p = producer(world, kafka)
        with pytest.raises(Closed, match="not started"):
            p.send_nowait("orders", b"v")
        with pytest.raises(Closed, match="not started"):
            await p.send("orders", b"v")
        report = await p.close()
        assert report.delivered == report.failed == report.unsent == 0

    simulate(body)


def test_an_open_producer_that_is_garbage_collected_warns() -> None:
    """Its lingering records are lost."""

    async def body(world: Any, kafka: Any) -> None:
        p = producer(world, kafka)
        await p.start()
        with pytest.warns(ResourceWarning, match="was not closed"):
            p.__del__()
        await p.close()

    simulate(body)


def test_send_many_keeps_order_and_returns_each_result() -> None:
    """One awaitable stands for many records."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1, 1])
        async with producer(world, kafka) as p:
            records = [(b"k%d" % (n % 7), b"%d" % n) for n in range(500)]
            deliveries = await p.send_many("orders", records)
            assert len(deliveries) == 500
            metas = await deliveries
            assert [deliveries[n].result() for n in (0, 250, 499)] == [
                metas[0],
                metas[250],
                metas[499],
            ]
        stored = {}
        for (_, partition), log in kafka.logs.items():
            for batch in log.batches:
                for n, record in enumerate(batch.records):
                    stored[partition, batch.base_offset + n] = (record.key, record.value)
        assert [stored[m.partition, m.offset] for m in metas] == records

    simulate(body)


def test_send_many_waits_for_buffer_memory_repeatedly() -> None:
    """The records together exceed buffer_memory."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        options = {"buffer_memory": 20_000, "batch_size": 4_000, "linger_ms": 5_000}
        async with producer(world, kafka, **options) as p:
            await p.partitions_for("orders")
            deliveries = await p.send_many("orders", [(None, b"%04d" % n * 50) for n in range(500)])
            metas = await deliveries
            assert [meta.offset for meta in metas] == list(range(500))

    simulate(body)


def test_with_acks_0_a_record_is_done_when_it_is_written_to_the_socket() -> None:
    """The offset is unknown, and no response is expected."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, acks=0) as p:
            metas = [await p.send("orders", b"%d" % n) for n in range(3)]
            assert [meta.offset for meta in metas] == [-1, -1, -1]
            await asyncio.sleep(1)
            assert kafka.values("orders") == [b"0", b"1", b"2"]

    simulate(body)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_by_the_codec_of_their_topic(codec: str) -> None:
    """compression_type applies to all topics, compression_type_by_topic to some."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("plain", [1])
        kafka.topic("packed", [1])
        async with producer(world, kafka, compression_type_by_topic={"packed": codec}) as p:
            for topic in ("plain", "packed"):
                await (await p.send_many(topic, [(None, b"abc" * 100)] * 200))
        assert {batch.codec for batch in kafka.log("plain").batches} == {0}
        ids = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
        assert {batch.codec for batch in kafka.log("packed").batches} == {ids[codec]}
        assert kafka.values("packed") == [b"abc" * 100] * 200

    simulate(body)


@pytest.mark.parametrize("large", [False, True], ids=["on the loop", "in a thread"])
def test_a_batch_that_compression_hardly_shrinks_is_sent_uncompressed(large: bool) -> None:
    """compression_max_ratio: random bytes stay as they are, text is compressed."""

    async def body(world: Any, kafka: Any) -> None:
        size = 50_000 if large else 5_000
        options = {"compression_type": "gzip", "compression_max_ratio": 0.75}
        for topic in ("noise", "text"):
            kafka.topic(topic, [1])
        async with producer(world, kafka, **options) as p:
            noise = random.Random(1).randbytes(size)
            await p.send("noise", noise)
            await p.send("text", b"x" * size)
        assert [batch.codec for batch in kafka.log("noise").batches] == [0]
        assert [batch.codec for batch in kafka.log("text").batches] == [1]
        assert kafka.values("noise") == [noise]
        assert kafka.values("text") == [b"x" * size]

    simulate(body)


def test_a_batch_below_the_minimum_size_is_sent_uncompressed() -> None:
    """compression_min_bytes counts the records of the batch without its header."""

    async def body(world: Any, kafka: Any) -> None:
        record = 1 + 1 + 1 + 1 + 1 + 2 + 100 + 1 + 1  # sizes, attributes, value, headers
        for topic, least in (("below", record + 1), ("at", record)):
            kafka.topic(topic, [1])
            options = {"compression_type": "gzip", "compression_min_bytes": least}
            async with producer(world, kafka, **options) as p:
                await p.send(topic, b"x" * 100)
        assert [batch.codec for batch in kafka.log("below").batches] == [0]
        assert [batch.codec for batch in kafka.log("at").batches] == [1]

    simulate(body)


def test_large_batches_are_compressed_in_a_thread_and_stay_in_order() -> None:
    """This applies to gzip from 32 KiB; the partition waits for the compression."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        options = {"compression_type": "gzip", "batch_size": 60_000, "linger_ms": 20}
        async with producer(world, kafka, **options) as p:
            values = [b"%05d" % n * 40 for n in range(2000)]
            await (await p.send_many("orders", [(None, v) for v in values]))
        assert kafka.values("orders") == values
        assert len(kafka.log("orders").batches) > 5

    simulate(body)


def test_an_invalid_record_is_refused_at_once() -> None:
    """A record that is too large, an invalid topic or partition, or text instead of bytes."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        async with producer(world, kafka, max_request_size=1000) as p:
            await p.partitions_for("orders")
            with pytest.raises(RecordTooLarge):
                p.send_nowait("orders", b"x" * 2000)
            with pytest.raises(InvalidTopic):
                await p.send("localhost:9092", b"v")
            with pytest.raises(UnknownTopicOrPartition):
                p.send_nowait("orders", b"v", partition=2)
            with pytest.raises(UnknownTopicOrPartition, match="it has 2"):
                await p.send("orders", b"v", partition=2)
            with pytest.raises(TypeError, match="encode"):
                await p.send("orders", "text")

    simulate(body)


def test_a_record_for_a_new_partition_is_accepted_after_a_metadata_refresh() -> None:
    """enqueue() refreshes the metadata before it refuses the partition."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            await p.send("orders", b"v", partition=0)
            topic.leaders.append(1)
            meta = await p.send("orders", b"w", partition=1)
            assert meta.partition == 1

    simulate(body)


def test_new_partitions_are_used_for_records_without_a_key() -> None:
    """In other clients new partitions were ignored until a restart."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        async with producer(world, kafka, metadata_max_age_ms=1000, linger_ms=0) as p:
            await p.send("orders", b"v")
            topic.leaders.extend([1, 1, 1])
            await asyncio.sleep(3)
            seen = {(await p.send("orders", b"v" * 40_000)).partition for _ in range(60)}
            assert seen == {0, 1, 2, 3}

    simulate(body)


def test_many_partitions_share_one_request() -> None:
    """A request has a batch of each ready partition of its broker."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1] * 20)
        async with producer(world, kafka, linger_ms=10) as p:
            await p.partitions_for("orders")
            for partition in range(20):
                p.send_nowait("orders", b"v", partition=partition)
            await p.flush()
        from aiokq import wire

        assert len(kafka[1].seen_of(wire.ProduceRequest)) == 1

    simulate(body)


def test_requests_stay_below_max_request_size() -> None:
    """In other clients max_request_size was documented for requests but limited only records."""

    async def body(world: Any, kafka: Any) -> None:
        from aiokq import wire

        kafka.topic("orders", [1] * 20)
        options = {"linger_ms": 10, "max_request_size": 10_000}
        async with producer(world, kafka, **options) as p:
            await p.partitions_for("orders")
            for partition in range(20):
                p.send_nowait("orders", b"x" * 3000, partition=partition)
            await p.flush()
        sizes = [
            sum(len(part.records) for topic in r.topic_data for part in topic.partition_data)
            for r in kafka[1].seen_of(wire.ProduceRequest)
        ]
        assert max(sizes) <= 10_000
        assert len(kafka.values("orders")) == 20

    simulate(body)


def test_unnoticed_failures_are_raised_once_by_flush() -> None:
    """In other clients errors of records that were not awaited were hidden."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            await p.send("orders", b"fine")
            kafka.faults.append(times(1, 29))
            p.send_nowait("orders", b"a")
            p.send_nowait("orders", b"b")
            with pytest.raises(DeliveryFailed) as caught:
                await p.flush()
            assert caught.value.count == 2
            assert caught.value.topic_partitions == (("orders", 0),)
            await p.flush()

    simulate(body)


def test_send_many_returns_every_error_and_flush_the_first_hundred() -> None:
    """Callers of send_many() need each error in input order; flush() has no such order."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        async with producer(world, kafka) as p:
            await p.partitions_for("orders")
            await (await p.send_many("orders", [(None, b"%d" % n) for n in range(300)]))
            kafka.faults.append(lambda a: 29 if a.partition == 1 else None)
            lost = await p.send_many("orders", [(b"%d" % n, b"v") for n in range(500)])
            with pytest.raises(DeliveryFailed) as caught:
                await lost
            places = [delivery.partition for delivery in lost]
            assert [error is not None for error in caught.value.errors] == [n == 1 for n in places]
            assert caught.value.count == places.count(1) > 100
            await p.send_many("orders", [(b"k", b"v")] * 500, partition=1)
            with pytest.raises(DeliveryFailed) as caught:
                await p.flush()
            assert caught.value.count == 500
            assert len(caught.value.errors) == 100

    simulate(body)


def test_awaited_failures_are_not_raised_again() -> None:
    """The task that awaited the Delivery has handled the error."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            kafka.faults.append(times(1, 29))

            async def one() -> BaseException | None:
                try:
                    await p.send("orders", b"a")
                except Exception as error:
                    return error
                return None

            task = asyncio.create_task(one())
            await asyncio.sleep(0)
            await p.flush()
            assert type(await task).__name__ == "TopicAuthorization"

    simulate(body)


def test_leaving_the_block_raises_unnoticed_failures() -> None:
    """A normal exit must not hide failures."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.faults.append(times(1, 29))
        with pytest.raises(DeliveryFailed, match="1 record"):
            async with producer(world, kafka) as p:
                p.send_nowait("orders", b"a")

    simulate(body)


@pytest.mark.parametrize("how", ["error", "cancelled"])
def test_another_exception_takes_precedence_and_the_failures_become_an_event(how: str) -> None:
    """Neither the exception of the block (or its cancellation) nor the failures may be hidden."""
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.cluster.events import DeliveriesFailed
    from aiokq.producer.values import ProducerValues
    from tests.sim.producer_world import CLIENT

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.faults.append(times(1, 29))
        values = ProducerValues.given({"bootstrap_servers": kafka.bootstrap_servers})
        engine = ClusterEngine(values, world.environment(CLIENT))
        await engine.start()
        seen = []
        engine.changes.subscribe(lambda key, event: seen.append(event))

        async def fail() -> None:
            async with Producer(_values=values, _engine=engine) as p:
                p.send_nowait("orders", b"a")
                if how == "error":
                    raise ZeroDivisionError
                kafka.delays[1] = 10.0

        task = asyncio.create_task(fail())
        if how == "cancelled":
            await asyncio.sleep(1)
            task.cancel()
        with pytest.raises(ZeroDivisionError if how == "error" else asyncio.CancelledError):
            await task
        events = [event for event in seen if isinstance(event, DeliveriesFailed)]
        assert [event.count for event in events] == [1]
        await engine.close()

    simulate(body)


def test_a_manually_filled_batch_is_sent_as_a_whole_and_in_order() -> None:
    """A batch of create_batch() is sent by send_batch() after the records sent before it."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        async with producer(world, kafka, linger_ms=1000) as p:
            await p.enqueue("orders", b"before", partition=1)
            batch = p.create_batch()
            added = 0
            while batch.append(b"x" * 1000, key=b"k"):
                added += 1
            assert added > 100
            deliveries = await p.send_batch(batch, "orders", partition=1)
            metas = await deliveries
            assert [meta.offset for meta in metas] == list(range(1, added + 1))
            with pytest.raises(UnknownTopicOrPartition):
                await p.send_batch(batch, "orders", partition=7)
        assert [len(b.records) for b in kafka.log("orders", 1).batches] == [1, added]

    simulate(body)


def test_when_the_buffer_is_full_send_waits_and_send_nowait_raises() -> None:
    """buffer_memory is a limit; memory is freed by acknowledgements."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.delays[1] = 0.5
        options = {"buffer_memory": 10_000, "batch_size": 2_000, "max_block_ms": 5_000}
        async with producer(world, kafka, **options) as p:
            await p.partitions_for("orders")
            with pytest.raises(BufferFull):
                for _ in range(100):
                    p.send_nowait("orders", b"x" * 900)
            start = world.loop.time()
            await p.enqueue("orders", b"y" * 900)
            assert 0.2 < world.loop.time() - start < 2

    simulate(body)


def test_waiting_for_buffer_memory_ends_after_max_block_ms() -> None:
    """In other clients a full buffer blocked for ever."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        options = {"buffer_memory": 3_000, "batch_size": 1_000, "max_block_ms": 700}
        p = producer(world, kafka, **options)
        await p.start()
        await p.send("orders", b"warm")
        kafka.faults.append(times(99, Silence()))
        for _ in range(3):
            try:
                p.send_nowait("orders", b"x" * 900)
            except BufferFull:
                break
        start = world.loop.time()
        with pytest.raises(BufferFull, match="max_block_ms"):
            await p.send("orders", b"x" * 900)
        assert world.loop.time() - start == pytest.approx(0.7, abs=0.01)
        await p.close(timeout=0)

    simulate(body)


def test_memory_pressure_does_not_wait_for_linger() -> None:
    """Lingering batches occupy the memory that waiters need."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1] * 4)
        options = {"buffer_memory": 8_000, "batch_size": 100_000, "linger_ms": 60_000}
        async with producer(world, kafka, **options) as p:
            await p.partitions_for("orders")
            start = world.loop.time()
            for n in range(40):
                await p.enqueue("orders", b"x" * 500, partition=n % 4)
            assert world.loop.time() - start < 5

    simulate(body)


def test_a_cancelled_wait_for_buffer_memory_sends_nothing() -> None:
    """In other clients the caller could not know whether a cancelled send was lost or sent."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.delays[1] = 1.0
        async with producer(world, kafka, buffer_memory=3_000, batch_size=1_000) as p:
            await p.partitions_for("orders")
            kept = 0
            try:
                while True:
                    p.send_nowait("orders", b"kept" * 200)
                    kept += 1
            except BufferFull:
                pass
            task = asyncio.create_task(p.send("orders", b"never" * 150))
            await asyncio.sleep(0.01)
            with pytest.raises(BufferFull):
                p.send_nowait("orders", b"")  # another task waits and must not be overtaken
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await p.enqueue("orders", b"")
        assert kafka.values("orders") == [b"kept" * 200] * kept + [b""]

    simulate(body)


def test_a_cancelled_wait_for_the_acknowledgement_does_not_cancel_the_record() -> None:
    """A timeout around send() ends the wait, but the accepted record is delivered."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.delays[1] = 1.0
        async with producer(world, kafka) as p:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(p.send("orders", b"v"), 0.2)
        assert kafka.values("orders") == [b"v"]

    simulate(body)


def test_waiters_for_buffer_memory_are_served_in_order() -> None:
    """A later small record does not overtake an earlier large one."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.delays[1] = 0.3
        async with producer(world, kafka, buffer_memory=6_000, batch_size=2_000) as p:
            await p.partitions_for("orders")
            try:
                while True:
                    p.send_nowait("orders", b"x" * 900)
            except BufferFull:
                pass
            order: list[int] = []

            async def put(n: int) -> None:
                await p.enqueue("orders", b"z" * (1800 if n == 0 else 10))
                order.append(n)

            async with asyncio.TaskGroup() as group:
                for n in range(6):
                    group.create_task(put(n))
            assert order == list(range(6))

    simulate(body)


def test_health_is_read_while_another_thread_adds_batches() -> None:
    """health() may be called in any thread; it failed if a batch was created meanwhile."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka) as p:
            await p.send("orders", b"v")
            unfinished: dict[Any, None] = p._delivery._incomplete._batches

            class Begun:
                """A batch during whose inspection another batch is created."""

                partition = 0

                @property
                def topic(self) -> str:
                    unfinished[object()] = None
                    return "orders"

            unfinished[Begun()] = None
            try:
                assert p._delivery._queues.held_up() == {}
            finally:
                unfinished.clear()

    simulate(body)
