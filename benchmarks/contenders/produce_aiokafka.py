"""aiokafka producing: futures collected and awaited, or many tasks in `send_and_wait`."""

from __future__ import annotations

import asyncio
from typing import Any

import uvloop

from benchmarks.contenders.measure import Load, arguments, measured

WINDOW = 10_000
TASKS = 1_000


async def produce_window(producer: Any, load: Load, count: int) -> None:
    value, keys = load.value, load.keys
    waiting: list[asyncio.Future[Any]] = []
    for index in range(count):
        waiting.append(await producer.send(load.topic, value, keys[index % len(keys)]))
        if len(waiting) == WINDOW:
            for future in waiting:
                await future
            waiting.clear()
    for future in waiting:
        await future


async def produce_tasks(producer: Any, load: Load, count: int) -> None:
    value, keys = load.value, load.keys

    async def worker(number: int) -> None:
        for index in range(number, count, TASKS):
            await producer.send_and_wait(load.topic, value, keys[index % len(keys)])

    await asyncio.gather(*(worker(number) for number in range(TASKS)))


async def run(load: Load) -> None:
    from aiokafka import AIOKafkaProducer

    options: dict[str, Any] = {}
    if not load.defaults:
        options = {
            "linger_ms": load.linger_ms,
            "max_batch_size": load.batch_bytes,
            "acks": "all" if load.acks in ("all", "-1") else int(load.acks),
            "enable_idempotence": load.idempotence,
        }
    produce = produce_tasks if load.shape == "tasks" else produce_window
    async with AIOKafkaProducer(bootstrap_servers=load.bootstrap, **options) as producer:
        await produce(producer, load, 2_000)
        with measured(load.records):
            await produce(producer, load, load.records)


if __name__ == "__main__":
    load = arguments()
    (uvloop.run if load.loop == "uvloop" else asyncio.run)(run(load))
