"""ElectLeaders (API key 43): elect the leaders of partitions."""

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

    Version 1 adds ElectionType (KIP-460).

    Version 2 is the first flexible version.

    Source: `ElectLeadersRequest.json`.
    """

    API_KEY = 43
    NAME = "ElectLeaders"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2

    election_type: int = i8(since=1)
    """The type of election: 0 elects the preferred replica, 1 elects the first live replica if no
    replica is in sync.
    """

    topic_partitions: list[ElectLeadersTopicPartitions] | None = array(
        ElectLeadersTopicPartitions, nullable_since=0
    )
    """The partitions to elect leaders for, or null for all partitions."""

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
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    error_code: int = i16(since=1)
    """The top-level error code."""

    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
    """The results; empty if the request asks for all partitions and the client has no permission.
    """
