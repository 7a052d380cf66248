"""Metadata (API key 3): describe brokers, topics, and the leaders of partitions."""

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
    """Name or id of one topic: an element of `MetadataRequest.topics`.

    Source: `MetadataRequest.json`, struct `MetadataRequestTopic`.
    """

    topic_id: uuid.UUID = uuid_(since=10, ignorable=True)
    """The topic id; zero if the topic is given by name."""

    name: str | None = string(nullable_since=10)
    """The topic name; null (from version 10) if the topic is given by id."""


class MetadataRequest(Request["MetadataResponse"]):
    """Request of the Metadata API.

    In version 0, an empty array of topics requests all topics. From version 1 on, null requests all
    topics, and an empty array requests none.

    Versions 2 and 3 are the same as version 1.

    Version 4 adds AllowAutoTopicCreation.

    Version 8 adds the two fields that request the authorized operations of the cluster and of the
    topics.

    Version 9 is the first flexible version.

    Version 10 adds the topic id, and a topic name may be null. In versions 10 and 11, a request
    must nevertheless give the names, because brokers do not yet find topics by id.

    Version 11 removes IncludeClusterAuthorizedOperations, which the DescribeCluster API replaces
    (KIP-700).

    From version 12 on, a request can give topics by id.

    Version 13 adds an error code for the whole request to the response.

    Source: `MetadataRequest.json`.
    """

    API_KEY = 3
    NAME = "Metadata"
    MIN_VERSION = 0
    MAX_VERSION = 13
    FLEXIBLE_SINCE = 9

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable_since=1)
    """The topics to describe. Null requests all topics, and the empty list none; in version 0, the
    empty list requests all topics.
    """

    allow_auto_topic_creation: bool = boolean(since=4, default=True)
    """Whether the broker may create requested topics that do not exist, if
    auto.create.topics.enable is set.
    """

    include_cluster_authorized_operations: bool = boolean(since=8, until=10)
    """Whether the response should have the authorized operations of the cluster."""

    include_topic_authorized_operations: bool = boolean(since=8)
    """Whether the response should have the authorized operations of the topics."""


class MetadataResponseBroker(Struct):
    """Address of one broker: an element of `MetadataResponse.brokers`.

    Source: `MetadataResponse.json`, struct `MetadataResponseBroker`.
    """

    node_id: int = i32()
    """The node id of the broker."""

    host: str = string()
    """The host name of the broker."""

    port: int = i32()
    """The port of the broker."""

    rack: str | None = string(since=1, nullable_since=1, default=None, ignorable=True)
    """The rack of the broker, or null if it has not been assigned to a rack."""


class MetadataResponsePartition(Struct):
    """Metadata of one partition: an element of `MetadataResponseTopic.partitions`.

    Source: `MetadataResponse.json`, struct `MetadataResponsePartition`.
    """

    error_code: int = i16()
    """The error code for the partition, or 0 if there was no error."""

    partition_index: int = i32()
    """The index of the partition in its topic."""

    leader_id: int = i32()
    """The ID of the leader broker, or -1 if there is no leader."""

    leader_epoch: int = i32(since=7, default=-1, ignorable=True)
    """The leader epoch of this partition."""

    replica_nodes: list[int] = array(i32)
    """The ids of the brokers that have a replica of the partition, the preferred leader first."""

    isr_nodes: list[int] = array(i32)
    """The ids of the brokers in the ISR, including the leader."""

    offline_replicas: list[int] = array(i32, since=5, ignorable=True)
    """The ids of the brokers whose replica is offline."""


class MetadataResponseTopic(Struct):
    """Metadata of one topic: an element of `MetadataResponse.topics`.

    Source: `MetadataResponse.json`, struct `MetadataResponseTopic`.
    """

    error_code: int = i16()
    """The error code for the topic, or 0 if there was no error."""

    name: str | None = string(nullable_since=12)
    """The topic name; null if the request gave an id that does not exist."""

    topic_id: uuid.UUID = uuid_(since=10, ignorable=True)
    """The topic id; zero if the request gave a name that does not exist."""

    is_internal: bool = boolean(since=1, ignorable=True)
    """Whether the topic is internal."""

    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    """The partitions of the topic."""

    topic_authorized_operations: int = i32(since=8, default=-2147483648)
    """The operations on the topic that the client may do: bit n is operation n of Kafka's
    AclOperation; -2147483648 if the response does not give the operations.
    """


class MetadataResponse(Response, request=MetadataRequest):
    """Response to `MetadataRequest`.

    Version 1 adds the rack of each broker, the controller id, and whether a topic is internal.

    Version 2 adds the cluster id.

    Version 3 adds the throttle time.

    Version 4 is the same as version 3.

    Version 5 adds the offline replicas of each partition.

    From version 6 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 7 adds the leader epoch to the partition metadata.

    Version 8 adds the authorized operations of the topics and of the cluster.

    Version 9 is the first flexible version.

    Version 10 adds the topic id.

    Version 11 removes ClusterAuthorizedOperations, which the DescribeCluster API replaces
    (KIP-700).

    From version 12 on, a topic name may be null if the request gave the topic by id.

    Version 13 adds an error code for the whole request to the response.

    Source: `MetadataResponse.json`.
    """

    throttle_time_ms: int = i32(since=3, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    """The live brokers of the cluster."""

    cluster_id: str | None = string(since=2, nullable_since=2, default=None, ignorable=True)
    """The ID of the cluster that the responding broker belongs to."""

    controller_id: int = i32(since=1, default=-1, ignorable=True)
    """The id of a broker to which to send requests for the controller, or -1 if there is none. In a
    KRaft cluster, the id is that of some live broker.
    """

    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    """The result for each topic."""

    cluster_authorized_operations: int = i32(since=8, until=10, default=-2147483648)
    """The operations on the cluster that the client may do: bit n is operation n of Kafka's
    AclOperation; -2147483648 if the response does not give the operations.
    """

    error_code: int = i16(since=13, ignorable=True)
    """The error code of the whole request, or 0 if there was no error."""
