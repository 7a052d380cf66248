"""WriteTxnMarkers (27), versions 1-2: write the markers that end transactions in partitions.

A transaction coordinator sends the request to the leaders of the partitions. An administrator sends
it to abort a hanging transaction (KIP-664). The response is sent when the markers are committed. It
has one result per producer id. If several markers of a producer id name the same partition, the
result has only one error code for them.

Errors of a partition: CLUSTER_AUTHORIZATION_FAILED, INVALID_PRODUCER_EPOCH, INVALID_REQUEST (a
negative producer id or epoch), KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER
(also if the group coordinator cannot use a partition of `__consumer_offsets`), REQUEST_TIMED_OUT
(the marker is in the log, but not committed after `COMMIT_TIMEOUT`),
TRANSACTION_COORDINATOR_FENCED, UNKNOWN_TOPIC_OR_PARTITION.

v1  flexible    v2  the ``transaction.version`` of the transaction (KIP-1228)

Source: Kafka ``KafkaApis.handleWriteTxnMarkersRequest``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokq.broker.coordinator.shard import TransactionalProducer
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.broker.replica.commits import COMMIT_TIMEOUT
from aiokq.core.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRequest,
    NotCoordinator,
    NotLeaderOrFollower,
    RequestTimeout,
    UnknownTopicOrPartition,
)
from aiokq.core.types import TopicPartition
from aiokq.records.control import ControlType, EndTransactionMarker
from aiokq.wire.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiokq.broker.handlers.areas import Markers, WrittenMarker
    from aiokq.broker.handlers.call import Call
    from aiokq.wire.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest

_Codes = dict[int, dict[TopicPartition, int]]
"""For each producer id, the error code of each partition."""


async def handle(
    markers: Markers, request: WriteTxnMarkersRequest, call: Call
) -> WriteTxnMarkersResponse:
    """Write the markers, and wait until they are committed."""
    codes: _Codes = {}
    try:
        if not call.permits(Operation.ALTER, ResourceType.CLUSTER):
            call.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    except BrokerError as error:
        for marker in request.markers:
            codes.setdefault(marker.producer_id, {}).update(
                dict.fromkeys(_partitions(marker), error.code)
            )
        return _response(codes)
    written: list[tuple[dict[TopicPartition, int], TopicPartition, WrittenMarker]] = []
    # All markers are appended before the first wait, so that they can share a flush.
    for marker in request.markers:
        results = codes.setdefault(marker.producer_id, {})
        for partition in dict.fromkeys(_partitions(marker)):
            try:
                written.append((results, partition, _write(markers, marker, partition)))
                results[partition] = 0
            except BrokerError as error:
                results[partition] = _known(error).code
            if call.pace.spend():
                await call.pace.next()
    try:
        async with asyncio.timeout(COMMIT_TIMEOUT):
            while written:
                results, partition, one = written[0]
                try:
                    await one.committed()
                except BrokerError as error:
                    results[partition] = _known(error).code
                del written[0]
    except TimeoutError:
        for results, partition, one in written:
            if not one.is_committed:
                results[partition] = RequestTimeout.code
    return _response(codes)


def _partitions(marker: WritableTxnMarker) -> Iterator[TopicPartition]:
    for topic in marker.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index)


def _write(markers: Markers, marker: WritableTxnMarker, partition: TopicPartition) -> WrittenMarker:
    """Append a marker to one partition.

    Raises:
        InvalidRequest: the producer id or epoch is negative.
        UnknownTopicOrPartition: there is no such partition.
        BrokerError: see `LocalMarkers.write`.
    """
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        raise InvalidRequest("a transaction marker needs a producer id and an epoch")
    kind = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
    written = markers.write(
        partition,
        TransactionalProducer(marker.producer_id, marker.producer_epoch),
        EndTransactionMarker(kind, marker.coordinator_epoch),
        marker.transaction_version,
    )
    if written is None:
        raise UnknownTopicOrPartition()
    return written


def _known(error: BrokerError) -> BrokerError | type[BrokerError]:
    """Replace errors of the group coordinator with NOT_LEADER_OR_FOLLOWER, which is retriable."""
    if isinstance(error, CoordinatorLoadInProgress | CoordinatorNotAvailable | NotCoordinator):
        return NotLeaderOrFollower
    return error


def _response(codes: _Codes) -> WriteTxnMarkersResponse:
    response = WriteTxnMarkersResponse()
    for producer_id, results in codes.items():
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for tp, code in results.items():
            topic = topics.setdefault(tp.topic, WritableTxnMarkerTopicResult(name=tp.topic))
            topic.partitions.append(
                WritableTxnMarkerPartitionResult(partition_index=tp.partition, error_code=code)
            )
        response.markers.append(
            WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values()))
        )
    return response
