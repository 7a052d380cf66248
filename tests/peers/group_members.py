"""Group members of other clients that stay alive while a block runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

PATIENCE = 30.0
"""Seconds until a member without partitions is an error."""


@asynccontextmanager
async def classic_member(
    servers: str, group: str, topic: str, *, instance: str | None = None
) -> AsyncIterator[Any]:
    """Run a member of the classic protocol (aiokafka, roundrobin); yield once it has partitions."""
    import aiokafka

    consumer = aiokafka.AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        client_id="classic-1",
        group_instance_id=instance,
        enable_auto_commit=False,
        heartbeat_interval_ms=300,
    )
    await consumer.start()
    try:
        async with asyncio.timeout(PATIENCE):
            while not consumer.assignment():  # noqa: ASYNC110  it has no event for this
                await asyncio.sleep(0.05)
        yield consumer
    finally:
        await consumer.stop()


@asynccontextmanager
async def consumer_member(servers: str, group: str, topic: str) -> AsyncIterator[None]:
    """Run a member of the consumer protocol (librdkafka); yield once it has partitions."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "client.id": "consumer-1",
            "group.protocol": "consumer",
            "enable.auto.commit": False,
        }
    )
    assigned, leaving = threading.Event(), threading.Event()

    def poll() -> None:
        consumer.subscribe([topic])
        while not leaving.is_set():
            consumer.poll(0.05)
            if consumer.assignment():
                assigned.set()
        consumer.close()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert await asyncio.to_thread(assigned.wait, PATIENCE), "no partitions"
        yield
    finally:
        leaving.set()
        await asyncio.to_thread(thread.join)
