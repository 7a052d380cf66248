"""aiokq's admin client on groups of Apache Kafka whose members are other clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import aiokq
from aiokq import ResetTo, TopicPartition, errors
from aiokq.admin.group_types import GroupState, GroupType
from tests.interop.apache.support import create_topic, eventually
from tests.peers.apache_kafka import run_tool
from tests.peers.group_members import classic_member, consumer_member

pytestmark = pytest.mark.kafka


@pytest.fixture
async def admin(apache):
    async with aiokq.Admin(apache.bootstrap_servers) as client:
        yield client


@asynccontextmanager
async def filled(apache: Any, topic: str) -> AsyncIterator[None]:
    """A topic of two partitions with ten records each, a second apart."""
    await create_topic(apache, topic, 2)
    async with aiokq.Producer(apache.bootstrap_servers) as producer:
        for n in range(10):
            for partition in (0, 1):
                await producer.enqueue(topic, b"v", partition=partition, timestamp_ms=1000 * n)
        await producer.flush()
    yield


async def test_a_classic_group_is_listed_and_described(apache, admin, topic):
    """Subscription and assignment are decoded from what the other client sent."""
    async with filled(apache, topic), classic_member(apache.bootstrap_servers, topic, topic):

        async def stable() -> Any:
            group = (await admin.describe_groups(topic, raise_errors=True))[topic]
            assert group.state is GroupState.STABLE
            return group

        group = await eventually(stable)
        assert (group.type, group.protocol_type) == (GroupType.CLASSIC, "consumer")
        assert group.assignor == "roundrobin"
        assert group.coordinator is not None
        (member,) = group.members
        assert member.subscription == (topic,)
        assert member.assignment == (TopicPartition(topic, 0), TopicPartition(topic, 1))
        assert member.host == "127.0.0.1"
        assert member.client_id == "classic-1"
        listed = (await admin.list_groups(raise_errors=True))[topic]
        assert (listed.state, listed.type) == (GroupState.STABLE, GroupType.CLASSIC)
        assert topic not in await admin.list_groups(states="empty")
        assert topic in await admin.list_groups(states=["stable"], types="classic")
        assert topic not in await admin.list_groups(types="consumer")


async def test_a_group_of_the_consumer_protocol_is_listed_and_described(apache, admin, topic):
    """KIP-848 groups have an API of their own, with epochs and target assignments."""
    async with filled(apache, topic), consumer_member(apache.bootstrap_servers, topic, topic):

        async def stable() -> Any:
            group = (await admin.describe_groups(topic, raise_errors=True))[topic]
            assert group.state is GroupState.STABLE
            assert group.members[0].assignment
            return group

        group = await eventually(stable)
        assert group.type is GroupType.CONSUMER
        assert group.assignor == "uniform"
        assert group.group_epoch == group.assignment_epoch
        (member,) = group.members
        assert member.subscription == (topic,)
        assert set(member.assignment) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        assert member.target_assignment == member.assignment
        assert member.speaks is GroupType.CONSUMER
        assert topic in await admin.list_groups(types="consumer")
        with pytest.raises(errors.GroupNotEmpty):
            await admin.delete_groups(topic, raise_errors=True)
        removed = await admin.remove_members(topic, None)
        assert removed.ok
        assert list(removed) == [member.member_id]


async def test_a_live_group_refuses_what_needs_an_empty_one(apache, admin, topic):
    """Live members would continue from their own positions and commit over the change."""
    tp = TopicPartition(topic, 0)
    async with filled(apache, topic), classic_member(apache.bootstrap_servers, topic, topic):
        with pytest.raises(errors.GroupNotEmpty, match="stop the members"):
            await admin.alter_group_offsets(topic, {tp: 3}, raise_errors=True)
        with pytest.raises(errors.GroupNotEmpty, match="stop the members"):
            await admin.reset_group_offsets(topic, "earliest", [topic])
        with pytest.raises(errors.GroupNotEmpty):
            await admin.delete_groups(topic, raise_errors=True)
        with pytest.raises(errors.GroupSubscribedToTopic):
            await admin.delete_group_offsets(topic, [tp], raise_errors=True)


async def test_offsets_are_altered_listed_reset_and_deleted(apache, admin, topic):
    """Every operation on a group without members; Kafka's own tool confirms each step."""
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with filled(apache, topic):
        altered = await admin.alter_group_offsets(
            topic, {one: aiokq.OffsetAndMetadata(4, "why", 0), other: 7, (topic, 9): 1}
        )
        assert {tp: type(error) for tp, error in altered.errors.items()} == {
            (topic, 9): errors.UnknownTopicOrPartition
        }
        listed = (await admin.list_group_offsets([topic, f"{topic}-none"]))[topic]
        assert listed.offsets == {
            one: aiokq.OffsetAndMetadata(4, "why", 0),
            other: aiokq.OffsetAndMetadata(7),
        }
        lag = (await admin.group_lag(topic, raise_errors=True))[topic]
        assert [p.lag for p in lag.partitions.values()] == [6, 3]
        assert lag.total == 9
        wanted = {
            "earliest": (0, 0),
            "latest": (10, 10),
            "current": (4, 7),
            ResetTo.offset(5): (5, 5),
            ResetTo.offset(50): (10, 10),
            ResetTo.shift(-5): (0, 2),
            ResetTo.timestamp(2500): (3, 3),
            ResetTo.timestamp(99_000): (10, 10),
            ResetTo.duration(1000): (10, 10),
        }
        for to, offsets in wanted.items():
            resets = await admin.reset_group_offsets(topic, to, dry_run=True, raise_errors=True)
            assert tuple(reset.offset for reset in resets.values()) == offsets, to
        await admin.reset_group_offsets(topic, ResetTo.offset(2), [one], raise_errors=True)
        said = await asyncio.to_thread(described_by_kafka, apache, topic)
        assert said == {one: (2, 10), other: (7, 10)}
        await admin.delete_group_offsets(topic, [one], raise_errors=True)
        assert set(await offsets_of(admin, topic)) == {other}
        deleted = await admin.delete_groups([topic, f"{topic}-none"])
        assert deleted[topic].error is None
        assert isinstance(deleted[f"{topic}-none"].error, errors.GroupIdNotFound)
        described = await admin.describe_groups(topic)
        assert isinstance(described[topic].error, errors.GroupIdNotFound)


async def offsets_of(admin: aiokq.Admin, group: str) -> dict[TopicPartition, Any]:
    return dict((await admin.list_group_offsets(group, raise_errors=True))[group].offsets)


def described_by_kafka(apache: Any, group: str) -> dict[TopicPartition, tuple[int, int]]:
    """Return committed and end offsets by partition, as `kafka-consumer-groups.sh` prints them."""
    done = run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server",
        apache.bootstrap_servers,
        "--describe",
        "--group",
        group,
    )
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(group)]
    assert rows, done
    return {TopicPartition(r[1], int(r[2])): (int(r[3]), int(r[4])) for r in rows}


async def test_members_of_both_kinds_are_removed(apache, admin, topic):
    """A static member stays until its session expires, unless it is removed."""
    servers = apache.bootstrap_servers
    await create_topic(apache, topic, 2)
    async with classic_member(servers, topic, topic, instance="i-1"):
        group = (await admin.describe_groups(topic, raise_errors=True))[topic]
        (member,) = group.members
        assert member.group_instance_id == "i-1"
        removed = await admin.remove_members(topic, ["nobody"], group_instance_ids=["i-1"])
        assert isinstance(removed["nobody"].error, errors.UnknownMemberId)
        assert removed["i-1"].error is None
        assert removed["i-1"].member_id == member.member_id


async def test_offsets_are_imported(apache, admin, topic):
    """Offsets that the group has already are kept; offsets outside the log are rejected."""
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    gone = TopicPartition(f"{topic}-gone", 0)
    async with filled(apache, topic):
        await admin.alter_group_offsets(topic, {one: 1}, raise_errors=True)
        given = {topic: {one: 9, other: 5, gone: 1}, f"{topic}-b": {one: 99}}
        results = await admin.import_group_offsets(given)
        assert results[topic, one].kept
        assert results[topic, other].offset == 5
        assert isinstance(results[topic, gone].error, errors.UnknownTopicOrPartition)
        assert isinstance(results[f"{topic}-b", one].error, errors.OffsetOutOfRange)
        assert {tp: o.offset for tp, o in (await offsets_of(admin, topic)).items()} == {
            one: 1,
            other: 5,
        }
        results = await admin.import_group_offsets(given, overwrite=True, clip=True)
        assert {tp: o.offset for tp, o in (await offsets_of(admin, topic)).items()} == {
            one: 9,
            other: 5,
        }
        assert results[f"{topic}-b", one].clipped


async def test_the_registry_shows_a_cluster_of_apache_kafka(apache, admin, topic):
    """ZooKeeper no longer exists in Kafka 4, but the registry still shows its tree."""
    async with (
        filled(apache, topic),
        classic_member(apache.bootstrap_servers, topic, topic),
        aiokq.Cluster(apache.bootstrap_servers) as cluster,
    ):
        registry = cluster.registry
        (broker,) = await registry.children("/brokers/ids")
        assert "PLAINTEXT://" in str(await registry.get(f"/brokers/ids/{broker}"))
        assert topic in await registry.children("/brokers/topics")
        assert await registry.children(f"/brokers/topics/{topic}/partitions") == ["0", "1"]
        assert topic in await registry.children("/consumers")
        (member,) = await registry.children(f"/consumers/{topic}/ids")
        owner = await registry.get(f"/consumers/{topic}/owners/{topic}/1")
        assert owner == f"{member}-0"
