"""Workload: producers, readers and copiers that record a history for `check`.

The caller runs the coroutines of `processes()` concurrently, and ends them with `stop()`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Literal

from aiokq.testing.history import Copy, Isolation
from aiokq.testing.recorder import Recorder

if TYPE_CHECKING:
    from aiokq import Cluster, Consumer

__all__ = ["Workload"]

OBSERVE_EVERY = 0.2


class _Abort(Exception):
    """Ends a transaction that the workload aborts on purpose."""


class Workload:
    """Transactional producers and copiers, which abort some transactions, and readers.

    The producers write unique values to the input topic. The copiers write these values to the
    output topic, and commit the offsets of the input in the same transaction.

    ::

        workload = Workload(cluster, recorder, name="check", partitions=2)
        async with asyncio.TaskGroup() as tasks:
            for process in workload.processes():
                tasks.create_task(process)
            await asyncio.sleep(10)
            workload.stop()
        await workload.finish()

    Args:
        cluster: the cluster under test. The topics `NAME-input` and `NAME-output` must exist, be
            empty, and have `partitions` partitions each.
        recorder: records the operations.
        name: prefix of topics, transactional ids and the group.
        partitions: number of partitions of each topic.
        producers: number of producers.
        copiers: number of copiers, which are the members of one group.
        seed: seed of the random choices.
    """

    def __init__(
        self,
        cluster: Cluster,
        recorder: Recorder,
        *,
        name: str,
        partitions: int,
        producers: int = 2,
        copiers: int = 2,
        seed: int = 0,
    ) -> None:
        self.input = f"{name}-input"
        self.output = f"{name}-output"
        self._cluster = cluster
        self._recorder = recorder
        self._name = name
        self._partitions = partitions
        self._producers = producers
        self._copiers = copiers
        self._seed = seed
        self._producing = True
        self._sent_all = 0
        self._copied: set[int] = set()
        self._copied_all = 0

    def processes(self) -> list[Coroutine[object, object, None]]:
        """Return the coroutines to run concurrently; they end some time after `stop()`."""
        return [
            *(self._produce(number) for number in range(self._producers)),
            self._read("reader", "read_committed"),
            self._read("reader-uncommitted", "read_uncommitted"),
            self._observe(),
            *(self._copy(number) for number in range(self._copiers)),
        ]

    def stop(self) -> None:
        """End the producers after their current transactions; the copiers then copy the rest."""
        self._producing = False

    async def finish(self) -> None:
        """Read each partition to its end with two new consumers, and record its final offsets."""
        self._recorder.add(Copy(self.input, self.output))
        for topic in (self.input, self.output):
            for number in range(self._partitions):
                await self._read_to_end(topic, number)
                await self._recorder.finish(self._cluster, topic, number)

    async def _produce(self, number: int) -> None:
        chance = random.Random(f"{self._seed}/{number}")
        process = f"{self._name}-producer-{number}"
        sent = 0
        async with self._cluster.producer(transactional_id=process, linger_ms=0) as producer:
            recorded = self._recorder.producer(producer, process)
            while self._producing:
                try:
                    async with recorded.transaction():
                        for _ in range(chance.randint(1, 8)):
                            sent += 1
                            value = f"{number}.{sent}".encode()
                            partition = chance.randrange(self._partitions)
                            await recorded.send(self.input, value, partition=partition)
                        if chance.random() < 0.25:
                            raise _Abort
                except _Abort:
                    pass
        self._sent_all += 1

    async def _read(
        self, process: str, isolation: Literal["read_committed", "read_uncommitted"]
    ) -> None:
        async with self._cluster.consumer(
            isolation_level=isolation, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign(
                [(t, n) for t in (self.input, self.output) for n in range(self._partitions)]
            )
            reader = self._recorder.consumer(consumer, process, isolation=Isolation(isolation))
            while not self._is_over:
                await reader.poll(timeout=0.2)

    @property
    def _is_over(self) -> bool:
        return self._copied_all == self._copiers

    async def _observe(self) -> None:
        """Record last stable offsets periodically; `check` compares the reads with them."""
        from aiokq.errors import RequestTimeout

        while not self._is_over:
            for topic in (self.input, self.output):
                for number in range(self._partitions):
                    # Brokers may be down for a while.
                    with suppress(RequestTimeout):
                        await self._recorder.observe_last_stable(self._cluster, topic, number)
            await asyncio.sleep(OBSERVE_EVERY)

    async def _copy(self, number: int) -> None:
        from aiokq.errors import CommitFailed, TransactionAborted

        chance = random.Random(f"{self._seed}/copier/{number}")
        process, group = f"{self._name}-copier-{number}", f"{self._name}-copiers"
        async with (
            self._cluster.producer(transactional_id=process, linger_ms=0) as producer,
            self._cluster.consumer(
                self.input,
                group_id=group,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                on_assigned=self._recorder.assigned(process),
            ) as consumer,
        ):
            recorded = self._recorder.producer(producer, process)
            reader = self._recorder.consumer(
                consumer, process, isolation=Isolation.READ_COMMITTED, group=group
            )
            while len(self._copied) < self._partitions:
                try:
                    async with recorded.transaction() as txn:
                        records = await reader.poll(0.2, max_records=20, txn=txn)
                        for record in records:
                            await recorded.send(
                                self.output, record.value or b"", partition=record.partition
                            )
                        if records and chance.random() < 0.25:
                            raise _Abort
                        if records:
                            await recorded.send_offsets(consumer)
                except (_Abort, CommitFailed, TransactionAborted):
                    # The abort was on purpose, or a rebalance has removed partitions.
                    await reader.seek_to_committed()
                else:
                    if not records and self._sent_all == self._producers:
                        await self._note_copied(consumer)
            await self._recorder.observe_group(consumer, group, all_commits=True)
        self._copied_all += 1

    async def _note_copied(self, consumer: Consumer) -> None:
        """Add to `_copied` the partitions of this member whose records are all copied.

        Called while the member has no open transaction.
        """
        from aiokq.errors import ConfigError

        for partition in consumer.assignment():
            with suppress(ConfigError):  # a rebalance has removed the partition
                [end] = (await consumer.end_offsets([partition])).values()
                if await consumer.position(partition) >= end:
                    self._copied.add(partition.partition)

    async def _read_to_end(self, topic: str, number: int) -> None:
        for process in ("final-1", "final-2"):
            async with self._reader(topic, number) as consumer:
                reader = self._recorder.consumer(
                    consumer, process, isolation=Isolation.READ_COMMITTED
                )
                [end] = (await consumer.end_offsets([(topic, number)])).values()
                # `end` is the last stable offset, because the consumer is read_committed. If the
                # cluster has lost records, the position may never reach `end`, so the loop also
                # stops after two polls in a row without records.
                empty = 0
                while empty < 2 and await consumer.position((topic, number)) < end:
                    empty = 0 if await reader.poll(timeout=0.5) else empty + 1

    @asynccontextmanager
    async def _reader(self, topic: str, number: int) -> AsyncIterator[Consumer]:
        async with self._cluster.consumer(
            isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([(topic, number)])
            yield consumer
