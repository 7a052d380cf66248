"""A consumer of topics and partitions that do not exist, or no longer exist, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from aiokq import wire
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import (
    LeaderNotAvailable,
    RequestTimeout,
    TopicAuthorization,
    UnknownTopicOrPartition,
)
from aiokq.core.types import TopicPartition
from tests.peers.scripted import Call
from tests.sim.consumer_world import consumer, read, simulate, values

T0 = TopicPartition("orders", 0)

MISSING = [TopicPartition("nosuch", 0), TopicPartition("orders", 5)]
"""A partition of a missing topic, and a missing partition of an existing topic."""


def elapsed(world: Any, start: float) -> float:
    return float(world.loop.time() - start)


def asked_to_create(kafka: Any, topic: str) -> int:
    """Return how many Metadata requests allowed the creation of the topic."""
    return sum(
        request.allow_auto_topic_creation and any(t.name == topic for t in request.topics or ())
        for node in kafka.nodes.values()
        for request in node.seen_of(wire.MetadataRequest)
    )


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("missing", MISSING, ids=str)
def test_the_position_of_a_missing_partition_fails_in_time_with_the_reason(
    missing: TopicPartition, create: bool
) -> None:
    """The error was "not known within 60 s", without the reason."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with consumer(world, kafka, allow_auto_create_topics=create) as c:
            c.assign([missing])
            calls: list[Callable[[], Any]] = [
                lambda: c.position(missing, timeout=5),
                lambda: c.seek_to_beginning(missing, timeout=5),
                lambda: c.seek_to_end(timeout=5),
                lambda: c.beginning_offsets([missing], timeout=5),
                lambda: c.end_offsets([missing], timeout=5),
                lambda: c.offsets_for_times({missing: 0}, timeout=5),
            ]
            for call in calls:
                start = world.loop.time()
                with pytest.raises(UnknownTopicOrPartition, match=missing.topic):
                    await call()
                assert elapsed(world, start) <= 5.01
            start = world.loop.time()
            with pytest.raises(UnknownTopicOrPartition):
                await c.position(missing)
            assert elapsed(world, start) <= 60.01

    simulate(body)


@pytest.mark.parametrize("way", ["async for", "getone", "batches", "stream"])
@pytest.mark.parametrize("missing", MISSING, ids=str)
def test_reading_a_missing_partition_raises_within_the_api_timeout(
    missing: TopicPartition, way: str
) -> None:
    """The reader waited for ever without a message. A seek must not hide the error either."""

    async def next_of(c: Consumer, streams: list[Any]) -> Any:
        match way:
            case "async for":
                async for record in c:
                    return record
            case "getone":
                return await c.getone()
            case "batches":
                async for batch in c.batches():
                    return batch[0]
            case "stream":
                return await streams[1].getone()
        raise AssertionError("it ended")

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with consumer(world, kafka, default_api_timeout_ms=20_000) as c:
            streams = c.streams(2) if way == "stream" else []
            c.assign([T0, missing])
            if way == "getone":
                c.seek(missing, 3)
            for _ in range(2):  # the error is raised again while the partition is missing
                start = world.loop.time()
                with pytest.raises(UnknownTopicOrPartition, match=missing.topic) as raised:
                    await next_of(c, streams)
                assert raised.value.topic_partition == missing
                assert elapsed(world, start) <= 22
            if missing.topic == "orders":
                kafka.topics["orders"].leaders += [1] * 5
            else:
                kafka.topic("nosuch", [1])
            kafka.append(*missing, b"a", b"b", b"c", b"d")
            record = await asyncio.wait_for(next_of(c, streams), 15)
            assert record.value == (b"d" if way == "getone" else b"a")

    simulate(body)


def test_a_missing_topic_does_not_delay_the_lookup_of_another() -> None:
    """Both have no known leader when they are assigned, and were looked up together."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.append("orders", 0, b"a")
        async with consumer(world, kafka) as c:
            c.assign([MISSING[0], T0])
            start = world.loop.time()
            assert await c.position(T0) == 0
            assert values(await read(c, 1)) == [b"a"]
            assert elapsed(world, start) < 2

    simulate(body)


def test_a_subscriber_waits_for_a_topic_and_logs_it_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in Java, a service may start before its topics exist; the log says what it waits for."""

    async def body(world: Any, kafka: Any) -> None:
        caplog.set_level(logging.WARNING, "aiokq.consumer")
        kafka.topic("other", [1])
        async with consumer(world, kafka, "orders", allow_auto_create_topics=False) as c:
            waiting = asyncio.create_task(c.getone())
            await asyncio.sleep(3)
            assert any("topic=orders" in line for line in caplog.messages)
            assert c.health().missing_topics == {"orders"}
            await asyncio.sleep(300)
            assert not waiting.done()
            assert len(caplog.messages) < 10
            assert not asked_to_create(kafka, "orders")
            kafka.topic("orders", [1])
            kafka.append("orders", 0, b"a")
            assert (await asyncio.wait_for(waiting, 5)).value == b"a"

    simulate(body)


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "topic does not exist" in line]


def test_the_warning_for_a_misspelled_topic_suggests_the_right_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The producer's warning did so already, but the consumer's did not."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with consumer(world, kafka, "ordres", "zebras") as c:
            waiting = asyncio.create_task(c.getone())
            await asyncio.sleep(3)
            assert sorted(warned(caplog)) == [
                "topic does not exist: topic=ordres nearest=orders",
                "topic does not exist: topic=zebras",
            ]
            asked = kafka[1].seen_of(wire.MetadataRequest)
            assert sum(request.topics is None for request in asked) == 1, "once for both"
            waiting.cancel()
        async with consumer(world, kafka, default_api_timeout_ms=5_000) as c:
            c.assign([TopicPartition("ordres", 0)])
            with pytest.raises(UnknownTopicOrPartition, match="did you mean 'orders'"):
                await c.getone()

    simulate(body)


def test_a_broker_that_is_slow_to_list_topics_delays_neither_warning_nor_lookup(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The suggestion is waited for no longer than a second."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])

        async def metadata(request: wire.MetadataRequest, call: Call) -> wire.MetadataResponse:
            if request.topics is None:
                await asyncio.sleep(3)
            return kafka.metadata(request)

        kafka.on(wire.MetadataRequest, metadata)
        async with consumer(world, kafka, "ordres", default_api_timeout_ms=5_000) as c:
            waiting = asyncio.create_task(c.getone())
            await asyncio.sleep(0.5)
            assert warned(caplog) == []
            await asyncio.sleep(1)
            assert warned(caplog) == ["topic does not exist: topic=ordres"]
            kafka.topic("ordres", [1])
            kafka.append("ordres", 0, b"a")
            assert (await asyncio.wait_for(waiting, 5)).value == b"a"

    simulate(body)


def test_a_position_without_a_leader_fails_with_the_cause() -> None:
    """The partition exists: at the timeout the last error is the cause."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [-1])
        async with consumer(world, kafka) as c:
            c.assign([T0])
            with pytest.raises(RequestTimeout, match="orders-0") as raised:
                await c.position(T0, timeout=5)
            assert isinstance(raised.value.__cause__, LeaderNotAvailable)
            assert raised.value.topic_partition == T0

    simulate(body)


def test_calls_without_any_broker_fail_with_the_cause() -> None:
    """All brokers are down, which "within 5 s" alone would not say."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with consumer(world, kafka, retry_backoff_max_ms=500) as c:
            await kafka[1].stop()
            await asyncio.sleep(1)
            c.assign([T0])
            for call in (lambda: c.position(T0, timeout=8), lambda: c.topics(timeout=8)):
                with pytest.raises(RequestTimeout) as raised:
                    await call()
                assert raised.value.__cause__ is not None
                assert not isinstance(raised.value.__cause__, asyncio.CancelledError)
                assert ":" in raised.value.message

    simulate(body)


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_deleted_topic_is_not_recreated_by_its_readers(by_hand: bool) -> None:
    """Java's consumers do that with allow.auto.create.topics: a second after its deletion, the
    topic exists again, empty and with default settings.
    """

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        async with consumer(
            world,
            kafka,
            *(() if by_hand else ("orders", "later")),
            metadata_max_age_ms=5_000,
            default_api_timeout_ms=30_000,
        ) as c:
            if by_hand:
                c.assign([T0, ("later", 0)])
            await asyncio.sleep(10)
            assert asked_to_create(kafka, "later"), "it never existed: asking may create it"
            assert not asked_to_create(kafka, "orders")
            del kafka.topics["orders"]
            kafka.logs.clear()
            kafka.topic("later", [1])
            waiting = asyncio.create_task(c.getone())
            await asyncio.sleep(100)
            assert not asked_to_create(kafka, "orders")
            if by_hand:
                with pytest.raises(UnknownTopicOrPartition, match="orders"):
                    await waiting
            kafka.topic("orders", [1]).topic_id = uuid.uuid4()
            kafka.append("orders", 0, b"again")
            if by_hand:
                await asyncio.sleep(10)  # longer than the consumer remembers the topic's absence
                waiting = asyncio.create_task(c.getone())
            assert (await asyncio.wait_for(waiting, 10)).value == b"again"

    simulate(body)


def test_authorization_errors_are_raised_until_permission_is_granted() -> None:
    """The error was raised once; the topic was looked up again only when the metadata expired."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("other", [1])
        told = kafka.metadata
        allowed = False

        def metadata(request: wire.MetadataRequest) -> wire.MetadataResponse:
            response: wire.MetadataResponse = told(request)
            for topic in response.topics:
                if topic.name == "orders" and not allowed:
                    topic.error_code = TopicAuthorization.code
                    topic.partitions = []
            return response

        kafka.metadata = metadata
        async with consumer(world, kafka, "orders") as c:
            for _ in range(2):
                with pytest.raises(TopicAuthorization, match="orders"):
                    await asyncio.wait_for(c.getone(), 5)
            kafka.topic("orders", [1])
            kafka.append("orders", 0, b"a")
            allowed = True
            async with asyncio.timeout(10):
                while True:
                    try:
                        assert (await c.getone()).value == b"a"
                        break
                    except TopicAuthorization:
                        pass

    simulate(body)
