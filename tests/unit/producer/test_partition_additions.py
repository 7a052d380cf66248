"""The partitions of a transaction that its coordinator must be told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, cast

from aiokq.core.errors import KafkaError
from aiokq.core.types import TopicPartition
from aiokq.producer.idempotence import ProducerId
from aiokq.producer.transactions.partition_additions import PartitionAdditions
from aiokq.producer.transactions.transaction_requests import TransactionRequests

FIRST = TopicPartition("orders", 0)


class Coordinator:
    """Adds each partition; it is also the owner, which notes what it is told."""

    producer = ProducerId(1000, 0)
    takes_partitions = True

    def __init__(self) -> None:
        self.added: list[TopicPartition] = []
        self.offers = 0

    async def add_partitions(
        self,
        producer: ProducerId,
        partitions: Collection[TopicPartition],
        *,
        on_lost: Callable[[], None],
    ) -> None:
        await asyncio.sleep(0)
        self.added.extend(partitions)

    def partitions_added(self) -> None:
        self.offers += 1

    def addition_refused(self, error: KafkaError) -> None:
        raise AssertionError("nothing is refused here")

    def addition_lost(self) -> None:
        raise AssertionError("nothing is lost here")

    def started(self) -> None:
        pass


async def test_an_addition_that_is_cancelled_before_its_first_step_is_over() -> None:
    """Whoever ended the transaction waited for it forever."""
    tasks: list[asyncio.Task[None]] = []

    def spawn(coro: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(coro))
        return tasks[-1]

    coordinator = Coordinator()
    additions = PartitionAdditions(cast(TransactionRequests, coordinator), coordinator, spawn)
    assert not additions.has(FIRST)
    tasks[0].cancel()
    async with asyncio.timeout(1):
        await additions.settled()
    assert coordinator.offers == 1, "the queue of the partition asks again"
    assert not additions.has(FIRST)
    await additions.settled()
    assert additions.has(FIRST)
    assert coordinator.added == [FIRST]
