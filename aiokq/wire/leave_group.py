"""LeaveGroup (API key 13): remove members from a classic group."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["LeaveGroupRequest", "LeaveGroupResponse", "MemberIdentity", "MemberResponse"]


class MemberIdentity(Struct):
    """One member to remove: an element of `LeaveGroupRequest.members`.

    Source: `LeaveGroupRequest.json`, struct `MemberIdentity`.
    """

    member_id: str = string(since=3)
    """The member id of the member to remove."""

    group_instance_id: str | None = string(since=3, nullable_since=3, default=None)
    """The group.instance.id of the member to remove, or null."""

    reason: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The reason why the member leaves the group, or null."""


class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    """Request of the LeaveGroup API.

    Versions 1 and 2 are the same as version 0.

    Version 3 replaces the member id by a list of members, each with member id and
    group.instance.id.

    Version 4 is the first flexible version.

    Version 5 adds Reason (KIP-800).

    Source: `LeaveGroupRequest.json`.
    """

    API_KEY = 13
    NAME = "LeaveGroup"
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 4

    group_id: str = string()
    """The id of the group to leave."""

    member_id: str = string(until=2)
    """The member id of the member to remove."""

    members: list[MemberIdentity] = array(MemberIdentity, since=3)
    """The members to remove."""


class MemberResponse(Struct):
    """Result for one member: an element of `LeaveGroupResponse.members`.

    Source: `LeaveGroupResponse.json`, struct `MemberResponse`.
    """

    member_id: str = string(since=3)
    """The member id, as in the request."""

    group_instance_id: str | None = string(since=3, nullable_since=3)
    """The group.instance.id, as in the request, or null."""

    error_code: int = i16(since=3)
    """The error code, or 0 if there was no error."""


class LeaveGroupResponse(Response, request=LeaveGroupRequest):
    """Response to `LeaveGroupRequest`.

    Version 1 adds the throttle time.

    From version 2 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 3 adds a result for each member of the request.

    Version 4 is the first flexible version.

    Version 5 is the same as version 4.

    Source: `LeaveGroupResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    members: list[MemberResponse] = array(MemberResponse, since=3)
    """The result for each member."""
