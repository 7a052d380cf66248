"""CreateTopics (API key 19): create topics."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, boolean, i8, i16, i32, string, uuid_
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "CreatableReplicaAssignment",
    "CreatableTopic",
    "CreatableTopicConfig",
    "CreatableTopicConfigs",
    "CreatableTopicResult",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
]


class CreatableReplicaAssignment(Struct):
    """Element of `CreatableTopic.assignments`.

    Source: `CreateTopicsRequest.json`, struct `CreatableReplicaAssignment`.
    """

    partition_index: int = i32()
    """The partition index."""

    broker_ids: list[int] = array(i32)
    """The brokers to place the partition on."""


class CreatableTopicConfig(Struct):
    """Element of `CreatableTopic.configs`.

    Source: `CreateTopicsRequest.json`, struct `CreatableTopicConfig`.
    """

    name: str = string()
    """The configuration name."""

    value: str | None = string(nullable_since=0)
    """The configuration value."""


class CreatableTopic(Struct):
    """Element of `CreateTopicsRequest.topics`.

    Source: `CreateTopicsRequest.json`, struct `CreatableTopic`.
    """

    name: str = string()
    """The topic name."""

    num_partitions: int = i32()
    """The number of partitions, or -1 for the broker's default or if `assignments` is given."""

    replication_factor: int = i16()
    """The number of replicas of each partition, or -1 for the broker's default or if `assignments`
    is given.
    """

    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    """The brokers of each partition, or the empty array to let the controller choose them."""

    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)
    """The custom topic configurations to set."""


class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    """Request of the CreateTopics API.

    Apache Kafka 4.0 removed the versions before 2.

    Version 1 adds ValidateOnly.

    From version 4 on, partition count and replication factor may be left out even if there are no
    assignments (KIP-464).

    Version 5 is the first flexible version.

    Version 5 adds the topic configs to the response (KIP-525).

    Version 6 is the same as version 5, but the response may have the error
    THROTTLING_QUOTA_EXCEEDED, if the creation of topics is throttled (KIP-599).

    Version 7 is the same as version 6.

    Source: `CreateTopicsRequest.json`.
    """

    API_KEY = 19
    NAME = "CreateTopics"
    MIN_VERSION = 0
    MAX_VERSION = 7
    FLEXIBLE_SINCE = 5

    topics: list[CreatableTopic] = array(CreatableTopic)
    """The topics to create."""

    timeout_ms: int = i32(default=60000)
    """How long the broker waits for the request to complete, in milliseconds."""

    validate_only: bool = boolean(since=1)
    """Whether to validate the request without creating the topics."""


class CreatableTopicConfigs(Struct):
    """Element of `CreatableTopicResult.configs`.

    Source: `CreateTopicsResponse.json`, struct `CreatableTopicConfigs`.
    """

    name: str = string(since=5)
    """The configuration name."""

    value: str | None = string(since=5, nullable_since=5)
    """The configuration value."""

    read_only: bool = boolean(since=5)
    """True if the configuration is read-only."""

    config_source: int = i8(since=5, default=-1, ignorable=True)
    """The configuration source."""

    is_sensitive: bool = boolean(since=5)
    """True if this configuration is sensitive."""


class CreatableTopicResult(Struct):
    """Element of `CreateTopicsResponse.topics`.

    Source: `CreateTopicsResponse.json`, struct `CreatableTopicResult`.
    """

    name: str = string()
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=7, ignorable=True)
    """The unique topic ID."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(since=1, nullable_since=0, ignorable=True)
    """The error message, or null if there was no error."""

    topic_config_error_code: int = i16(since=5, tag=0, ignorable=True)
    """The error code for which the response has no configs, or 0."""

    num_partitions: int = i32(since=5, default=-1, ignorable=True)
    """Number of partitions of the topic."""

    replication_factor: int = i16(since=5, default=-1, ignorable=True)
    """Replication factor of the topic."""

    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable_since=5, ignorable=True
    )
    """Configuration of the topic."""


class CreateTopicsResponse(Response, request=CreateTopicsRequest):
    """Response to `CreateTopicsRequest`.

    Apache Kafka 4.0 removed the versions before 2.

    Version 1 adds an error message for each topic.

    Version 2 adds the throttle time.

    From version 3 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    From version 4 on, partition count and replication factor may be left out even if there are no
    assignments (KIP-464).

    Version 5 is the first flexible version.

    Version 5 adds the topic configs to the response (KIP-525).

    Version 6 is the same as version 5, but the response may have the error
    THROTTLING_QUOTA_EXCEEDED, if the creation of topics is throttled (KIP-599).

    Version 7 adds the topic id to the response.

    Source: `CreateTopicsResponse.json`.
    """

    throttle_time_ms: int = i32(since=2, ignorable=True)
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
    """The result for each topic."""
