"""The checker that judges each world of groups when its test has ended."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.admin.client import Admin
from aiokq.consumer.consumer import Consumer
from aiokq.core.types import TopicPartition
from aiokq.producer.producer import Producer
from tests.sim.group_world import World, read, simulate
from tests.sim.test_whole_system import SERVERS

T0 = TopicPartition("t", 0)


def test_the_checker_condemns_a_lost_record() -> None:
    """A power cut takes acknowledged records that no disk has."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await asyncio.sleep(60)  # the topic is on the disk
        await w.produce("t", range(100), 1)
        w.broker.power_cut()
        await w.broker.start()

    with pytest.raises(AssertionError, match=r"was acknowledged at t-0@\d+; it was never read"):
        simulate(body)


def test_the_checker_condemns_a_doubled_record() -> None:
    """Its second place is read by a member."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(10), 1)
        environment = w.world.environment("10.0.0.9")
        async with Producer(SERVERS, _environment=environment) as producer:
            await producer.send("t", b"7")
        async with w.member("t") as c:
            await read(c, 11)

    with pytest.raises(AssertionError, match="'7' is at t-0@7, t-0@10"):
        simulate(body)


def test_the_checker_condemns_a_record_that_a_member_gets_again() -> None:
    """Without a new assignment and without a seek."""

    async def body(w: World) -> None:
        await w.topic("t", 1)
        await w.produce("t", range(10), 1)
        async with w.member("t") as c:
            records = await read(c, 5)
            c.polled(records[3:4], 0.0)

    with pytest.raises(AssertionError, match="nonmonotonic-poll"):
        simulate(body)


def test_the_checker_condemns_a_record_that_no_member_got() -> None:
    """The world knows that the group has read everything."""

    async def body(w: World) -> None:
        w.all_read = True
        await w.topic("t", 1)
        await w.produce("t", range(10), 1)
        async with w.member("t") as c:
            await read(c, 5)
            Consumer.seek(c, T0, 6)
            await read(c, 4)

    with pytest.raises(AssertionError, match="'5' was acknowledged at t-0@5; it was never read"):
        simulate(body)


@pytest.mark.parametrize("offset", [2, 4], ids=["older", "unknown"])
def test_the_checker_condemns_a_committed_offset_that_another_commit_replaced(offset: int) -> None:
    """Also one that no member committed, if the world knows all commits."""

    async def body(w: World) -> None:
        w.all_commits = True
        await w.topic("t", 1)
        await w.produce("t", range(10), 1)
        async with w.member("t", enable_auto_commit=False) as c:
            for number in (2, 3):
                await read(c, number)
                await c.commit({T0: number})
                await asyncio.sleep(1)
        environment = w.world.environment("10.0.0.8")
        async with Admin(SERVERS, _environment=environment) as admin:
            await admin.alter_group_offsets("g", {T0: offset}, raise_errors=True)
        assert await w.committed("t", 1) == [offset]

    with pytest.raises(AssertionError, match="offsets-apart"):
        simulate(body)
