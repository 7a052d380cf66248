"""A producer and a consumer that run while brokers fail, and the check of what came through."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiokq
from aiokq.cluster.events import Event
from tests.peers.apache_kafka import ApacheKafka

PATIENCE = 40.0
"""Seconds within which anything awaited has to happen; longer than any failover here."""


class Workload:
    """Sends numbered records to the partitions of a topic in turn, and reads them.

    Attributes:
        deliveries: by partition, in the order of sending; the n-th record has the value n.
        received: values by partition, in the order they were handed over.
        offsets: the offsets of `received`.
        events: events of the producer's and the consumer's cluster, in order.
    """

    def __init__(self, topic: str, partitions: int, interval: float) -> None:
        self.topic = topic
        self.partitions = partitions
        self.interval = interval
        self.sent = 0
        self.received: dict[int, list[int]] = {n: [] for n in range(partitions)}
        self.offsets: dict[int, list[int]] = {n: [] for n in range(partitions)}
        self.deliveries: dict[int, list[aiokq.Delivery]] = {n: [] for n in range(partitions)}
        self.events: list[Event] = []
        self.producer: aiokq.Producer
        self.consumer: aiokq.Consumer
        self.cluster: aiokq.Cluster
        self._stop = asyncio.Event()
        self._moved = asyncio.Event()

    @property
    def received_count(self) -> int:
        return sum(map(len, self.received.values()))

    async def until_received(self, count: int) -> None:
        """Wait until `count` more records than now were received."""
        goal = self.received_count + count
        async with asyncio.timeout(PATIENCE):
            while self.received_count < goal:
                self._moved.clear()
                await self._moved.wait()

    def of(self, *kinds: type[Event]) -> list[Event]:
        """Return the events of these kinds."""
        return [event for event in self.events if isinstance(event, kinds)]

    async def produce(self) -> None:
        while not self._stop.is_set():
            partition = self.sent % self.partitions
            number = len(self.deliveries[partition])
            self.deliveries[partition].append(
                await self.producer.enqueue(self.topic, b"%d" % number, partition=partition)
            )
            self.sent += 1
            await asyncio.sleep(self.interval)

    async def consume(self) -> None:
        async for record in self.consumer:
            self.received[record.partition].append(int(record.value))
            self.offsets[record.partition].append(record.offset)
            self._moved.set()

    async def watch(self, cluster: aiokq.Cluster) -> None:
        async for event in cluster.events():
            self.events.append(event)

    async def finish(self) -> None:
        """Check that each record was acknowledged, and received once, in order, at its offset."""
        self._stop.set()
        acknowledged = {}
        async with asyncio.timeout(PATIENCE):
            for partition, deliveries in self.deliveries.items():
                acknowledged[partition] = [(await each).offset for each in deliveries]
            while self.received_count < sum(map(len, self.deliveries.values())):
                self._moved.clear()
                await self._moved.wait()
        for partition, offsets in acknowledged.items():
            assert self.received[partition] == list(range(len(offsets)))
            assert self.offsets[partition] == offsets


@contextlib.asynccontextmanager
async def workload(
    kafka: ApacheKafka,
    topic: str,
    partitions: int,
    *,
    interval: float = 0.003,
    request_timeout_ms: int = 10_000,
    client_rack: str = "",
) -> AsyncIterator[Workload]:
    """Produce and consume while the block runs, then check all records."""
    work = Workload(topic, partitions, interval)
    shared = {
        "bootstrap_servers": kafka.bootstrap_servers,
        "request_timeout_ms": request_timeout_ms,
        "metadata_max_age_ms": 2000,
        "reconnect_backoff_max_ms": 500,
    }
    async with (
        aiokq.Cluster(**shared) as writing,
        aiokq.Cluster(**shared, client_rack=client_rack) as reading,
        writing.producer(linger_ms=1) as work.producer,
        reading.consumer(
            topic, auto_offset_reset="earliest", fetch_max_wait_ms=200
        ) as work.consumer,
        asyncio.TaskGroup() as tasks,
    ):
        work.cluster = writing
        running = [
            tasks.create_task(each)
            for each in (work.consume(), work.watch(writing), work.watch(reading))
        ]
        producing = tasks.create_task(work.produce())
        yield work
        await work.finish()
        await producing
        for task in running:
            task.cancel()
