"""Requests about the offsets that transactions commit, to a `Broker`, and their model."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from aiokq import wire
from aiokq.broker.maintenance import CleanerJobs
from tests.unit.broker.harness import Broker
from tests.unit.broker.transactional_client import TransactionalClient

UNSTABLE = 88
NONE = -1

RETENTION_MS = 1000
"""How long compaction keeps tombstones and markers."""

Place = tuple[str, int]
"""Group, and partition of the topic `t`."""


async def ready(broker: Broker) -> None:
    """Wait until the group coordinator and the transaction coordinator are loaded."""
    for key_type in (0, 1):
        lookup = wire.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
        await broker.ask(lookup, 4)  # creates the topic
    groups = wire.DescribeGroupsRequest(groups=["g"])
    ids = wire.DescribeTransactionsRequest(transactional_ids=["t"])
    loaded = False
    while not loaded:
        found = (await broker.ask(groups, 5)).groups[0].error_code
        also = (await broker.ask(ids, 0)).transaction_states[0].error_code
        loaded = not {found, also} & {14, 15, 16}
        await asyncio.sleep(0)


async def commit(broker: Broker, group: str, partition: int, offset: int, **member) -> int:
    """Commit an offset outside of transactions; return the error code."""
    response = await broker.ask(
        wire.OffsetCommitRequest(
            group_id=group,
            topics=[
                wire.OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        wire.OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset
                        )
                    ],
                )
            ],
            **member,
        ),
        9,
    )
    return response.topics[0].partitions[0].error_code


async def join(client: TransactionalClient, group: str) -> int:
    """Add the group to the transaction by AddOffsetsToTxn; return the error code."""
    response = await client.broker.ask(
        wire.AddOffsetsToTxnRequest(
            transactional_id=client.transactional_id,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            group_id=group,
        ),
        4,
    )
    return response.error_code


async def pend(
    client: TransactionalClient,
    group: str,
    partition: int,
    offset: int,
    *,
    version=None,
    metadata="",
    **member,
) -> int:
    """Commit an offset in the client's transaction; return the error code."""
    if version is None:
        version = 5 if client.version >= 2 else 4
    if version < 5:
        code = await join(client, group)
        assert code == 0, code
    response = await client.broker.ask(
        wire.TxnOffsetCommitRequest(
            transactional_id=client.transactional_id,
            group_id=group,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            topics=[
                wire.TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        wire.TxnOffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
            ],
            **member,
        ),
        version,
    )
    return response.topics[0].partitions[0].error_code


async def fetched(
    broker: Broker, group: str, *partitions: int, stable: bool, everything: bool = False
) -> dict[int, tuple[int, int]]:
    """Return error code and offset by partition of `t`."""
    topics = None
    if not everything:
        topics = [
            wire.OffsetFetchRequestTopics(name="t", partition_indexes=list(partitions or (0, 1)))
        ]
    response = await broker.ask(
        wire.OffsetFetchRequest(
            groups=[wire.OffsetFetchRequestGroup(group_id=group, topics=topics)],
            require_stable=stable,
        ),
        8,
    )
    [found] = response.groups
    assert found.error_code == 0
    return {
        each.partition_index: (each.error_code, each.committed_offset)
        for topic in found.topics
        for each in topic.partitions
    }


async def delete_group(broker: Broker, group: str) -> int:
    response = await broker.ask(wire.DeleteGroupsRequest(groups_names=[group]), 2)
    return response.results[0].error_code


async def delete_offset(broker: Broker, group: str, partition: int) -> int:
    """Delete one offset; return the error code of the request or of the partition."""
    response = await broker.ask(
        wire.OffsetDeleteRequest(
            group_id=group,
            topics=[
                wire.OffsetDeleteRequestTopic(
                    name="t",
                    partitions=[wire.OffsetDeleteRequestPartition(partition_index=partition)],
                )
            ],
        ),
        0,
    )
    return response.error_code or response.topics[0].partitions[0].error_code


async def compact(broker: Broker) -> None:
    """Roll `__consumer_offsets` and compact it; markers are old enough to be removed.

    The broker was started with ``log_cleaner_delete_retention_ms=RETENTION_MS``.
    """
    node = broker.node
    topic = node.topics.get("__consumer_offsets")
    assert topic is not None
    cleaners = CleanerJobs(node)
    for _ in range(2):  # the first run only dates tombstones and markers
        for partition in topic.partitions:
            partition.log.roll(broker.clock.now_ms)
        await cleaners._clean()
        broker.clock.now_ms += 2 * RETENTION_MS


class Pending(NamedTuple):
    offset: int
    order: int


class OffsetModel:
    """The offsets of groups after Kafka's `OffsetMetadataManager`, in the fewest lines."""

    def __init__(self) -> None:
        self.committed: dict[Place, Pending] = {}
        self.pending: dict[str, dict[Place, Pending]] = {}
        self._order = 0

    def _next(self, offset: int) -> Pending:
        self._order += 1
        return Pending(offset, self._order)

    def commit(self, place: Place, offset: int) -> None:
        self.committed[place] = self._next(offset)

    def pend(self, client: str, place: Place, offset: int) -> None:
        self.pending.setdefault(client, {})[place] = self._next(offset)

    def end(self, client: str, *, commits: bool) -> None:
        for place, offset in self.pending.pop(client, {}).items():
            present = self.committed.get(place)
            if commits and (present is None or offset.order > present.order):
                self.committed[place] = offset

    def remove(self, *places: Place) -> None:
        for place in places:
            self.committed.pop(place, None)
            for offsets in self.pending.values():
                offsets.pop(place, None)

    def places_of(self, group: str) -> set[Place]:
        everything = {*self.committed, *(p for each in self.pending.values() for p in each)}
        return {place for place in everything if place[0] == group}

    def fetched(self, group: str, *, stable: bool) -> dict[int, tuple[int, int]]:
        found = {}
        for partition in (0, 1):
            place = group, partition
            unstable = any(place in each for each in self.pending.values())
            if stable and unstable:
                found[partition] = UNSTABLE, NONE
            else:
                found[partition] = 0, self.committed.get(place, Pending(NONE, 0)).offset
        return found
