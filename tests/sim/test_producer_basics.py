"""A producer and a scripted cluster in virtual time: the usual ways in, and batching."""

from __future__ import annotations

from typing import Any

from tests.sim.producer_world import producer, simulate


def test_a_record_is_acknowledged_with_its_place() -> None:
    """The simplest program there is."""

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
