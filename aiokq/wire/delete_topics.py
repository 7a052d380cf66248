"""The DeleteTopics API (key 20), all versions."""

from __future__ import annotations

import uuid

from aiokq.wire.fields import array, i16, i32, string, uuid_
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "DeletableTopicResult",
    "DeleteTopicState",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
]


class DeleteTopicState(Struct):
    """Element of `DeleteTopicsRequest.topics`.

    Source: `DeleteTopicsRequest.json`, struct `DeleteTopicState`.
    """

    name: str | None = string(since=6, nullable_since=6, default=None)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=6)
    """The unique topic ID."""


class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """Request of the DeleteTopics API.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.

    Versions 0, 1, 2, and 3 are the same.

    Version 4 is the first flexible version.

    Version 5 adds ErrorMessage in the response and may return a THROTTLING_QUOTA_EXCEEDED
    error in the response if the topics deletion is throttled (KIP-599).

    Version 6 reorganizes topics, adds topic IDs and allows topic names to be null.

    Source: `DeleteTopicsRequest.json`.
    """

    API_KEY = 20
    NAME = "DeleteTopics"
    MIN_VERSION = 0
    MAX_VERSION = 6
    FLEXIBLE_SINCE = 4

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    """The name or topic ID of the topic."""

    topic_names: list[str] = array(string, until=5, ignorable=True)
    """The names of the topics to delete."""

    timeout_ms: int = i32()
    """The length of time in milliseconds to wait for the deletions to complete."""


class DeletableTopicResult(Struct):
    """Element of `DeleteTopicsResponse.responses`.

    Source: `DeleteTopicsResponse.json`, struct `DeletableTopicResult`.
    """

    name: str | None = string(nullable_since=6)
    """The topic name."""

    topic_id: uuid.UUID = uuid_(since=6, ignorable=True)
    """The unique topic ID."""

    error_code: int = i16()
    """The deletion error, or 0 if the deletion succeeded."""

    error_message: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The error message, or null if there was no error."""


class DeleteTopicsResponse(Response, request=DeleteTopicsRequest):
    """Response to `DeleteTopicsRequest`.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.

    Version 1 adds the throttle time.

    Starting in version 2, on quota violation, brokers send out responses before throttling.

    Starting in version 3, a TOPIC_DELETION_DISABLED error code may be returned.

    Version 4 is the first flexible version.

    Version 5 adds ErrorMessage in the response and may return a THROTTLING_QUOTA_EXCEEDED
    error in the response if the topics deletion is throttled (KIP-599).

    Version 6 adds topic ID to responses. An UNSUPPORTED_VERSION error code will be returned
    when attempting to delete using topic IDs when IBP < 2.8. UNKNOWN_TOPIC_ID error code will
    be returned when IBP is at least 2.8, but the topic ID was not found.

    Source: `DeleteTopicsResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
    """The results for each topic we tried to delete."""
