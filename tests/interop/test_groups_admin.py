"""aiokq's admin client and command line on aiokq's broker, with other clients as group members."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

import aiokq
from aiokq import TopicPartition, errors
from aiokq.admin.group_types import GroupState, GroupType
from tests.peers.group_members import classic_member, consumer_member

SECONDS = 30
MEMBERS = {"classic": classic_member, "consumer": consumer_member}


@pytest.fixture
async def servers() -> Any:
    async with aiokq.EmbeddedCluster() as kafka:
        async with aiokq.Admin(kafka.bootstrap_servers) as admin:
            await admin.create_topics("orders", num_partitions=2)
        yield kafka.bootstrap_servers


async def run_groups(servers: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "aiokq", "groups", *arguments, "-b", servers],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("kind", MEMBERS)
async def test_a_live_group_is_described_guarded_and_its_members_removed(
    servers: str, kind: str
) -> None:
    """Groups of either protocol, with members of any client."""
    async with aiokq.Cluster(servers) as cluster, cluster.admin() as admin:
        async with MEMBERS[kind](servers, "g", "orders"):
            group = (await admin.describe_groups("g", raise_errors=True))["g"]
            assert group.state is GroupState.STABLE
            assert group.type is GroupType.wanted(kind)
            (member,) = group.members
            assert member.client_id == f"{kind}-1"
            assert member.subscription == ("orders",)
            assert set(member.assignment) == {TopicPartition("orders", n) for n in (0, 1)}
            lag = (await admin.group_lag("g", raise_errors=True))["g"]
            assert [p.member for p in lag.partitions.values()] == [member, member]
            with pytest.raises(errors.GroupNotEmpty):
                await admin.reset_group_offsets("g", "latest", ["orders"])
            with pytest.raises(errors.GroupNotEmpty):
                await admin.alter_group_offsets("g", {("orders", 0): 0}, raise_errors=True)
            with pytest.raises(errors.GroupNotEmpty):
                await admin.delete_groups("g", raise_errors=True)
            described = await run_groups(servers, "describe", "g", "--json")
            (document,) = json.loads(described.stdout)
            assert {p["member"] for p in document["partitions"]} == {member.member_id}
            registry = cluster.registry
            name = member.member_id.replace("/", "%2F")  # librdkafka's member ids are base64
            assert await registry.children("/consumers/g/ids") == [name]
            owner = await registry.get("/consumers/g/owners/orders/0")
            assert owner == f"{member.member_id}-0"
            watch = await registry.watch("/consumers/g/owners/orders/0", interval=0.05)
            # The member is alive and joins again, in the consumer protocol even with its old id.
            assert (await admin.remove_members("g", None)).ok
        async with asyncio.timeout(SECONDS), watch:
            while (await anext(watch)).node is not None:
                pass


async def test_what_kafka_s_members_committed_is_reset_from_the_command_line(servers: str) -> None:
    """They continue from the offsets that the command line set."""
    async with aiokq.Producer(servers) as producer:
        for n in range(10):
            await producer.send("orders", b"%d" % n, partition=0)
    async with classic_member(servers, "g", "orders") as consumer:
        await consumer.commit({aiokafka_partition(0): 10})
    done = await run_groups(
        servers, "reset", "g", "--topic", "orders:0", "--shift-by", "-3", "--execute"
    )
    assert (done.returncode, done.stderr) == (0, "")
    async with classic_member(servers, "g", "orders") as consumer:
        async with asyncio.timeout(SECONDS):
            record = await consumer.getone()
        assert (record.offset, record.value) == (7, b"7")


def aiokafka_partition(number: int) -> Any:
    import aiokafka

    return aiokafka.TopicPartition("orders", number)


async def test_many_groups_are_described_together(servers: str) -> None:
    """One call describes all groups of a cluster with a thousand of them."""
    async with aiokq.Admin(servers) as admin:
        names = [f"g{n}" for n in range(300)]
        for name in names:
            await admin.alter_group_offsets(name, {("orders", 0): 0}, raise_errors=True)
        assert sorted(await admin.list_groups(raise_errors=True)) == sorted(names)
        lags = await admin.group_lag(names, raise_errors=True)
        assert {lag.total for lag in lags.values()} == {0}
        assert (await admin.delete_groups(names)).ok
        assert not await admin.list_groups(raise_errors=True)
