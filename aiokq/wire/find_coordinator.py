"""FindCoordinator (API key 10): find the broker that coordinates a group or transactional id."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["Coordinator", "FindCoordinatorRequest", "FindCoordinatorResponse"]


class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    """Request of the FindCoordinator API.

    Version 1 adds KeyType.

    Version 2 is the same as version 1.

    Version 3 is the first flexible version.

    Version 4 replaces Key by CoordinatorKeys, so that one request can find several coordinators
    (KIP-699).

    Version 5 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Version 6 adds the key type SHARE (2), whose keys have the format "groupId:topicId:partition"
    (KIP-932).

    Source: `FindCoordinatorRequest.json`.
    """

    API_KEY = 10
    NAME = "FindCoordinator"
    MIN_VERSION = 0
    MAX_VERSION = 6
    FLEXIBLE_SINCE = 3

    key: str = string(until=3)
    """The group id or transactional id whose coordinator to find."""

    key_type: int = i8(since=1)
    """The type of the key: 0 for a group, 1 for a transactional id, 2 for a share group."""

    coordinator_keys: list[str] = array(string, since=4)
    """The keys whose coordinators to find: group ids, transactional ids or keys of type SHARE."""


class Coordinator(Struct):
    """Coordinator of one key: an element of `FindCoordinatorResponse.coordinators`.

    Source: `FindCoordinatorResponse.json`, struct `Coordinator`.
    """

    key: str = string(since=4)
    """The key, as in the request."""

    node_id: int = i32(since=4)
    """The broker id of the coordinator."""

    host: str = string(since=4)
    """The host name of the coordinator."""

    port: int = i32(since=4)
    """The port of the coordinator."""

    error_code: int = i16(since=4)
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(since=4, nullable_since=4, ignorable=True)
    """The error message, or null if there was no error."""


class FindCoordinatorResponse(Response, request=FindCoordinatorRequest):
    """Response to `FindCoordinatorRequest`.

    Version 1 adds the throttle time and the error message.

    From version 2 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 3 is the first flexible version.

    Version 4 adds Coordinators, which has a result for each key of the request (KIP-699).

    Version 5 adds the error code TRANSACTION_ABORTABLE (KIP-890).

    Version 6 is the same as version 5; the request has the new key type SHARE (KIP-932).

    Source: `FindCoordinatorResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16(until=3)
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(since=1, until=3, nullable_since=1, ignorable=True)
    """The error message, or null if there was no error."""

    node_id: int = i32(until=3)
    """The broker id of the coordinator."""

    host: str = string(until=3)
    """The host name of the coordinator."""

    port: int = i32(until=3)
    """The port of the coordinator."""

    coordinators: list[Coordinator] = array(Coordinator, since=4)
    """The result for each key of the request."""
