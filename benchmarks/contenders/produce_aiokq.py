"""aiokq producing, with each of its ways to send."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import uvloop

import aiokq
from benchmarks.contenders.measure import Load, arguments, measured

WINDOW = 10_000
TASKS = 1_000
CHUNK = 1_000


async def enqueue(producer: aiokq.Producer, load: Load, count: int) -> None:
    """Await buffer memory for each record, and its delivery up to `WINDOW` records later."""
    value, keys, topic = load.value, load.keys, load.topic
    waiting: deque[aiokq.Delivery] = deque()
    for index in range(count):
        waiting.append(await producer.enqueue(topic, value, keys[index % len(keys)]))
        if len(waiting) == WINDOW:
            for _ in range(WINDOW // 2):
                await waiting.popleft()
    while waiting:
        await waiting.popleft()


async def send_nowait(producer: aiokq.Producer, load: Load, count: int) -> None:
    """Send without waiting; the loop gets a turn every thousand records."""
    value, keys, topic = load.value, load.keys, load.topic
    for index in range(count):
        while True:
            try:
                producer.send_nowait(topic, value, keys[index % len(keys)])
                break
            except aiokq.BufferFull:
                await asyncio.sleep(0.001)
        if not index & 1023:
            await asyncio.sleep(0)
    await producer.flush()


async def send_many(producer: aiokq.Producer, load: Load, count: int) -> None:
    value, keys, topic = load.value, load.keys, load.topic
    chunk = [(keys[index % len(keys)], value) for index in range(CHUNK)]
    waiting: deque[Any] = deque()
    for _ in range(count // CHUNK):
        waiting.append(await producer.send_many(topic, chunk))
        if len(waiting) == WINDOW // CHUNK:
            await waiting.popleft()
        await asyncio.sleep(0)
    while waiting:
        await waiting.popleft()


async def tasks(producer: aiokq.Producer, load: Load, count: int) -> None:
    """Send from a thousand tasks, as a web service does; each awaits its own `send()`."""
    value, keys, topic = load.value, load.keys, load.topic

    async def worker(number: int) -> None:
        for index in range(number, count, TASKS):
            await producer.send(topic, value, keys[index % len(keys)])

    await asyncio.gather(*(worker(number) for number in range(TASKS)))


SHAPES = {"enqueue": enqueue, "send_nowait": send_nowait, "send_many": send_many, "tasks": tasks}


async def run(load: Load) -> None:
    options = load.security
    if not load.defaults:
        options |= {
            "linger_ms": load.linger_ms,
            "batch_size": load.batch_bytes,
            "acks": "all" if load.acks in ("all", "-1") else int(load.acks),
            "enable_idempotence": load.idempotence,
        }
        if load.buffer_bytes is not None:
            options["buffer_memory"] = load.buffer_bytes
        if load.shape == "tasks":
            options["linger_when_awaited"] = False  # the default if linger_ms is not set
    produce = SHAPES[load.shape]
    async with aiokq.Producer(load.bootstrap, **options) as producer:
        await produce(producer, load, 2_000)
        with measured(load.records):
            await produce(producer, load, load.records)


if __name__ == "__main__":
    load = arguments()
    (uvloop.run if load.loop == "uvloop" else asyncio.run)(run(load))
