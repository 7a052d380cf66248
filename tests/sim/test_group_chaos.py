"""Groups under random faults: members join, leave, die and stall, and the broker restarts.

No record is skipped, no two members own a partition in the same generation, offsets do not go back,
and the group settles. The checker of `aiokq.testing` judges what all members read and committed.
AIOKQ_GROUP_SEEDS sets the number of seeds of the long run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random as random_module
from collections import defaultdict
from typing import Any

import pytest

from aiokq.cluster.events import Assigned
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import KafkaError
from aiokq.core.types import TopicPartition
from tests.sim.group_world import World, simulate, until

PARTITIONS = 6
RECORDS = 240
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "consumer", "mixed")
LONG_RUN = int(os.environ.get("AIOKQ_GROUP_SEEDS", "1000"))


class Chaos:
    """One run: the records read, and the partitions that members believed to own."""

    def __init__(self, w: World, strategy: str) -> None:
        self.w = w
        self.random = w.random
        self.strategy = strategy
        self.done: dict[int, int] = defaultdict(int)
        self.owned: dict[tuple[int, TopicPartition], str] = {}
        self.members: dict[Consumer, asyncio.Task[None]] = {}
        self.watches: list[asyncio.Task[None]] = []
        self.best: dict[int, int] = {}

    def make(self) -> Consumer:
        options: dict[str, Any] = {"protocol": "consumer"}
        if self.strategy == "mixed":
            options["protocol"] = self.random.choice(("classic", "consumer", "auto"))
            if options["protocol"] != "consumer":
                options["partition_assignment_strategy"] = ["cooperative-sticky", "range"]
        elif self.strategy != "consumer":
            options = {"partition_assignment_strategy": self.strategy}
        return self.w.member(
            "t",
            auto_commit_interval_ms=1_000,
            max_poll_interval_ms=20_000,
            request_timeout_ms=4_000,
            **options,
        )

    async def join(self) -> None:
        c = self.make()
        self.members[c] = asyncio.create_task(self.work(c))
        self.watches.append(asyncio.create_task(self.watch(c)))

    async def work(self, c: Consumer) -> None:
        """Read in all forms, with cancellations and pauses."""
        random = self.random
        with contextlib.suppress(KafkaError):
            await c.start()
            while True:
                try:
                    async with asyncio.timeout(random.random() * 20):
                        if random.random() < 0.5:
                            async for record in c:
                                await asyncio.sleep(random.random() * 0.3)
                                self.done[int(record.value)] += 1
                        else:
                            some = await c.getmany(timeout=1, max_records=4)
                            for records in some.values():
                                for record in records:
                                    self.done[int(record.value)] += 1
                except TimeoutError:
                    # The delivered record was not processed and must not be counted.
                    self.retreat(c)
                await asyncio.sleep(random.random())

    @staticmethod
    def retreat(c: Consumer) -> None:
        for state in c._positions:
            if state.source.unfinished(state):
                c.seek(state.tp, state.source.finished(state))

    async def watch(self, c: Consumer) -> None:
        """Record the owners of partitions by generation."""
        with contextlib.suppress(KafkaError, StopAsyncIteration):
            while not c._engine.started:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            async for event in c._engine.events():
                if isinstance(event, Assigned):
                    generation = c.group_metadata().generation
                    for tp in event.assignment:
                        before = self.owned.setdefault((generation, tp), event.member_id)
                        if self.strategy == "mixed" and not self.still_has(tp, before, generation):
                            # An empty group that changes its protocol starts its generations again.
                            before = self.owned[generation, tp] = event.member_id
                        assert before == event.member_id, f"{tp} twice in {generation}"

    def still_has(self, tp: TopicPartition, member_id: str, generation: int) -> bool:
        """Return whether a live member believes that it owns the partition in `generation`."""
        return any(
            tp in c.assignment()
            and c.group_metadata().member_id == member_id
            and c.group_metadata().generation == generation
            for c in self.members
        )

    async def leave(self, c: Consumer) -> None:
        task = self.members.pop(c)
        task.cancel()
        await asyncio.wait([task])
        await c.close(timeout=10)

    async def die(self, c: Consumer) -> None:
        """Partition the member's machine from the network for good."""
        task = self.members.pop(c)
        self.w.network.partition(self.w.hosts[c])
        task.cancel()
        await asyncio.wait([task])
        await c.close(timeout=0.1)

    async def trouble(self) -> None:
        random = self.random
        for _ in range(12):
            await asyncio.sleep(random.random() * 6)
            alive = list(self.members)
            match random.randrange(8):
                case 0 | 1 if len(alive) < 5:
                    await self.join()
                case 2 if len(alive) > 1:
                    await self.leave(random.choice(alive))
                case 3 if len(alive) > 1:
                    await self.die(random.choice(alive))
                case 4:
                    for wire in self.w.network.connections("10.0.0.1"):
                        if random.random() < 0.4:
                            wire.cut()
                case 5:
                    self.w.broker.kill()
                    await asyncio.sleep(random.random() * 3)
                    await self.w.broker.start()
                case 6:
                    host = self.w.hosts[random.choice(alive)]
                    self.w.network.partition(host)
                    await asyncio.sleep(random.random() * 15)
                    self.w.network.heal()

    async def run(self) -> None:
        w = self.w
        w.all_read = w.all_commits = True
        await w.topic("t", PARTITIONS)
        await self.join()
        self.watches.append(asyncio.create_task(self.sample()))
        producing = asyncio.create_task(w.produce("t", range(RECORDS // 2), PARTITIONS))
        await self.trouble()
        w.network.heal()
        await producing
        if not self.members:
            await self.join()
        await w.produce("t", range(RECORDS // 2, RECORDS), PARTITIONS)
        try:
            await until(lambda: len(self.done) == RECORDS, 200)
        except TimeoutError:
            missing = sorted(set(range(RECORDS)) - set(self.done))
            health = [c.health() for c in self.members]
            raise AssertionError(f"never read: {missing}; {health}") from None
        await until(self.at_rest, 60)
        for c in list(self.members):
            await self.leave(c)
        committed = await w.committed("t", PARTITIONS)
        self.check(committed)
        for task in self.watches:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def sample(self) -> None:
        """Collect the committed offsets whenever a broker is available."""
        while True:
            await asyncio.sleep(1 + self.random.random() * 3)
            with contextlib.suppress(KafkaError):
                self.check(await self.w.committed("t", PARTITIONS))

    def check(self, committed: list[int | None]) -> None:
        """Check that commits cover only finished records and never decrease."""
        for p, offset in enumerate(committed):
            if offset is None:
                continue
            assert offset >= self.best.get(p, 0), f"commit of {p} went back to {offset}"
            self.best[p] = offset
            missing = [n for n in range(offset) if p + PARTITIONS * n not in self.done]
            assert not missing, f"committed {offset} of {p}, and {missing} were never done"

    def at_rest(self) -> bool:
        owned = [tp for c in self.members for tp in c.assignment()]
        return len(owned) == len(set(owned)) == PARTITIONS


def torment(seed: int) -> None:
    strategy = STRATEGIES[seed % len(STRATEGIES)]

    async def body(w: World) -> None:
        await Chaos(w, strategy).run()

    simulate(body, seed=seed)


@pytest.mark.parametrize("seed", range(20))
def test_no_record_is_skipped_under_random_faults(seed: int) -> None:
    """Random joins, leaves, deaths, network partitions, broker kills and cancelled reads."""
    torment(seed)


@pytest.mark.torture
@pytest.mark.timeout(0)
@pytest.mark.build_independent
def test_thousands_of_seeds_of_groups() -> None:
    """The same for many seeds; a failing seed is in the notes of the error."""
    seeds = random_module.Random(LONG_RUN)
    for _ in range(LONG_RUN):
        torment(seeds.randrange(2**32))
