"""ClusterEngine against a scripted cluster: what it knows, and when it asks."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.settings import ClusterSettings
from aiokq.core.errors import UnknownTopicOrPartition
from tests.unit.cluster.scripted import ScriptedCluster, simulate


def make(cluster: ScriptedCluster, **overrides: object) -> ClusterEngine:
    settings = ClusterSettings(bootstrap_servers=cluster.bootstrap_servers, **overrides)
    return ClusterEngine(settings, cluster.environment)


def test_start_gives_the_brokers():
    """The first metadata is there when entering is done, and only brokers were asked for."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make(cluster)
        await engine.start()
        assert sorted(engine.metadata.brokers) == [1, 2, 3]
        assert engine.metadata.cluster_id == "scripted"
        assert [request.topics for request in cluster.requests(wire.MetadataRequest)] == [[]]
        await engine.close()

    simulate(main)


def test_unknown_topic_does_not_stall_another():
    """A producer waits for a topic that never comes while another topic is asked for."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("there", [1, 2])
        engine = make(cluster)
        await engine.start()
        missing = asyncio.create_task(engine.topic("missing", timeout=5))
        await asyncio.sleep(0.5)
        before = engine.now()
        info = await engine.topic("there", timeout=5)
        assert len(info.partitions) == 2
        assert engine.now() - before < 0.02
        with pytest.raises(UnknownTopicOrPartition, match="missing"):
            await missing
        assert engine.now() == pytest.approx(5, abs=0.1)
        await engine.close()

    simulate(main)
