"""SyncGroup (API key 14): distribute the leader's assignments to the members of a classic group."""

from __future__ import annotations

from aiokq.wire.fields import array, bytes_, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["SyncGroupRequest", "SyncGroupRequestAssignment", "SyncGroupResponse"]


class SyncGroupRequestAssignment(Struct):
    """Assignment of one member: an element of `SyncGroupRequest.assignments`.

    Source: `SyncGroupRequest.json`, struct `SyncGroupRequestAssignment`.
    """

    member_id: str = string()
    """The member id of the member that gets the assignment."""

    assignment: bytes = bytes_()
    """The assignment of the member."""


class SyncGroupRequest(Request["SyncGroupResponse"]):
    """Request of the SyncGroup API.

    Versions 1 and 2 are the same as version 0.

    Version 3 adds the field group_instance_id, which identifies a member across restarts.

    Version 4 is the first flexible version.

    Version 5 adds ProtocolType and ProtocolName (KIP-559). The broker refuses the request if they
    differ from those of the group.

    Source: `SyncGroupRequest.json`.
    """

    API_KEY = 14
    NAME = "SyncGroup"
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 4

    group_id: str = string()
    """The id of the group that has the member."""

    generation_id: int = i32()
    """The generation of the group."""

    member_id: str = string()
    """The member ID assigned by the group coordinator."""

    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    """The group.instance.id of the member (static membership), or null."""

    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The protocol type of the group, such as `consumer`, or null."""

    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The name of the group's protocol, such as `range`, or null."""

    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)
    """The assignment of each member if the group's leader sends the request; empty otherwise."""


class SyncGroupResponse(Response, request=SyncGroupRequest):
    """Response to `SyncGroupRequest`.

    Version 1 adds the throttle time.

    From version 2 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 3 of the request adds group_instance_id, which identifies a member across restarts. The
    response is the same.

    Version 4 is the first flexible version.

    Version 5 adds ProtocolType and ProtocolName (KIP-559).

    Source: `SyncGroupResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    protocol_type: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The protocol type of the group, such as `consumer`, or null."""

    protocol_name: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The name of the group's protocol, such as `range`, or null."""

    assignment: bytes = bytes_()
    """The assignment of the member."""
