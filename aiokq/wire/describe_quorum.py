"""DescribeQuorum (API key 55): describe the KRaft quorum of the metadata log."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, i16, i32, i64, string, u16, uuid_
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "DescribeQuorumListener",
    "DescribeQuorumNode",
    "DescribeQuorumPartitionData",
    "DescribeQuorumReplicaState",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeQuorumResponsePartitionData",
    "DescribeQuorumResponseTopicData",
    "DescribeQuorumTopicData",
]


class DescribeQuorumPartitionData(Struct):
    """Partition to describe: an element of `DescribeQuorumTopicData.partitions`.

    Source: `DescribeQuorumRequest.json`, struct `PartitionData`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""


class DescribeQuorumTopicData(Struct):
    """Partitions of one topic to describe: an element of `DescribeQuorumRequest.topics`.

    Source: `DescribeQuorumRequest.json`, struct `TopicData`.
    """

    topic_name: str = string()
    """The name of the topic that has the partitions."""

    partitions: list[DescribeQuorumPartitionData] = array(DescribeQuorumPartitionData)
    """The partitions to describe."""


class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    """Request of the DescribeQuorum API.

    Version 1 is the same as version 0; the response adds two timestamps of each replica (KIP-836).

    Version 2 is the same as version 1; the response adds nodes, error messages and directory ids
    (KIP-853).

    Source: `DescribeQuorumRequest.json`.
    """

    API_KEY = 55
    NAME = "DescribeQuorum"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 0

    topics: list[DescribeQuorumTopicData] = array(DescribeQuorumTopicData)
    """The topics to describe."""


class DescribeQuorumReplicaState(Struct):
    """Fetch state of one voter or observer: an element of
    `DescribeQuorumResponsePartitionData.current_voters` and of
    `DescribeQuorumResponsePartitionData.observers`.

    Source: `DescribeQuorumResponse.json`, struct `ReplicaState`.
    """

    replica_id: int = i32()
    """The node id of the replica."""

    replica_directory_id: uuid.UUID = uuid_(since=2)
    """The id of the replica's log directory."""

    log_end_offset: int = i64()
    """The last known log end offset of the replica, or -1 if it is unknown."""

    last_fetch_timestamp: int = i64(since=1, default=-1, ignorable=True)
    """When the replica last fetched from the leader, by the leader's clock, in milliseconds since
    the Unix epoch; the current time for the leader itself, -1 if it is unknown.
    """

    last_caught_up_timestamp: int = i64(since=1, default=-1, ignorable=True)
    """When the replica last had all records of the leader, by the leader's clock, in milliseconds
    since the Unix epoch; the current time for the leader itself, -1 if it is unknown.
    """


class DescribeQuorumResponsePartitionData(Struct):
    """Quorum of one partition: an element of `DescribeQuorumResponseTopicData.partitions`.

    Source: `DescribeQuorumResponse.json`, struct `PartitionData`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    error_code: int = i16()
    """The error code for the partition, or 0 if there was no error."""

    error_message: str | None = string(since=2, nullable_since=2, ignorable=True)
    """The error message for the partition, or null if there was no error."""

    leader_id: int = i32()
    """The id of the current leader, or -1 if the leader is unknown."""

    leader_epoch: int = i32()
    """The latest known leader epoch of the partition."""

    high_watermark: int = i64()
    """The high watermark of the partition."""

    current_voters: list[DescribeQuorumReplicaState] = array(DescribeQuorumReplicaState)
    """The log end offset and fetch times of each voter."""

    observers: list[DescribeQuorumReplicaState] = array(DescribeQuorumReplicaState)
    """The log end offset and fetch times of each observer."""


class DescribeQuorumResponseTopicData(Struct):
    """Quorums of the partitions of one topic: an element of `DescribeQuorumResponse.topics`.

    Source: `DescribeQuorumResponse.json`, struct `TopicData`.
    """

    topic_name: str = string()
    """The name of the topic that has the partitions."""

    partitions: list[DescribeQuorumResponsePartitionData] = array(
        DescribeQuorumResponsePartitionData
    )
    """The result for each partition."""


class DescribeQuorumListener(Struct):
    """One listener of the node: an element of `DescribeQuorumNode.listeners`.

    Source: `DescribeQuorumResponse.json`, struct `Listener`.
    """

    name: str = string(since=2)
    """The name of the listener."""

    host: str = string(since=2)
    """The host name of the listener."""

    port: int = u16(since=2)
    """The port of the listener."""


class DescribeQuorumNode(Struct):
    """One node of the quorum: an element of `DescribeQuorumResponse.nodes`.

    Source: `DescribeQuorumResponse.json`, struct `Node`.
    """

    node_id: int = i32(since=2)
    """The id of the controller."""

    listeners: list[DescribeQuorumListener] = array(DescribeQuorumListener, since=2)
    """The listeners of the controller."""


class DescribeQuorumResponse(Response, request=DescribeQuorumRequest):
    """Response to `DescribeQuorumRequest`.

    Version 1 adds LastFetchTimestamp and LastCaughtUpTimestamp to ReplicaState (KIP-836).

    Version 2 adds Nodes, an ErrorMessage for the response and for each partition, and the
    ReplicaDirectoryId of each replica (KIP-853).

    Source: `DescribeQuorumResponse.json`.
    """

    error_code: int = i16()
    """The error code of the whole request, or 0 if there was no error."""

    error_message: str | None = string(since=2, nullable_since=2, ignorable=True)
    """The error message of the whole request, or null if there was no error."""

    topics: list[DescribeQuorumResponseTopicData] = array(DescribeQuorumResponseTopicData)
    """The result for each topic."""

    nodes: list[DescribeQuorumNode] = array(DescribeQuorumNode, since=2)
    """The nodes of the quorum."""
