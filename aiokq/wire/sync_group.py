"""The SyncGroup API (key 14), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, bytes_, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["SyncGroupRequest", "SyncGroupRequestAssignment", "SyncGroupResponse"]


class SyncGroupRequestAssignment(Struct):
    """Element of `SyncGroupRequest.assignments`.

    Source: `SyncGroupRequest.json`, struct `SyncGroupRequestAssignment`.
    """

    member_id: str = string()
    """The ID of the member to assign."""

    assignment: bytes = bytes_()
    """The member assignment."""


class SyncGroupRequest(Request["SyncGroupResponse"]):
    """Request of the SyncGroup API.

    Versions 1 and 2 are the same as version 0.

    Starting from version 3, we add a new field called groupInstanceId to indicate member
    identity across restarts.

    Version 4 is the first flexible version.

    Starting from version 5, the client sends the Protocol Type and the Protocol Name to the
    broker (KIP-559). The broker will reject the request if they are inconsistent with the
    Type and Name known by the broker.

    Source: `SyncGroupRequest.json`.
    """

    API_KEY = 14
    NAME = "SyncGroup"
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 4

    group_id: str = string()
    """The unique group identifier."""

    generation_id: int = i32()
    """The generation of the group."""

    member_id: str = string()
    """The member ID assigned by the group."""

    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    """The unique identifier of the consumer instance provided by end user."""

    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The group protocol type."""

    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The group protocol name."""

    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)
    """Each assignment."""


class SyncGroupResponse(Response, request=SyncGroupRequest):
    """Response to `SyncGroupRequest`.

    Version 1 adds throttle time.

    Starting in version 2, on quota violation, brokers send out responses before throttling.

    Starting from version 3, syncGroupRequest supports a new field called groupInstanceId to
    indicate member identity across restarts.

    Version 4 is the first flexible version.

    Starting from version 5, the broker sends back the Protocol Type and the Protocol Name to
    the client (KIP-559).

    Source: `SyncGroupResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The group protocol type."""

    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The group protocol name."""

    assignment: bytes = bytes_()
    """The member assignment."""
