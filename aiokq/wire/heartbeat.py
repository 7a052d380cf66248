"""Heartbeat (API key 12): keep a member in a classic group, and notify it of rebalances."""

from __future__ import annotations

from aiokq.wire.fields import i16, i32, string
from aiokq.wire.struct import Request, Response

__all__ = ["HeartbeatRequest", "HeartbeatResponse"]


class HeartbeatRequest(Request["HeartbeatResponse"]):
    """Request of the Heartbeat API.

    Versions 1 and 2 are the same as version 0.

    Version 3 adds the field group_instance_id, which identifies a member across restarts.

    Version 4 is the first flexible version.

    Source: `HeartbeatRequest.json`.
    """

    API_KEY = 12
    NAME = "Heartbeat"
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_SINCE = 4

    group_id: str = string()
    """The id of the group that has the member."""

    generation_id: int = i32()
    """The generation of the group."""

    member_id: str = string()
    """The id of the member that sends the heartbeat."""

    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    """The group.instance.id of the member (static membership), or null."""


class HeartbeatResponse(Response, request=HeartbeatRequest):
    """Response to `HeartbeatRequest`.

    Version 1 adds the throttle time.

    From version 2 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 3 of the request adds group_instance_id, which identifies a member across restarts. The
    response is the same.

    Version 4 is the first flexible version.

    Source: `HeartbeatResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""
