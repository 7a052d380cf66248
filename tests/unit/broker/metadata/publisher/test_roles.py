"""Partitions become leader, follower or neither, as a controller's records say."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from aiokq import wire
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.broker.metadata.image.metadata_delta import MetadataDelta
from aiokq.broker.snapshot import take_snapshot
from aiokq.core.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch
from aiokq.records.header import iter_headers, set_base_offset
from aiokq.wire.cluster_metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.unit.broker.harness import NOW_MS, Broker, batch, offsets

ID = uuid.UUID(int=77)


class Cluster:
    """The metadata of several nodes, applied by one of them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.image = MetadataImage()
        self.events: list[str] = []
        broker.node.leadership_listeners.append(self)

    def elected(self, partition) -> None:
        self.events.append(f"elected {partition.index} at {partition.leader_epoch}")

    def resigned(self, partition) -> None:
        self.events.append(f"resigned {partition.index}")

    async def publish(self, *records) -> None:
        for record in records:
            self.image.replay(record)
        delta = MetadataDelta.of(records, self.image, end_offset=1)
        assert await self.broker.node.storage.publisher.publish(delta) is None

    async def create(self, *replicas: list[int]) -> None:
        """Create a topic with these replicas; the first replica of each partition leads."""
        await self.publish(
            TopicRecord(name="t", topic_id=ID),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=ID,
                    replicas=nodes,
                    isr=nodes,
                    leader=nodes[0],
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for index, nodes in enumerate(replicas)
            ),
        )

    async def change(self, **changes) -> None:
        await self.publish(PartitionChangeRecord(partition_id=0, topic_id=ID, **changes))

    @property
    def partition(self):
        return self.broker.node.topics.partition("t", 0)


@pytest.fixture
async def cluster():
    async with Broker() as broker:
        yield Cluster(broker)


async def metadata(cluster: Cluster) -> list[tuple[int, int, list[int], list[int]]]:
    request = wire.MetadataRequest(topics=[wire.MetadataRequestTopic(name="t")])
    [found] = (await cluster.broker.ask(request, 9)).topics
    return [
        (one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes)
        for one in found.partitions
    ]


async def test_a_partition_opens_a_log_only_on_its_replicas(cluster: Cluster):
    """Metadata names the leaders of partitions that have no replica on the node."""
    await cluster.create([0], [1], [2, 0])
    assert await metadata(cluster) == [
        (0, 0, [0], [0]),
        (0, 1, [1], [1]),
        (0, 2, [2, 0], [2, 0]),
    ]
    names = [name for name in cluster.broker.files.listdir("/data") if name.startswith("t-")]
    assert sorted(names) == ["t-0", "t-2"]
    assert cluster.events == ["elected 0 at 0"]
    produced = [
        (await cluster.broker.produce("t", batch(), partition=index)).error_code
        for index in range(3)
    ]
    assert produced == [0, 6, 6]
    assert (await cluster.broker.fetch_one("t", 1, 0)).error_code == 6


async def test_a_leader_becomes_a_follower_and_leader_again(cluster: Cluster):
    """Coordinators resign before the next request is handled; the log stays open."""
    await cluster.create([0, 1])
    await cluster.change(isr=[0])
    assert (await cluster.broker.produce("t", batch(2))).base_offset == 0
    log = cluster.partition.log
    await cluster.change(leader=1, isr=[0, 1])
    assert cluster.events == ["elected 0 at 0", "resigned 0"]
    assert await metadata(cluster) == [(0, 1, [0, 1], [0, 1])]
    assert (await cluster.broker.produce("t", batch())).error_code == 6
    assert (await cluster.broker.fetch_one("t", 0, 0)).error_code == 6
    assert cluster.partition.local_log is log

    data = bytearray(batch(2))
    set_base_offset(data, 2, 1)
    data = memoryview(data)
    end = await cluster.partition.append_as_follower(
        data,
        list(iter_headers(data)),
        leader_epoch=1,
        offload=cluster.broker.node.environment.offload,
        now_ms=NOW_MS,
    )
    assert end == 4
    await cluster.change(leader=0, isr=[0])
    assert cluster.events[2:] == ["elected 0 at 2"]
    assert (await cluster.broker.produce("t", batch())).base_offset == 4
    assert offsets((await cluster.broker.fetch_one("t", 0, 0)).records) == [0, 1, 2, 3, 4]


async def test_a_leader_and_a_follower_of_another_epoch_refuse_batches_of_a_leader(
    cluster: Cluster,
):
    """A late response of the old leader must not reach the log of the new one."""
    await cluster.create([0, 1])
    data = bytearray(batch())
    set_base_offset(data, 0, 0)

    async def append(epoch: int) -> None:
        await cluster.partition.append_as_follower(
            memoryview(data),
            list(iter_headers(data)),
            leader_epoch=epoch,
            offload=cluster.broker.node.environment.offload,
            now_ms=NOW_MS,
        )

    with pytest.raises(NotLeaderOrFollower, match="led by this node"):
        await append(0)
    await cluster.change(leader=1, isr=[0, 1])
    with pytest.raises(FencedLeaderEpoch):
        await append(0)
    with pytest.raises(UnknownLeaderEpoch):
        await append(2)
    assert cluster.partition.local_log.log_end_offset == 0


async def test_a_pending_commit_fails_when_another_node_becomes_leader(cluster: Cluster):
    """The new leader decides what becomes of the records."""
    await cluster.create([0, 1])
    data = memoryview(batch())
    cluster.partition.append(data, list(iter_headers(data)), now_ms=NOW_MS)
    at = cluster.partition
    waiting = asyncio.ensure_future(at.commits.acknowledged(1, -1, at.leader_epoch))
    await asyncio.sleep(0)
    await cluster.change(leader=1)
    with pytest.raises(NotLeaderOrFollower):
        await waiting


async def test_a_new_epoch_of_the_same_leader_is_an_election(cluster: Cluster):
    """Coordinators reload, because another coordinator may have been elected in between."""
    await cluster.create([0, 1])
    await cluster.change(leader=0)
    assert cluster.events == ["elected 0 at 0", "elected 0 at 1"]


async def test_a_change_of_in_sync_replicas_elects_nobody(cluster: Cluster):
    """The change commits records that waited for the removed replica."""
    await cluster.create([0, 1])
    data = memoryview(batch())
    cluster.partition.append(data, list(iter_headers(data)), now_ms=NOW_MS)
    assert cluster.partition.high_watermark == 0
    await cluster.change(isr=[0])
    assert cluster.partition.high_watermark == 1
    assert cluster.events == ["elected 0 at 0"]


async def test_a_partition_that_leaves_the_node_loses_its_log(cluster: Cluster):
    """In Kafka a reassignment removes a replica in the same way."""
    await cluster.create([0])
    await cluster.broker.produce("t", batch())
    await cluster.change(replicas=[1], isr=[1], leader=1)
    assert cluster.events == ["elected 0 at 0", "resigned 0"]
    assert "t-0" not in cluster.broker.files.listdir("/data")
    assert (await cluster.broker.produce("t", batch())).error_code == 6
    assert list(cluster.broker.node.storage.directories.logs()) == []


async def test_a_partition_that_comes_to_the_node_opens_its_log(cluster: Cluster):
    """The partition starts as a follower, and leads when a later record says so."""
    await cluster.create([1])
    await cluster.change(replicas=[1, 0])
    assert cluster.partition.local_log is not None
    assert cluster.events == []
    await cluster.change(leader=0, isr=[0])
    assert cluster.events == ["elected 0 at 1"]
    assert (await cluster.broker.produce("t", batch())).base_offset == 0


async def test_a_partition_of_other_nodes_without_a_leader_is_not_recovering(cluster: Cluster):
    """A restart opens the logs of recovering partitions; this partition has no log on the node."""
    await cluster.create([1])
    await cluster.change(leader=-1)
    assert not cluster.partition.is_recovering
    assert (await cluster.broker.produce("t", batch())).error_code == 6


async def test_a_snapshot_has_the_logs_of_leaders_and_followers(cluster: Cluster):
    """A partition without a replica on the node has no log to copy."""
    broker = cluster.broker
    await cluster.create([0], [0, 1], [1])
    for index in range(2):
        await broker.produce("t", batch(2), partition=index, acks=1)
    await cluster.publish(PartitionChangeRecord(partition_id=1, topic_id=ID, leader=1))
    assert broker.node.topics.partition("t", 1).local_log is not None
    await take_snapshot(broker.node, "/copy")
    names = [name for name in broker.files.listdir("/copy") if name.startswith("t-")]
    assert sorted(names) == ["t-0", "t-1"]
    for name in names:
        copied, original = (
            broker.files.read_bytes(f"/{root}/{name}/{0:020d}.log") for root in ("copy", "data")
        )
        assert copied == original[: len(copied)] != b""
