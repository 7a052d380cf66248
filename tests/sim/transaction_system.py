"""Producers with transactions, a broker and a `read_committed` consumer in one simulated world.

`run_once(seed)` lets several producers commit, abort, cancel and fence each other while connections
and the broker fail and the level of `transaction.version` changes. Then it checks: no record of an
aborted transaction is visible, a committed one is visible once and whole, offsets are those of the
last committed transaction, and no transaction hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from aiokq.admin.client import Admin
from aiokq.admin.features import FeatureUpdate
from aiokq.client.cluster import Cluster
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import KafkaError
from aiokq.core.types import TopicPartition
from aiokq.producer.producer import Producer
from aiokq.producer.transactions.transaction import Transaction, TransactionOutcome
from tests.sim.harness.simulation import Outcome, Simulation, run
from tests.sim.test_whole_system import READER, SERVERS, WRITER, Broker, trouble

TOPIC = "orders"
GROUP = "copiers"
PARTITIONS = 3
TRANSACTIONS = 8
"""Transactions of each producer."""

TIMEOUT_MS = 8000


class Whim(Exception):
    """The body of a block gives up."""


@dataclass
class Written:
    """One transaction as its producer knows it."""

    label: str
    values: list[tuple[int, bytes]] = field(default_factory=list)
    """Partition and value of each accepted record."""
    offset: int | None = None
    """The offset that it committed for the producer's partition of the input."""
    outcome: TransactionOutcome | None = None


@dataclass
class Account:
    """What producers wrote, and what the consumer read."""

    transactions: list[Written] = field(default_factory=list)
    read: list[tuple[int, bytes]] = field(default_factory=list)

    def of(self, outcome: TransactionOutcome) -> list[Written]:
        return [txn for txn in self.transactions if txn.outcome is outcome]


class Writer:
    """A program that writes transactions, and begins anew after a fatal error."""

    def __init__(self, world: Simulation, account: Account, name: str, number: int) -> None:
        self._world = world
        self._account = account
        self._name = name
        self._number = number
        self._random = world.random_for(f"writer {number}")
        self._count = 0

    async def run(self) -> None:
        random = self._random
        while self._count < TRANSACTIONS:
            try:
                async with self._producer() as producer:
                    for _ in range(random.randint(1, 6)):
                        await self._transaction(producer)
            except (KafkaError, TimeoutError):
                await asyncio.sleep(random.random())

    def _producer(self) -> Producer:
        random = self._random
        return Producer(
            SERVERS,
            _environment=self._world.environment(WRITER),
            transactional_id=self._name,
            transaction_timeout_ms=TIMEOUT_MS,
            max_block_ms=random.choice([2000, 6000]),
            request_timeout_ms=1500,
            delivery_timeout_ms=random.choice([2000, 5000]),
            batch_size=random.choice([100, 1000]),
            linger_ms=random.choice([0, 5, 100]),
            buffer_memory=random.choice([3000, 33_554_432]),
            max_request_size=2000,
            bootstrap_timeout_ms=60_000,
        )

    async def _transaction(self, producer: Producer) -> None:
        random = self._random
        self._count += 1
        written = Written(f"{self._number}.{self._count}")
        transaction = producer.transaction()
        patience = random.choice([None, None, None, random.expovariate(1)])
        try:
            async with asyncio.timeout(patience), transaction:
                self._account.transactions.append(written)
                await self._body(producer, transaction, written)
        except (Whim, TimeoutError, KafkaError):
            pass
        if not transaction.has_begun:
            await asyncio.sleep(random.random())
            return
        written.outcome = await transaction.outcome()
        while written.outcome is TransactionOutcome.UNKNOWN and random.random() < 0.6:
            with contextlib.suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(random.choice([None, 0.3])):
                    await producer.commit_transaction()
            before, written.outcome = written.outcome, await transaction.outcome()
            assert written.outcome is not TransactionOutcome.ABORTED, before

    async def _body(self, producer: Producer, transaction: Transaction, written: Written) -> None:
        random = self._random
        for n in range(random.choice([0, 1, 3, 8])):
            partition = random.randrange(PARTITIONS)
            value = b"%s.%d" % (written.label.encode(), n)
            written.values.append((partition, value))
            match random.randrange(4):
                case 0:
                    await producer.send(TOPIC, value, partition=partition)
                case 1:
                    await producer.send_many(TOPIC, [(None, value)], partition)
                case _:
                    await producer.enqueue(TOPIC, value, partition=partition)
            if random.random() < 0.2:
                await asyncio.sleep(random.expovariate(4))
        if random.random() < 0.5:
            await transaction.send_offsets({("in", self._number): self._count}, GROUP)
            written.offset = self._count
        if random.random() < 0.15:
            raise Whim


async def consume(world: Simulation, account: Account) -> None:
    """Read committed records until cancelled."""
    async with Consumer(
        TOPIC,
        bootstrap_servers=SERVERS,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        request_timeout_ms=3000,
        bootstrap_timeout_ms=60_000,
        _environment=world.environment(READER),
    ) as consumer:
        async for record in consumer:
            assert isinstance(record.value, bytes)
            account.read.append((record.partition, record.value))


async def change_levels(world: Simulation, over: asyncio.Event) -> None:
    """Turn version 2 of transactions off and on."""
    random = world.random_for("levels")
    async with Admin(
        SERVERS,
        _environment=world.environment(READER),
        bootstrap_timeout_ms=60_000,
        request_timeout_ms=3000,
    ) as admin:
        while not over.is_set():
            await asyncio.sleep(random.expovariate(0.3))
            update = FeatureUpdate(random.choice([0, 1, 2]), "safe_downgrade")
            with contextlib.suppress(KafkaError):
                await admin.update_features({"transaction.version": update}, timeout=5)


async def system(world: Simulation) -> Account:
    """Run the world once, and wait until nothing changes any more."""
    broker = Broker(world, {})
    account = Account()
    await broker.start()
    async with Admin(SERVERS, _environment=world.environment(READER)) as admin:
        await admin.create_topics([TOPIC, "in"], num_partitions=PARTITIONS, raise_errors=True)
    loop = asyncio.get_running_loop()
    consuming = loop.create_task(consume(world, account))
    over = asyncio.Event()
    writers = [Writer(world, account, name, n) for n, name in enumerate(["a", "b", "b"])]

    async def write() -> None:
        try:
            await asyncio.gather(*(writer.run() for writer in writers))
        finally:
            over.set()

    try:
        tasks = [write(), trouble(world, broker, over)]
        if world.random.random() < 0.5:
            tasks.append(change_levels(world, over))
        await asyncio.gather(*tasks)
        await nothing_hangs(world)
        await until_read(account)
        await check_offsets(world, account)
    finally:
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)
        await broker.end()
    return account


async def nothing_hangs(world: Simulation) -> None:
    """Wait until the last stable offset of each partition is its end; fail if one stays behind."""
    places = [(TOPIC, n) for n in range(PARTITIONS)]
    async with Cluster(
        SERVERS, _environment=world.environment(READER), bootstrap_timeout_ms=60_000
    ) as cluster:
        left: dict[Any, tuple[int, int]] = {}
        for _ in range(60):
            left = {}
            for place in places:
                stable = await cluster.offsets(place, "latest", isolation_level="read_committed")
                end = await cluster.offsets(place, "latest")
                assert stable is not None
                assert end is not None
                if stable != end:
                    left[place] = (stable.offset, end.offset)
            if not left:
                return
            await asyncio.sleep(1)
    raise AssertionError(f"transactions hang: last stable and end offsets {left}")


async def until_read(account: Account) -> None:
    """Wait for the records of committed transactions, then for any that should not come."""
    wanted = {place for t in account.of(TransactionOutcome.COMMITTED) for place in t.values}
    for _ in range(600):
        if wanted <= set(account.read):
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)


async def check_offsets(world: Simulation, account: Account) -> None:
    """The offset of each producer is that of its last committed transaction."""
    async with Admin(
        SERVERS, _environment=world.environment(READER), bootstrap_timeout_ms=60_000
    ) as admin:
        results = await admin.list_group_offsets(GROUP, require_stable=True, raise_errors=True)
    found = results[GROUP]
    assert not isinstance(found, KafkaError)
    for number in range(3):
        mine = [
            txn
            for txn in account.transactions
            if txn.offset is not None and txn.label.startswith(f"{number}.")
        ]
        sure = [t.offset for t in mine if t.outcome is TransactionOutcome.COMMITTED]
        maybe = [t.offset for t in mine if t.outcome is TransactionOutcome.UNKNOWN]
        committed = found.offsets.get(TopicPartition("in", number))
        offset = None if committed is None else committed.offset
        last = max((o for o in sure if o is not None), default=None)
        allowed = {last, *(o for o in maybe if o is not None and o > (last or 0))}
        assert offset in allowed, f"writer {number}: {offset} is none of {allowed}"


def check(account: Account) -> None:
    """Condemn what transactions forbid."""
    read = Counter(account.read)
    assert all(count == 1 for count in read.values()), "a record was read twice"
    for txn in account.transactions:
        assert txn.outcome is not None
        seen = [place in read for place in txn.values]
        if txn.outcome is TransactionOutcome.COMMITTED:
            assert all(seen), f"lost: {txn}"
        elif txn.outcome is TransactionOutcome.ABORTED:
            assert not any(seen), f"aborted, but visible: {txn}"
        else:
            assert all(seen) or not any(seen), f"torn: {txn}"
    written = {place for txn in account.transactions for place in txn.values}
    assert set(read) <= written
    order: dict[tuple[int, bytes], list[tuple[int, int]]] = defaultdict(list)
    for partition, value in account.read:
        writer, count, n = value.split(b".")
        order[partition, writer].append((int(count), int(n)))
    assert all(seen == sorted(seen) for seen in order.values()), "records changed their order"


def run_once(seed: int) -> Outcome[Account]:
    """Run and check the world of a seed."""
    outcome = run(seed, system)
    check(outcome.value)
    return outcome
