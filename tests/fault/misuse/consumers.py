"""The groups of a round's load: members that come and go; records what each received and finished.

A record is noted as finished at the moment from which on the group may commit it, as the
documentation of `Consumer` says: when the reader asks for the next record, when `commit()` is
called, or when the record is acknowledged, depending on how its group commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from random import Random
from typing import Any, NamedTuple

import aiokq
from aiokq import KafkaError
from aiokq.testing import Isolation
from tests.fault.misuse.checker import OTHER
from tests.fault.misuse.history import Partition
from tests.fault.misuse.plan import GroupPlan
from tests.fault.misuse.producers import POISON
from tests.fault.misuse.world import World

ENDS = ("clean", "cancel", "error", "close")
"""The ways a member ends.

It leaves the body of `async with` normally, by cancellation or by an error, or another task closes
its consumer while it reads.
"""
SETTLE = 60.0
"""Seconds that the end of a member may take; its close() has 30."""


_numbers = itertools.count()
"""Numbers of members, so that each consumer has a name of its own."""


class PoisonError(Exception):
    """Raised by the deserializers of the load for poisoned values.

    Attributes:
        record: the record as it was received; the consumer sets it.
    """

    record: Any


def refuse_poison(data: bytes) -> bytes:
    """A deserializer that raises `PoisonError` for poisoned values."""
    if data.startswith(POISON):
        raise PoisonError(data[:60])
    return data


class Item(NamedTuple):
    """What one read returned: a record, a record that failed to deserialize, or a batch.

    Attributes:
        records: its records, as far as they were read.
        whole: the object to pass to `Consumer.ack`.
    """

    records: list[Any]
    whole: Any


class LoadGroup:
    """Members of one group, each replaced when it ends, until everything is read."""

    def __init__(self, world: World, plan: GroupPlan) -> None:
        self._world = world
        self._plan = plan
        self._history = world.history.groups[plan.name]
        self._random = Random(plan.seed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._plan.members):
                tasks.create_task(self._members(Random(self._plan.seed + number)))

    async def _members(self, random: Random) -> None:
        """Run members one after the other."""
        while not self._world.finished.is_set():
            life = random.uniform(2, 12)
            end = random.choice(ENDS)
            member = Member(self._world, self._plan, random)
            task = asyncio.get_running_loop().create_task(member.run())
            over = asyncio.get_running_loop().create_task(self._world.finished.wait())
            await asyncio.wait(
                [task, over],
                # After the load members stay until everything is read.
                timeout=None if self._world.load_over.is_set() else life,
                return_when=asyncio.FIRST_COMPLETED,
            )
            over.cancel()
            if self._world.finished.is_set():
                end = "clean"
            await self._ended(member, task, end)
            self._world.counts[f"members ended: {end}"] += 1

    async def _ended(self, member: Member, task: asyncio.Task[None], end: str) -> None:
        match end:
            case "cancel":
                task.cancel()
            case "close":
                closing = self._world.within(SETTLE, "Consumer.close()", member.close())
                with contextlib.suppress(KafkaError, asyncio.CancelledError):
                    await closing
            case _:
                member.leave(end)
        try:
            await self._world.within(SETTLE, f"the end of a member ({end})", task)
        except (asyncio.CancelledError, Leaving):
            pass
        except Exception as error:
            self._world.unexpected(f"a member of {self._plan.name} ({self._plan.style})", error)


class Leaving(Exception):
    """Raised in a member's body in place of an application's error."""


class Member:
    """One consumer, its readers, and the records that they are working on."""

    def __init__(self, world: World, plan: GroupPlan, random: Random) -> None:
        self._world = world
        self._plan = plan
        self._history = world.history.groups[plan.name]
        self._name = f"{plan.name}.{next(_numbers)}"
        self._random = random
        self._leaving = ""
        self._closing = False
        self._left = asyncio.Event()
        self._unfinished: list[Item] = []
        self._in_hand: dict[asyncio.Task[Any] | None, list[Item]] = {}
        settings = {
            **plan.settings,
            "auto_offset_reset": "earliest",
            "bootstrap_timeout_ms": 60_000,
            "request_timeout_ms": 3000,
            "default_api_timeout_ms": 10_000,
            "enable_auto_commit": plan.commits != "manual",
            "ack_mode": "explicit" if plan.commits == "explicit" else "implicit",
        }
        if plan.poison:
            settings["value_deserializer"] = refuse_poison
        self._consumer: aiokq.Consumer[Any, Any] = aiokq.Consumer(
            *plan.topics,
            bootstrap_servers=world.servers,
            group_id=plan.name,
            on_assigned=self._assigned,
            **settings,
        )

    def _assigned(self, partitions: frozenset[aiokq.TopicPartition]) -> None:
        self._world.history.assigned(self._name, partitions, self._world.now())

    def leave(self, end: str) -> None:
        """End the body of `async with`: normally ("clean"), or with an error."""
        self._leaving = end
        self._left.set()

    async def close(self) -> None:
        """Close the consumer from another task while the member reads."""
        self._closing = True
        await self._consumer.close()

    async def run(self) -> None:
        try:
            await self._consumer.start()
        except KafkaError as error:
            self._world.refused("Consumer.start()", error)
            await self._consumer.close()
            await asyncio.sleep(0.2)
            return
        try:
            await self._life()
        except aiokq.Closed:  # closed by another task before the member entered it
            if not self._closing:
                raise

    async def _life(self) -> None:
        async with self._consumer:
            read = getattr(self, f"_{self._plan.style}")
            tasks = [asyncio.get_running_loop().create_task(each) for each in read()]
            left = asyncio.get_running_loop().create_task(self._left.wait())
            if self._plan.commits == "explicit":
                tasks.append(asyncio.get_running_loop().create_task(self._acknowledge()))
            try:
                await asyncio.wait([*tasks, left], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _cancelled(*tasks, left)
            for task in tasks:
                if not task.cancelled() and task.exception() is not None:
                    raise task.exception()  # type: ignore[misc]
            if self._leaving == "error":
                raise Leaving
            if self._plan.commits == "auto":  # a normal end finishes it all
                for items in self._in_hand.values():
                    for item in items:
                        self._finish(item)

    # -- styles: coroutines, each a task that reads until it is cancelled

    def _records(self) -> list[Any]:
        return [self._iterate(lambda: aiter(self._consumer))]

    def _streams(self) -> list[Any]:
        count = self._random.randint(1, 4)
        return [
            self._iterate(lambda stream=stream: aiter(stream))
            for stream in self._consumer.streams(count)
        ]

    def _batches(self) -> list[Any]:
        return [self._iterate(lambda: aiter(self._consumer.batches()))]

    def _many(self) -> list[Any]:
        return [self._poll()]

    async def _iterate(self, begin: Any) -> None:
        """Iterate with `async for`, again after an error; items are records or batches."""
        source: AsyncIterator[Any] | None = None
        while True:
            self._asks_for_more()
            try:
                source = source or begin()
                item = await anext(source)
            except (StopAsyncIteration, aiokq.Closed):
                return
            except PoisonError as error:
                source = None
                await self._handed([Item([error.record], error.record)])
            except KafkaError as error:
                await self._refused(error)
                source = None
            else:
                await self._handed([self._read(item)])

    async def _poll(self) -> None:
        while True:
            self._asks_for_more()
            try:
                found = await self._consumer.getmany(
                    timeout=self._random.choice([0.0, 0.1, 0.5]),
                    max_records=self._random.choice([None, 1, 100]),
                )
            except aiokq.Closed:
                return
            except PoisonError as error:
                await self._handed([Item([error.record], error.record)])
            except KafkaError as error:
                await self._refused(error)
            else:
                records = [record for several in found.values() for record in several]
                await self._handed([Item([record], record) for record in records])
                if not found:
                    await asyncio.sleep(0.005)

    def _read(self, item: Any) -> Item:
        """Read a batch at once, to its end or to a record that fails to deserialize."""
        if not isinstance(item, aiokq.RecordBatch):
            return Item([item], item)
        found: list[Any] = []
        reading = iter(item)
        while True:
            try:
                found += reading
                break
            except PoisonError as error:
                found.append(error.record)
                if self._random.random() < 0.5:
                    break  # the rest comes in another batch
        return Item(found, item)

    async def _refused(self, error: KafkaError) -> None:
        self._world.refused("reading", error)
        await asyncio.sleep(0.05)

    # -- what the history records

    def _asks_for_more(self) -> None:
        for item in self._in_hand.pop(asyncio.current_task(), ()):
            if self._plan.commits == "auto":
                self._finish(item)

    async def _handed(self, items: list[Item]) -> None:
        """Note all items before the first await: another reader's commit covers them."""
        self._world.history.handed(
            self._name,
            self._plan.name,
            [
                ((record.topic, record.partition), record.offset, record.value)
                for item in items
                for record in item.records
            ],
            self._world.now(),
            Isolation.READ_UNCOMMITTED,
        )
        for record in (record for item in items for record in item.records):
            partition: Partition = (record.topic, record.partition)
            wrong = self._history.hand(partition, record.offset, record.value)
            if wrong is not None:
                self._world.history.complain(OTHER, f"{self._plan.name}: {wrong}")
        self._in_hand[asyncio.current_task()] = items
        if self._plan.commits != "auto":
            self._unfinished += items
        for _ in items:
            if self._plan.commits == "manual" and self._random.random() < 0.05:
                await self._commit()
            if self._random.random() < 0.01:  # simulated work
                await asyncio.sleep(self._random.choice([0.0, 0.01, 0.1]))

    def _finish(self, item: Item) -> None:
        now = self._world.now()
        for record in item.records:
            self._history.finish((record.topic, record.partition), record.offset, now)

    async def _commit(self) -> None:
        """Commit all that was handed over, to any reader, by one of the available calls."""
        try:
            match self._random.randrange(3):
                case 0:
                    await self._commit_all()
                case 1:
                    self._finish_all()
                    self._consumer.commit_nowait().add_done_callback(_look)
                case _:
                    patience = self._random.choice([0.001, 0.05, 1.0])
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._commit_all(), patience)
        except KafkaError as error:
            self._world.refused("commit()", error)

    async def _commit_all(self) -> None:
        self._finish_all()  # in the same step of the loop in which commit() takes the positions
        await self._consumer.commit()

    def _finish_all(self) -> None:
        unfinished, self._unfinished = self._unfinished, []
        for item in unfinished:
            self._finish(item)

    async def _acknowledge(self) -> None:
        """Acknowledge items in random order, some time after they were handed over."""
        while True:
            await asyncio.sleep(self._random.choice([0.001, 0.05, 0.2]))
            self._random.shuffle(self._unfinished)
            for _ in range(len(self._unfinished) - self._random.randrange(4)):
                item = self._unfinished.pop()
                self._finish(item)
                with contextlib.suppress(aiokq.Closed):
                    self._consumer.ack(item.whole)


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until they have ended.

    Before Python 3.12 `asyncio.wait_for` loses a cancellation that comes with its result.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=1.0)


def _look(future: asyncio.Future[None]) -> None:
    """Retrieve the failure of a commit that came too late; asyncio would log it otherwise."""
    if not future.cancelled():
        future.exception()
