"""A producer and a faulty cluster: no record is lost, duplicated or reordered."""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from aiokq import wire
from aiokq.connection.node import Purpose
from aiokq.core.errors import (
    ClusterAuthorization,
    ConnectionLost,
    InvalidRecord,
    KafkaError,
    RecordTooLarge,
    RequestTimeout,
    TopicAuthorization,
    UnknownBrokerError,
    UnknownServer,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tests.sim.producer_world import BROKER, Attempt, Close, Silence, producer, simulate, times


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%06d" % n for n in range(start, start + count)]


async def send_all(p: Any, topic: str, values: list[bytes], **options: Any) -> list[Any]:
    return [await p.enqueue(topic, value, **options) for value in values]


async def outcome(delivery: Any) -> Any:
    try:
        return await delivery
    except KafkaError as error:
        return error


SEEDS = int(os.environ.get("AIOKQ_PRODUCER_SEEDS", "5"))
"""Random runs of each kind; the variable sets a larger number for long runs."""

SMALL = {"batch_size": 300, "linger_ms": 2}
"""Batches of about ten small records."""


def test_leader_change_keeps_unacked_records_at_head() -> None:
    """The leader changes with batches in flight: the new leader gets them before later ones."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        values = numbered(300)
        async with producer(world, kafka, **SMALL) as p:
            deliveries = await send_all(p, "orders", values[:150])
            await asyncio.sleep(0.006)
            topic.move(0, 2)
            deliveries += await send_all(p, "orders", values[150:])
            await p.flush()
            assert [d.offset for d in deliveries] == list(range(300))
        assert kafka.values("orders") == values
        assert {a.node_id for a in kafka.attempts} == {1, 2}

    simulate(body, nodes=2)


def test_a_leader_hint_moves_the_queue_without_a_metadata_request() -> None:
    """With KIP-951 the former leader names the new one."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        kafka.hints = True
        async with producer(world, kafka, linger_ms=0, retry_backoff_ms=5000) as p:
            await p.send("orders", b"first")
            topic.move(0, 2)
            start = world.loop.time()
            await p.send("orders", b"second")
            assert world.loop.time() - start < 0.1
        assert kafka.values("orders") == [b"first", b"second"]

    simulate(body, nodes=2)


def test_after_a_lost_response_the_record_exists_once() -> None:
    """The batch was appended and the response lost: the broker detects the duplicate."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.after_append.append(times(1, Close()))
        async with producer(world, kafka, linger_ms=0) as p:
            meta = await p.send("orders", b"v")
            assert meta.offset == 0
            assert (await p.send("orders", b"w")).offset == 1
        assert kafka.values("orders") == [b"v", b"w"]
        assert kafka.producer_ids == 1

    simulate(body)


def test_without_any_response_the_record_exists_once() -> None:
    """The broker is silent after the append: the batch is retried after request_timeout_ms."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.after_append.append(times(1, Silence()))
        async with producer(world, kafka, linger_ms=0, request_timeout_ms=2000) as p:
            assert (await p.send("orders", b"v")).offset == 0
        assert kafka.values("orders") == [b"v"]
        assert 2 <= world.loop.time() < 5

    simulate(body)


@pytest.mark.parametrize("code", [2, 5, 6, 7, 19, 20, 56, 89])
def test_five_batches_in_flight_keep_their_order_if_the_first_fails(code: int) -> None:
    """The later batches are refused as out of order and are retried after the first one."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.delays[1] = 0.02
        values = numbered(400)
        async with producer(world, kafka, **SMALL) as p:
            await p.send("orders", b"warm")
            failed = []

            def fault(attempt: Attempt) -> int | None:
                if attempt.header.base_sequence > 60 and not failed:
                    failed.append(attempt)
                    return code
                return None

            kafka.faults.append(fault)
            deliveries = await send_all(p, "orders", values)
            await p.flush()
            assert [d.offset for d in deliveries] == list(range(1, 401))
        assert failed
        assert kafka.values("orders") == [b"warm", *values]

    simulate(body)


def test_several_batches_of_a_partition_are_in_flight() -> None:
    """A distant broker needs pipelining: five requests at once, not one."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka, **SMALL)
        await p.start()
        await p.send("orders", b"warm")
        kafka.delays[1] = 1.0
        for value in numbered(100):
            p.send_nowait("orders", value)
        await asyncio.sleep(0.5)
        assert p._engine.node(1).in_flight == 5
        await p.close()

    simulate(body)


def test_without_idempotence_order_is_kept_on_retry() -> None:
    """Without sequence numbers each partition may have only one batch in flight."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        values = numbered(200)
        async with producer(world, kafka, acks=1, **SMALL) as p:
            assert not p.settings.enable_idempotence
            kafka.faults.append(times(3, 19, when=lambda a: a.partition == 0 and a.at > 0.02))
            for value in values:
                await p.enqueue("orders", value, partition=0)
                await p.enqueue("orders", value, partition=1)
            await p.flush()
        assert kafka.log("orders", 0).values == values
        assert kafka.log("orders", 1).values == values

    simulate(body)


def test_a_slow_broker_does_not_delay_another() -> None:
    """In other clients the slowest broker delayed a round of requests."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 2])
        kafka.delays[1] = 5.0
        async with producer(world, kafka, linger_ms=0) as p:
            slow = await p.enqueue("orders", b"slow", partition=0)
            start = world.loop.time()
            for n in range(20):
                await p.send("orders", b"%d" % n, partition=1)
            assert world.loop.time() - start < 1
            assert not slow.done()
            await slow

    simulate(body, nodes=2)


def test_a_dead_broker_does_not_delay_another() -> None:
    """In other clients connecting to a dead broker delayed requests to the others."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 2])
        async with producer(world, kafka, linger_ms=0) as p:
            await p.partitions_for("orders")
            await kafka[1].stop()
            lost = await p.enqueue("orders", b"to the dead", partition=0)
            start = world.loop.time()
            for n in range(20):
                await p.send("orders", b"%d" % n, partition=1)
            assert world.loop.time() - start < 1
            await kafka[1].start()
            await lost
        assert kafka.log("orders", 0).values == [b"to the dead"]

    simulate(body, nodes=2)


def test_a_former_leader_that_hangs_does_not_keep_the_batches() -> None:
    """The old leader accepts connections but is silent; the new leader gets the batches at once."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        values = numbered(200)
        async with producer(world, kafka, **SMALL, request_timeout_ms=2000) as p:
            await p.send("orders", values[0])
            kafka[1].on(wire.ProduceRequest, Silence())
            kafka[1].on(wire.ApiVersionsRequest, Silence())
            deliveries = await send_all(p, "orders", values[1:])
            await asyncio.sleep(2.5)
            topic.move(0, 2)
            started = world.loop.time()
            await p.flush()
            assert world.loop.time() - started < 2
            assert [d.offset for d in deliveries] == list(range(1, 200))
        assert kafka.values("orders") == values

    simulate(body, nodes=2)


def test_a_failing_partition_does_not_stall_its_broker() -> None:
    """In other clients one partition's backoff stopped its whole broker."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        kafka.faults.append(times(50, 19, when=lambda a: a.partition == 0))
        async with producer(world, kafka, linger_ms=0) as p:
            stuck = await p.enqueue("orders", b"stuck", partition=0)
            start = world.loop.time()
            for n in range(20):
                await p.send("orders", b"%d" % n, partition=1)
            assert world.loop.time() - start < 1
            assert not stuck.done()
            kafka.faults.clear()
            await stuck

    simulate(body)


def test_a_batch_that_is_too_large_is_split_with_its_deliveries() -> None:
    """After MESSAGE_TOO_LARGE it is halved repeatedly; order and sequence numbers stay the same."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.faults.append(lambda a: 10 if a.header.size > 400 else None)
        values = numbered(300)
        async with producer(world, kafka, batch_size=3000, linger_ms=5) as p:
            deliveries = await send_all(p, "orders", values)
            waiting = asyncio.create_task(outcome(deliveries[250]))
            await p.flush()
            assert [d.offset for d in deliveries] == list(range(300))
            assert (await waiting).offset == 250
        assert kafka.values("orders") == values
        assert {b.header.producer_epoch for b in kafka.log("orders").batches} == {0}

    simulate(body)


def test_a_compressed_batch_is_split_too() -> None:
    """The broker's limit applies to the compressed size; the halves are compressed again."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.faults.append(lambda a: 10 if a.header.count > 60 else None)
        values = numbered(300)
        async with producer(world, kafka, compression_type="zstd", linger_ms=5) as p:
            deliveries = await send_all(p, "orders", values)
            await p.flush()
            assert [d.offset for d in deliveries] == list(range(300))
        assert kafka.values("orders") == values
        assert {b.codec for b in kafka.log("orders").batches} == {4}

    simulate(body)


def test_a_single_record_that_is_too_large_fails_and_the_producer_continues() -> None:
    """In other clients an idempotent producer stayed out of order after a failed batch."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.faults.append(lambda a: 10 if a.header.size > 1000 else None)
        async with producer(world, kafka, linger_ms=0) as p:
            await p.send("orders", b"small")
            with pytest.raises(RecordTooLarge) as caught:
                await p.send("orders", b"x" * 2000)
            assert not caught.value.may_have_been_written
            assert caught.value.topic_partition == ("orders", 0)
            for n in range(5):
                await p.send("orders", b"%d" % n)
        assert kafka.values("orders") == [b"small", b"0", b"1", b"2", b"3", b"4"]
        epochs = [b.header.producer_epoch for b in kafka.log("orders").batches]
        assert epochs == [0, 1, 1, 1, 1, 1]

    simulate(body)


def test_refused_records_fail_alone_and_the_rest_of_their_batch_is_written() -> None:
    """With KIP-467 the broker names the refused records."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        refusal = wire.PartitionProduceResponse(
            index=0,
            error_code=87,
            base_offset=-1,
            error_message="one or more records are invalid",
            record_errors=[
                wire.BatchIndexAndErrorMessage(
                    batch_index=2, batch_index_error_message="a key\nis needed"
                ),
                wire.BatchIndexAndErrorMessage(batch_index=5),
            ],
        )
        kafka.faults.append(times(1, refusal, when=lambda a: a.header.count == 8))
        async with producer(world, kafka, linger_ms=5) as p:
            await p.partitions_for("orders")
            deliveries = await send_all(p, "orders", numbered(8))
            results = [await outcome(d) for d in deliveries]
            assert [n for n, r in enumerate(results) if isinstance(r, InvalidRecord)] == [2, 5]
            assert all(r.names_record for r in results if isinstance(r, InvalidRecord))
            assert "a key is needed" in str(results[2])
            assert [r.offset for n, r in enumerate(results) if n not in (2, 5)] == list(range(6))
            await p.send("orders", b"later")
        assert kafka.values("orders") == [
            v for n, v in enumerate(numbered(8)) if n not in (2, 5)
        ] + [b"later"]

    simulate(body)


@pytest.mark.parametrize(
    ("code", "kind", "written"),
    [(29, TopicAuthorization, False), (-1, UnknownServer, True), (999, UnknownBrokerError, True)],
)
def test_an_error_code_fails_its_batch_but_never_the_producer(
    code: int, kind: type[KafkaError], written: bool
) -> None:
    """In other clients an unexpected error code ended the sender until a restart."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=0) as p:
            kafka.faults.append(times(1, code))
            with pytest.raises(kind) as caught:
                await p.send("orders", b"refused")
            assert caught.value.may_have_been_written is written
            assert (await p.send("orders", b"v")).offset == 0

    simulate(body)


@pytest.mark.parametrize(("code", "ids"), [(45, 1), (47, 2), (59, 1), (90, 2)])
def test_sequence_errors_bump_the_epoch_or_request_a_new_producer_id(code: int, ids: int) -> None:
    """KIP-360: the epoch is bumped; if the producer id is fenced, a new one is requested."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        values = numbered(100)
        async with producer(world, kafka, **SMALL) as p:
            await p.send("orders", b"warm")
            done = []

            def fault(attempt: Attempt) -> int | None:
                if not done and attempt.header.base_sequence == 1:
                    done.append(attempt)
                    return code
                return None

            kafka.faults.append(fault)
            deliveries = await send_all(p, "orders", values)
            await p.flush()
            assert [d.offset for d in deliveries] == list(range(1, 101))
        assert kafka.values("orders") == [b"warm", *values]
        assert kafka.producer_ids == ids

    simulate(body)


def test_duplicate_sequence_number_is_a_success() -> None:
    """The batch is in the log, but the broker no longer knows its offset."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=0) as p:
            kafka.after_append.append(times(1, 46))
            assert (await p.send("orders", b"v")).offset == -1
            assert (await p.send("orders", b"w")).offset == 1

    simulate(body)


def test_a_batch_expires_after_delivery_timeout_with_the_cause() -> None:
    """In other clients batches of an idle or stuck producer expired late or never."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        options = {"delivery_timeout_ms": 3000, "request_timeout_ms": 1000, "linger_ms": 0}
        async with producer(world, kafka, **options) as p:
            await p.send("orders", b"v")
            kafka.faults.append(times(10_000, 19))
            start = world.loop.time()
            with pytest.raises(RequestTimeout, match="NOT_ENOUGH_REPLICAS") as caught:
                await p.send("orders", b"late")
            assert world.loop.time() - start == pytest.approx(3.0, abs=0.05)
            assert caught.value.origin == "client"
            assert not caught.value.may_have_been_written
            kafka.faults.clear()
            assert (await p.send("orders", b"w")).offset == 1
        assert kafka.values("orders") == [b"v", b"w"]

    simulate(body)


def test_after_a_batch_expired_in_flight_the_next_ones_are_written_once() -> None:
    """It is unknown whether the expired batch was appended and its sequence numbers were used."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        options = {"delivery_timeout_ms": 3000, "request_timeout_ms": 2500, "linger_ms": 0}
        async with producer(world, kafka, **options) as p:
            await p.send("orders", b"v")
            kafka.faults.append(times(2, Silence()))
            with pytest.raises(RequestTimeout) as caught:
                await p.send("orders", b"unknown")
            assert caught.value.may_have_been_written
            after = await send_all(p, "orders", numbered(20))
            await p.flush()
            assert [d.offset for d in after] == list(range(1, 21))
        assert kafka.values("orders") == [b"v", *numbered(20)]

    simulate(body)


def test_an_expired_batch_that_was_appended_needs_no_new_epoch() -> None:
    """Its response arrives after its expiry and shows that the sequence numbers were used."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        options = {"delivery_timeout_ms": 3000, "request_timeout_ms": 2990, "linger_ms": 0}
        async with producer(world, kafka, **options) as p:
            await p.send("orders", b"v")

            def slow_from_now_on(attempt: Attempt) -> int:
                kafka.delays[1] = 2.95
                kafka.faults.clear()
                return 19

            kafka.faults.append(slow_from_now_on)
            with pytest.raises(RequestTimeout):
                await p.send("orders", b"late")
            kafka.delays.clear()
            await p.send("orders", b"w")
        assert kafka.values("orders") == [b"v", b"late", b"w"]
        assert {b.header.producer_epoch for b in kafka.log("orders").batches} == {0}

    simulate(body)


def test_without_retries_the_error_of_a_lost_response_says_may_have_been_written() -> None:
    """With retries=0 the application decides about a retry and needs this information."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.after_append.append(times(1, Close()))
        async with producer(world, kafka, retries=0, linger_ms=0) as p:
            with pytest.raises(ConnectionLost) as caught:
                await p.send("orders", b"v")
            assert caught.value.may_have_been_written
            await p.send("orders", b"w")
        assert kafka.values("orders") == [b"v", b"w"]

    simulate(body)


def test_an_unknown_topic_fails_its_own_records_only() -> None:
    """In other clients a missing topic blocked its callers and all others."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, max_block_ms=3000, linger_ms=0) as p:
            missing = p.send_nowait("missing", b"v")
            start = world.loop.time()
            for n in range(10):
                await p.send("orders", b"%d" % n)
            assert world.loop.time() - start < 0.5
            with pytest.raises(UnknownTopicOrPartition, match="missing"):
                await missing
            assert world.loop.time() - start == pytest.approx(3.0, abs=0.1)

    simulate(body)


def test_records_wait_for_a_topic_that_is_created_a_little_later() -> None:
    """The records wait in order, keep their requested partitions and their Deliveries."""

    async def body(world: Any, kafka: Any) -> None:
        async with producer(world, kafka) as p:
            deliveries = await send_all(p, "orders", numbered(50), partition=1)
            asyncio.get_running_loop().call_later(1.5, kafka.topic, "orders", [1, 1])
            await p.flush()
            assert [d.offset for d in deliveries] == list(range(50))
            assert {d.partition for d in deliveries} == {1}

    simulate(body)


def test_records_of_a_deleted_topic_fail_with_its_name() -> None:
    """The error says that the topic is gone, instead of a timeout after two minutes."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.topic("other", [1])
        async with producer(world, kafka, max_block_ms=2000, linger_ms=0) as p:
            await p.send("orders", b"v")
            del kafka.topics["orders"]
            gone = await p.enqueue("orders", b"w")
            await p.send("other", b"fine")
            with pytest.raises(UnknownTopicOrPartition):
                await gone
            assert world.loop.time() < 10

    simulate(body)


def test_a_recreated_topic_gets_the_queued_records() -> None:
    """The topic has the same name and another topic id."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=0) as p:
            await p.send("orders", b"old")
            kafka.logs.clear()
            kafka.topic("orders", [1])
            values = numbered(30)
            deliveries = await send_all(p, "orders", values)
            await p.flush()
            assert [d.offset for d in deliveries] == list(range(30))
        assert kafka.values("orders") == values

    simulate(body)


@pytest.mark.parametrize("missing", [0, 10])
@pytest.mark.parametrize("kept", [0, 1])
def test_records_of_partitions_that_a_recreated_topic_lacks_fail(kept: int, missing: int) -> None:
    """They were sent again until delivery_timeout_ms was over, which may be unlimited.

    The topic may be missing for some seconds, so that the producer learns of its deletion first.
    """

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1, 1])
        async with producer(world, kafka, linger_ms=0, delivery_timeout_ms=2**31 - 1) as p:
            for partition in range(3):
                await p.send("orders", b"old", partition=partition)
            if not kept:
                await kafka.nodes[1].stop()
            kept_ones = await send_all(p, "orders", numbered(10), partition=0)
            gone = await send_all(p, "orders", numbered(10), partition=2)
            kafka.logs.clear()
            if missing:
                del kafka.topics["orders"]
                await asyncio.sleep(missing)
            kafka.topic("orders", [1, 1])
            await asyncio.sleep(1)
            if not kept:
                await kafka.nodes[1].start()
            async with asyncio.timeout(60):
                for delivery in gone:
                    with pytest.raises(UnknownTopicOrPartition, match="has no partition 2: it has"):
                        await delivery
                for delivery in kept_ones:
                    await delivery
            await p.send("orders", b"last", partition=1)
        assert kafka.log("orders", 0).values == numbered(10)
        assert kafka.log("orders", 1).values == [b"last"]

    simulate(body, nodes=2 if missing else 1)


def test_a_batch_in_flight_fails_after_the_other_records_of_a_deleted_topic() -> None:
    """It was retried, without a leader, until delivery_timeout_ms, which may be unlimited."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        options = {"max_block_ms": 2000, "request_timeout_ms": 8000, "metadata_max_age_ms": 500}
        forever = 2**31 - 1
        async with producer(world, kafka, linger_ms=0, delivery_timeout_ms=forever, **options) as p:
            await p.send("orders", b"v")
            kafka.faults.append(times(1, Silence()))
            slow = await p.enqueue("orders", b"w")
            await asyncio.sleep(0.1)
            del kafka.topics["orders"]
            async with asyncio.timeout(60):
                with pytest.raises(UnknownTopicOrPartition):
                    await slow
            assert world.loop.time() > 8  # the answer came after the topic was given up

    simulate(body, nodes=2)


def test_all_brokers_may_be_gone_for_a_while() -> None:
    """Nothing is lost: records wait up to delivery_timeout_ms."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 2])
        async with producer(world, kafka, linger_ms=0) as p:
            await p.send("orders", b"v", partition=0)
            for node in kafka.nodes.values():
                await node.stop()
            deliveries = await send_all(p, "orders", numbered(20), partition=0)
            deliveries += await send_all(p, "orders", numbered(20), partition=1)
            await asyncio.sleep(30)
            for node in kafka.nodes.values():
                await node.start()
            await p.flush()
            assert all(d.done() for d in deliveries)
        assert kafka.log("orders", 0).values == [b"v", *numbered(20)]
        assert kafka.log("orders", 1).values == numbered(20)

    simulate(body, nodes=2)


def test_a_partition_without_a_leader_waits_for_one() -> None:
    """The leader is -1; the records are sent as soon as there is a leader."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [-1])
        async with producer(world, kafka, linger_ms=0) as p:
            delivery = await p.enqueue("orders", b"v")
            await asyncio.sleep(3)
            assert not delivery.done()
            topic.move(0, 1)
            assert (await delivery).offset == 0
            assert world.loop.time() < 8

    simulate(body)


def test_a_throttle_time_is_obeyed() -> None:
    """KIP-219: during the throttle time nothing is sent, but responses are processed."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with producer(world, kafka, linger_ms=0) as p:
            await p.send("orders", b"v")
            answer = wire.ProduceResponse(
                responses=[
                    wire.TopicProduceResponse(
                        topic_id=kafka.topics["orders"].topic_id,
                        name="orders",
                        partition_responses=[
                            wire.PartitionProduceResponse(index=0, error_code=0, base_offset=1)
                        ],
                    )
                ],
                throttle_time_ms=2000,
            )
            kafka.after_append.append(times(1, answer))
            await p.send("orders", b"w")
            start = world.loop.time()
            await p.send("orders", b"x")
            assert world.loop.time() - start == pytest.approx(2.0, abs=0.05)

    simulate(body)


def test_a_broker_that_is_too_old_is_named_in_the_error() -> None:
    """Brokers before 0.11 do not support record batches with magic 2."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka[1].versions[0] = (0, 2)
        async with producer(world, kafka, acks=1) as p:
            with pytest.raises(UnsupportedVersion, match=r"0\.11"):
                await p.send("orders", b"v")

    simulate(body)


def test_the_error_for_a_broker_without_idempotence_names_the_setting() -> None:
    """The default settings need InitProducerId."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        del kafka[1].versions[22]
        async with producer(world, kafka) as p:
            with pytest.raises(UnsupportedVersion, match="enable_idempotence=False"):
                await p.send("orders", b"v")

    simulate(body)


def test_a_producer_denied_a_producer_id_can_get_it_later() -> None:
    """In other clients an authorization failure was final until a restart."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka[1].script(
            wire.InitProducerIdRequest,
            *[wire.InitProducerIdResponse(error_code=31, producer_id=-1, producer_epoch=-1)] * 2,
        )
        async with producer(world, kafka, linger_ms=0) as p:
            with pytest.raises(ClusterAuthorization):
                await p.send("orders", b"v")
            await asyncio.sleep(3)
            await outcome(p.send("orders", b"w"))
            await asyncio.sleep(3)
            await p.send("orders", b"x")

    simulate(body)


@pytest.mark.parametrize("version", list(range(3, 14)))
def test_every_version_of_produce_works(version: int) -> None:
    """From 0.11 up to versions with topic ids."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        kafka[1].versions[0] = (0, version)
        async with producer(world, kafka, linger_ms=0) as p:
            await p.send("orders", b"v", partition=0)
            await p.send("orders", b"w", partition=1)
        assert kafka.values("orders") == [b"v", b"w"]
        assert {a.version for a in kafka.attempts} == {version}

    simulate(body)


def test_zstd_is_refused_for_brokers_that_lack_it() -> None:
    """Produce below version 7 does not support zstd; the error says what to do."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka[1].versions[0] = (0, 6)
        async with producer(world, kafka, compression_type="zstd") as p:
            with pytest.raises(KafkaError, match="compression_type"):
                await p.send("orders", b"v")

    simulate(body)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_under_random_faults_each_record_is_written_once_and_in_order(seed: int) -> None:
    """Leaders change, responses are lost, batches are refused."""

    async def body(world: Any, kafka: Any) -> None:
        chance = random.Random(seed)
        topic = kafka.topic("orders", [1, 2, 3, 1])
        kafka.hints = chance.random() < 0.5
        seen: set[Any] = set()

        def fault(attempt: Attempt) -> Any:
            header = attempt.header
            stamp = (attempt.partition, *header[8:12])
            roll = chance.random()
            if roll < 0.04:
                return chance.choice([2, 3, 5, 6, 7, 19, 56, 89])
            if roll < 0.05:
                return Close()
            if roll < 0.06 and attempt.header.count > 1 and stamp not in seen:
                return 10  # a broker never refuses a retry with this code
            seen.add(stamp)
            return None

        def after(attempt: Attempt) -> Any:
            roll = chance.random()
            if roll < 0.02:
                return chance.choice([7, 20, 6])
            return Close() if roll < 0.04 else None

        kafka.faults.append(fault)
        kafka.after_append.append(after)
        values: dict[int, list[bytes]] = {p: [] for p in range(4)}
        trouble = True

        async def movers() -> None:
            while trouble:
                await asyncio.sleep(chance.uniform(0.05, 1.0))
                topic.move(chance.randrange(4), chance.randrange(1, 4))
                if chance.random() < 0.2:
                    node = kafka[chance.randrange(1, 4)]
                    await node.stop()
                    await asyncio.sleep(chance.uniform(0.05, 2))
                    await node.start()

        mover = asyncio.create_task(movers())
        options = {**SMALL, "buffer_memory": 200_000, "request_timeout_ms": 3000}
        async with producer(world, kafka, **options) as p:
            deliveries = []
            for n in range(3000):
                partition = chance.randrange(4)
                value = b"%06d" % n
                values[partition].append(value)
                deliveries.append(await p.enqueue("orders", value, partition=partition))
                if chance.random() < 0.02:
                    await asyncio.sleep(chance.uniform(0, 0.05))
            flushing = asyncio.create_task(p.flush())
            await asyncio.sleep(20)
            trouble = False
            await mover
            kafka.faults.clear()
            kafka.after_append.clear()
            await flushing
            assert all(d.exception() is None for d in deliveries)
        for partition, sent in values.items():
            assert kafka.log("orders", partition).values == sent

    simulate(body, nodes=3, seed=seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_reported_result_of_each_record_is_true(seed: int) -> None:
    """With refused and expired batches: a record that failed for certain is not in the log."""

    async def body(world: Any, kafka: Any) -> None:
        chance = random.Random(seed)
        topic = kafka.topic("orders", [1, 2])

        def fault(attempt: Attempt) -> Any:
            roll = chance.random()
            if roll < 0.10:
                return chance.choice([19, 6, 7, 29, 87, 999, 47, 59])
            if roll < 0.14:
                return chance.choice([Close(), Silence()])
            return None

        def after(attempt: Attempt) -> Any:
            roll = chance.random()
            if roll < 0.06:
                return chance.choice([7, 20, 6, Close(), Silence()])
            return None

        kafka.faults.append(fault)
        kafka.after_append.append(after)
        sent: list[tuple[int, bytes, Any]] = []
        options = {"delivery_timeout_ms": 2000, "request_timeout_ms": 700, "linger_ms": 2}
        async with producer(world, kafka, batch_size=300, **options) as p:
            await p.partitions_for("orders")
            for n in range(1500):
                partition = chance.randrange(2)
                value = b"%06d" % n
                sent.append(
                    (partition, value, await p.enqueue("orders", value, partition=partition))
                )
                if chance.random() < 0.05:
                    await asyncio.sleep(chance.uniform(0, 0.2))
                if chance.random() < 0.005:
                    topic.move(chance.randrange(2), chance.randrange(1, 3))
            results = [await outcome(delivery) for _, _, delivery in sent]
            kafka.faults.clear()
            kafka.after_append.clear()
            await p.send("orders", b"last", partition=0)  # the producer still works
        for partition in range(2):
            values = [v for v in kafka.log("orders", partition).values if v != b"last"]
            assert values == sorted(set(values))
            stored = set(values)
            for (where, value, _), result in zip(sent, results, strict=True):
                if where != partition:
                    continue
                if isinstance(result, KafkaError):
                    assert result.may_have_been_written or value not in stored, (value, result)
                elif result.offset >= 0:
                    assert kafka.log("orders", partition).values[result.offset] == value
                else:
                    assert value in stored

    simulate(body, nodes=2, seed=seed)


def test_with_acks_0_a_connection_to_a_silent_broker_times_out() -> None:
    """With acks=0 no response can be late: the connection, full of unsent data, stayed open
    until the idle timeout nine minutes later.
    """

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka, acks=0, request_timeout_ms=5_000)
        await p.start()
        await p.send("orders", b"v")
        connection = p._engine.node(1).connected(Purpose.PRODUCE)
        assert connection is not None
        world.network.power_off(BROKER)
        deliveries = [await p.enqueue("orders", bytes(900_000)) for _ in range(8)]
        await asyncio.sleep(6)
        assert connection.closed
        await p.close(timeout=0.1)
        assert all(delivery.done() for delivery in deliveries)

    simulate(body)
