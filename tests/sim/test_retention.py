"""Retention while topics are read, in virtual time: a consumer that is slower than retention."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokq.broker.embedded import EmbeddedCluster
from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import KafkaError, OffsetOutOfRange
from aiokq.core.types import TopicPartition
from aiokq.producer.producer import Producer
from tests.sim.harness.simulation import run

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_a_reader_of_deleted_records_follows_its_reset_policy(policy: str) -> None:
    """With the policy none it must get an error, or it would not know what it missed."""

    async def main(world: Any) -> None:
        async with EmbeddedCluster(environment=world.environment()) as kafka:
            await kafka.create_topic("t", configs={"retention.ms": "60000"})
            servers = kafka.bootstrap_servers
            async with Producer(servers, _environment=world.environment()) as producer:
                for number in range(5):
                    await producer.send("t", b"old%d" % number)
                await asyncio.sleep(70)  # the node's retention job deletes them meanwhile
                log = kafka.node.topics.partition("t", 0).log
                assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5, 5, 0)
                await producer.send("t", b"new5")
                async with Consumer(
                    bootstrap_servers=servers,
                    auto_offset_reset=policy,
                    _environment=world.environment(),
                ) as consumer:
                    consumer.assign([TP])
                    consumer.seek(TP, 2)
                    reading = asyncio.ensure_future(anext(consumer))
                    await asyncio.sleep(20)
                    if policy == "none":
                        with pytest.raises(OffsetOutOfRange):
                            await reading
                        return
                    if policy == "latest":
                        await producer.send("t", b"new6")
                    record = await asyncio.wait_for(reading, 60)
                    expected = (5, b"new5") if policy == "earliest" else (6, b"new6")
                    assert (record.offset, record.value) == expected

    run(1, main, limit=3600.0)


def test_the_out_of_range_error_names_the_available_offsets() -> None:
    """For reads without a consumer."""

    async def main(world: Any) -> None:
        async with EmbeddedCluster(environment=world.environment()) as kafka:
            await kafka.create_topic("t", configs={"retention.bytes": "0"})
            async with Producer(
                kafka.bootstrap_servers, _environment=world.environment()
            ) as producer:
                await producer.send("t", b"gone")
                await asyncio.sleep(5)
            log = kafka.node.topics.partition("t", 0).log
            assert log.log_start_offset == 1
            with pytest.raises(KafkaError, match=r"offset 0 of .* is outside 1\.\.1"):
                log.read(0, 100)

    run(1, main, limit=3600.0)
