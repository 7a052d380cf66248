"""Producers with transactions, a broker and a `read_committed` consumer in one simulated world.

`run_once(seed)` lets several producers commit, abort, cancel and fence each other while connections
and the broker fail, the power is cut and the level of `transaction.version` changes. Faults happen
at random times and between any two iterations of the loop, so at every await of coordinator,
producer and consumer. Then it checks: no record of an aborted transaction is visible, a committed
one is visible once and whole, offsets are those of the last committed transaction, no transaction
hangs, and the checker of aiokq.testing condemns nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random as random_module
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from enum import Enum

from aiokq.admin.client import Admin
from aiokq.admin.features import FeatureUpdate
from aiokq.admin.offsets import OffsetListing
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import BootstrapFailed, KafkaError
from aiokq.core.types import TopicPartition
from aiokq.fastpath.produce import Delivery
from aiokq.producer.producer import Producer
from aiokq.producer.transactions.transaction import Transaction, TransactionOutcome
from aiokq.testing import (
    EndTransaction,
    Final,
    Isolation,
    LastStable,
    ObservedOffsets,
    Offset,
    Offsets,
    Operation,
    Poll,
    Polled,
    Send,
)
from aiokq.testing import Outcome as Known
from aiokq.testing import check as check_history
from tests.sim.harness.simulation import Outcome, Simulation, run
from tests.sim.test_whole_system import BROKER, READER, SERVERS, WRITER, Broker

TOPIC = "orders"
GROUP = "copiers"
PARTITIONS = 3
TRANSACTIONS = 4
"""Transactions of each producer."""

TIMEOUT_MS = 8000
STEPS = 300
"""The mean number of iterations of the loop between two faults that are counted so."""


class Power(Enum):
    """Whether the power of the broker is cut, and what its disk keeps then."""

    KEPT = "the broker is stopped and killed only"
    SYNCED = "cut; what is acknowledged was written to the disk before"
    LOST = "cut; the ends of logs are lost, each by another length"


POWER = (Power.KEPT, Power.SYNCED, Power.LOST, Power.KEPT)
"""By the seed, so that a few seeds have each."""

SETTINGS = {"log.retention.check.interval.ms": "300000"}
"""No world lasts until old records are deleted."""

SYNCED = {"log.flush.interval.messages": "1"}


class Whim(Exception):
    """Raised by the body of a transaction's block, at random, so that the transaction aborts."""


@dataclass
class Sent:
    """A record that may have been accepted."""

    partition: int
    value: bytes
    start: float
    end: float
    offset: int | None = None
    delivery: Delivery | None = None

    @property
    def acknowledged(self) -> int | None:
        """The offset, if the broker acknowledged the record."""
        delivery = self.delivery
        if delivery is not None and delivery.done() and delivery.exception() is None:
            return delivery.result().offset
        return self.offset


@dataclass
class Written:
    """One transaction as its producer knows it."""

    label: str
    process: str
    sent: list[Sent] = field(default_factory=list)
    offset: int | None = None
    """The offset that it committed for the producer's partition of the input."""
    offsets_sent: tuple[float, float] = (0, 0)
    ended: float = 0
    """When commit or abort was called."""
    commit: bool = False
    """Whether it was a commit."""
    outcome: TransactionOutcome | None = None

    @property
    def values(self) -> list[tuple[int, bytes]]:
        """Partition and value of each record."""
        return [(sent.partition, sent.value) for sent in self.sent]

    def operations(self, now: float) -> Iterator[Operation]:
        """Yield the transaction as the operations of a history."""
        for sent in self.sent:
            offset = sent.acknowledged
            yield Send(
                self.process,
                TOPIC,
                sent.value.decode(),
                Known.UNKNOWN if offset is None else Known.OK,
                sent.partition,
                offset,
                self.label,
                sent.start,
                sent.end,
            )
        if self.offset is not None:
            position = Offset("in", int(self.label.partition(".")[0]), self.offset)
            yield Offsets(
                self.process, GROUP, (position,), Known.OK, self.label, *self.offsets_sent
            )
        unknown = self.outcome is TransactionOutcome.UNKNOWN
        yield EndTransaction(
            self.process,
            self.label,
            self.commit if unknown else self.outcome is TransactionOutcome.COMMITTED,
            Known.UNKNOWN if unknown else Known.OK,
            self.ended,
            now,
        )


@dataclass
class Account:
    """What producers wrote, and what the consumer read."""

    power: Power
    transactions: list[Written] = field(default_factory=list)
    read: list[tuple[int, bytes]] = field(default_factory=list)
    history: list[Operation] = field(default_factory=list)
    last_cut: float = 0
    """When the power was cut for the last time."""

    def of(self, outcome: TransactionOutcome) -> list[Written]:
        """Return the transactions that ended so, as far as the disk had to keep them."""
        return [
            txn
            for txn in self.transactions
            if txn.outcome is outcome
            and (self.power is not Power.LOST or self.began(txn) > self.last_cut)
        ]

    @staticmethod
    def began(txn: Written) -> float:
        """Return when the first record was sent."""
        return txn.sent[0].start if txn.sent else 0


@contextlib.asynccontextmanager
async def cancelled_after(world: Simulation, steps: int | None) -> AsyncIterator[None]:
    """Cancel the block after that many iterations of the loop, as TimeoutError."""
    loop = world.loop
    async with asyncio.timeout(None) as scope:
        over = False

        def expire() -> None:
            if not over and not scope.expired():
                scope.reschedule(loop.time())

        if steps is not None:
            loop.at_step(steps, expire)
        try:
            yield
        finally:
            over = True


def some_steps(random: random_module.Random) -> int:
    """Return a number of iterations until the next fault."""
    return int(random.expovariate(1 / STEPS))


class Writer:
    """A program that writes transactions, and makes a new producer after a fatal error."""

    def __init__(self, world: Simulation, account: Account, name: str, number: int) -> None:
        self._world = world
        self._account = account
        self._name = name
        self._number = number
        self._random = world.random_for(f"writer {number}")
        self._count = 0
        self._lives = 0

    async def run(self, transactions: int = TRANSACTIONS) -> None:
        """Write until there are so many transactions."""
        random = self._random
        while self._count < transactions:
            self._lives += 1
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
        random, loop = self._random, self._world.loop
        self._count += 1
        written = Written(f"{self._number}.{self._count}", f"{self._number}/{self._lives}")
        transaction = producer.transaction()
        patience = random.choice([None, None, None, random.expovariate(1)])
        steps = random.choice([None, None, None, some_steps(random)])
        try:
            async with (
                asyncio.timeout(patience),
                cancelled_after(self._world, steps),
                transaction,
            ):
                self._account.transactions.append(written)
                try:
                    await self._body(producer, transaction, written)
                    written.commit = True
                finally:
                    written.ended = loop.time()
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
        self._account.history.extend(written.operations(loop.time()))

    async def _body(self, producer: Producer, transaction: Transaction, written: Written) -> None:
        random, loop = self._random, self._world.loop
        for n in range(random.choice([0, 1, 3, 8])):
            partition = random.randrange(PARTITIONS)
            value = b"%s.%d" % (written.label.encode(), n)
            sent = Sent(partition, value, loop.time(), loop.time())
            written.sent.append(sent)
            match random.randrange(4):
                case 0:
                    sent.offset = (await producer.send(TOPIC, value, partition=partition)).offset
                case 1:
                    sent.delivery = (await producer.send_many(TOPIC, [(None, value)], partition))[0]
                case _:
                    sent.delivery = await producer.enqueue(TOPIC, value, partition=partition)
            sent.end = loop.time()
            if random.random() < 0.2:
                await asyncio.sleep(random.expovariate(4))
        if random.random() < 0.5:
            start = loop.time()
            await transaction.send_offsets({("in", self._number): self._count}, GROUP)
            written.offset = self._count
            written.offsets_sent = start, loop.time()
        if random.random() < 0.15:
            raise Whim


async def consume(world: Simulation, account: Account) -> None:
    """Read committed records until cancelled."""
    while True:
        try:
            await read(world, account)
        except BootstrapFailed:  # the broker was stopped during the first handshake
            await asyncio.sleep(0.1)


async def read(world: Simulation, account: Account, process: str = "reader") -> None:
    """Read with one consumer; its waits are cancelled at random awaits."""
    random = world.random_for(process)
    async with Consumer(
        TOPIC,
        bootstrap_servers=SERVERS,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        request_timeout_ms=3000,
        bootstrap_timeout_ms=60_000,
        _environment=world.environment(READER),
    ) as consumer:
        start = world.loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with cancelled_after(world, some_steps(random)):
                    async for record in consumer:
                        assert isinstance(record.value, bytes)
                        account.read.append((record.partition, record.value))
                        polled = Polled(
                            TOPIC, record.partition, record.offset, record.value.decode()
                        )
                        now = world.loop.time()
                        account.history.append(
                            Poll(process, (polled,), Isolation.READ_COMMITTED, start=start, end=now)
                        )
                        start = now


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


async def trouble(world: Simulation, broker: Broker, account: Account, over: asyncio.Event) -> None:
    """Cause faults until `over` is set; each fault ends, and leaves the broker running."""
    random = world.random_for("trouble")
    network = world.network
    while not over.is_set():
        await moment(world, random)
        match random.randrange(6 if account.power is Power.KEPT else 8):
            case 0:
                for connection in network.connections(BROKER):
                    if random.random() < 0.5:
                        connection.cut()
            case 1:
                for connection in network.connections(BROKER):
                    if random.random() < 0.3:
                        connection.drop()
            case 2:
                network.delay_host(BROKER, random.choice([0.01, 0.3, 2.0]))
                await asyncio.sleep(random.uniform(0, 3))
                network.heal()
            case 3:
                network.partition(random.choice([WRITER, READER, BROKER]))
                await asyncio.sleep(random.uniform(0, 6))
                network.heal()
            case 4:
                await broker.stop()
                await asyncio.sleep(random.expovariate(1))
                await broker.start()
            case 5:
                random.choice([broker.kill, broker.fall_silent])()
                await asyncio.sleep(random.expovariate(1))
                await broker.start()
            case _:
                broker.power_cut()
                account.last_cut = world.loop.time()
                await asyncio.sleep(random.expovariate(1))
                await broker.start()


async def moment(world: Simulation, random: random_module.Random) -> None:
    """Wait for a random time, or for a random number of iterations of the loop."""
    if random.random() < 0.5:
        await asyncio.sleep(random.expovariate(2))
        return
    reached = asyncio.Event()
    world.loop.at_step(some_steps(random), reached.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            await reached.wait()


async def system(world: Simulation) -> Account:
    """Run the world once, and wait until nothing changes any more."""
    account = Account(POWER[world.seed % len(POWER)])
    broker = Broker(world, SETTINGS | (SYNCED if account.power is Power.SYNCED else {}))
    await broker.start()
    async with Admin(SERVERS, _environment=world.environment(READER)) as admin:
        await admin.create_topics([TOPIC, "in"], num_partitions=PARTITIONS, raise_errors=True)
    loop = asyncio.get_running_loop()
    lost = account.power is Power.LOST
    consuming = [] if lost else [loop.create_task(consume(world, account))]
    over = asyncio.Event()
    writers = [Writer(world, account, name, n) for n, name in enumerate(["a", "b", "b"])]

    async def write() -> None:
        try:
            await asyncio.gather(*(writer.run() for writer in writers))
        finally:
            over.set()

    try:
        tasks = [write(), trouble(world, broker, account, over)]
        if not lost and world.random.random() < 0.5:
            tasks.append(change_levels(world, over))
        await asyncio.gather(*tasks)
        if lost:
            # Records that consumers had read are gone, and what is written now is kept.
            await writers[0].run(TRANSACTIONS + 3)
            consuming.append(loop.create_task(consume(world, account)))
        async with Admin(
            SERVERS, _environment=world.environment(READER), bootstrap_timeout_ms=60_000
        ) as admin:
            await nothing_hangs(world, admin, account)
            await until_read(account)
            await check_offsets(world, admin, account)
    finally:
        for task in consuming:
            task.cancel()
        await asyncio.gather(*consuming, return_exceptions=True)
        await broker.end()
    return account


async def nothing_hangs(world: Simulation, admin: Admin, account: Account) -> None:
    """Wait until the last stable offset of each partition is its end; fail if one stays behind."""
    ends = {TopicPartition(TOPIC, n): "latest" for n in range(PARTITIONS)}
    left: dict[TopicPartition, tuple[int, int]] = {}
    for _ in range(60):
        start = world.loop.time()
        stable = await admin.list_offsets(ends, isolation_level="read_committed", raise_errors=True)
        end = await admin.list_offsets(ends, raise_errors=True)
        now = world.loop.time()
        left = {}
        for tp in ends:
            first, last = listed(stable[tp]), listed(end[tp])
            account.history.append(LastStable(*tp, first, start, now))
            if first != last:
                left[tp] = first, last
            else:
                account.history.append(Final(*tp, 0, first, last, start, now))
        if not left:
            return
        await asyncio.sleep(1)
    raise AssertionError(f"transactions hang: last stable and end offsets {left}")


def listed(found: OffsetListing | KafkaError) -> int:
    """Return the offset of a listing that has not failed."""
    assert not isinstance(found, KafkaError)
    return found.offset


async def until_read(account: Account) -> None:
    """Wait for the records of committed transactions, then for any that should not come."""
    wanted = {place for t in account.of(TransactionOutcome.COMMITTED) for place in t.values}
    for _ in range(600):
        if wanted <= set(account.read):
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)  # two requests of the consumer


async def check_offsets(world: Simulation, admin: Admin, account: Account) -> None:
    """Fail unless the offset of each writer is that of its last committed transaction."""
    start = world.loop.time()
    results = await admin.list_group_offsets(GROUP, require_stable=True, raise_errors=True)
    found = results[GROUP]
    assert not isinstance(found, KafkaError)
    offsets: list[Offset] = []
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
        offsets.append(Offset("in", number, -1 if offset is None else offset))
        last = max((o for o in sure if o is not None), default=None)
        allowed = {last, *(o for o in maybe if o is not None and o > (last or 0))}
        if account.power is Power.LOST:
            allowed |= {None, *sure, *maybe}
        assert offset in allowed, f"writer {number}: {offset} is none of {allowed}"
    account.history.append(ObservedOffsets(GROUP, tuple(offsets), start, world.loop.time()))


def check(account: Account) -> None:
    """Fail if the account has what transactions forbid."""
    read = Counter(account.read)
    assert all(count == 1 for count in read.values()), "a record was read twice"
    for txn in account.of(TransactionOutcome.COMMITTED):
        assert all(place in read for place in txn.values), f"lost: {txn}"
    for txn in account.transactions:
        seen = [place in read for place in txn.values]
        if txn.outcome is TransactionOutcome.ABORTED:
            assert not any(seen), f"aborted, but visible: {txn}"
        elif account.power is not Power.LOST:
            assert txn.outcome is not None
            assert all(seen) or not any(seen), f"torn: {txn}"
    written = {place for txn in account.transactions for place in txn.values}
    assert set(read) <= written
    order: dict[tuple[int, bytes], list[tuple[int, int]]] = defaultdict(list)
    for partition, value in account.read:
        writer, count, n = value.split(b".")
        order[partition, writer].append((int(count), int(n)))
    assert all(seen == sorted(seen) for seen in order.values()), "records changed their order"
    if account.power is not Power.LOST:
        report = check_history(account.history)
        assert report.ok, str(report)


def run_once(seed: int) -> Outcome[Account]:
    """Run and check the world of a seed."""
    outcome = run(seed, system)
    try:
        check(outcome.value)
    except AssertionError as error:
        error.add_note(f"seed {seed}")
        raise
    return outcome
