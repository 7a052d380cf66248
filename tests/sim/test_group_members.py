"""Consumers as members of a group, on the embedded broker, in virtual time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from aiokq.consumer.consumer import Consumer
from tests.sim.group_world import PROTOCOLS, World, numbers, read, simulate, until


@pytest.mark.parametrize("protocol", [*PROTOCOLS, "auto"])
def test_one_member_reads_all_and_the_next_one_continues(protocol: str) -> None:
    """Records read before a normal exit are committed, including the last one before `break`."""

    async def body(w: World) -> None:
        await w.topic("t", 3)
        await w.produce("t", range(30), 3)
        async with w.member("t", protocol=protocol) as c:
            first = await read(c, 10)
            assert len(c.assignment()) == 3
            health = c.health()
            assert health.group is not None
            assert health.group.state == "stable"
        async with w.member("t", protocol=protocol) as c:
            rest = await read(c, 20)
        assert numbers(first + rest) == list(range(30))

    simulate(body)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", "consumer"])
def test_members_share_partitions_and_take_over(strategy: str) -> None:
    """Each partition has one owner; the other members take over from one that leaves."""

    async def body(w: World) -> None:
        await w.topic("t", 6)
        options: dict[str, Any] = {"protocol": "consumer"}
        if strategy != "consumer":
            options = {"partition_assignment_strategy": strategy}
        got: dict[int, int] = defaultdict(int)

        async def work(c: Consumer) -> None:
            async for record in c:
                got[int(record.value)] += 1

        members = [w.member("t", **options) for _ in range(3)]
        tasks = []
        for c in members:
            await c.start()
            tasks.append(asyncio.create_task(work(c)))
        await until(lambda: sorted(len(c.assignment()) for c in members) == [2, 2, 2])
        await w.produce("t", range(300), 6)
        await until(lambda: len(got) == 300)
        await members[0].close()
        await until(lambda: [len(c.assignment()) for c in members[1:]] == [3, 3])
        await w.produce("t", range(300, 600), 6)
        await until(lambda: len(got) == 600)
        for c in members[1:]:
            await c.close()
        await asyncio.gather(*tasks)
        assert set(got) == set(range(600))
        assert set(got.values()) == {1}, "nobody died: nothing is read twice"

    simulate(body)
