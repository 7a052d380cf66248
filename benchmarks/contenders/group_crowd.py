"""Fifty members of one client in one process: the time until they share 1,000 partitions.

Prints one JSON object: seconds from the first member's start until every member has its share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
from typing import Any


class Shares:
    """Waits until every member has its equal share at the same time."""

    def __init__(self, members: int, partitions: int) -> None:
        self.share = partitions // members
        self._has = [0] * members
        self._lock = threading.Lock()
        self.done = threading.Event()

    def set(self, member: int, count: int) -> None:
        with self._lock:
            self._has[member] = count
            if all(count == self.share for count in self._has):
                self.done.set()


async def settled(members: list[Any], shares: Shares) -> None:
    """Poll the members until all have their share; no client has an event for this."""
    for _ in range(12_000):
        if all(len(member.assignment()) == shares.share for member in members):
            return
        await asyncio.sleep(0.01)
    raise TimeoutError("not settled in 120 s")


async def aiokq_crowd(options: argparse.Namespace, shares: Shares) -> float:
    import aiokq

    settings: dict[str, Any] = {"group_protocol": options.protocol}
    if options.protocol == "classic":
        settings["partition_assignment_strategy"] = ["cooperative-sticky"]
    started = time.perf_counter()
    async with aiokq.Cluster(options.bootstrap) as cluster:
        members = [
            cluster.consumer(options.topic, group_id=options.group, **settings)
            for _ in range(options.members)
        ]
        await asyncio.gather(*(member.start() for member in members))
        await settled(members, shares)
        seconds = time.perf_counter() - started
        await asyncio.gather(*(member.close() for member in members))
    return seconds


async def aiokafka_crowd(options: argparse.Namespace, shares: Shares) -> float:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    started = time.perf_counter()
    members = [
        AIOKafkaConsumer(
            options.topic,
            bootstrap_servers=options.bootstrap,
            group_id=options.group,
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
        )
        for _ in range(options.members)
    ]
    await asyncio.gather(*(member.start() for member in members))
    await settled(members, shares)
    seconds = time.perf_counter() - started
    await asyncio.gather(*(member.stop() for member in members))
    return seconds


def confluent_crowd(options: argparse.Namespace, shares: Shares) -> float:
    from confluent_kafka import Consumer

    settings: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap,
        "group.id": options.group,
        "group.protocol": options.protocol,
    }
    if options.protocol == "classic":
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    stop = threading.Event()

    def work(number: int) -> None:
        consumer = Consumer(settings)
        consumer.subscribe([options.topic])
        while not stop.is_set():
            consumer.poll(0.05)
            shares.set(number, len(consumer.assignment()))
        consumer.close()

    started = time.perf_counter()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(options.members)]
    for thread in threads:
        thread.start()
    shares.done.wait(120)
    seconds = time.perf_counter() - started
    stop.set()
    for thread in threads:
        thread.join()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("make", choices=["aiokq", "aiokafka", "confluent"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--protocol", default="classic")
    parser.add_argument("--members", type=int, default=50)
    parser.add_argument("--partitions", type=int, default=1000)
    options = parser.parse_args()
    shares = Shares(options.members, options.partitions)
    if options.make == "aiokq":
        seconds = asyncio.run(aiokq_crowd(options, shares))
    elif options.make == "aiokafka":
        seconds = asyncio.run(aiokafka_crowd(options, shares))
    else:
        seconds = confluent_crowd(options, shares)
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
