"""Faults between a consumer and its brokers, in virtual time on a scripted cluster."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from aiokq import wire
from aiokq.consumer.fetch_errors import FETCH_ACTIONS, FetchAction
from aiokq.core.errors import (
    CorruptRecord,
    KafkaError,
    LogTruncated,
    NoOffsetForPartition,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RecordTooLarge,
    TopicAuthorization,
    UnknownTopicOrPartition,
)
from aiokq.core.types import TopicPartition
from aiokq.records.record import RawRecord
from tests.sim.consumer_world import (
    ABORT,
    COMMIT,
    Log,
    consumer,
    read,
    simulate,
    times,
    values,
)

T0 = TopicPartition("orders", 0)


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, last)]


# -- leaders


def test_a_leader_change_loses_no_record_and_keeps_fetched_records() -> None:
    """As in kafka4net's LeaderDownProducerAndConsumerRecovery."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        kafka.append("orders", 0, *numbers(0, 10))
        async with consumer(world, kafka, "orders") as c:
            seen = values(await read(c, 4))
            topic.move(0, 2)
            kafka.log("orders").epochs = [(0, 0), (1, 10)]
            kafka.append("orders", 0, *numbers(10, 20), epoch=1)
            seen += values(await read(c, 16))
            assert seen == numbers(0, 20)
            offsets = [f.asked.fetch_offset for f in kafka.fetched if f.node_id == 2]
            assert min(offsets) == 10, "what the old leader had given was not fetched again"
            assert c.health().ok

    simulate(body, nodes=2)


def test_a_leader_hint_saves_the_metadata_request() -> None:
    """With KIP-951 the error response names the new leader."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        kafka.hints = True
        kafka.append("orders", 0, b"a")
        async with consumer(world, kafka, "orders") as c:
            await read(c, 1)
            asked = len(kafka[1].seen_of(wire.MetadataRequest))
            asked += len(kafka[2].seen_of(wire.MetadataRequest))
            topic.move(0, 2)
            kafka.log("orders").epochs = [(0, 0), (1, 1)]
            kafka.append("orders", 0, b"b", epoch=1)
            assert values(await read(c, 1)) == [b"b"]
            now = len(kafka[1].seen_of(wire.MetadataRequest))
            now += len(kafka[2].seen_of(wire.MetadataRequest))
            assert now == asked

    simulate(body, nodes=2)


def test_a_dead_broker_delays_only_its_own_partitions() -> None:
    """In aiokafka a dead broker delayed the connections to all others."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 2])
        kafka.append("orders", 0, b"a")
        kafka.append("orders", 1, b"b")
        async with consumer(world, kafka, "orders") as c:
            await read(c, 2)
            await kafka[2].stop()
            start = world.loop.time()
            for n in range(50):
                kafka.append("orders", 0, b"%d" % n)
                assert (await c.getone()).value == b"%d" % n
            assert world.loop.time() - start < 5
            kafka.append("orders", 1, b"back")
            await kafka[2].start()
            assert values(await read(c, 1)) == [b"back"]

    simulate(body, nodes=2)


def test_after_a_cut_connection_nothing_is_lost_or_repeated() -> None:
    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, *numbers(0, 5))
        async with consumer(world, kafka, "orders") as c:
            seen = values(await read(c, 5))
            for n in range(5, 25):
                for connection in world.network.connections("10.0.0.1", kafka[1].port):
                    connection.cut()
                kafka.append("orders", 0, b"%d" % n)
                seen += values(await read(c, 1))
            assert seen == numbers(0, 25)

    simulate(body)


def test_a_fetch_from_a_silent_broker_fails_after_the_request_timeout() -> None:
    """A half-open connection must not block a partition for ever."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, b"a")
        async with consumer(world, kafka, "orders", request_timeout_ms=2_000) as c:
            await read(c, 1)
            kafka.delays[1] = 1_000.0
            await asyncio.sleep(10)
            health = c.health()
            assert health.brokers[1].error is not None
            kafka.delays.clear()
            kafka.append("orders", 0, b"b")
            assert values(await read(c, 1)) == [b"b"]

    simulate(body)


# -- error codes


@pytest.mark.parametrize(
    "code",
    [
        code
        for code, action in FETCH_ACTIONS.items()
        if action in (FetchAction.RETRY, FetchAction.REFRESH)
    ]
    + [12345, 8],
)
def test_temporary_errors_are_retried_without_a_hot_loop(code: int) -> None:
    """aiokafka only logs an unknown error and retries at once, for ever."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, b"a")
        kafka.faults.append(times(5, code))
        async with consumer(world, kafka, "orders") as c:
            start = world.loop.time()
            assert values(await read(c, 1)) == [b"a"]
            assert world.loop.time() - start > 0.3, "five tries with growing pauses"
            assert len(kafka.fetched) <= 8
            assert c.health().ok

    simulate(body)


def test_authorization_errors_are_raised_and_retried() -> None:
    """Permissions may be granted later, but until then the error must be visible."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, b"a")
        kafka.faults.append(times(2, TopicAuthorization.code))
        async with consumer(world, kafka, "orders") as c:
            for _ in range(2):
                with pytest.raises(TopicAuthorization) as raised:
                    await read(c, 1)
                assert raised.value.topic_partition == T0
            assert values(await read(c, 1)) == [b"a"]

    simulate(body)


def test_an_error_of_one_partition_is_raised_once_and_the_others_continue() -> None:
    """One failing partition must not stop a consumer of fifty."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        kafka.append("orders", 0, b"a")
        kafka.append("orders", 1, b"b", b"c")
        async with consumer(world, kafka, auto_offset_reset="none") as c:
            c.assign([T0, ("orders", 1)])
            c.seek(T0, 77)
            c.seek(("orders", 1), 0)
            seen, errors = [], []
            while len(seen) < 2:
                try:
                    seen.append((await c.getone()).value)
                except OffsetOutOfRange as error:
                    errors.append(error)
            assert seen == [b"b", b"c"]
            await asyncio.sleep(5)
            assert await c.getmany(timeout=1) == {} or errors
            assert len(errors) <= 1
            assert c.health().partitions[T0].state == "parked"
            assert not c.health().ok
            c.seek(T0, 0)
            assert values(await read(c, 1)) == [b"a"]
            assert c.health().ok

    simulate(body)


def test_a_position_deleted_by_retention_is_reset_by_policy() -> None:
    """The broker returns OFFSET_OUT_OF_RANGE, and the policy is earliest."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, *numbers(0, 5))
        kafka.append("orders", 0, *numbers(5, 10))
        kafka.log("orders").log_start = 5
        async with consumer(world, kafka) as c:
            c.assign([T0])
            c.seek(T0, 2)
            assert values(await read(c, 5)) == numbers(5, 10)

    simulate(body)


def test_records_fetched_before_an_error_are_delivered_before_it() -> None:
    """An error at offset 10 must not lose records 0 to 9."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, *numbers(0, 10))
        kafka.faults.append(lambda f: OffsetOutOfRange.code if f.asked.fetch_offset == 10 else None)
        async with consumer(world, kafka, auto_offset_reset="none") as c:
            c.assign([T0])
            c.seek(T0, 0)
            await asyncio.sleep(2)
            assert values(await read(c, 10)) == numbers(0, 10)
            with pytest.raises(OffsetOutOfRange, match="seek"):
                await read(c, 1)

    simulate(body)


def test_a_corrupt_batch_raises_with_its_offset_and_can_be_skipped() -> None:
    """Damaged data must neither be delivered nor stop the partition for good."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, *numbers(0, 3))
        kafka.append("orders", 0, *numbers(3, 6))
        kafka.append("orders", 0, *numbers(6, 9))
        log = kafka.log("orders")
        bad = bytearray(log.batches[1].data)
        bad[-2] ^= 1  # in the value of the last record
        log.batches[1].data = bytes(bad)
        async with consumer(world, kafka, "orders") as c:
            assert values(await read(c, 3)) == numbers(0, 3)
            with pytest.raises(CorruptRecord, match="offset 3") as raised:
                await read(c, 1)
            assert raised.value.topic_partition == T0
            assert await c.position(T0) == 3
            c.seek(T0, 6)
            assert values(await read(c, 3)) == numbers(6, 9)
        async with consumer(world, kafka, "orders", check_crcs=False) as c:
            assert len(await read(c, 9)) == 9

    simulate(body)


@pytest.mark.parametrize("how", ["async for", "getone", "getmany", "batches"])
def test_a_corrupt_batch_stops_only_its_own_partition(how: str) -> None:
    """The error must neither stop other partitions nor be raised by every call."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        kafka.append("orders", 0, b"bad")
        kafka.append("orders", 0, b"good")
        log = kafka.log("orders")
        data = bytearray(log.batches[0].data)
        data[-2] ^= 1
        log.batches[0].data = bytes(data)
        async with consumer(world, kafka, "orders") as c:
            seen, errors = [], 0
            await asyncio.sleep(5)
            kafka.append("orders", 1, *numbers(0, 3))
            for _ in range(10):
                try:
                    async with asyncio.timeout(5):
                        if how == "async for":
                            async for record in c:
                                seen.append(record.value)
                        elif how == "getone":
                            seen.append((await c.getone()).value)
                        elif how == "batches":
                            async for batch in c.batches():
                                seen += values(batch)
                        else:
                            for records in (await c.getmany(timeout=4)).values():
                                seen += values(records)
                except TimeoutError:
                    pass
                except CorruptRecord as error:
                    errors += 1
                    said = str(error)
            assert (seen, errors) == (numbers(0, 3), 1)
            assert "offset 0 of orders-0; seek(('orders', 0), 1) skips this batch" in said
            assert await c.position(T0) == 0
            assert c.health().partitions[T0].error is not None
            c.seek(T0, 1)
            assert values(await read(c, 1)) == [b"good"]

    simulate(body)


def test_batches_before_and_after_a_corrupt_one_are_delivered() -> None:
    """A thousand good records must not be lost because of one corrupt batch among them."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        for first in range(0, 15, 3):
            kafka.append("orders", 0, *numbers(first, first + 3))
        batches = kafka.log("orders").batches
        for place in (2, 3):
            bad = bytearray(batches[place].data)
            bad[-2] ^= 1
            batches[place].data = bytes(bad)
        seen = []

        async def read_all(batches: Any) -> None:
            async for batch in batches:
                assert len(batch) == len(batch.records)
                seen.extend(values(batch))

        async with consumer(world, kafka, "orders") as c:
            await asyncio.sleep(5)
            assert values([await c.getone()]) == numbers(0, 1)
            for offset, beyond in ((6, 9), (9, 12)):
                said = rf"offset {offset} of orders-0; seek\(\('orders', 0\), {beyond}\) "
                with pytest.raises(CorruptRecord, match=said):
                    await read_all(c.batches())
                assert await c.position(T0) == offset
                c.seek(T0, beyond)
            seen += values(await anext(c.batches()))
            assert await c.position(T0) == 15
        assert seen == numbers(1, 6) + numbers(12, 15)

    simulate(body)


def test_a_batch_larger_than_the_limits_is_delivered() -> None:
    """With KIP-74 the first batch of a partition is always returned completely."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, bytes(100_000))
        kafka.append("orders", 0, b"next")
        async with consumer(
            world, kafka, "orders", max_partition_fetch_bytes=1_000, fetch_max_bytes=2_000
        ) as c:
            first, second = await read(c, 2)
            assert (len(first.value), second.value) == (100_000, b"next")

    simulate(body)


def test_a_truncated_first_batch_raises_a_clear_error() -> None:
    """Brokers before 0.10.1 truncate it; without an error the fetch would be repeated for ever."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, bytes(5_000))
        data = kafka.log("orders").batches[0].data[:1_000]
        kafka.faults.append(
            lambda f: wire.FetchPartitionData(
                partition_index=0, error_code=0, high_watermark=1, records=data
            )
        )
        async with consumer(world, kafka, "orders", max_partition_fetch_bytes=1_000) as c:
            with pytest.raises(RecordTooLarge, match="max_partition_fetch_bytes"):
                await read(c, 1)
            asked = len(kafka.fetched)
            await asyncio.sleep(10)
            assert len(kafka.fetched) <= asked + 1, "it is not asked for again and again"
            assert c._pipeline.buffers.used == 0

    simulate(body)


def test_garbage_instead_of_batches_is_an_error_and_causes_no_hot_loop() -> None:
    """The position does not advance, so the fetch would be repeated at once."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, b"a")
        kafka.faults.append(
            lambda f: wire.FetchPartitionData(
                partition_index=0, error_code=0, high_watermark=1, records=bytes(range(200))
            )
        )
        async with consumer(world, kafka, "orders") as c:
            with pytest.raises(KafkaError):
                await read(c, 1, timeout=20)
            assert len(kafka.fetched) < 40
            assert c._pipeline.buffers.used == 0

    simulate(body)


# -- sessions


def test_responses_for_other_partitions_cause_no_hot_loop() -> None:
    """They arrive at once, and the next fetch would be sent at once too."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        answer = kafka._response

        def confused(*args: Any) -> Any:
            response = answer(*args)
            response.responses = [
                wire.FetchableTopicResponse(
                    topic="other",
                    partitions=[
                        wire.FetchPartitionData(
                            partition_index=0, error_code=0, high_watermark=0, records=b""
                        )
                    ],
                )
            ]
            return response

        async with consumer(world, kafka, "orders", fetch_max_wait_ms=0) as c:
            await asyncio.sleep(1)
            kafka._response = confused
            before = len(kafka.requests)
            assert await c.getmany(timeout=10) == {}
            assert len(kafka.requests) - before < 50
            assert "not requested" in str(c.health().brokers[1].error)
            kafka._response = answer
            kafka.append("orders", 0, b"a")
            assert values(await read(c, 1)) == [b"a"]

    simulate(body)


def test_requests_of_a_session_contain_only_changes() -> None:
    """With KIP-227 fifty idle partitions add nothing to a request."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1] * 50)
        async with consumer(world, kafka, "orders") as c:
            kafka.append("orders", 7, b"a")
            await read(c, 1)
            await asyncio.sleep(3)
            kafka.append("orders", 8, b"b")
            await read(c, 1)
            await asyncio.sleep(3)
        sizes = [
            (r.session_epoch, sum(len(t.partitions) for t in r.topics))
            for _, r, _ in kafka.requests
        ]
        assert sizes[0] == (0, 50)
        assert all(size <= 1 for epoch, size in sizes[1:] if epoch > 0)
        assert [epoch for epoch, _ in sizes if epoch >= 0] == list(
            range(len([1 for epoch, _ in sizes if epoch >= 0]))
        )

    simulate(body)


def test_an_evicted_session_is_replaced_at_once() -> None:
    """The broker may evict a session to make room."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, b"a")
        async with consumer(world, kafka, "orders") as c:
            await read(c, 1)
            kafka.sessions.clear()
            kafka.append("orders", 0, b"b")
            start = world.loop.time()
            assert values(await read(c, 1)) == [b"b"]
            assert world.loop.time() - start < 1
            next(iter(kafka.sessions.values())).epoch += 5
            kafka.append("orders", 0, b"c")
            assert values(await read(c, 1)) == [b"c"]

    simulate(body)


def test_brokers_without_sessions_get_full_requests() -> None:
    """Such a broker returns session id 0; librdkafka's mock cluster lacks sessions."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        kafka.keeps_sessions = False
        kafka.append("orders", 0, b"a")
        async with consumer(world, kafka, "orders") as c:
            await read(c, 1)
            kafka.append("orders", 1, b"b")
            assert values(await read(c, 1)) == [b"b"]
        assert all(r.session_id == 0 for _, r, _ in kafka.requests)

    simulate(body)


@pytest.mark.parametrize("version", [4, 6, 7, 9, 11, 12, 13, 15, 16, 17, 18])
def test_every_version_of_fetch_is_supported(version: int) -> None:
    """Fields that a version lacks must not be set."""

    async def body(world: Any, kafka: Any) -> None:
        kafka[1].versions[wire.FetchRequest.API_KEY] = (version, version)
        kafka.topic("orders", [1, 1])
        kafka.append("orders", 0, b"a")
        async with consumer(
            world, kafka, "orders", client_rack="a", isolation_level="read_committed"
        ) as c:
            await read(c, 1)
            c.pause(T0)
            kafka.append("orders", 1, b"b")
            assert values(await read(c, 1)) == [b"b"]
        assert {v for _, _, v in kafka.requests} == {version}

    simulate(body)


# -- replicas and epochs


def test_a_replica_in_the_same_rack_is_used_until_it_fails() -> None:
    """This is KIP-392."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.preferred["orders", 0] = 2
        kafka.append("orders", 0, b"a")
        async with consumer(
            world, kafka, "orders", client_rack="near", metadata_max_age_ms=60_000
        ) as c:
            await read(c, 1)
            assert [f.node_id for f in kafka.fetched][:1] == [1]
            assert c.health().partitions[T0].node == 2
            assert all(r.rack_id == "near" for _, r, _ in kafka.requests)
            await kafka[2].stop()
            del kafka.preferred["orders", 0]
            kafka.append("orders", 0, b"b")
            assert values(await read(c, 1)) == [b"b"]
            assert c.health().partitions[T0].node == 1

    simulate(body, nodes=2)


def test_a_preferred_replica_is_used_for_a_limited_time() -> None:
    """Racks may change, so the leader is used again after metadata_max_age_ms."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.preferred["orders", 0] = 2
        kafka.append("orders", 0, b"a")
        async with consumer(
            world, kafka, "orders", client_rack="near", metadata_max_age_ms=10_000
        ) as c:
            await read(c, 1)
            kafka.followers = {2, 3}
            kafka.preferred["orders", 0] = 3
            await asyncio.sleep(8)
            assert c.health().partitions[T0].node == 2
            await asyncio.sleep(5)
            assert c.health().partitions[T0].node == 3
            kafka.append("orders", 0, b"b")
            assert values(await read(c, 1)) == [b"b"]

    simulate(body, nodes=3)


def test_a_preferred_replica_that_refuses_causes_no_hot_loop() -> None:
    """The leader names the same replica again, which refuses again."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.preferred["orders", 0] = 2
        kafka.faults.append(
            times(10**6, OffsetNotAvailable.code, when=lambda fetched: fetched.node_id == 2)
        )
        async with consumer(world, kafka, "orders", client_rack="near"):
            await asyncio.sleep(20)
            assert len(kafka.fetched) < 20 * 2 / 0.05

    simulate(body, nodes=2)


def test_after_offset_out_of_range_on_a_replica_the_leader_is_asked() -> None:
    """A replica may lag behind the offsets that the leader has already returned."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.preferred["orders", 0] = 2
        kafka.append("orders", 0, *numbers(0, 5))
        behind = Log()
        behind.append(numbers(0, 2))
        async with consumer(world, kafka, client_rack="near") as c:
            c.assign([T0])
            kafka.node_logs[2, "orders", 0] = behind
            c.seek(T0, 4)
            world.loop.call_later(3, kafka.preferred.clear)
            assert values(await read(c, 1)) == [b"4"]

    simulate(body, nodes=2)


@pytest.mark.parametrize("inline", [False, True])
def test_a_log_truncation_is_detected(inline: bool) -> None:
    """With KIP-320: records 5 to 9 were read and then lost in an unclean election."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        kafka.append("orders", 0, *numbers(0, 5))
        kafka.append("orders", 0, *numbers(5, 10))
        if inline:
            # The separate check is not available; from version 12 the fetch itself detects it.
            for node in kafka.nodes.values():
                node.versions[wire.OffsetForLeaderEpochRequest.API_KEY] = (2, 2)

        def elect() -> None:
            log = kafka.log("orders")
            log.truncate(5)
            log.epochs = [(0, 0), (1, 5)]
            topic.move(0, 2)
            kafka.append("orders", 0, *[b"new-%d" % n for n in range(5, 15)], epoch=1)

        async with consumer(world, kafka, "orders") as c:
            await read(c, 10)
            elect()
            records = await read(c, 10)
            assert records[0].offset == 5, "back to what both logs have"
            assert values(records)[0] == b"new-5"

        kafka.log("orders").truncate(0)

    simulate(body, nodes=2)


def test_a_denied_check_of_the_position_says_who_lacks_what() -> None:
    """The permission ended after the records were read."""

    async def denied(request: wire.OffsetForLeaderEpochRequest, call: Any) -> Any:
        return wire.OffsetForLeaderEpochResponse(
            topics=[
                wire.OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        wire.OffsetForLeaderEpochEndOffset(
                            partition=asked.partition, error_code=TopicAuthorization.code
                        )
                        for asked in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        kafka.append("orders", 0, *numbers(0, 5))
        async with consumer(world, kafka, "orders") as c:
            await read(c, 5)
            kafka.on(wire.OffsetForLeaderEpochRequest, denied)
            topic.move(0, 2)
            kafka.append("orders", 0, b"new", epoch=1)
            with pytest.raises(TopicAuthorization) as raised:
                await read(c, 1)
            assert str(raised.value).endswith("User:ANONYMOUS lacks DESCRIBE on TOPIC:orders")

    simulate(body, nodes=2)


def test_a_log_truncation_is_raised_with_the_policy_none() -> None:
    """With auto_offset_reset="none" the user wants an error."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        kafka.append("orders", 0, *numbers(0, 5))
        kafka.append("orders", 0, *numbers(5, 10))
        async with consumer(world, kafka, auto_offset_reset="none") as c:
            c.assign([T0])
            c.seek(T0, 0)
            await read(c, 10)
            log = kafka.log("orders")
            log.truncate(5)
            log.epochs = [(0, 0), (1, 5)]
            topic.move(0, 2)
            kafka.append("orders", 0, *[b"new-%d" % n for n in range(5, 15)], epoch=1)
            with pytest.raises(LogTruncated) as raised:
                await read(c, 1)
            assert (raised.value.position, raised.value.divergent_offset) == (10, 5)
            assert await c.position(T0) == 10
            c.seek(T0, raised.value.divergent_offset)
            assert values(await read(c, 1)) == [b"new-5"]

    simulate(body, nodes=2)


def test_records_only_fetched_ahead_of_a_truncation_are_discarded_silently() -> None:
    """No delivered record was lost, so no error is needed."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        kafka.append("orders", 0, *numbers(0, 5))
        kafka.append("orders", 0, *numbers(5, 10))
        async with consumer(world, kafka, auto_offset_reset="none") as c:
            c.assign([T0])
            c.seek(T0, 0)
            await read(c, 3)
            log = kafka.log("orders")
            log.truncate(5)
            log.epochs = [(0, 0), (1, 5)]
            topic.move(0, 2)
            kafka.append("orders", 0, *[b"new-%d" % n for n in range(5, 15)], epoch=1)
            await asyncio.sleep(3)
            seen = await read(c, 12)
            assert values(seen) == [b"3", b"4", *[b"new-%d" % n for n in range(5, 15)]]

    simulate(body, nodes=2)


# -- transactions


@pytest.mark.parametrize("how", ["pause", "batches"])
def test_an_aborted_transaction_hides_no_later_records(how: str) -> None:
    """Reading may continue in the middle of the fetched records, after the abort marker."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        log = kafka.log("orders")
        of_7: dict[str, Any] = {"attributes": 0x10, "producer_id": 7, "producer_epoch": 0}
        log.append([b"a", b"b"], **of_7)
        log.append_marker(ABORT, 7)
        log.append([b"c", b"d"], **of_7)
        log.append_marker(COMMIT, 7)
        log.append([b"e"])
        log.aborted = [(7, 0)]
        async with consumer(world, kafka, "orders", isolation_level="read_committed") as c:
            await asyncio.sleep(2)
            assert (await c.getone()).value == b"c"
            if how == "pause":
                c.pause(T0)
                c.resume(T0)
                assert values(await read(c, 2)) == [b"d", b"e"]
            else:
                async for batch in c.batches():
                    assert (len(batch), values(batch)) == (2, [b"d", b"e"])
                    break

    simulate(body)


def test_read_committed_skips_aborted_records_and_stops_at_open_transactions() -> None:
    """There are a committed, an aborted and an open transaction."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        log = kafka.log("orders")
        options = {"attributes": 0x10, "producer_epoch": 0}
        log.append([b"c1", b"c2"], producer_id=1, base_sequence=0, **options)
        log.append([b"a1", b"a2"], producer_id=2, base_sequence=0, **options)
        log.append_marker(COMMIT, 1)
        log.append([b"plain"])
        log.append_marker(ABORT, 2)
        log.append([b"c3"], producer_id=2, base_sequence=2, **options)
        log.append_marker(COMMIT, 2)
        log.stable = log.next_offset
        log.append([b"open"], producer_id=3, base_sequence=0, **options)
        log.aborted = [(2, 2)]
        async with consumer(world, kafka, "orders", isolation_level="read_committed") as c:
            assert values(await read(c, 4)) == [b"c1", b"c2", b"plain", b"c3"]
            assert await c.getmany(timeout=2) == {}
            assert await c.position(T0) == log.stable
            assert c.lag(T0) == 0
            assert await c.end_offsets([T0]) == {T0: log.stable}
            await c.seek_to_end()
            assert await c.position(T0) == log.stable
            await c.seek_to_beginning()
            async for batch in c.batches():
                assert len(batch) == 4
                assert batch.to_arrow(["value"]).column("value").to_pylist() == [
                    b"c1",
                    b"c2",
                    b"plain",
                    b"c3",
                ]
                break
        async with consumer(world, kafka, "orders") as c:
            assert len(await read(c, 7)) == 7

    simulate(body)


def test_gaps_left_by_compaction_are_skipped() -> None:
    """Offsets are missing, and the last record of a batch may be missing too."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        log = kafka.log("orders")
        log.append_records([RawRecord(3, 1, None, b"3"), RawRecord(7, 1, None, b"7")])
        log.append_records([RawRecord(20, 1, None, b"20")])
        async with consumer(world, kafka, "orders") as c:
            assert [r.offset for r in await read(c, 3)] == [3, 7, 20]
            assert await c.position(T0) == 21
            c.seek(T0, 4)
            async for batch in c.batches():
                assert len(batch) == 2
                break

    simulate(body)


def test_large_compressed_batches_are_decompressed_in_a_thread() -> None:
    """They are read like other batches, even with a seek in between."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        for n in range(3):
            payload = world.random.randbytes(200_000)
            kafka.append("orders", 0, b"%d" % n, payload, codec=3)
        ran = []
        async with consumer(world, kafka, "orders") as c:
            offload = c._engine.environment.offload
            run = offload.run

            async def counted(fn: Any, *args: Any) -> Any:
                ran.append(fn)
                await asyncio.sleep(0.2)
                return await run(fn, *args)

            offload.run = counted  # type: ignore[method-assign]
            c.seek(T0, 2)
            assert [r.offset for r in await read(c, 4)] == [2, 3, 4, 5]
        assert ran

    simulate(body)


# -- memory


def test_the_memory_for_fetching_ahead_is_bounded() -> None:
    """A consumer that is not read must not fetch a whole topic into memory."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1] * 20)
        for _ in range(10):
            for partition in range(20):
                kafka.append("orders", partition, bytes(50_000), bytes(50_000))
        async with consumer(
            world,
            kafka,
            "orders",
            queued_max_bytes=1_000_000,
            max_partition_fetch_bytes=200_000,
            fetch_max_bytes=500_000,
        ) as c:
            await asyncio.sleep(30)
            # The scripted broker has no limit for the whole response.
            assert c.health().buffered_bytes <= 1_000_000 + 20 * 201_000
            stands = len(kafka.fetched)
            await asyncio.sleep(60)
            assert len(kafka.fetched) == stands, "it waits"
            records = await read(c, 400)
            assert len(records) == 400
            assert await c.getmany(timeout=1) == {}
            assert c.health().buffered_bytes == 0

    simulate(body)


def test_a_stream_that_is_not_read_does_not_starve_the_others() -> None:
    """The limit applies to fetching ahead: a reader that waits gets its record."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        for n in range(40):
            for partition in range(2):
                kafka.append("orders", partition, b"%d" % n + bytes(100_000))
        async with consumer(
            world, kafka, "orders", queued_max_bytes=150_000, max_partition_fetch_bytes=100_000
        ) as c:
            one, other = c.streams(2)
            assert len(await read(one, 40)) == 40
            assert len(await read(other, 40)) == 40

    simulate(body)


# -- topics


def test_new_partitions_are_read_from_their_beginning() -> None:
    """With 'latest', Java's consumer skips records written before it noticed the partitions."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        kafka.append("orders", 0, b"old")
        async with consumer(
            world, kafka, "orders", auto_offset_reset="latest", metadata_max_age_ms=5_000
        ) as c:
            assert await c.getmany(timeout=1) == {}
            topic.leaders.append(1)
            kafka.append("orders", 1, b"new")
            assert values(await read(c, 1)) == [b"new"]
            assert c.assignment() == {T0, ("orders", 1)}
        async with consumer(
            world,
            kafka,
            "orders",
            auto_offset_reset="latest",
            metadata_max_age_ms=5_000,
            new_partitions="auto_offset_reset",
        ) as c:
            topic.leaders.append(1)
            kafka.append("orders", 2, b"missed")
            assert await c.getmany(timeout=10) == {}
            assert len(c.assignment()) == 3

    simulate(body)


def test_a_subscription_waits_for_a_missing_topic() -> None:
    """As in kafka4net's ListenerOnNonExistentTopicWaitsForTopicCreation."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("other", [1])
        kafka.append("other", 0, b"other")
        async with consumer(world, kafka, "orders", "other", auto_offset_reset="latest") as c:
            assert c.health().missing_topics == {"orders"}
            assert not c.health().ok
            waiting = asyncio.create_task(read(c, 2, timeout=500))
            await asyncio.sleep(100)
            kafka.append("other", 0, b"meanwhile")
            kafka.topic("orders", [1])
            kafka.append("orders", 0, b"first")
            assert set(values(await waiting)) == {b"meanwhile", b"first"}
            assert c.health().ok

    simulate(body)


def test_a_pattern_finds_topics_created_later() -> None:
    """They are new, so they are read from the beginning."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("logs.a", [1])
        kafka.append("logs.a", 0, b"old")
        internal = kafka.topic("logs.__internal", [1])
        internal.internal = True
        kafka.append("logs.__internal", 0, b"internal")
        async with consumer(
            world, kafka, auto_offset_reset="latest", metadata_max_age_ms=5_000
        ) as c:
            c.subscribe(pattern=r"logs\..*")
            assert await c.getmany(timeout=2) == {}
            kafka.topic("logs.b", [1])
            kafka.append("logs.b", 0, b"b")
            assert values(await read(c, 1)) == [b"b"]
            assert c.subscription() == {"logs.a", "logs.b"}

    simulate(body)


def test_a_recreated_topic_is_read_from_its_beginning() -> None:
    """The new topic has another topic id, so the position in the old topic does not apply."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        kafka.append("orders", 0, *numbers(0, 10))

        def create_anew(value: bytes) -> None:
            topic.topic_id = uuid.uuid5(uuid.NAMESPACE_OID, str(value))
            kafka.logs.clear()
            kafka.append("orders", 0, value)

        async with consumer(world, kafka, "orders", metadata_max_age_ms=5_000) as c:
            await read(c, 10)
            create_anew(b"fresh")
            assert values(await read(c, 1)) == [b"fresh"]
        async with consumer(world, kafka, auto_offset_reset="none", metadata_max_age_ms=5_000) as c:
            c.assign([T0])
            c.seek(T0, 0)
            await read(c, 1)
            create_anew(b"fresher")
            with pytest.raises(NoOffsetForPartition):
                await read(c, 1)

    simulate(body)


def test_a_deleted_topic_leaves_the_assignment() -> None:
    """If the topic is recreated, its partitions are assigned again."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.topic("other", [1])
        kafka.append("orders", 0, b"a")
        async with consumer(
            world, kafka, "orders", "other", auto_offset_reset="latest", metadata_max_age_ms=5_000
        ) as c:
            del kafka.topics["orders"]
            kafka.logs.clear()
            await asyncio.sleep(20)
            assert c.assignment() == {("other", 0)}
            kafka.append("other", 0, b"still")
            assert values(await read(c, 1)) == [b"still"]
            kafka.topic("orders", [1])
            kafka.append("orders", 0, b"again")
            assert values(await read(c, 1)) == [b"again"]

    simulate(body)


def test_reading_continues_if_metadata_lacked_a_topic_for_a_while() -> None:
    """The topic id is the same, so restarting from the beginning would repeat all records."""

    async def body(world: Any, kafka: Any) -> None:
        topic = kafka.topic("orders", [1])
        kafka.append("orders", 0, *numbers(0, 10))
        async with consumer(world, kafka, "orders", metadata_max_age_ms=5_000) as c:
            await read(c, 10)
            del kafka.topics["orders"]
            await asyncio.sleep(20)
            assert c.assignment() == frozenset()
            kafka.topics["orders"] = topic
            kafka.append("orders", 0, b"10")
            assert values(await read(c, 1)) == [b"10"]

    simulate(body)


def test_the_error_for_a_missing_partition_is_readable() -> None:
    """Waiting for the partition would never end."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with consumer(world, kafka, default_api_timeout_ms=10_000) as c:
            c.assign([("orders", 5)])
            with pytest.raises(UnknownTopicOrPartition, match="there is no partition 5"):
                await read(c, 1)
            with pytest.raises(UnknownTopicOrPartition, match="there is no partition 5"):
                await c.position(("orders", 5), timeout=5)
            c.assign([("nowhere", 0)])
            with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'nowhere'"):
                await c.position(("nowhere", 0), timeout=5)

    simulate(body)


# -- streams


def test_streams_share_the_partitions_and_a_closed_stream_passes_its_own_on() -> None:
    """Each partition belongs to exactly one stream, with its records in order."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1] * 6)
        for n in range(10):
            for partition in range(6):
                kafka.append("orders", partition, b"%d" % n)
        async with consumer(world, kafka, "orders") as c:
            streams = c.streams(3)
            assert sorted(tp for s in streams for tp in s.assignment()) == [
                ("orders", p) for p in range(6)
            ]
            assert {len(s.assignment()) for s in streams} == {2}
            with pytest.raises(RuntimeError, match="streams"):
                aiter(c)
            with pytest.raises(KafkaError):
                c.streams(2)
            seen: dict[int, list[bytes]] = {p: [] for p in range(6)}

            async def run(stream: Any, stop_after: int | None = None) -> None:
                count = 0
                async with stream:
                    async for record in stream:
                        seen[record.partition].append(record.value)
                        count += 1
                        if count == stop_after:
                            break
                        await asyncio.sleep(0.01)

            first = asyncio.create_task(run(streams[0], 5))
            others = [asyncio.create_task(run(s)) for s in streams[1:]]
            await first
            assert {len(s.assignment()) for s in streams} == {0, 3}
            await asyncio.sleep(5)
            for values_of in seen.values():
                assert values_of == numbers(0, 10)
            for stream in streams[1:]:
                stream.close()
            await asyncio.gather(*others)
            kafka.append("orders", 3, b"10")
            assert values(await read(c, 1)) == [b"10"], "back to the consumer"

    simulate(body)


def test_closing_the_consumer_ends_its_streams() -> None:
    """Tasks that read from the streams would wait for ever."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        c = consumer(world, kafka, "orders")
        await c.start()
        tasks = [asyncio.create_task(read(stream, 1)) for stream in c.streams(2)]
        await asyncio.sleep(1)
        await c.close()
        assert await asyncio.gather(*tasks) == [[], []]

    simulate(body)
