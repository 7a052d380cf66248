"""The OffsetFetch API (key 9), all versions."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, boolean, i16, i32, i64, string, uuid_
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "OffsetFetchRequest",
    "OffsetFetchRequestGroup",
    "OffsetFetchRequestTopic",
    "OffsetFetchRequestTopics",
    "OffsetFetchResponse",
    "OffsetFetchResponseGroup",
    "OffsetFetchResponsePartition",
    "OffsetFetchResponsePartitions",
    "OffsetFetchResponseTopic",
    "OffsetFetchResponseTopics",
]


class OffsetFetchRequestTopic(Struct):
    """Element of `OffsetFetchRequest.topics`.

    Source: `OffsetFetchRequest.json`, struct `OffsetFetchRequestTopic`.
    """

    name: str = string(until=7)
    """The topic name."""

    partition_indexes: list[int] = array(i32, until=7)
    """The partition indexes we would like to fetch offsets for."""


class OffsetFetchRequestTopics(Struct):
    """Element of `OffsetFetchRequestGroup.topics`.

    Source: `OffsetFetchRequest.json`, struct `OffsetFetchRequestTopics`.
    """

    name: str = string(since=8, until=9, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=10, ignorable=True)
    """The topic ID."""

    partition_indexes: list[int] = array(i32, since=8)
    """The partition indexes we would like to fetch offsets for."""


class OffsetFetchRequestGroup(Struct):
    """Element of `OffsetFetchRequest.groups`.

    Source: `OffsetFetchRequest.json`, struct `OffsetFetchRequestGroup`.
    """

    group_id: str = string(since=8)
    """The group ID."""

    member_id: str | None = string(since=9, nullable_since=9, default=None, ignorable=True)
    """The member id."""

    member_epoch: int = i32(since=9, default=-1, ignorable=True)
    """The member epoch if using the new consumer protocol (KIP-848)."""

    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, since=8, nullable_since=8
    )
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics."""


class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    """Request of the OffsetFetch API.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.

    In version 0, the request read offsets from ZK.

    Starting in version 1, the broker supports fetching offsets from the internal
    __consumer_offsets topic.

    Starting in version 2, the request can contain a null topics array to indicate that
    offsets for all topics should be fetched. It also returns a top level error code for group
    or coordinator level errors.

    Version 3, 4, and 5 are the same as version 2.

    Version 6 is the first flexible version.

    Version 7 is adding the require stable flag.

    Version 8 is adding support for fetching offsets for multiple groups at a time.

    Version 9 is the first version that can be used with the new consumer group protocol
    (KIP-848). It adds the MemberId and MemberEpoch fields. Those are filled in and validated
    when the new consumer protocol is used.

    Version 10 adds support for topic ids and removes support for topic names (KIP-848).

    Source: `OffsetFetchRequest.json`.
    """

    API_KEY = 9
    NAME = "OffsetFetch"
    MIN_VERSION = 0
    MAX_VERSION = 10
    FLEXIBLE_SINCE = 6

    group_id: str = string(until=7)
    """The group to fetch offsets for."""

    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable_since=2
    )
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics."""

    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    """Each group we would like to fetch offsets for."""

    require_stable: bool = boolean(since=7)
    """Whether broker should hold on returning unstable offsets but set a retriable error code
    for the partitions.
    """


class OffsetFetchResponsePartition(Struct):
    """Element of `OffsetFetchResponseTopic.partitions`.

    Source: `OffsetFetchResponse.json`, struct `OffsetFetchResponsePartition`.
    """

    partition_index: int = i32(until=7)
    """The partition index."""

    committed_offset: int = i64(until=7)
    """The committed message offset."""

    committed_leader_epoch: int = i32(since=5, until=7, default=-1, ignorable=True)
    """The leader epoch."""

    metadata: str | None = string(until=7, nullable_since=0)
    """The partition metadata."""

    error_code: int = i16(until=7)
    """The error code, or 0 if there was no error."""


class OffsetFetchResponseTopic(Struct):
    """Element of `OffsetFetchResponse.topics`.

    Source: `OffsetFetchResponse.json`, struct `OffsetFetchResponseTopic`.
    """

    name: str = string(until=7)
    """The topic name."""

    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)
    """The responses per partition."""


class OffsetFetchResponsePartitions(Struct):
    """Element of `OffsetFetchResponseTopics.partitions`.

    Source: `OffsetFetchResponse.json`, struct `OffsetFetchResponsePartitions`.
    """

    partition_index: int = i32(since=8)
    """The partition index."""

    committed_offset: int = i64(since=8)
    """The committed message offset."""

    committed_leader_epoch: int = i32(since=8, default=-1, ignorable=True)
    """The leader epoch."""

    metadata: str | None = string(since=8, nullable_since=8)
    """The partition metadata."""

    error_code: int = i16(since=8)
    """The partition-level error code, or 0 if there was no error."""


class OffsetFetchResponseTopics(Struct):
    """Element of `OffsetFetchResponseGroup.topics`.

    Source: `OffsetFetchResponse.json`, struct `OffsetFetchResponseTopics`.
    """

    name: str = string(since=8, until=9, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=10, ignorable=True)
    """The topic ID."""

    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)
    """The responses per partition."""


class OffsetFetchResponseGroup(Struct):
    """Element of `OffsetFetchResponse.groups`.

    Source: `OffsetFetchResponse.json`, struct `OffsetFetchResponseGroup`.
    """

    group_id: str = string(since=8)
    """The group ID."""

    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    """The responses per topic."""

    error_code: int = i16(since=8)
    """The group-level error code, or 0 if there was no error."""


class OffsetFetchResponse(Response, request=OffsetFetchRequest):
    """Response to `OffsetFetchRequest`.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.

    Version 1 is the same as version 0.

    Version 2 adds a top-level error code.

    Version 3 adds the throttle time.

    Starting in version 4, on quota violation, brokers send out responses before throttling.

    Version 5 adds the leader epoch to the committed offset.

    Version 6 is the first flexible version.

    Version 7 adds pending offset commit as new error response on partition level.

    Version 8 is adding support for fetching offsets for multiple groups.

    Version 9 is the first version that can be used with the new consumer group protocol
    (KIP-848). The response is the same as version 8 but can return STALE_MEMBER_EPOCH and
    UNKNOWN_MEMBER_ID errors when the new consumer group protocol is used.

    Version 10 adds support for topic ids and removes support for topic names (KIP-848).
    Supported errors: - GROUP_AUTHORIZATION_FAILED (version 0+) - NOT_COORDINATOR (version 0+)
    - COORDINATOR_NOT_AVAILABLE (version 0+) - COORDINATOR_LOAD_IN_PROGRESS (version 0+) -
    GROUP_ID_NOT_FOUND (version 0+) - UNSTABLE_OFFSET_COMMIT (version 7+) - UNKNOWN_MEMBER_ID
    (version 9+) - STALE_MEMBER_EPOCH (version 9+) - UNKNOWN_TOPIC_ID (version 10+).

    Source: `OffsetFetchResponse.json`.
    """

    throttle_time_ms: int = i32(since=3, ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    """The responses per topic."""

    error_code: int = i16(since=2, until=7, ignorable=True)
    """The top-level error code, or 0 if there was no error."""

    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
    """The responses per group id."""
