"""Groups with active members that change their group protocol, on the embedded broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

import aiokq
from aiokq.admin.client import Admin
from aiokq.consumer.consumer import Consumer
from tests.sim.group_world import World, simulate, until

PARTITIONS = 6
POLICY = "group.consumer.migration.policy"
STRATEGIES = ("range", "cooperative-sticky")


class Group:
    """Members of `g` that read topic `t`, and which members received each record."""

    def __init__(self, world: World, strategy: str = "range") -> None:
        self._world = world
        self._strategy = strategy
        self._tasks: dict[Consumer, asyncio.Task[None]] = {}
        self._produced = 0
        self.members: list[Consumer] = []
        self.handed: dict[int, int] = defaultdict(int)

    async def start(self, protocol: str, **options: Any) -> Consumer:
        if protocol == "classic":
            options["partition_assignment_strategy"] = self._strategy
        member = self._world.member("t", protocol=protocol, **options)
        await member.start()
        self._tasks[member] = asyncio.create_task(self._work(member))
        self.members.append(member)
        return member

    async def _work(self, member: Consumer) -> None:
        async for record in member:
            self.handed[int(record.value)] += 1

    async def leave(self, member: Consumer) -> None:
        self.members.remove(member)
        await member.close()
        await self._tasks.pop(member)

    async def die(self, member: Consumer) -> None:
        """Partition the member's machine from the network for good."""
        self.members.remove(member)
        self._world.network.partition(self._world.hosts[member])
        task = self._tasks.pop(member)
        task.cancel()
        await asyncio.wait([task])
        await member.close(timeout=0.1)

    async def all_leave(self) -> None:
        for member in list(self.members):
            await self.leave(member)

    async def settle(self) -> None:
        """Wait until each partition has one owner, and the loads differ by at most one."""
        await until(lambda: _shared(self.members))

    async def read_more(self) -> None:
        """Produce to all partitions, and wait until members have read the records."""
        new = range(self._produced, self._produced + 30)
        await self._world.produce("t", new, PARTITIONS)
        self._produced = new.stop
        await until(lambda: set(self.handed) == set(range(self._produced)))

    async def type(self) -> str:
        environment = self._world.world.environment("10.0.0.8")
        async with Admin("10.0.0.1:9092", _environment=environment) as admin:
            described = await admin.describe_groups("g", raise_errors=True)
        return described["g"].type.value.lower()


def _shared(members: Sequence[Consumer]) -> bool:
    owned = [{tp.partition for tp in member.assignment()} for member in members]
    sizes = [len(each) for each in owned]
    return (
        set().union(*owned) == set(range(PARTITIONS))
        and sum(sizes) == PARTITIONS
        and max(sizes) - min(sizes) <= 1
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_changes_its_protocol_member_by_member_and_back(strategy: str) -> None:
    """By default members of both protocols are served, and each record is read once."""

    async def body(w: World) -> None:
        await w.topic("t", PARTITIONS)
        group = Group(w, strategy)
        for start, there in (("classic", "consumer"), ("consumer", "classic")):
            while len(group.members) < 3:
                await group.start(start)
            await group.settle()
            await group.read_more()
            assert await group.type() == start
            for member in list(group.members):
                await group.start(there)
                await group.settle()
                await group.read_more()
                assert await group.type() == "consumer"
                await group.leave(member)
                await group.settle()
                await group.read_more()
            await group.settle()
            assert await group.type() == there
        await group.all_leave()
        assert set(group.handed.values()) == {1}
        assert await w.committed("t", PARTITIONS) == [70] * PARTITIONS

    simulate(body)


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade"])
def test_a_classic_group_is_upgraded_if_the_policy_allows_it(policy: str) -> None:
    """Its members keep the classic protocol and share the partitions with the new member."""

    async def body(w: World) -> None:
        await w.topic("t", PARTITIONS)
        group = Group(w)
        await group.start("classic")
        await group.start("classic")
        await group.settle()
        await group.read_more()
        before = [member.group_metadata() for member in group.members]
        await group.start("consumer")
        await group.settle()
        await group.read_more()
        assert await group.type() == "consumer"
        after = [member.group_metadata() for member in group.members]
        assert [one.member_id for one in after[:2]] == [one.member_id for one in before]
        assert all(new.generation > old.generation for old, new in zip(before, after, strict=False))
        await group.all_leave()
        assert set(group.handed.values()) == {1}

    simulate(body, settings={POLICY: policy})


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_a_classic_group_is_not_upgraded_if_the_policy_forbids_it(policy: str) -> None:
    """Members of the consumer protocol are refused; members with `auto` join as classic ones."""

    async def body(w: World) -> None:
        await w.topic("t", PARTITIONS)
        group = Group(w)
        await group.start("classic")
        await group.settle()
        refused = w.member("t", protocol="consumer")
        with pytest.raises(aiokq.KafkaError, match="online upgrade is disabled"):
            async with refused:
                await refused.getone()
        await group.read_more()
        await group.start("auto")
        await group.settle()
        await group.read_more()
        assert await group.type() == "classic"
        await group.all_leave()
        assert set(group.handed.values()) == {1}

    simulate(body, settings={POLICY: policy})


@pytest.mark.parametrize(
    ("policy", "type_"),
    [
        ("bidirectional", "classic"),
        ("downgrade", "classic"),
        ("upgrade", "consumer"),
        ("disabled", "consumer"),
    ],
)
@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "dies"])
def test_a_group_whose_consumer_protocol_members_left_is_downgraded_by_policy(
    policy: str, type_: str, leaves: bool
) -> None:
    """In either case the remaining classic members own all partitions."""

    async def body(w: World) -> None:
        await w.topic("t", PARTITIONS)
        group = Group(w)
        last = await group.start("consumer")
        await group.settle()
        await group.start("classic")
        await group.start("classic")
        await group.settle()
        await group.read_more()
        assert await group.type() == "consumer"
        if leaves:
            await group.leave(last)
        else:
            await group.die(last)
        await group.settle()
        await group.read_more()
        assert await group.type() == type_
        newcomer = await group.start("classic")
        await group.settle()
        await group.read_more()
        await group.leave(newcomer)
        await group.settle()
        assert await group.type() == type_
        await group.all_leave()
        if leaves:
            assert set(group.handed.values()) == {1}

    simulate(body, settings={POLICY: policy})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_mixed_group_survives_a_broker_restart(strategy: str) -> None:
    """The log has each member's protocol, so all continue after the restart."""

    async def body(w: World) -> None:
        await w.topic("t", PARTITIONS)
        group = Group(w, strategy)
        await group.start("classic")
        await group.start("classic")
        modern = await group.start("consumer")
        await group.settle()
        await group.read_more()
        ids = {member.group_metadata().member_id for member in group.members}
        w.broker.kill()
        await asyncio.sleep(1)
        await w.broker.start()
        await group.read_more()
        assert {member.group_metadata().member_id for member in group.members} == ids
        assert await group.type() == "consumer"
        await group.leave(modern)
        await group.settle()
        w.broker.kill()
        await asyncio.sleep(1)
        await w.broker.start()
        await group.read_more()
        assert await group.type() == "classic"
        await group.all_leave()

    simulate(body)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_static_member_can_come_back_with_the_other_protocol(strategy: str) -> None:
    """The static member gets its partitions back, and the other member keeps its own meanwhile."""

    async def body(w: World) -> None:
        await w.topic("t", PARTITIONS)
        group = Group(w, strategy)
        other = await group.start("classic", group_instance_id="other")
        one = await group.start("classic", group_instance_id="one")
        await group.settle()
        await group.read_more()
        for protocol, type_ in (("consumer", "consumer"), ("classic", "classic")):
            kept, had = other.assignment(), one.assignment()
            await group.leave(one)
            one = await group.start(protocol, group_instance_id="one")
            await group.settle()
            await group.read_more()
            assert await group.type() == type_
            assert (other.assignment(), one.assignment()) == (kept, had)
        await group.all_leave()
        assert set(group.handed.values()) == {1}

    simulate(body)
