"""`producer.id.expiration.ms`, with real clients: what is forgotten, and what is kept."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokq.admin.client import Admin
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.consumer.consumer import Consumer
from aiokq.core.types import TopicPartition
from aiokq.producer.producer import Producer
from tests.sim.harness.simulation import run

EXPIRATION = 60
CHECKS = 5
"""Seconds."""

SETTINGS = {
    "producer.id.expiration.ms": f"{EXPIRATION}000",
    "producer.id.expiration.check.interval.ms": f"{CHECKS}000",
}
PARTITION = TopicPartition("orders", 0)


def test_an_idle_producer_is_forgotten_and_one_in_a_transaction_is_not() -> None:
    """Both go on afterwards, and no record is lost or doubled."""

    async def main(world: Any) -> None:
        async with EmbeddedCluster(settings=SETTINGS, environment=world.environment()) as kafka:
            servers = kafka.bootstrap_servers
            await kafka.create_topic("orders")
            async with (
                Admin(servers, _environment=world.environment()) as admin,
                Producer(servers, _environment=world.environment()) as idle,
                Producer(
                    servers,
                    transactional_id="tx",
                    transaction_timeout_ms=600_000,
                    _environment=world.environment(),
                ) as transactional,
            ):

                async def known() -> dict[int, bool]:
                    """Return whether a transaction is open, by producer id."""
                    found = await admin.describe_producers([PARTITION], raise_errors=True)
                    return {
                        each.producer_id: each.current_transaction_start_offset is not None
                        for each in found[PARTITION].producers
                    }

                await idle.send("orders", b"1")
                [idle_id] = await known()
                transaction = await transactional.begin_transaction()
                await transactional.send("orders", b"2")
                [open_id] = set(await known()) - {idle_id}
                await asyncio.sleep(EXPIRATION - CHECKS)
                assert await known() == {idle_id: False, open_id: True}
                await asyncio.sleep(2 * CHECKS)
                assert await known() == {open_id: True}
                await asyncio.sleep(3 * EXPIRATION)
                assert await known() == {open_id: True}

                await transactional.send("orders", b"3")
                await transactional.commit_transaction()
                assert (await transaction.outcome()).name == "COMMITTED"
                await idle.send("orders", b"4")
                assert await known() == {idle_id: False, open_id: False}
                await asyncio.sleep(EXPIRATION + 2 * CHECKS)
                assert await known() == {}
                async with transactional.transaction():
                    await transactional.send("orders", b"5")

            async with Consumer(
                "orders",
                bootstrap_servers=servers,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                _environment=world.environment(),
            ) as reader:
                values = [(await asyncio.wait_for(anext(reader), 30)).value for _ in range(5)]
            assert values == [b"1", b"2", b"3", b"4", b"5"]

    run(1, main, limit=3600.0)
