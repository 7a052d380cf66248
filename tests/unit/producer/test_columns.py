"""send_columns: the rows of an Arrow batch through a whole producer, over a simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest

import aiokq
from aiokq.core.errors import (
    BufferFull,
    Closed,
    ConfigError,
    DeliveryFailed,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from aiokq.producer.interceptors import Interceptor
from tests.sim.producer_world import producer, simulate

pa = pytest.importorskip("pyarrow")


def rows(values: list[bytes], partitions: list[int | None]) -> aiokq.RecordColumns:
    return aiokq.RecordColumns.from_arrow(
        pa.record_batch({"value": pa.array(values), "partition": pa.array(partitions, pa.int32())})
    )


@pytest.mark.parametrize("hooks", [{}, {"interceptors": (Interceptor(),)}], ids=["plain", "hooks"])
def test_rows_are_in_the_log_in_order(hooks: dict[str, Any]) -> None:
    """Also rows before the topic's metadata is known, and rows beyond buffer_memory."""
    values = [b"%05d" % n * 40 for n in range(400)]

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        async with producer(world, kafka, buffer_memory=20_000, batch_size=2000, **hooks) as p:
            many = await p.send_columns("orders", rows(values, [n % 2 for n in range(400)]))
            assert isinstance(many, aiokq.Deliveries)
            await many
        for partition in range(2):
            assert kafka.log("orders", partition).values == values[partition::2]

    simulate(body)


def test_all_rows_are_accepted_without_waiting_or_none() -> None:
    """Also before the topic's metadata is known. A row may need a batch of its own."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        options = {"buffer_memory": 20_000, "batch_size": 2000, "max_request_size": 3000}
        async with producer(world, kafka, **options) as p:
            many = p.send_columns_nowait("orders", rows([b"a", b"b", b"c"], [0, 1, 0]))
            assert [found.partition for found in await many] == [0, 1, 0]
            with pytest.raises(BufferFull, match="await send_columns"):
                p.send_columns_nowait("orders", rows([b"x"] * 10, [0] * 10))
            with pytest.raises(UnknownTopicOrPartition):
                p.send_columns_nowait("orders", rows([b"x", b"y"], [0, 7]))
            with pytest.raises(RecordTooLarge):
                p.send_columns_nowait("orders", rows([b"x", b"y" * 3000], [0, 0]))
        with pytest.raises(Closed):
            p.send_columns_nowait("orders", rows([b"x"], [0]))
        assert kafka.log("orders", 0).values == [b"a", b"c"]
        assert kafka.log("orders", 1).values == [b"b"]
        async with producer(world, kafka, interceptors=(Interceptor(),)) as p:
            with pytest.raises(ConfigError, match="await send_columns"):
                p.send_columns_nowait("orders", rows([b"x"], [0]))

    simulate(body)


def test_a_partition_that_is_missing_is_looked_for_once_more() -> None:
    """It may have been added after the last metadata response."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        async with producer(world, kafka, max_block_ms=1000) as p:
            await p.send("orders", b"first")
            with pytest.raises(UnknownTopicOrPartition, match="no partition 7: it has 2"):
                await p.send_columns("orders", rows([b"a", b"b"], [0, 7]))

    simulate(body)


def test_rows_that_are_not_delivered_are_counted() -> None:
    """An awaiting caller gets the count with the partition; otherwise flush() reports it."""

    async def body(world: Any, kafka: Any) -> None:
        kafka.topic("orders", [1, 1])
        kafka.faults.append(lambda a: 29 if a.partition == 1 else None)
        async with producer(world, kafka) as p:
            many = await p.send_columns("orders", rows([b"a", b"b", b"c"], [0, 1, 1]))
            with pytest.raises(DeliveryFailed) as caught:
                await many
            assert caught.value.count == 2
            assert caught.value.topic_partitions == (("orders", 1),)
            await p.send_columns("orders", rows([b"d"], [1]))
            with pytest.raises(DeliveryFailed):
                await p.flush()

    simulate(body)
