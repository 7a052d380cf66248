"""When the next fetch is sent: before the reader handles the records of the last one."""

from __future__ import annotations

import asyncio

import pytest

import aiokq
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.loop_binding import LoopBinding
from aiokq.cluster.values import ClusterValues
from aiokq.consumer.fetch_pipeline import FetchPipeline
from aiokq.consumer.positions import Stage, Start
from aiokq.consumer.subscription import Subscription
from aiokq.consumer.values import ConsumerValues
from aiokq.core.supervisor import Supervisor
from aiokq.core.types import TopicPartition

PARTITIONS = 4
PART = 100_000
RECORDS = 500
"""Records in a partition: five responses."""
VALUE = bytes(1_000)


async def test_the_next_fetch_is_on_its_way_while_records_are_handled() -> None:
    """Otherwise the broker would be idle for as long as the reader is busy, and the other way."""
    async with aiokq.EmbeddedCluster(settings={"num.partitions": PARTITIONS}) as kafka:
        async with aiokq.Producer(kafka.bootstrap_servers, batch_size=PART // 4) as producer:
            for number in range(PARTITIONS):
                await (await producer.send_many("t", [(None, VALUE)] * RECORDS, number))
        consumer = aiokq.Consumer(
            "t",
            bootstrap_servers=kafka.bootstrap_servers,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=PART,
        )
        async with consumer:
            fetcher = consumer._pipeline.fetcher
            seen = looks = most = 0
            async for _ in consumer:
                seen += 1
                [loop] = fetcher.brokers.values()
                queued = [state.queued_bytes for state in loop.states.values()]
                most = max(most, *queued)
                if seen % 90 == 1 and seen < PARTITIONS * RECORDS / 3:
                    assert loop._connection is not None
                    connection = loop._connection.current
                    assert connection is not None
                    assert not connection.transport._held, "a request waits for the reader"
                    looks += 1
                if seen == PARTITIONS * RECORDS:
                    break
    assert looks > 3
    assert most <= 3 * PART


@pytest.mark.parametrize(
    ("queued", "is_fetched"), [(0, True), (PART, True), (2 * PART - 1, True), (2 * PART, False)]
)
def test_a_partition_is_fetched_until_two_responses_are_buffered(
    queued: int, is_fetched: bool
) -> None:
    """One that the reader handles, and one that it handles while the broker prepares the next.

    Apache Kafka fills a response to the byte, so that one response was enough.
    """

    async def main() -> None:
        binding = LoopBinding("the test")
        binding.bind()
        given = {"bootstrap_servers": "nowhere:1"}
        pipeline = FetchPipeline(
            ConsumerValues.given({**given, "max_partition_fetch_bytes": PART}),
            ClusterEngine(ClusterValues.given(given)),
            Subscription(),
            Supervisor("test"),
            binding,
        )
        state = pipeline._assigned(TopicPartition("t", 0), Start.POLICY)
        state.stage, state.node, state.queued_bytes = Stage.FETCHING, 1, queued
        want = pipeline.fetcher.want(state, 1, 0.0)
        assert (want.ask is not None, want.full) == (is_fetched, not is_fetched)
        if want.ask is not None:
            assert want.ask.max_bytes == PART

    asyncio.run(main())
