"""Deleting records from the start of partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item, timeout_ms
from aiokq.cluster.concurrently import concurrently
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.offsets import no_such_partition
from aiokq.core import limits
from aiokq.core.errors import ConfigError, KafkaError, LeaderNotAvailable, error_for
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

    async def attempt(left: Mapping[TopicPartition, int], remaining: float) -> Outcomes:
        outcomes: Outcomes = {}
        by_leader = await _by_leader(engine, left, outcomes, remaining)
        answers = await concurrently(
            engine.supervisor,
            (_ask(engine, node, asked, remaining) for node, asked in by_leader.items()),
            name="delete records",
        )
        for asked, answer in zip(by_leader.values(), answers, strict=True):
            if isinstance(answer, KafkaError):
                outcomes.update(dict.fromkeys(asked, answer))
            else:
                outcomes.update(answer)
        return outcomes

    found = await per_item(engine, wanted, attempt, api="DeleteRecords", timeout=timeout, final=())
    return results_of(found, lambda tp, error: RecordsDeleted(tp, error=error))


async def _by_leader(
    engine: ClusterEngine,
    partitions: Mapping[TopicPartition, int],
    outcomes: Outcomes,
    remaining: float,
) -> dict[int, dict[TopicPartition, int]]:
    """Return the partitions by leader; put the errors of other partitions into `outcomes`."""
    topics = sorted({tp.topic for tp in partitions})
    # The lookup of a topic that does not exist takes only a part of the timeout.
    wait = min(remaining, engine.settings.request_timeout) / 2
    infos = await concurrently(
        engine.supervisor,
        (engine.topic(topic, timeout=wait, create=False) for topic in topics),
        name="delete records",
    )
    known = dict(zip(topics, infos, strict=True))
    by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for tp, offset in partitions.items():
        info = known[tp.topic]
        if isinstance(info, KafkaError):
            info.retriable = False
            outcomes[tp] = info
        elif tp.partition not in info.partitions:
            outcomes[tp] = no_such_partition(tp, len(info.partitions))
        elif (node := engine.leader_node(tp)) is None:
            outcomes[tp] = LeaderNotAvailable(topic_partition=tp)
        else:
            by_leader[node.node_id][tp] = offset
    return by_leader


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
                error = error_for(answer.error_code, api="DeleteRecords", topic_partition=tp)
                if error.refresh_metadata:
                    engine.partition_failed(tp, error)
                outcomes[tp] = error
            else:
                outcomes[tp] = RecordsDeleted(tp, answer.low_watermark)
    return outcomes
