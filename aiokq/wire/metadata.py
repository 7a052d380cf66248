"""The Metadata API (key 3), all versions."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, boolean, i16, i32, string, uuid_
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "MetadataRequest",
    "MetadataRequestTopic",
    "MetadataResponse",
    "MetadataResponseBroker",
    "MetadataResponsePartition",
    "MetadataResponseTopic",
]


class MetadataRequestTopic(Struct):
    """Element of `MetadataRequest.topics`.

    Source: `MetadataRequest.json`, struct `MetadataRequestTopic`.
    """

    topic_id: uuid.UUID = uuid_(since=10, ignorable=True)
    """The topic id; zero if the topic is given by name."""

    name: str | None = string(nullable_since=10)
    """The topic name; null (from version 10) if the topic is given by id."""


class MetadataRequest(Request["MetadataResponse"]):
    """Request of the Metadata API.

    In version 0, an empty array indicates "request metadata for all topics." In version 1 and
    higher, an empty array indicates "request metadata for no topics," and a null array is
    used to indicate "request metadata for all topics."

    Version 2 and 3 are the same as version 1.

    Version 4 adds AllowAutoTopicCreation.

    Starting in version 8, authorized operations can be requested for cluster and topic
    resource.

    Version 9 is the first flexible version.

    Version 10 adds topicId and allows name field to be null. However, this functionality was
    not implemented on the server.

    Versions 10 and 11 should not use the topicId field or set topic name to null.

    Version 11 deprecates IncludeClusterAuthorizedOperations field. This is now exposed by the
    DescribeCluster API (KIP-700).

    Version 12 supports topic Id.

    Version 13 supports top-level error code in the response.

    Source: `MetadataRequest.json`.
    """

    API_KEY = 3
    NAME = "Metadata"
    MIN_VERSION = 0
    MAX_VERSION = 13
    FLEXIBLE_SINCE = 9

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable_since=1)
    """The topics to fetch metadata for. Null asks for all topics, and the empty list for none; in
    version 0 the empty list asks for all topics.
    """

    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    """If this is true, the broker may auto-create topics that we requested which do not already
    exist, if it is configured to do so.
    """

    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    """Whether to include cluster authorized operations."""

    include_topic_authorized_operations: bool = boolean(since=8)
    """Whether to include topic authorized operations."""


class MetadataResponseBroker(Struct):
    """Element of `MetadataResponse.brokers`.

    Source: `MetadataResponse.json`, struct `MetadataResponseBroker`.
    """

    node_id: int = i32()
    """The broker ID."""

    host: str = string()
    """The broker hostname."""

    port: int = i32()
    """The broker port."""

    rack: str | None = string(since=1, nullable_since=1, default=None, ignorable=True)
    """The rack of the broker, or null if it has not been assigned to a rack."""


class MetadataResponsePartition(Struct):
    """Element of `MetadataResponseTopic.partitions`.

    Source: `MetadataResponse.json`, struct `MetadataResponsePartition`.
    """

    error_code: int = i16()
    """The partition error, or 0 if there was no error."""

    partition_index: int = i32()
    """The partition index."""

    leader_id: int = i32()
    """The ID of the leader broker."""

    leader_epoch: int = i32(since=7, default=-1, ignorable=True)
    """The leader epoch of this partition."""

    replica_nodes: list[int] = array(i32)
    """The set of all nodes that host this partition."""

    isr_nodes: list[int] = array(i32)
    """The set of nodes that are in sync with the leader for this partition."""

    offline_replicas: list[int] = array(i32, since=5, ignorable=True)
    """The set of offline replicas of this partition."""


class MetadataResponseTopic(Struct):
    """Element of `MetadataResponse.topics`.

    Source: `MetadataResponse.json`, struct `MetadataResponseTopic`.
    """

    error_code: int = i16()
    """The topic error, or 0 if there was no error."""

    name: str | None = string(nullable_since=12)
    """The topic name. Null for non-existing topics queried by ID. This is never null when
    ErrorCode is zero. One of Name and TopicId is always populated.
    """

    topic_id: uuid.UUID = uuid_(since=10, ignorable=True)
    """The topic id. Zero for non-existing topics queried by name. This is never zero when
    ErrorCode is zero. One of Name and TopicId is always populated.
    """

    is_internal: bool = boolean(since=1, ignorable=True)
    """True if the topic is internal."""

    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    """Each partition in the topic."""

    topic_authorized_operations: int = i32(since=8, default=-2147483648)
    """32-bit bitfield to represent authorized operations for this topic."""


class MetadataResponse(Response, request=MetadataRequest):
    """Response to `MetadataRequest`.

    Version 1 adds fields for the rack of each broker, the controller id, and whether or not
    the topic is internal.

    Version 2 adds the cluster ID field.

    Version 3 adds the throttle time.

    Version 4 is the same as version 3.

    Version 5 adds a per-partition offline_replicas field. This field specifies the list of
    replicas that are offline.

    Starting in version 6, on quota violation, brokers send out responses before throttling.

    Version 7 adds the leader epoch to the partition metadata.

    Starting in version 8, brokers can send authorized operations for topic and cluster.

    Version 9 is the first flexible version.

    Version 10 adds topicId.

    Version 11 deprecates ClusterAuthorizedOperations. This is now exposed by the
    DescribeCluster API (KIP-700).

    Version 12 supports topicId.

    Version 13 supports top-level error code in the response.

    Source: `MetadataResponse.json`.
    """

    throttle_time_ms: int = i32(since=3, ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    """A list of brokers present in the cluster."""

    cluster_id: str | None = string(since=2, nullable_since=2, default=None, ignorable=True)
    """The cluster ID that responding broker belongs to."""

    controller_id: int = i32(since=1, default=-1, ignorable=True)
    """The ID of the controller broker."""

    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    """Each topic in the response."""

    cluster_authorized_operations: int = i32(since=8, until=10, default=-2147483648)
    """32-bit bitfield to represent authorized operations for this cluster."""

    error_code: int = i16(since=13, ignorable=True)
    """The top-level error code, or 0 if there was no error."""
