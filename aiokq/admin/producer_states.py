"""Describing the producers of partitions, and aborting an open transaction in a partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from aiokq.admin.leader_calls import per_partition
from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item
from aiokq.admin.transaction_types import AbortTransactionSpec, PartitionProducers, ProducerState
from aiokq.cluster.engine import ClusterEngine
from aiokq.core.errors import KafkaError, NotLeaderOrFollower, ProtocolError, error_for
from aiokq.core.types import TopicPartition
from aiokq.wire.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
)
from aiokq.wire.describe_producers import ProducerState as WireProducerState
from aiokq.wire.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

__all__ = ["abort_transaction", "describe_producers"]

Outcomes = dict[TopicPartition, PartitionProducers | KafkaError]


async def describe_producers(
    engine: ClusterEngine,
    partitions: Iterable[TopicPartition],
    *,
    node_id: int | None,
    timeout: float | None,
) -> Results[TopicPartition, PartitionProducers]:
    """Implement `Admin.describe_producers`."""
    wanted = dict.fromkeys(partitions, True)

    async def ask(node: int, asked: Mapping[TopicPartition, bool], remaining: float) -> Outcomes:
        return await _ask(engine, node, asked, remaining)

    async def ask_node(left: Mapping[TopicPartition, bool], remaining: float) -> Outcomes:
        assert node_id is not None
        outcomes = await _ask(engine, node_id, left, remaining)
        for outcome in outcomes.values():
            if isinstance(outcome, NotLeaderOrFollower):
                outcome.retriable = False  # the named broker has no replica; a retry cannot help
        return outcomes

    if node_id is None:
        found = await per_partition(engine, wanted, ask, api="DescribeProducers", timeout=timeout)
    else:
        found = await per_item(engine, wanted, ask_node, api="DescribeProducers", timeout=timeout)
    return results_of(found, lambda tp, error: PartitionProducers(tp, error=error))


async def _ask(
    engine: ClusterEngine, node: int, asked: Iterable[TopicPartition], remaining: float
) -> Outcomes:
    topics: dict[str, list[int]] = defaultdict(list)
    for tp in asked:
        topics[tp.topic].append(tp.partition)
    response = await engine.request(
        DescribeProducersRequest(
            topics=[
                DescribeProducersTopicRequest(name=name, partition_indexes=numbers)
                for name, numbers in topics.items()
            ]
        ),
        node=node,
        timeout=remaining,
    )
    outcomes: Outcomes = {}
    for topic in response.topics:
        for answer in topic.partitions:
            tp = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                outcomes[tp] = error_for(
                    answer.error_code,
                    answer.error_message,
                    api="DescribeProducers",
                    topic_partition=tp,
                )
            else:
                states = (_state(each) for each in answer.active_producers)
                outcomes[tp] = PartitionProducers(
                    tp, tuple(sorted(states, key=lambda state: state.producer_id))
                )
    return outcomes


def _state(found: WireProducerState) -> ProducerState:
    return ProducerState(
        found.producer_id,
        found.producer_epoch,
        found.last_sequence,
        found.last_timestamp,
        None if found.coordinator_epoch < 0 else found.coordinator_epoch,
        None if found.current_txn_start_offset < 0 else found.current_txn_start_offset,
    )


async def abort_transaction(
    engine: ClusterEngine, spec: AbortTransactionSpec, *, timeout: float | None
) -> None:
    """Implement `Admin.abort_transaction`: write an abort marker to one partition, as Java does."""
    tp = spec.topic_partition
    # `transaction_version` stays 0. With version 2, the partition accepts only markers with a newer
    # epoch than the transaction's batches, but this marker has the epoch of the batches (KIP-1228).
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=spec.producer_id,
                producer_epoch=spec.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
                coordinator_epoch=spec.coordinator_epoch,
            )
        ]
    )

    async def ask(
        node: int, asked: Mapping[TopicPartition, bool], remaining: float
    ) -> dict[TopicPartition, KafkaError | None]:
        response = await engine.request(request, node=node, timeout=remaining)
        codes = [
            (result.producer_id, topic.name, partition.partition_index, partition.error_code)
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        ]
        if [code[:3] for code in codes] != [(spec.producer_id, tp.topic, tp.partition)]:
            raise ProtocolError("the response is not about the marker", api="WriteTxnMarkers")
        code = codes[0][3]
        error = error_for(code, api="WriteTxnMarkers", topic_partition=tp) if code else None
        return {tp: error}

    found = await per_partition(engine, {tp: True}, ask, api="WriteTxnMarkers", timeout=timeout)
    error = found[tp]
    if error is not None:
        raise error
