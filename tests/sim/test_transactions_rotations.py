"""A broker and a client after very many transactions of one transactional id: nothing is left.

A service that writes ten transactions per second uses up a producer id within an hour. Here a
program writes transactions on a real broker in virtual time; some are cancelled, time out, or are
fenced by a second program. Then the objects, tasks, timers, connections, buffers and files of both
are compared with those after the first transactions.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aiokq.admin.client import Admin
from aiokq.core.errors import KafkaError
from aiokq.producer.producer import Producer
from tests.sim.harness.files import MemoryFile
from tests.sim.harness.simulation import Simulation, run
from tests.sim.test_whole_system import READER, SERVERS, WRITER, Broker

ROTATIONS = 3
EPOCHS = 32_766
"""Transactions of one producer id; then the coordinator assigns another."""

LONG_RUN = int(os.environ.get("AIOKQ_ROTATION_ROUNDS", "112000"))
"""About a tenth of them use up no epoch: they are empty, or end before a record is sent."""
SHORT_RUN = 150
WARM_UP = 100
ID = "rotating"
TOPIC = "orders"
PARTITIONS = 2
TIMEOUT_MS = 1000
HOUR = 3600.0

SETTINGS = {
    "transactional.id.expiration.ms": "3600000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "600000",
    "producer.id.expiration.ms": "3600000",
    # Old segments are deleted or compacted, so that the number of files shows a leak.
    "transaction.state.log.segment.bytes": "1048576",
    "log.retention.check.interval.ms": "10000",
    "log.cleaner.backoff.ms": "10000",
}
SMALL = {
    "segment.bytes": "1048576",
    "retention.bytes": "1048576",
}


class GivenUp(Exception):
    """The body of a transaction fails."""


@dataclass
class Left:
    """What exists after some transactions, when nothing happens any more."""

    objects: Counter[str]
    tasks: int
    connections: int
    open_files: int
    files: int
    disk: int
    memory: int

    def __str__(self) -> str:
        return (
            f"{self.objects.total()} objects, {self.tasks} tasks, {self.connections} connections, "
            f"{self.open_files} open files, {self.files} files of {self.disk} bytes, "
            f"{self.memory / 1e6:.0f} MB of memory"
        )


@dataclass
class Program:
    """Writes transactions of one transactional id, and starts anew when it is fenced."""

    world: Simulation
    rare: int
    """The weight of each kind of transaction that ends its producer or all connections."""
    kinds: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    producer_ids: dict[int, None] = field(default_factory=dict)

    def producer(self) -> Producer:
        return Producer(
            SERVERS,
            _environment=self.world.environment(WRITER),
            transactional_id=ID,
            transaction_timeout_ms=TIMEOUT_MS,
            max_block_ms=10_000,
            request_timeout_ms=3000,
            connections_max_idle_ms=0,
        )

    async def transactions(self, count: int) -> Left:
        """Write so many transactions; return what is left of them."""
        while True:
            async with self.producer() as producer:
                fenced = False
                while count > 0 and not fenced:
                    count -= 1
                    fenced = await self.transaction(producer)
                    self.world.trace.events.clear()
                    if count % 1000 == 0:
                        await self.note_producer_id()
                if fenced:
                    count = max(count, 1)
                    continue
                await producer.flush()
                await asyncio.sleep(120)
                assert producer._delivery.accumulator.used_bytes == 0
                assert not producer._delivery._incomplete
                return self.left()

    async def transaction(self, producer: Producer) -> bool:
        """Write one transaction; return whether the producer is finished."""
        random = self.world.random
        kind = random.choices(
            ["commit", "awaited", "empty", "abort", "offsets", "cancel", "timeout", "cut", "fence"],
            [800, 60, 20, 30, 30, 50, *[self.rare] * 3],
        )[0]
        self.kinds[kind] += 1
        patience = random.expovariate(500) if kind == "cancel" else None
        transaction = producer.transaction()
        try:
            async with asyncio.timeout(patience), transaction as txn:
                if kind != "empty":
                    producer.send_nowait(TOPIC, b"value", partition=random.randrange(PARTITIONS))
                match kind:
                    case "awaited" | "cancel":
                        await producer.send(TOPIC, b"second", partition=0)
                    case "abort":
                        raise GivenUp
                    case "offsets":
                        await txn.send_offsets({("in", 0): self.kinds.total()}, "copiers")
                    case "timeout":
                        await producer.flush()
                        await asyncio.sleep(2 * TIMEOUT_MS / 1000)
                    case "cut":
                        await producer.flush()
                        for connection in self.world.network.connections():
                            connection.cut()
                    case "fence":
                        await self.fence()
        except (GivenUp, TimeoutError):
            pass
        except KafkaError as error:
            self.outcomes[type(error).__name__] += 1
        if transaction.has_begun:
            self.outcomes[str((await transaction.outcome()).name)] += 1
        return kind in ("fence", "timeout")

    async def fence(self) -> None:
        """Write a transaction in a second program with the same transactional id."""
        async with self.producer() as other, other.transaction():
            await other.send(TOPIC, b"fenced the first", partition=1)

    async def note_producer_id(self) -> None:
        async with Admin(SERVERS, _environment=self.world.environment(READER)) as admin:
            listed = await admin.list_transactions()
        assert list(listed) == [ID], "one entry per id"
        self.producer_ids[listed[ID].producer_id] = None

    def left(self) -> Left:
        """Return what exists now."""
        gc.collect()
        things = gc.get_objects()
        disk = self.world.disk("10.0.0.1")
        return Left(
            # A loop drops cancelled timers when there are many.
            Counter(
                type(thing).__name__
                for thing in things
                if not (type(thing) is asyncio.TimerHandle and thing.cancelled())
            ),
            len(asyncio.all_tasks()),
            len(self.world.network.connections()),
            sum(type(thing) is MemoryFile and not thing.closed for thing in things),
            len(disk.names("/data")),
            disk.used(),
            int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        )


@pytest.fixture(autouse=True)
def unlogged() -> Iterator[None]:
    """Disable the log: pytest keeps its errors, and with them the frames of the test."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def rotate(rounds: int) -> Program:
    """Write `rounds` transactions and check what is left of them, at once and after the expiry."""

    async def main(world: Simulation) -> Program:
        broker = Broker(world, {"transaction.state.log.num.partitions": "1", **SETTINGS})
        await broker.start()
        async with Admin(SERVERS, _environment=world.environment(READER)) as admin:
            await admin.create_topics(
                [TOPIC, "in"], num_partitions=PARTITIONS, configs=SMALL, raise_errors=True
            )
        program = Program(world, 60 if rounds < 1000 else 5)
        started = time.process_time()
        before = await program.transactions(WARM_UP)
        after = await program.transactions(rounds)
        print(f"\n{rounds} transactions, {time.process_time() - started:.0f} s of CPU time")
        print(f"{world.loop.time():.0f} virtual seconds; {len(program.producer_ids)} producer ids")
        print(f"kinds {dict(program.kinds)}\noutcomes {dict(program.outcomes)}")
        print(f"before: {before}\nafter:  {after}")
        unchanged(before, after)
        await expired(world)
        await broker.end()
        return program

    return run(1, main, limit=1e9).value


def unchanged(before: Left, after: Left) -> None:
    """Fail if something grew with the number of transactions."""
    grown = {
        kind: count - before.objects[kind]
        for kind, count in after.objects.items()
        if count > before.objects[kind] + 100
    }
    assert not grown, f"objects that are left: {grown}"
    assert after.tasks <= before.tasks
    assert after.connections <= before.connections
    assert after.open_files <= before.open_files + 30, "segments of the logs"
    assert after.files <= before.files + 60
    assert after.disk <= before.disk + 20_000_000


async def expired(world: Simulation) -> None:
    """After the expiry neither the coordinator nor a partition remembers the producer."""
    await asyncio.sleep(3 * HOUR)
    places = [(TOPIC, n) for n in range(PARTITIONS)]
    async with Admin(SERVERS, _environment=world.environment(READER)) as admin:
        assert not await admin.list_transactions()
        producers = await admin.describe_producers(places, raise_errors=True)
    assert [found.producers for found in producers.values()] == [(), ()]


def test_nothing_is_left_of_some_transactions_on_a_broker() -> None:
    """The short form of the test below."""
    rotate(SHORT_RUN)


@pytest.mark.torture
@pytest.mark.build_independent
def test_nothing_is_left_of_three_rotations_of_the_producer_id() -> None:
    """More than 100,000 transactions use up three producer ids."""
    program = rotate(LONG_RUN)
    assert len(program.producer_ids) > min(ROTATIONS, LONG_RUN // (EPOCHS + 2000))
    assert {"COMMITTED", "ABORTED"} <= set(program.outcomes)
