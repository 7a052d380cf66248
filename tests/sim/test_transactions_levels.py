"""`transaction.version` changes while producers of the embedded broker are amid transactions."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

import pytest

from aiokq.admin.client import Admin
from aiokq.admin.features import FeatureUpdate
from aiokq.broker.embedded import EmbeddedCluster
from aiokq.consumer.consumer import Consumer
from aiokq.core.types import TopicPartition
from aiokq.producer.producer import Producer
from tests.sim.harness.simulation import run

PRODUCERS = 3
PARTITIONS = 2
SECONDS = 3
"""Between two changes of the level."""


class Writer:
    """Writes transactions with offsets until `stop` is called; every third one is aborted."""

    def __init__(self, producer: Producer, name: str) -> None:
        self.producer = producer
        self.name = name
        self.values: list[bytes] = []
        """The values of the committed transactions."""
        self.transactions = 0
        self._stopped = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        for number in itertools.count(1):
            if self._stopped:
                return
            values = [b"%s-%d-%d" % (self.name.encode(), number, n) for n in range(4)]
            txn = await self.producer.begin_transaction()
            for n, value in enumerate(values):
                await self.producer.send("orders", value, partition=n % PARTITIONS)
                await asyncio.sleep(0.05)
            await txn.send_offsets({("in", 0): number}, self.name)
            if number % 3:
                await self.producer.commit_transaction()
                self.values += values
            else:
                await self.producer.abort_transaction()
            self.transactions += 1

    async def stop(self) -> None:
        self._stopped = True
        await self._task


@pytest.mark.parametrize("reconnects", [False, True], ids=["connected", "reconnects"])
@pytest.mark.parametrize("levels", [(1, 2), (2, 1), (2, 0), (0, 2), (0, 1, 2, 1, 0, 2, 0)], ids=str)
def test_the_level_changes_amid_transactions(levels: tuple[int, ...], reconnects: bool) -> None:
    """No record is lost or doubled, no producer ends, and the next transactions go on.

    A producer that stays connected goes on with the version that it knows, as Java's does: the
    level is in the response to ApiVersions, the first one of a connection.
    """

    async def main(world: Any) -> None:
        first, *changes = levels
        features = {"transaction.version": first}
        async with EmbeddedCluster(features=features, environment=world.environment()) as kafka:
            servers = kafka.bootstrap_servers
            await kafka.create_topic("orders", PARTITIONS)
            await kafka.create_topic("in", 1)
            admin = Admin(servers, _environment=world.environment())
            producers = [
                Producer(servers, transactional_id=f"tx{n}", _environment=world.environment())
                for n in range(PRODUCERS)
            ]
            await admin.start()
            for each in producers:
                await each.start()
            writers = [Writer(each, f"w{n}") for n, each in enumerate(producers)]
            now = first
            for level in changes:
                await asyncio.sleep(SECONDS)
                before = [writer.transactions for writer in writers]
                kind = "upgrade" if level > now else "safe_downgrade"
                update = {"transaction.version": FeatureUpdate(level, kind)}  # type: ignore[arg-type]
                await admin.update_features(update, raise_errors=True)
                now = level
                if reconnects:
                    for connection in world.network.connections():
                        connection.cut()
            await asyncio.sleep(SECONDS)
            after = [writer.transactions for writer in writers]
            assert all(a >= b + 3 for a, b in zip(after, before, strict=True))
            for writer in writers:
                await writer.stop()

            described = await admin.describe_transactions([f"tx{n}" for n in range(PRODUCERS)])
            assert {each.state for each in described.values()} <= {
                "Empty",
                "CompleteCommit",
                "CompleteAbort",
            }
            for number in range(PARTITIONS):
                found = await admin.describe_producers([("orders", number)], raise_errors=True)
                states = found[TopicPartition("orders", number)].producers
                assert all(each.current_transaction_start_offset is None for each in states)
            written = Counter(value for writer in writers for value in writer.values)
            async with Consumer(
                "orders",
                bootstrap_servers=servers,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                _environment=world.environment(),
            ) as reader:
                read = Counter[bytes | None]()
                while taken := await reader.getmany(timeout=5.0, max_records=10_000):
                    read.update(record.value for got in taken.values() for record in got)
            assert read == written
            for writer in writers:
                async with Consumer(
                    group_id=writer.name,
                    bootstrap_servers=servers,
                    _environment=world.environment(),
                ) as outside:
                    last = int(writer.values[-1].split(b"-")[1])
                    assert await outside.committed(("in", 0)) == last
            for each in producers:
                await each.close()
            await admin.close()

    run(1, main, limit=3600.0)
