"""A transactional producer that sends single requests to a `Broker` and returns their results."""

from __future__ import annotations

import asyncio

from aiokq import wire
from tests.unit.broker.harness import Broker, batch, offsets

TRANSACTIONAL = 0x10

MARKER_TURNS = 2
"""Iterations of the loop in which the response to EndTxn is sent and the markers are written."""


class TransactionalClient:
    """One transactional id, with the producer id and epoch of its last successful request.

    Args:
        version: the ``transaction.version`` by which it works: 2, or below.
    """

    def __init__(self, broker: Broker, transactional_id: str = "t", *, version: int = 2) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def producer(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    async def initialize(self, timeout_ms=60_000, *, version=4, named=False) -> int:
        """Find the coordinator and get an epoch; return the error code.

        Args:
            named: whether the request names the current producer id and epoch.
        """
        found = await self.broker.ask(
            wire.FindCoordinatorRequest(key=self.transactional_id, key_type=1), 1
        )
        if found.error_code:
            return found.error_code
        response = await self.broker.ask(
            wire.InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                **(
                    {"producer_id": self.producer_id, "producer_epoch": self.epoch} if named else {}
                ),
            ),
            version,
        )
        if not response.error_code:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return response.error_code

    async def add(self, topic, partition=0, *, version=3) -> int:
        """Add a partition by AddPartitionsToTxn; return its error code."""
        response = await self.broker.ask(
            wire.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    wire.AddPartitionsToTxnTopic(name=topic, partitions=[partition])
                ],
            ),
            version,
        )
        [answered] = response.results_by_topic_v3_and_below
        [result] = answered.results_by_partition
        return result.partition_error_code

    async def send(self, topic, count=1, *, partition=0, version=None, sequence=None, **header):
        """Produce one batch; return its result. It does not add the partition below version 2."""
        key = (topic, partition)
        first = self.sequences.get(key, 0) if sequence is None else sequence
        result = await self.broker.produce(
            topic,
            batch(
                count,
                attributes=TRANSACTIONAL,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=first,
                **header,
            ),
            partition=partition,
            version=version or (12 if self.version >= 2 else 11),
            transactional_id=self.transactional_id,
        )
        if not result.error_code:
            self.sequences[key] = first + count
        return result

    async def wrote(self, topic, count=1, *, partition=0) -> int:
        """Add the partition if the version needs it, and produce; return the base offset."""
        if self.version < 2:
            assert await self.add(topic, partition) == 0
        result = await self.send(topic, count, partition=partition)
        assert result.error_code == 0, result
        return result.base_offset

    async def end(self, committed=True, *, version=None) -> int:
        """Commit or abort; return the error code when a client with a connection would have it."""
        response = await self.broker.ask(
            wire.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=committed,
            ),
            version or (5 if self.version >= 2 else 4),
        )
        for _ in range(MARKER_TURNS):
            await asyncio.sleep(0)
        if not response.error_code and self.version >= 2:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return response.error_code

    async def describe(self):
        """Return the description of the transactional id."""
        response = await self.broker.ask(
            wire.DescribeTransactionsRequest(transactional_ids=[self.transactional_id]), 0
        )
        [state] = response.transaction_states
        return state


async def read_committed(broker: Broker, topic, partition=0, offset=0):
    """Return the offsets that a reader of committed records sees, aborted ones included, and the
    aborted transactions as (producer id, first offset)."""
    data = await broker.fetch_one(topic, partition, offset, isolation_level=1)
    assert data.error_code == 0
    aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
    return offsets(data.records), aborted


def world(files=None, **settings) -> Broker:
    """Return a broker with one partition of each internal topic."""
    return Broker(
        files,
        **{
            "offsets_topic_num_partitions": 1,
            "transaction_state_log_num_partitions": 1,
            **settings,
        },
    )
