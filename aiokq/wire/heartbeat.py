"""The Heartbeat API (key 12), all versions."""

from __future__ import annotations

from aiokq.wire.fields import i16, i32, string
from aiokq.wire.struct import Request, Response

__all__ = ["HeartbeatRequest", "HeartbeatResponse"]


class HeartbeatRequest(Request["HeartbeatResponse"]):
    """Request of the Heartbeat API.

    Version 1 and version 2 are the same as version 0.

    Starting from version 3, we add a new field called groupInstanceId to indicate member
    identity across restarts.

    Version 4 is the first flexible version.

    Source: `HeartbeatRequest.json`.
    """

    API_KEY = 12
    NAME = "Heartbeat"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4

    group_id: str = string()
    """The group id."""

    generation_id: int = i32()
    """The generation of the group."""

    member_id: str = string()
    """The member ID."""

    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    """The unique identifier of the consumer instance provided by end user."""


class HeartbeatResponse(Response, request=HeartbeatRequest):
    """Response to `HeartbeatRequest`.

    Version 1 adds throttle time.

    Starting in version 2, on quota violation, brokers send out responses before throttling.

    Starting from version 3, heartbeatRequest supports a new field called groupInstanceId to
    indicate member identity across restarts.

    Version 4 is the first flexible version.

    Source: `HeartbeatResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""
