"""Fetcher: the outage of a partition ends with its assignment."""

from __future__ import annotations

import asyncio

from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.loop_binding import LoopBinding
from aiokq.cluster.values import ClusterValues
from aiokq.consumer.fetch_pipeline import FetchPipeline
from aiokq.consumer.positions import Start
from aiokq.consumer.subscription import Subscription
from aiokq.consumer.values import ConsumerValues
from aiokq.core.errors import NotLeaderOrFollower
from aiokq.core.supervisor import Supervisor
from aiokq.core.types import TopicPartition


def test_the_outage_of_a_partition_ends_when_it_is_not_assigned_any_more() -> None:
    """When the other partitions recovered, the end of the outage was not logged."""

    async def main() -> None:
        binding = LoopBinding("the test")
        binding.bind()
        engine = ClusterEngine(ClusterValues.given({"bootstrap_servers": "nowhere:1"}))
        settings = ConsumerValues.given({"bootstrap_servers": "nowhere:1"})
        pipeline = FetchPipeline(settings, engine, Subscription(), Supervisor("test"), binding)
        fetcher = pipeline.fetcher
        kept, revoked = (
            pipeline._assigned(TopicPartition("orders", number), Start.POLICY)
            for number in range(2)
        )
        for state in (kept, revoked):
            fetcher._report(1, state, NotLeaderOrFollower("not here", topic_partition=state.tp))
        assert fetcher.outages.troubled
        fetcher.remove(revoked)
        assert fetcher.outages.troubled
        fetcher.remove(kept)
        assert not fetcher.outages.troubled

    asyncio.run(main())
