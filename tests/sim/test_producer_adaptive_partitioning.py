"""Records without a key when one of the brokers is slow (KIP-794)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aiokq.core.errors import BufferFull
from tests.sim.producer_world import producer, simulate


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_slow_broker_gets_fewer_records(adaptive: bool) -> None:
    """Spread evenly, records for the slow broker fill the buffer and delay all others."""

    async def body(world: Any, kafka: Any) -> Counter[int]:
        kafka.topic("orders", [1, 2])
        kafka.delays.update({1: 1.0, 2: 0.01})
        options = {
            "batch_size": 1000,
            "buffer_memory": 40_000,
            "partitioner_adaptive_partitioning_enable": adaptive,
        }
        async with producer(world, kafka, **options) as p:
            await p.partitions_for("orders")
            until = world.loop.time() + 20
            while world.loop.time() < until:
                try:
                    p.send_nowait("orders", b"x" * 200)
                except BufferFull:
                    await asyncio.sleep(0.01)
            kafka.delays.clear()
        return Counter({n: len(kafka.log("orders", n).values) for n in (0, 1)})

    found = simulate(body, nodes=2).value
    if adaptive:
        assert found[1] > 4 * found[0]
    else:
        assert found[1] < 2 * found[0]


def test_a_silent_broker_is_avoided_if_configured() -> None:
    """The broker accepts connections but never responds; its records would expire."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 2])
        options = {
            "batch_size": 1000,
            "partitioner_availability_timeout_ms": 500,
            "max_in_flight_requests_per_connection": 1,
        }
        async with producer(world, kafka, **options) as p:
            await p.partitions_for("orders")
            kafka.delays[1] = 5.0
            for _ in range(20):
                p.send_nowait("orders", b"x" * 200)
                await asyncio.sleep(0.1)
            kafka.delays.clear()
            placed = [p.send_nowait("orders", b"y" * 900).partition for _ in range(50)]
        assert placed[1:] == [1] * 49

    simulate(body, nodes=2)
