"""aiokq's members in groups of Apache Kafka: faults, moving coordinators, upgrades, rewinds."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import aiokq
from aiokq.admin.group_types import GroupType
from aiokq.cluster.targets import Coordinator, CoordinatorKind
from aiokq.errors import ForeignMembers
from aiokq.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aiokq.wire.find_coordinator import FindCoordinatorRequest
from tests.fault import group_scenarios as scenarios
from tests.fault.group_scenarios import member, partitions, until
from tests.interop.apache.support import create_topic, eventually
from tests.peers.apache_kafka import ApacheKafka, apache_kafka, why_absent
from tests.peers.group_members import classic_member, consumer_member

pytestmark = pytest.mark.kafka

SESSION_MS = 6_000  # the smallest value that Kafka allows by default
both = pytest.mark.parametrize("protocol", ["classic", "consumer"])


# The same scenarios as on aiokq's broker (tests/fault/test_groups.py)


@pytest.mark.full
async def test_a_silent_member_is_evicted(apache: ApacheKafka) -> None:
    """It is removed when its session expires."""
    await scenarios.a_silent_member_is_evicted(apache.bootstrap_servers, SESSION_MS)


@pytest.mark.full
async def test_a_pending_member_is_evicted(apache: ApacheKafka) -> None:
    """It got a member id and never joined with it."""
    await scenarios.a_pending_member_is_evicted(apache.bootstrap_servers, SESSION_MS)


async def test_a_member_that_is_late_in_a_rebalance_is_removed(apache: ApacheKafka) -> None:
    """Heartbeats alone do not keep a member in the group."""
    await scenarios.a_member_that_is_late_in_a_rebalance_is_removed(apache.bootstrap_servers)


@both
@pytest.mark.full
async def test_a_static_member_bounces_unnoticed(apache: ApacheKafka, protocol: str) -> None:
    """KIP-345, and static membership in KIP-848."""
    await scenarios.a_static_member_bounces_unnoticed(apache.bootstrap_servers, protocol)


async def test_the_first_of_two_with_one_instance_id_is_fenced(apache: ApacheKafka) -> None:
    """Two processes have the same configuration."""
    await scenarios.the_first_of_two_with_one_instance_id_is_fenced(apache.bootstrap_servers)


async def test_an_instance_id_in_use_is_not_released(apache: ApacheKafka) -> None:
    """KIP-848 rejects the second member instead."""
    await scenarios.an_instance_id_in_use_is_not_released(apache.bootstrap_servers)


@both
async def test_a_stale_generation_commits_nothing(apache: ApacheKafka, protocol: str) -> None:
    """Such commits come from zombies."""
    await scenarios.a_stale_generation_commits_nothing(apache.bootstrap_servers, protocol)


async def test_a_lost_heartbeat_reply_is_made_up_for(apache: ApacheKafka) -> None:
    """This is the coordinator's part."""
    await scenarios.a_lost_heartbeat_reply_is_made_up_for(apache.bootstrap_servers)


@pytest.mark.full
async def test_a_slow_revoker_shares_nothing(apache: ApacheKafka) -> None:
    """KIP-848 guarantees this."""
    await scenarios.a_slow_revoker_shares_nothing(apache.bootstrap_servers)


# Where Apache Kafka differs from aiokq's broker


async def test_auto_upgrades_a_live_classic_group(apache: ApacheKafka, topic: str) -> None:
    """Its migration policy turns the group into one of the consumer protocol; members stay."""
    servers = apache.bootstrap_servers
    await create_topic(apache, topic, 4)
    options: dict[str, Any] = {"partition_assignment_strategy": ["cooperative-sticky", "range"]}
    async with member(servers, topic, **options) as old:
        await until(lambda: len(partitions(old)) == 4)
        async with member(servers, topic, group_protocol="auto") as new:
            await until(lambda: (len(partitions(old)), len(partitions(new))) == (2, 2))
            assert partitions(old) | partitions(new) == set(range(4))
            async with aiokq.Admin(servers) as admin:
                described = await admin.describe_groups(f"g-{topic}", raise_errors=True)
                assert described[f"g-{topic}"].type is GroupType.CONSUMER


@both
async def test_a_live_group_is_rewound(apache: ApacheKafka, topic: str, protocol: str) -> None:
    """aiokq's live members continue from the new offsets and skip no record from there on."""
    servers = apache.bootstrap_servers
    await create_topic(apache, topic, 2)
    handed: dict[int, list[int]] = {0: [], 1: []}

    async def work(consumer: aiokq.Consumer) -> None:
        async for record in consumer:
            handed[record.partition].append(record.offset)

    options: dict[str, Any] = {"group_protocol": protocol, "auto_commit_interval_ms": 200}
    async with (
        aiokq.Producer(servers) as producer,
        member(servers, topic, **options) as first,
        member(servers, topic, **options) as second,
    ):
        tasks = [asyncio.get_running_loop().create_task(work(each)) for each in (first, second)]
        for number in range(100):
            await producer.enqueue(topic, b"", partition=number % 2)
        await until(lambda: sum(map(len, handed.values())) == 100)
        await until(lambda: len(partitions(first)) == len(partitions(second)) == 1)
        await eventually(lambda: all_committed(first, topic, 50, 50))
        async with aiokq.Admin(servers) as admin:
            rewound = await admin.rewind_group(
                f"g-{topic}", {(topic, 0): 20, (topic, 1): "earliest"}, raise_errors=True
            )
        assert {tp.partition: result.offset for tp, result in rewound.items()} == {0: 20, 1: 0}
        for number in range(20):
            await producer.enqueue(topic, b"", partition=number % 2)
        # An owner may read on until its next heartbeat; its commits are rejected.
        await until(lambda: all(len(again(handed[p], s)) == 60 - s for p, s in ((0, 20), (1, 0))))
        assert again(handed[0], 20) == [*range(20, 60)]
        assert again(handed[1], 0) == [*range(60)]
        await eventually(lambda: all_committed(first, topic, 60, 60))
    await asyncio.gather(*tasks)


def again(offsets: list[int], start: int) -> list[int]:
    """Offsets handed over since the partition restarted at `start`, without the earlier ones."""
    starts = [n for n, offset in enumerate(offsets) if offset == start]
    return offsets[starts[-1] :] if len(starts) == 2 else []


async def test_a_rewind_removes_members_of_other_makes_that_join_again(
    apache: ApacheKafka, topic: str
) -> None:
    """Classic members rejoin; of other members this is not known, so the result names them."""
    servers, group = apache.bootstrap_servers, f"g-{topic}"
    await create_topic(apache, topic, 1)
    async with aiokq.Producer(servers) as producer, aiokq.Admin(servers) as admin:
        await producer.send(topic, b"1")
        async with classic_member(servers, group, topic) as other:
            await admin.rewind_group(group, {(topic, 0): 0}, raise_errors=True)
            record = await asyncio.wait_for(other.getone(), 20)
            assert record.offset == 0
        async with consumer_member(servers, f"{group}-2", topic):
            with pytest.raises(ForeignMembers) as caught:
                await admin.rewind_group(f"{group}-2", {(topic, 0): 0})
            assert len(caught.value.members) == 1


async def test_heartbeat_version_0_takes_the_id_that_a_member_has_chosen(
    apache: ApacheKafka, topic: str
) -> None:
    """Only with its own id can a member leave a broker before 4.0 before its first response."""
    await create_topic(apache, topic, 1)
    async with aiokq.Cluster(apache.bootstrap_servers) as client:

        async def beat(epoch: int) -> ConsumerGroupHeartbeatResponse:
            request = ConsumerGroupHeartbeatRequest(
                group_id=f"g-{topic}", member_id="aiokq-me", member_epoch=epoch
            )
            if epoch == 0:
                request.rebalance_timeout_ms = 60_000
                request.subscribed_topic_names = [topic]
                request.topic_partitions = []
            return await client._engine.router.request(
                lambda version: request,
                ConsumerGroupHeartbeatRequest,
                Coordinator(CoordinatorKind.GROUP, f"g-{topic}"),
                timeout=20,
                newest=0,
            )

        joined = await beat(0)
        assert (joined.error_code, joined.member_id, joined.member_epoch > 0) == (
            0,
            "aiokq-me",
            True,
        )
        left = await beat(-1)
        assert (left.error_code, left.member_epoch) == (0, -1)


# Three nodes


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[ApacheKafka]:
    reason = why_absent()
    if reason is not None:
        pytest.skip(f"APACHE KAFKA IS NOT TESTED: {reason}")
    # A dead node must be noticed within 3 s.
    properties = {"broker_session_timeout_ms": "3000", "broker_heartbeat_interval_ms": "500"}
    with apache_kafka(3, **properties) as cluster:
        yield cluster


async def group_at(cluster: ApacheKafka, prefix: str) -> tuple[str, int]:
    """Return a group and the node that coordinates it, which is not the first node."""
    names = [f"{prefix}-{n}" for n in range(20)]

    async with aiokq.Cluster(cluster.bootstrap_servers) as client:

        async def look() -> tuple[str, int]:
            found = await client.request(FindCoordinatorRequest(key_type=0, coordinator_keys=names))
            assert all(each.error_code == 0 for each in found.coordinators)
            return next((c.key, c.node_id) for c in found.coordinators if c.node_id != 1)

        return await eventually(look)


@both
@pytest.mark.full
async def test_a_coordinator_that_dies_in_a_rebalance_is_followed(
    three_nodes: ApacheKafka, topic: str, protocol: str
) -> None:
    """One member revokes and another joins meanwhile: a new node takes over group and offsets."""
    servers = three_nodes.bootstrap_servers
    await create_topic(three_nodes, topic, 4, 3)
    group, node = await group_at(three_nodes, topic)
    revoking, go_on = asyncio.Event(), asyncio.Event()
    received: dict[int, list[int]] = {p: [] for p in range(4)}

    async def revoked(tps: object) -> None:
        if tps:
            revoking.set()
            await go_on.wait()

    async def work(consumer: aiokq.Consumer) -> None:
        async for record in consumer:
            received[record.partition].append(record.offset)

    async def produce(count: int) -> None:
        async with aiokq.Producer(servers) as producer:
            for number in range(count):
                await producer.enqueue(topic, b"%d" % number, partition=number % 4)

    options: dict[str, Any] = {
        "group_id": group,
        "bootstrap_servers": servers,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 200,
        "group_protocol": protocol,
    }
    if protocol == "classic":
        options |= {"heartbeat_interval_ms": 200, "session_timeout_ms": 10_000}
    first = aiokq.Consumer(topic, on_revoked=revoked, **options)
    second = aiokq.Consumer(topic, **options)
    tasks = []
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(first)
        tasks.append(asyncio.get_running_loop().create_task(work(first)))
        await produce(100)
        await until(lambda: sum(map(len, received.values())) == 100)
        await eventually(lambda: all_committed(first, topic, *[25] * 4))
        await stack.enter_async_context(second)
        tasks.append(asyncio.get_running_loop().create_task(work(second)))
        await asyncio.wait_for(revoking.wait(), 20)
        await asyncio.to_thread(three_nodes.stop_node, node, signal.SIGKILL)
        try:
            go_on.set()
            await until(lambda: (len(partitions(first)), len(partitions(second))) == (2, 2), 60)
            assert partitions(first) | partitions(second) == set(range(4))
            await produce(100)
            await until(lambda: all(set(got) == set(range(50)) for got in received.values()), 60)
            # All offsets were committed before, so a new coordinator causes no repeated reads.
            assert all(got[:25] == list(range(25)) for got in received.values())
            assert all(got.count(n) == 1 for got in received.values() for n in range(25))
            await eventually(lambda: all_committed(first, topic, *[50] * 4), 20)
        finally:
            await asyncio.to_thread(three_nodes.start_node, node)
    await asyncio.gather(*tasks)


async def all_committed(consumer: aiokq.Consumer, topic: str, *offsets: int) -> None:
    for partition, offset in enumerate(offsets):
        assert await consumer.committed((topic, partition)) == offset
