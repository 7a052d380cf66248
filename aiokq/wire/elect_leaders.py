"""The ElectLeaders API (key 43), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "ElectLeadersPartitionResult",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "ElectLeadersTopicPartitions",
    "ReplicaElectionResult",
]


class ElectLeadersTopicPartitions(Struct):
    """Element of `ElectLeadersRequest.topic_partitions`.

    Source: `ElectLeadersRequest.json`, struct `TopicPartitions`.
    """

    topic: str = string()
    """The name of a topic."""

    partitions: list[int] = array(i32)
    """The partitions of this topic whose leader should be elected."""


class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    """Request of the ElectLeaders API.

    Version 1 implements multiple leader election types, as described by KIP-460.

    Version 2 is the first flexible version.

    Source: `ElectLeadersRequest.json`.
    """

    API_KEY = 43
    NAME = "ElectLeaders"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2

    election_type: int = i8(since=1)
    """Type of elections to conduct for the partition. A value of '0' elects the preferred
    replica. A value of '1' elects the first live replica if there are no in-sync replica.
    """

    topic_partitions: list[ElectLeadersTopicPartitions] | None = array(
        ElectLeadersTopicPartitions, nullable_since=0
    )
    """The topic partitions to elect leaders."""

    timeout_ms: int = i32(default=60000)
    """The time in ms to wait for the election to complete."""


class ElectLeadersPartitionResult(Struct):
    """Element of `ReplicaElectionResult.partition_result`.

    Source: `ElectLeadersResponse.json`, struct `PartitionResult`.
    """

    partition_id: int = i32()
    """The partition id."""

    error_code: int = i16()
    """The result error, or zero if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The result message, or null if there was no error."""


class ReplicaElectionResult(Struct):
    """Element of `ElectLeadersResponse.replica_election_results`.

    Source: `ElectLeadersResponse.json`, struct `ReplicaElectionResult`.
    """

    topic: str = string()
    """The topic name."""

    partition_result: list[ElectLeadersPartitionResult] = array(ElectLeadersPartitionResult)
    """The results for each partition."""


class ElectLeadersResponse(Response, request=ElectLeadersRequest):
    """Response to `ElectLeadersRequest`.

    Version 1 adds a top-level error code.

    Version 2 is the first flexible version.

    Source: `ElectLeadersResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16(since=1)
    """The top level response error code."""

    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
    """The election results, or an empty array if the requester did not have permission and the
    request asks for all partitions.
    """
