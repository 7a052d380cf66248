"""Deleting records from the start of partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

from aiokq.admin.leader_calls import per_partition
from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import timeout_ms
from aiokq.cluster.engine import ClusterEngine
from aiokq.core import limits
from aiokq.core.errors import ConfigError, KafkaError, error_for
from aiokq.core.frozen import frozen
from aiokq.core.types import TopicPartition
from aiokq.wire.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

__all__ = ["RecordsDeleted", "delete_records"]

HIGH_WATERMARK = -1
Outcomes = dict[TopicPartition, "RecordsDeleted | KafkaError"]


@frozen
class RecordsDeleted:
    """The result for one partition.

    ``low_watermark`` is the lowest log start offset of the partition's replicas.
    """

    topic_partition: TopicPartition
    low_watermark: int = -1
    error: KafkaError | None = None


async def delete_records(
    engine: ClusterEngine,
    before: Mapping[TopicPartition, int | Literal["latest"]],
    *,
    timeout: float | None,
) -> Results[TopicPartition, RecordsDeleted]:
    """Implement `Admin.delete_records`."""
    wanted: dict[TopicPartition, int] = {}
    for tp, offset in before.items():
        if isinstance(offset, str) and offset != "latest":
            raise ConfigError(f"{tp}: {offset!r} is not an offset: use 0 or more, or 'latest'")
        if not isinstance(offset, str):
            limits.offset(offset, f"{tp}: offset (or 'latest')", error=ConfigError)
        wanted[TopicPartition.of(tp)] = HIGH_WATERMARK if isinstance(offset, str) else offset

    async def ask(node_id: int, asked: Mapping[TopicPartition, int], remaining: float) -> Outcomes:
        return await _ask(engine, node_id, asked, remaining)

    found = await per_partition(engine, wanted, ask, api="DeleteRecords", timeout=timeout)
    return results_of(found, lambda tp, error: RecordsDeleted(tp, error=error))


async def _ask(
    engine: ClusterEngine, node_id: int, asked: Mapping[TopicPartition, int], remaining: float
) -> Outcomes:
    topics: dict[str, list[DeleteRecordsPartition]] = defaultdict(list)
    for tp, offset in asked.items():
        topics[tp.topic].append(DeleteRecordsPartition(partition_index=tp.partition, offset=offset))
    response = await engine.request(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=ps) for name, ps in topics.items()],
            timeout_ms=timeout_ms(engine, remaining),
        ),
        node=node_id,
        timeout=remaining,
    )
    outcomes: Outcomes = {}
    for topic in response.topics:
        for answer in topic.partitions:
            tp = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                outcomes[tp] = error_for(answer.error_code, api="DeleteRecords", topic_partition=tp)
            else:
                outcomes[tp] = RecordsDeleted(tp, answer.low_watermark)
    return outcomes
