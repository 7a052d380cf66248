"""An idle broker leaves the disk alone, in virtual time: ten minutes without a write or a sync."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.broker.embedded import EmbeddedCluster
from aiokq.consumer.consumer import Consumer
from aiokq.producer.producer import Producer
from tests.sim.harness.files import MemoryFiles
from tests.sim.harness.network import LOOPBACK
from tests.sim.harness.simulation import run

TEN_MINUTES = 600.0
CHANGES = ("open", "pwritev", "write_atomic", "truncate", "sync", "sync_dir") + (
    "mkdirs",
    "rename",
    "remove",
    "remove_tree",
    "link",
    "chmod",
)


def noted_writes(files: MemoryFiles) -> list[tuple[str, str]]:
    """Return a list to which the operation and the path of each change of the disk are added."""
    noted: list[tuple[str, str]] = []
    taken = files._take_fault

    def take(operation: str, path: str):
        if operation in CHANGES:
            noted.append((operation, path))
        return taken(operation, path)

    files._take_fault = take  # type: ignore[method-assign]
    return noted


@pytest.mark.parametrize("clients", ["none", "idle ones"])
@pytest.mark.parametrize("profile", ["kafka", "dev"])
def test_an_idle_broker_writes_nothing_for_ten_minutes(profile: str, clients: str) -> None:
    """Kafka's controller writes a NoOp record every 500 ms, which keeps disks awake."""

    async def main(world: Any) -> None:
        environment = world.environment()
        async with EmbeddedCluster(data_dir="/kept", profile=profile, environment=environment) as k:
            await k.create_topic("t", partitions=3)
            servers = k.bootstrap_servers
            async with (
                Producer(servers, _environment=world.environment()) as producer,
                Consumer(
                    "t",
                    group_id="g",
                    bootstrap_servers=servers,
                    auto_offset_reset="earliest",
                    _environment=world.environment(),
                ) as consumer,
            ):
                for number in range(20):
                    await producer.send("t", b"%d" % number)
                async with asyncio.timeout(120):
                    for _ in range(20):
                        await anext(consumer)
                await consumer.commit()
                waiting = asyncio.ensure_future(anext(consumer))
                if clients == "none":
                    waiting.cancel()
                    await asyncio.gather(waiting, return_exceptions=True)
                    await consumer.close()
                    await producer.close()
                await asyncio.sleep(150)  # flushes and checkpoints of the records above
                noted = noted_writes(world.disk(LOOPBACK))
                before = asyncio.get_running_loop().time()
                await asyncio.sleep(TEN_MINUTES)
                assert asyncio.get_running_loop().time() - before >= TEN_MINUTES
                assert noted == []
                if clients != "none":  # the clients were connected, and a record is written
                    await producer.send("t", b"last")
                    assert (await waiting).value == b"last"
                    assert noted

    run(1, main, limit=3600.0)


def test_a_broker_that_was_started_again_is_idle_at_once() -> None:
    """What its start writes is done within a minute."""

    async def main(world: Any) -> None:
        for number in range(2):
            environment = world.environment()
            async with EmbeddedCluster(data_dir="/kept", environment=environment) as kafka:
                if not number:
                    await kafka.create_topic("t", partitions=3)
                    continue
                await asyncio.sleep(60)
                noted = noted_writes(world.disk(LOOPBACK))
                await asyncio.sleep(TEN_MINUTES)
                assert noted == []

    run(1, main, limit=3600.0)
