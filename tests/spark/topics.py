"""Topics for the Spark tests, created and filled from blocking code by this library's client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import aiokq
from aiokq.testing import Recorder, Send

T = TypeVar("T")


class Topics:
    """Operations of tests on the topics of a cluster."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def run(self, work: Callable[[aiokq.Cluster], Coroutine[Any, Any, T]]) -> T:
        async def main() -> T:
            async with aiokq.Cluster(self.bootstrap_servers) as cluster:
                return await work(cluster)

        return asyncio.run(main())

    def create(
        self,
        name: str,
        partitions: int = 1,
        assignments: Mapping[int, Sequence[int]] | None = None,
        **configs: str,
    ) -> None:
        new = aiokq.NewTopic(
            name,
            -1 if assignments else partitions,
            -1 if assignments else 1,
            assignments=assignments,
            configs={k.replace("_", "."): v for k, v in configs.items()},
        )

        async def work(cluster: aiokq.Cluster) -> None:
            async with cluster.admin() as admin:
                await admin.create_topics([new], raise_errors=True)
                await self._until(lambda: self._known(admin, name))

        self.run(work)

    async def _until(self, done: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        """Wait until Apache Kafka's brokers know of a change, a moment after its controller."""
        async with asyncio.timeout(30):
            while True:
                if await done():
                    return
                await asyncio.sleep(0.02)

    async def _known(self, admin: aiokq.Admin, name: str) -> bool:
        described = (await admin.describe_topics(name))[name]
        return described.error is None and all(p.leader >= 0 for p in described.partitions)

    async def _gone(self, admin: aiokq.Admin, name: str) -> bool:
        return name not in await admin.list_topics()

    def delete(self, name: str) -> None:
        async def work(cluster: aiokq.Cluster) -> None:
            async with cluster.admin() as admin:
                await admin.delete_topics([name], raise_errors=True)
                await self._until(lambda: self._gone(admin, name))

        self.run(work)

    def add_partitions(self, name: str, total: int) -> None:
        async def work(cluster: aiokq.Cluster) -> None:
            async with cluster.admin() as admin:
                await admin.create_partitions({name: total}, raise_errors=True)

        self.run(work)

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        async def work(cluster: aiokq.Cluster) -> None:
            async with cluster.admin() as admin:
                await admin.delete_records(
                    {aiokq.TopicPartition(name, p): offset for p, offset in before.items()},
                    raise_errors=True,
                )

        self.run(work)

    def send(self, name: str, values: Iterable[bytes], partition: int = 0, **settings: Any) -> None:
        async def work(cluster: aiokq.Cluster) -> None:
            async with cluster.producer(**settings) as producer:
                for value in values:
                    await producer.enqueue(name, value, key=b"k" + value, partition=partition)

        self.run(work)

    def recorded_send(self, name: str, values: Iterable[bytes], partition: int = 0) -> list[Send]:
        """Do what `send` does; return the sends for the checker of `aiokq.testing`."""
        recorder = Recorder()

        async def work(cluster: aiokq.Cluster) -> None:
            async with cluster.producer() as producer:
                recorded = recorder.producer(producer, "test")
                for value in values:
                    await recorded.enqueue(name, value, key=b"k" + value, partition=partition)

        self.run(work)
        return [each for each in recorder.history if isinstance(each, Send)]

    def fill(self, name: str, records: int, partitions: int = 1, **settings: Any) -> None:
        """Write records to all partitions; each value has the record's partition and number."""
        for partition in range(partitions):
            self.send(name, _values(partition, 0, records), partition, **settings)

    def recorded_fill(
        self, name: str, records: int, partitions: int = 1, *, first: int = 0
    ) -> list[Send]:
        """Do what `fill` does, with numbers from `first` on; return the sends."""
        sends: list[Send] = []
        for partition in range(partitions):
            sends += self.recorded_send(name, _values(partition, first, records), partition)
        return sends


def _values(partition: int, first: int, records: int) -> Iterator[bytes]:
    return (b"%d:%d" % (partition, n) for n in range(first, first + records))
