"""A producer with a short delivery_timeout_ms: its other timeouts, and what health() shows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.client.cluster import Cluster
from aiokq.core.errors import RequestTimeout
from aiokq.core.types import TopicPartition
from tests.sim.producer_world import CLIENT, Close, Silence, producer, simulate, times


def test_a_lost_request_is_retried_within_a_short_delivery_timeout() -> None:
    """With a request timeout of 30 s, a delivery timeout of 2 s left no time for a retry."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.after_append.append(times(1, Silence()))
        async with producer(world, kafka, delivery_timeout_ms=2000) as p:
            started = world.loop.time()
            assert (await p.send("orders", b"v")).offset == 0
            assert 0.9 < world.loop.time() - started < 1.5
        assert kafka.values("orders") == [b"v"]

    simulate(body)


@pytest.mark.parametrize("request_timeout_ms", [None, 30_000])
def test_a_producer_of_a_shared_cluster_has_its_own_request_timeout(
    request_timeout_ms: int | None,
) -> None:
    """The Cluster's timeout is for other requests and cannot be passed to cluster.producer()."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        options = {} if request_timeout_ms is None else {"request_timeout_ms": request_timeout_ms}
        environment = world.environment(CLIENT)
        async with Cluster(kafka.bootstrap_servers, _environment=environment, **options) as cluster:
            kafka.faults.append(times(1, Silence()))
            async with cluster.producer(delivery_timeout_ms=2000) as short:
                started = world.loop.time()
                await short.send("orders", b"v")
                assert 0.9 < world.loop.time() - started < 1.5
            kafka.faults.append(times(1, Silence()))
            async with cluster.producer() as patient:
                started = world.loop.time()
                await patient.send("orders", b"w")
                assert 30 <= world.loop.time() - started < 31
        assert kafka.values("orders") == [b"v", b"w"]

    simulate(body)


def test_a_record_fails_at_its_own_delivery_timeout_while_a_broker_is_silent() -> None:
    """The last error is the cause, and the wait is no longer than the delivery timeout."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.faults.append(lambda attempt: Silence())
        async with producer(world, kafka, delivery_timeout_ms=2000) as p:
            started = world.loop.time()
            with pytest.raises(RequestTimeout, match="delivery_timeout_ms=2000") as caught:
                await p.send("orders", b"v")
            assert world.loop.time() - started == pytest.approx(2.0, abs=0.05)
            assert caught.value.may_have_been_written

    simulate(body)


def test_health_and_repr_show_the_effective_timeouts() -> None:
    """A delivery timeout of two seconds changes the other timeouts too."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        p = producer(world, kafka, delivery_timeout_ms=2000)
        limits = "linger_ms=5 request_timeout_ms=997 delivery_timeout_ms=2000 max_block_ms=2000"
        assert repr(p) == f"<Producer 'aiokq' new, {limits}>"
        assert not p.health().ok
        async with p:
            health = p.health()
            assert health.ok
            assert (health.linger_ms, health.request_timeout_ms) == (5, 997)
            assert (health.delivery_timeout_ms, health.max_block_ms) == (2000, 2000)
            assert repr(p) == f"<Producer 'aiokq' open, {limits}>"
        assert not p.health().ok
        assert repr(p) == f"<Producer 'aiokq' closed, {limits}>"

    simulate(body)


def test_health_has_the_partitions_that_cannot_be_sent_to_and_the_reason() -> None:
    """It explains what an undelivered record waits for."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.faults.append(lambda attempt: 19 if attempt.at < 5 else None)
        async with producer(world, kafka) as p:
            delivery = await p.enqueue("orders", b"v")
            await asyncio.sleep(2)
            health = p.health()
            assert not health.ok
            assert "NOT_ENOUGH_REPLICAS" in health.held_up[TopicPartition("orders", 0)]
            assert health.buffered_bytes > 0
            await delivery
            assert p.health().ok
            assert p.health().held_up == {}

    simulate(body)


def test_health_names_a_broker_that_closes_connections() -> None:
    """The broker closes the connection at each request."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1])
        kafka.faults.append(lambda attempt: Close() if attempt.at < 5 else None)
        async with producer(world, kafka) as p:
            delivery = await p.enqueue("orders", b"v")
            await asyncio.sleep(3)
            assert "closed" in p.health().held_up[TopicPartition("orders", 0)]
            await delivery

    simulate(body)
