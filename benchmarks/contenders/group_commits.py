"""Commits of one group member, each awaited before the next.

Prints one JSON object: commits (as records), seconds, cpu_seconds.
"""

from __future__ import annotations

import argparse
import asyncio

from benchmarks.contenders.measure import measured


async def aiokq_commits(options: argparse.Namespace) -> None:
    import aiokq

    async with aiokq.Consumer(
        options.topic,
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        await consumer.getone()
        with measured(options.count):
            for offset in range(options.count):
                await consumer.commit({(options.topic, 0): offset})


async def aiokafka_commits(options: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        options.topic,
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    await consumer.getone()
    partition = TopicPartition(options.topic, 0)
    with measured(options.count):
        for offset in range(options.count):
            await consumer.commit({partition: offset})
    await consumer.stop()


def confluent_commits(options: argparse.Namespace) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": options.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([options.topic])
    while consumer.poll(1.0) is None:
        pass
    with measured(options.count):
        for offset in range(options.count):
            offsets = [TopicPartition(options.topic, 0, offset)]
            consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("make", choices=["aiokq", "aiokafka", "confluent"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--count", type=int, default=3000)
    options = parser.parse_args()
    if options.make == "aiokq":
        asyncio.run(aiokq_commits(options))
    elif options.make == "aiokafka":
        asyncio.run(aiokafka_commits(options))
    else:
        confluent_commits(options)


if __name__ == "__main__":
    main()
