"""`transactional.id.expiration.ms`, with real clients: what is forgotten, and what is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.admin.client import Admin
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import ProducerFenced, TransactionalIdNotFound
from aiokq.producer.producer import Producer
from tests.sim.harness.simulation import run

EXPIRATION = 60
CHECKS = 5
"""Seconds."""

SETTINGS = {
    "transactional.id.expiration.ms": f"{EXPIRATION}000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": f"{CHECKS}000",
}


@pytest.mark.parametrize("level", [0, 1, 2])
def test_an_idle_transactional_id_is_forgotten_and_one_in_a_transaction_is_not(level: int) -> None:
    """The producer of a forgotten id is fenced, and a new one with the id goes on."""

    async def main(world: Any) -> None:
        features = {"transaction.version": level}
        async with EmbeddedCluster(
            settings=SETTINGS, features=features, environment=world.environment()
        ) as kafka:
            servers = kafka.bootstrap_servers
            await kafka.create_topic("orders")

            def producer(name: str) -> Producer:
                return Producer(
                    servers,
                    transactional_id=name,
                    transaction_timeout_ms=600_000,
                    _environment=world.environment(),
                )

            async def write(into: Producer, value: bytes) -> None:
                async with into.transaction():
                    await into.enqueue("orders", value)

            async with (
                Admin(servers, _environment=world.environment()) as admin,
                producer("idle") as idle,
                producer("unused"),
                producer("busy") as busy,
                producer("open") as opened,
            ):

                async def known() -> set[str]:
                    return set(await admin.list_transactions())

                await write(idle, b"1")
                await write(busy, b"2")
                transaction = await opened.begin_transaction()
                await opened.send("orders", b"3")
                await asyncio.sleep(EXPIRATION - CHECKS)
                assert await known() == {"idle", "unused", "busy", "open"}
                await write(busy, b"4")
                await asyncio.sleep(2 * CHECKS)
                assert await known() == {"busy", "open"}
                gone = (await admin.describe_transactions("idle"))["idle"]
                assert isinstance(gone.error, TransactionalIdNotFound)

                with pytest.raises(ProducerFenced, match="the id has expired"):
                    await write(idle, b"lost")
                async with producer("idle") as successor:
                    await write(successor, b"5")
                assert await known() == {"busy", "open", "idle"}
                await asyncio.sleep(EXPIRATION + 2 * CHECKS)
                assert await known() == {"open"}, "it is in a transaction"
                await opened.send("orders", b"6")
                await opened.commit_transaction()
                assert (await transaction.outcome()).name == "COMMITTED"
                await asyncio.sleep(EXPIRATION + 2 * CHECKS)
                assert await known() == set()

            async with Consumer(
                "orders",
                bootstrap_servers=servers,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                _environment=world.environment(),
            ) as reader:
                values = {(await asyncio.wait_for(anext(reader), 30)).value for _ in range(6)}
            assert values == {b"%d" % n for n in range(1, 7)}

    run(1, main, limit=3600.0)
