"""DeleteTopics (API key 20): delete topics."""

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
    """Name or id of one topic: an element of `DeleteTopicsRequest.topics`.

    Source: `DeleteTopicsRequest.json`, struct `DeleteTopicState`.
    """

    name: str | None = string(since=6, nullable_since=6, default=None)
    """The topic name, or null if the topic is given by id."""

    topic_id: uuid.UUID = uuid_(since=6)
    """The topic id; zero if the topic is given by name."""


class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """Request of the DeleteTopics API.

    Apache Kafka 4.0 removed version 0.

    Versions 0 to 3 are the same.

    Version 4 is the first flexible version.

    Version 5 adds ErrorMessage to the response, and the error THROTTLING_QUOTA_EXCEEDED for
    throttled deletions of topics (KIP-599).

    Version 6 replaces the topic names by structs, each of which has a name or a topic id.

    Source: `DeleteTopicsRequest.json`.
    """

    API_KEY = 20
    NAME = "DeleteTopics"
    MIN_VERSION = 0
    MAX_VERSION = 6
    FLEXIBLE_SINCE = 4

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    """The topics to delete, each by name or by id."""

    topic_names: list[str] = array(string, until=5, ignorable=True)
    """The names of the topics to delete."""

    timeout_ms: int = i32()
    """How long the broker waits for the deletions to complete, in milliseconds."""


class DeletableTopicResult(Struct):
    """Result for one topic: an element of `DeleteTopicsResponse.responses`.

    Source: `DeleteTopicsResponse.json`, struct `DeletableTopicResult`.
    """

    name: str | None = string(nullable_since=6)
    """The topic name; null if the request gave an id that does not exist."""

    topic_id: uuid.UUID = uuid_(since=6, ignorable=True)
    """The topic id; zero if the request gave a name that does not exist."""

    error_code: int = i16()
    """The error code, or 0 if the deletion succeeded."""

    error_message: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The error message, or null if there was no error."""


class DeleteTopicsResponse(Response, request=DeleteTopicsRequest):
    """Response to `DeleteTopicsRequest`.

    Apache Kafka 4.0 removed version 0.

    Version 1 adds the throttle time.

    From version 2 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 3 adds the error code TOPIC_DELETION_DISABLED.

    Version 4 is the first flexible version.

    Version 5 adds ErrorMessage to the response, and the error THROTTLING_QUOTA_EXCEEDED for
    throttled deletions of topics (KIP-599).

    Version 6 adds the topic id. A topic id that does not exist gets the error UNKNOWN_TOPIC_ID; a
    broker whose inter.broker.protocol.version is below 2.8 answers UNSUPPORTED_VERSION to any topic
    id.

    Source: `DeleteTopicsResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
    """The result for each topic."""
