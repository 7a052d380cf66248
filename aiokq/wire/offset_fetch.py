"""OffsetFetch (API key 9): return the committed offsets of groups."""

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
    """Partitions of one topic, up to version 7: an element of `OffsetFetchRequest.topics`.

    Source: `OffsetFetchRequest.json`, struct `OffsetFetchRequestTopic`.
    """

    name: str = string(until=7)
    """The topic name."""

    partition_indexes: list[int] = array(i32, until=7)
    """The partitions whose offsets to fetch."""


class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic, from version 8 on: an element of `OffsetFetchRequestGroup.topics`.

    Source: `OffsetFetchRequest.json`, struct `OffsetFetchRequestTopics`.
    """

    name: str = string(since=8, until=9, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=10, ignorable=True)
    """The id of the topic that has the partitions."""

    partition_indexes: list[int] = array(i32, since=8)
    """The partitions whose offsets to fetch."""


class OffsetFetchRequestGroup(Struct):
    """Group whose offsets to fetch: an element of `OffsetFetchRequest.groups`.

    Source: `OffsetFetchRequest.json`, struct `OffsetFetchRequestGroup`.
    """

    group_id: str = string(since=8)
    """The id of the group whose offsets to fetch."""

    member_id: str | None = string(since=9, nullable_since=9, default=None, ignorable=True)
    """The member id, for groups of the consumer protocol (KIP-848); else null."""

    member_epoch: int = i32(since=9, default=-1, ignorable=True)
    """The member epoch, for groups of the consumer protocol (KIP-848); else -1."""

    topics: list[OffsetFetchRequestTopics] | None = array(
        OffsetFetchRequestTopics, since=8, nullable_since=8
    )
    """The topics whose offsets to fetch, or null for all topics."""


class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    """Request of the OffsetFetch API.

    Apache Kafka 4.0 removed version 0.

    In version 0, the offsets come from ZooKeeper.

    From version 1 on, the offsets come from the internal topic __consumer_offsets.

    From version 2 on, null topics request the offsets of all topics, and the response has an error
    code for the whole request.

    Versions 3, 4 and 5 are the same as version 2.

    Version 6 is the first flexible version.

    Version 7 adds RequireStable.

    From version 8 on, a request can contain several groups.

    Version 9 is the first version for groups of the consumer protocol (KIP-848), for which it adds
    MemberId and MemberEpoch.

    Version 10 replaces the topic names by topic ids (KIP-848).

    Source: `OffsetFetchRequest.json`.
    """

    API_KEY = 9
    NAME = "OffsetFetch"
    MIN_VERSION = 0
    MAX_VERSION = 10
    FLEXIBLE_SINCE = 6

    group_id: str = string(until=7)
    """The id of the group whose offsets to fetch."""

    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, until=7, nullable_since=2
    )
    """The topics whose offsets to fetch, or null for all topics."""

    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    """The groups whose offsets to fetch."""

    require_stable: bool = boolean(since=7)
    """Whether a partition with a pending offset commit of a transaction gets the retriable error
    UNSTABLE_OFFSET_COMMIT instead of an offset.
    """


class OffsetFetchResponsePartition(Struct):
    """Offset in one partition, up to version 7: an element of
    `OffsetFetchResponseTopic.partitions`.

    Source: `OffsetFetchResponse.json`, struct `OffsetFetchResponsePartition`.
    """

    partition_index: int = i32(until=7)
    """The index of the partition in its topic."""

    committed_offset: int = i64(until=7)
    """The committed offset, or -1 if there is none."""

    committed_leader_epoch: int = i32(since=5, until=7, default=-1, ignorable=True)
    """The leader epoch of the last consumed record, or -1 if it is unknown."""

    metadata: str | None = string(until=7, nullable_since=0)
    """The metadata that the client committed with the offset."""

    error_code: int = i16(until=7)
    """The error code, or 0 if there was no error."""


class OffsetFetchResponseTopic(Struct):
    """Offsets in one topic, up to version 7: an element of `OffsetFetchResponse.topics`.

    Source: `OffsetFetchResponse.json`, struct `OffsetFetchResponseTopic`.
    """

    name: str = string(until=7)
    """The topic name."""

    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, until=7)
    """The result for each partition."""


class OffsetFetchResponsePartitions(Struct):
    """Offset in one partition, from version 8 on: an element of
    `OffsetFetchResponseTopics.partitions`.

    Source: `OffsetFetchResponse.json`, struct `OffsetFetchResponsePartitions`.
    """

    partition_index: int = i32(since=8)
    """The index of the partition in its topic."""

    committed_offset: int = i64(since=8)
    """The committed offset, or -1 if there is none."""

    committed_leader_epoch: int = i32(since=8, default=-1, ignorable=True)
    """The leader epoch of the last consumed record, or -1 if it is unknown."""

    metadata: str | None = string(since=8, nullable_since=8)
    """The metadata that the client committed with the offset."""

    error_code: int = i16(since=8)
    """The error code for the partition, or 0 if there was no error."""


class OffsetFetchResponseTopics(Struct):
    """Offsets in one topic, from version 8 on: an element of `OffsetFetchResponseGroup.topics`.

    Source: `OffsetFetchResponse.json`, struct `OffsetFetchResponseTopics`.
    """

    name: str = string(since=8, until=9, ignorable=True)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=10, ignorable=True)
    """The id of the topic that has the partitions."""

    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, since=8)
    """The result for each partition."""


class OffsetFetchResponseGroup(Struct):
    """Offsets of one group: an element of `OffsetFetchResponse.groups`.

    Source: `OffsetFetchResponse.json`, struct `OffsetFetchResponseGroup`.
    """

    group_id: str = string(since=8)
    """The id of the group that has the offsets."""

    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, since=8)
    """The result for each topic."""

    error_code: int = i16(since=8)
    """The error code for the group, or 0 if there was no error."""


class OffsetFetchResponse(Response, request=OffsetFetchRequest):
    """Response to `OffsetFetchRequest`.

    Apache Kafka 4.0 removed version 0.

    Version 1 is the same as version 0.

    Version 2 adds an error code for the whole request.

    Version 3 adds the throttle time.

    From version 4 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 5 adds the leader epoch to the committed offset.

    Version 6 is the first flexible version.

    Version 7 adds the error UNSTABLE_OFFSET_COMMIT, for partitions with a pending offset commit of
    a transaction.

    Version 8 adds a result for each group of the request.

    Version 9 is the first version for groups of the consumer protocol (KIP-848), for which it adds
    the error codes STALE_MEMBER_EPOCH and UNKNOWN_MEMBER_ID.

    Version 10 replaces the topic names by topic ids (KIP-848).

    Errors: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
    COORDINATOR_LOAD_IN_PROGRESS, GROUP_ID_NOT_FOUND; from version 7 on also UNSTABLE_OFFSET_COMMIT;
    from version 9 on also UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH; from version 10 on also
    UNKNOWN_TOPIC_ID.

    Source: `OffsetFetchResponse.json`.
    """

    throttle_time_ms: int = i32(since=3, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    """The result for each topic."""

    error_code: int = i16(since=2, until=7, ignorable=True)
    """The error code of the whole request, or 0 if there was no error."""

    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
    """The result for each group."""
