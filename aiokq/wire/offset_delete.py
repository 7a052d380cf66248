"""OffsetDelete (API key 47): delete committed offsets of a group."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "OffsetDeleteRequest",
    "OffsetDeleteRequestPartition",
    "OffsetDeleteRequestTopic",
    "OffsetDeleteResponse",
    "OffsetDeleteResponsePartition",
    "OffsetDeleteResponseTopic",
]


class OffsetDeleteRequestPartition(Struct):
    """Partition whose offset to delete: an element of `OffsetDeleteRequestTopic.partitions`.

    Source: `OffsetDeleteRequest.json`, struct `OffsetDeleteRequestPartition`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""


class OffsetDeleteRequestTopic(Struct):
    """Partitions of one topic: an element of `OffsetDeleteRequest.topics`.

    Source: `OffsetDeleteRequest.json`, struct `OffsetDeleteRequestTopic`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)
    """The partitions whose committed offsets to delete."""


class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    """Request of the OffsetDelete API.

    Source: `OffsetDeleteRequest.json`.
    """

    API_KEY = 47
    NAME = "OffsetDelete"
    MIN_VERSION = 0
    MAX_VERSION = 0

    group_id: str = string()
    """The id of the group whose offsets to delete."""

    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)
    """The topics whose committed offsets to delete."""


class OffsetDeleteResponsePartition(Struct):
    """Result for one partition: an element of `OffsetDeleteResponseTopic.partitions`.

    Source: `OffsetDeleteResponse.json`, struct `OffsetDeleteResponsePartition`.
    """

    partition_index: int = i32()
    """The index of the partition in its topic."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""


class OffsetDeleteResponseTopic(Struct):
    """Results for the partitions of one topic: an element of `OffsetDeleteResponse.topics`.

    Source: `OffsetDeleteResponse.json`, struct `OffsetDeleteResponseTopic`.
    """

    name: str = string()
    """The topic name."""

    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)
    """The result for each partition."""


class OffsetDeleteResponse(Response, request=OffsetDeleteRequest):
    """Response to `OffsetDeleteRequest`.

    Source: `OffsetDeleteResponse.json`.
    """

    error_code: int = i16()
    """The error code of the whole request, or 0 if there was no error."""

    throttle_time_ms: int = i32(ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
    """The result for each topic."""
