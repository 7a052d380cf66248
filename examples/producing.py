"""The ways to produce, from the simplest to the fastest: `python examples/producing.py`."""

from __future__ import annotations

import asyncio
from collections import deque

import aiokq


async def one_by_one(producer: aiokq.Producer) -> None:
    """Await each record before the next one: simple, and each record takes a round trip."""
    metadata = await producer.send("orders", b"a value", key=b"customer-7", headers=[("v", b"1")])
    print(f"one by one: offset {metadata.offset}")


async def many_tasks(producer: aiokq.Producer) -> None:
    """Send from many tasks, as a web service does; each awaits its own record."""
    sends = (producer.send("orders", b"from task %d" % task) for task in range(100))
    results = await asyncio.gather(*sends)
    print(f"many tasks: {len(results)} acknowledged")


async def a_window_behind(producer: aiokq.Producer) -> None:
    """Await the acknowledgement of each record a thousand records later."""
    window: deque[aiokq.Delivery] = deque()
    acknowledged = 0
    for number in range(10_000):
        window.append(await producer.enqueue("orders", b"%d" % number))
        if len(window) == 1_000:
            await window.popleft()
            acknowledged += 1
    for delivery in window:
        await delivery
        acknowledged += 1
    print(f"a window behind: {acknowledged} acknowledged")


async def in_bulk(producer: aiokq.Producer) -> None:
    """Send a list with one awaitable for all its records."""
    records = [(b"customer-%d" % number, b"order") for number in range(5_000)]
    deliveries = await producer.send_many("orders", records)
    results = await deliveries
    print(f"in bulk: {len(results)} acknowledged, in the order of the list")


async def without_waiting(producer: aiokq.Producer) -> None:
    """Send without `await`, for callers that are not coroutines; `flush()` raises failures."""
    try:
        producer.send_nowait("orders", b"fire and remember")
    except aiokq.BufferFull:
        print("no room: await enqueue() waits for it")
    await producer.flush()
    print("without waiting: flushed")


async def main() -> None:
    async with (
        aiokq.EmbeddedCluster() as kafka,
        aiokq.Producer(kafka.bootstrap_servers, linger_ms=2, compression_type="lz4") as producer,
    ):
        await one_by_one(producer)
        await many_tasks(producer)
        await a_window_behind(producer)
        await in_bulk(producer)
        await without_waiting(producer)


if __name__ == "__main__":
    asyncio.run(main())
