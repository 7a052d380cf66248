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
    """Partitions of one topic: an element of `ElectLeadersRequest.topic_partitions`.

    Source: `ElectLeadersRequest.json`, struct `TopicPartitions`.
    """

    topic: str = string()
    """The name of the topic that has the partitions."""

    partitions: list[int] = array(i32)
    """The indexes of the partitions for which to elect a leader."""


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
    """The type of election: 0 elects the preferred replica; 1 (unclean) elects the first live
    replica if no in-sync replica is live.
    """

    topic_partitions: list[ElectLeadersTopicPartitions] | None = array(
        ElectLeadersTopicPartitions, nullable_since=0
    )
    """The partitions for which to elect leaders, or null for all partitions."""

    timeout_ms: int = i32(default=60000)
    """How long the broker waits for the election to complete, in milliseconds."""


class ElectLeadersPartitionResult(Struct):
    """Result for one partition: an element of `ReplicaElectionResult.partition_result`.

    Source: `ElectLeadersResponse.json`, struct `PartitionResult`.
    """

    partition_id: int = i32()
    """The index of the partition in its topic."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""


class ReplicaElectionResult(Struct):
    """Results for the partitions of one topic: an element of
    `ElectLeadersResponse.replica_election_results`.

    Source: `ElectLeadersResponse.json`, struct `ReplicaElectionResult`.
    """

    topic: str = string()
    """The name of the topic that has the partitions."""

    partition_result: list[ElectLeadersPartitionResult] = array(ElectLeadersPartitionResult)
    """The result for each partition."""


class ElectLeadersResponse(Response, request=ElectLeadersRequest):
    """Response to `ElectLeadersRequest`.

    Version 1 adds an error code for the whole request.

    Version 2 is the first flexible version.

    Source: `ElectLeadersResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16(since=1)
    """The error code of the whole request, or 0 if there was no error."""

    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
    """The result for each topic; empty if the client has no permission and requested all
    partitions.
    """
