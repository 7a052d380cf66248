"""One group member of one client, which prints its events as JSON lines.

Events: `starting` (before the client is created), `assigned` (after a rebalance, with the number of
partitions), and `record` for the first record of each assignment. Times are CLOCK_MONOTONIC, which
all processes of a machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

SESSION_MS = 6_000
HEARTBEAT_MS = 1_000


def tell(event: str, **more: Any) -> None:
    print(json.dumps({"event": event, "at": time.monotonic(), **more}), flush=True)


class Watch:
    """Reports the first record after each assignment."""

    def __init__(self) -> None:
        self.fresh = False

    def assigned(self, partitions: Any) -> None:
        tell("assigned", partitions=len(partitions))
        self.fresh = True

    def record(self, partition: int) -> None:
        if self.fresh:
            self.fresh = False
            tell("record", partition=partition)


async def aiokq_member(options: argparse.Namespace) -> None:
    import aiokq

    watch = Watch()
    settings: dict[str, Any] = {"group_protocol": options.protocol}
    if options.protocol == "classic":
        settings |= {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
        settings["partition_assignment_strategy"] = [options.assignor]
    member = aiokq.Consumer  # imported now, so that the time of the import is not measured
    tell("starting")
    async with member(
        options.topic,
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="latest",
        on_assigned=watch.assigned,
        **settings,
    ) as consumer:
        async for record in consumer:
            watch.record(record.partition)


async def aiokafka_member(options: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor

    watch = Watch()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            watch.assigned(assigned)

    tell("starting")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="latest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    consumer.subscribe([options.topic], listener=Listener())
    await consumer.start()
    async for record in consumer:
        watch.record(record.partition)


def confluent_member(options: argparse.Namespace) -> None:
    from confluent_kafka import Consumer

    watch = Watch()
    settings: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "auto.offset.reset": "latest",
        "group.protocol": options.protocol,
    }
    if options.protocol == "classic":
        settings |= {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": options.assignor,
        }
    tell("starting")
    consumer = Consumer(settings)
    consumer.subscribe([options.topic], on_assign=lambda _, partitions: watch.assigned(partitions))
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            partition = message.partition()
            assert partition is not None
            watch.record(partition)


def kafka_python_member(options: argparse.Namespace) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    watch = Watch()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            watch.assigned(assigned)

    tell("starting")
    consumer = KafkaConsumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="latest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    consumer.subscribe([options.topic], listener=Listener())
    for record in consumer:
        watch.record(record.partition)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("make", choices=["aiokq", "aiokafka", "confluent", "kafka-python"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--protocol", default="classic")
    parser.add_argument("--assignor", default="range")
    options = parser.parse_args()
    if options.make == "aiokq":
        asyncio.run(aiokq_member(options))
    elif options.make == "aiokafka":
        asyncio.run(aiokafka_member(options))
    elif options.make == "confluent":
        confluent_member(options)
    else:
        kafka_python_member(options)


if __name__ == "__main__":
    main()
