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
    """Brokers of one partition: an element of `CreatableTopic.assignments`.

    Source: `CreateTopicsRequest.json`, struct `CreatableReplicaAssignment`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    broker_ids: list[int] = array(i32)
    """The brokers to place the partition on."""


class CreatableTopicConfig(Struct):
    """One configuration to set: an element of `CreatableTopic.configs`.

    Source: `CreateTopicsRequest.json`, struct `CreatableTopicConfig`.
    """

    name: str = string()
    """The configuration name."""

    value: str | None = string(nullable_since=0)
    """The configuration value, or null."""


class CreatableTopic(Struct):
    """Topic to create: an element of `CreateTopicsRequest.topics`.

    Source: `CreateTopicsRequest.json`, struct `CreatableTopic`.
    """

    name: str = string()
    """The topic name."""

    num_partitions: int = i32()
    """The number of partitions; -1 for the broker's default, or if `assignments` is given."""

    replication_factor: int = i16()
    """The number of replicas of each partition; -1 for the broker's default, or if `assignments` is
    given.
    """

    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    """The brokers of each partition, or the empty array to let the controller choose them."""

    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)
    """The topic configurations to set."""


class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    """Request of the CreateTopics API.

    Apache Kafka 4.0 removed versions 0 and 1.

    Version 1 adds ValidateOnly.

    From version 4 on, partition count and replication factor may be -1 without assignments: the
    broker then uses its defaults (KIP-464).

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
    """Description of one configuration: an element of `CreatableTopicResult.configs`.

    Source: `CreateTopicsResponse.json`, struct `CreatableTopicConfigs`.
    """

    name: str = string(since=5)
    """The configuration name."""

    value: str | None = string(since=5, nullable_since=5)
    """The configuration value, or null if it is sensitive."""

    read_only: bool = boolean(since=5)
    """Whether the configuration cannot be changed while the broker runs."""

    config_source: int = i8(since=5, default=-1, ignorable=True)
    """The source of the value, as numbered in Kafka's ConfigSource; -1 if it is not given."""

    is_sensitive: bool = boolean(since=5)
    """Whether the configuration is sensitive, such as a password."""


class CreatableTopicResult(Struct):
    """Result for one topic: an element of `CreateTopicsResponse.topics`.

    Source: `CreateTopicsResponse.json`, struct `CreatableTopicResult`.
    """

    name: str = string()
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=7, ignorable=True)
    """The id of the created topic; zero if no topic was created."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(since=1, nullable_since=0, ignorable=True)
    """The error message, or null if there was no error."""

    topic_config_error_code: int = i16(since=5, tag=0, ignorable=True)
    """The error code that explains why the response has no configs, or 0."""

    num_partitions: int = i32(since=5, default=-1, ignorable=True)
    """The number of partitions of the topic, or -1 if it is not given."""

    replication_factor: int = i16(since=5, default=-1, ignorable=True)
    """The replication factor of the topic, or -1 if it is not given."""

    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, since=5, nullable_since=5, ignorable=True
    )
    """The configurations of the topic, or null."""


class CreateTopicsResponse(Response, request=CreateTopicsRequest):
    """Response to `CreateTopicsRequest`.

    Apache Kafka 4.0 removed versions 0 and 1.

    Version 1 adds an error message for each topic.

    Version 2 adds the throttle time.

    From version 3 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    From version 4 on, partition count and replication factor may be -1 without assignments: the
    broker then uses its defaults (KIP-464).

    Version 5 is the first flexible version.

    Version 5 adds the topic configs to the response (KIP-525).

    Version 6 is the same as version 5, but the response may have the error
    THROTTLING_QUOTA_EXCEEDED, if the creation of topics is throttled (KIP-599).

    Version 7 adds the topic id to the response.

    Source: `CreateTopicsResponse.json`.
    """

    throttle_time_ms: int = i32(since=2, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
    """The result for each topic."""
