"""DescribeProducers (API key 61): describe the active producers of partitions."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, i32, i64, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "DescribeProducersPartitionResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeProducersTopicRequest",
    "DescribeProducersTopicResponse",
    "ProducerState",
]


class DescribeProducersTopicRequest(Struct):
    """Partitions of one topic: an element of `DescribeProducersRequest.topics`.

    Source: `DescribeProducersRequest.json`, struct `TopicRequest`.
    """

    name: str = string()
    """The topic name."""

    partition_indexes: list[int] = array(i32)
    """The indexes of the partitions whose producers to describe."""


class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    """Request of the DescribeProducers API.

    Source: `DescribeProducersRequest.json`.
    """

    API_KEY = 61
    NAME = "DescribeProducers"
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_SINCE = 0

    topics: list[DescribeProducersTopicRequest] = array(DescribeProducersTopicRequest)
    """The topics whose producers to describe."""


class ProducerState(Struct):
    """State of one producer in the partition: an element of
    `DescribeProducersPartitionResponse.active_producers`.

    Source: `DescribeProducersResponse.json`, struct `ProducerState`.
    """

    producer_id: int = i64()
    """The id of the producer."""

    producer_epoch: int = i32()
    """The epoch of the producer id."""

    last_sequence: int = i32(default=-1)
    """The last sequence number that the producer wrote to the partition, or -1."""

    last_timestamp: int = i64(default=-1)
    """The last timestamp that the producer wrote, in milliseconds since the Unix epoch, or -1."""

    coordinator_epoch: int = i32()
    """The coordinator epoch in the producer's last transaction marker, or -1 if there is no marker.
    """

    current_txn_start_offset: int = i64(default=-1)
    """The offset at which the producer's open transaction starts, or -1 if there is none."""


class DescribeProducersPartitionResponse(Struct):
    """Producers of one partition: an element of `DescribeProducersTopicResponse.partitions`.

    Source: `DescribeProducersResponse.json`, struct `PartitionResponse`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    error_code: int = i16()
    """The error code for the partition, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0, default=None)
    """The error message for the partition; null if there was no error, or no details are known."""

    active_producers: list[ProducerState] = array(ProducerState)
    """The active producers of the partition."""


class DescribeProducersTopicResponse(Struct):
    """Producers of the partitions of one topic: an element of `DescribeProducersResponse.topics`.

    Source: `DescribeProducersResponse.json`, struct `TopicResponse`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[DescribeProducersPartitionResponse] = array(DescribeProducersPartitionResponse)
    """The result for each partition."""


class DescribeProducersResponse(Response, request=DescribeProducersRequest):
    """Response to `DescribeProducersRequest`.

    Source: `DescribeProducersResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    topics: list[DescribeProducersTopicResponse] = array(DescribeProducersTopicResponse)
    """The result for each topic."""
