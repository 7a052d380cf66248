"""WriteTxnMarkers (API key 27): write transaction markers to partitions (sent by coordinators)."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, i8, i16, i32, i64, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "WritableTxnMarker",
    "WritableTxnMarkerPartitionResult",
    "WritableTxnMarkerResult",
    "WritableTxnMarkerTopic",
    "WritableTxnMarkerTopicResult",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]


class WritableTxnMarkerTopic(Struct):
    """Partitions of one topic that get the marker: an element of `WritableTxnMarker.topics`.

    Source: `WriteTxnMarkersRequest.json`, struct `WritableTxnMarkerTopic`.
    """

    name: str = string()
    """The topic name."""

    partition_indexes: list[int] = array(i32)
    """The partitions to write the marker to."""


class WritableTxnMarker(Struct):
    """Marker of one transaction: an element of `WriteTxnMarkersRequest.markers`.

    Source: `WriteTxnMarkersRequest.json`, struct `WritableTxnMarker`.
    """

    producer_id: int = i64()
    """The producer id of the transaction."""

    producer_epoch: int = i16()
    """The producer epoch of the marker."""

    transaction_result: bool = boolean()
    """The result of the transaction: false for abort, true for commit."""

    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    """The topics to write the marker to."""

    coordinator_epoch: int = i32()
    """The leader epoch of the coordinator's partition of __transaction_state."""

    transaction_version: int = i8(since=2, ignorable=True)
    """The transaction version of the marker: 0 or 1 for the protocol before KIP-890, 2 for KIP-890.
    """


class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"]):
    """Request of the WriteTxnMarkers API.

    Apache Kafka 4.0 removed version 0.

    Version 1 is the first flexible version.

    Version 2 adds TransactionVersion to the markers (KIP-1228).

    Source: `WriteTxnMarkersRequest.json`.
    """

    API_KEY = 27
    NAME = "WriteTxnMarkers"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 1

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)
    """The markers to write."""


class WritableTxnMarkerPartitionResult(Struct):
    """Result for one partition: an element of `WritableTxnMarkerTopicResult.partitions`.

    Source: `WriteTxnMarkersResponse.json`, struct `WritableTxnMarkerPartitionResult`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""


class WritableTxnMarkerTopicResult(Struct):
    """Results for the partitions of one topic: an element of `WritableTxnMarkerResult.topics`.

    Source: `WriteTxnMarkersResponse.json`, struct `WritableTxnMarkerTopicResult`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)
    """The result for each partition."""


class WritableTxnMarkerResult(Struct):
    """Results for the marker of one producer: an element of `WriteTxnMarkersResponse.markers`.

    Source: `WriteTxnMarkersResponse.json`, struct `WritableTxnMarkerResult`.
    """

    producer_id: int = i64()
    """The producer id, as in the request."""

    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)
    """The result for each topic."""


class WriteTxnMarkersResponse(Response, request=WriteTxnMarkersRequest):
    """Response to `WriteTxnMarkersRequest`.

    Apache Kafka 4.0 removed version 0.

    Version 1 is the first flexible version.

    Version 2 is the same as version 1; the request adds TransactionVersion (KIP-1228).

    Source: `WriteTxnMarkersResponse.json`.
    """

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
    """The result for each marker."""
