"""The DescribeGroups API (key 15), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, bytes_, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribedGroup",
    "DescribedGroupMember",
]


class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    """Request of the DescribeGroups API.

    Versions 1 and 2 are the same as version 0.

    Starting in version 3, authorized operations can be requested.

    Starting in version 4, the response will include group.instance.id info for members.

    Version 5 is the first flexible version.

    Version 6 returns error code GROUP_ID_NOT_FOUND if the group ID is not found (KIP-1043).

    Source: `DescribeGroupsRequest.json`.
    """

    API_KEY = 15
    NAME = "DescribeGroups"
    MIN_VERSION = 0
    MAX_VERSION = 6
    FLEXIBLE_SINCE = 5

    groups: list[str] = array(string)
    """The names of the groups to describe."""

    include_authorized_operations: bool = boolean(since=3)
    """Whether to include authorized operations."""


class DescribedGroupMember(Struct):
    """Element of `DescribedGroup.members`.

    Source: `DescribeGroupsResponse.json`, struct `DescribedGroupMember`.
    """

    member_id: str = string()
    """The member id."""

    group_instance_id: str | None = string(since=4, nullable_since=4, default=None, ignorable=True)
    """The unique identifier of the consumer instance provided by end user."""

    client_id: str = string()
    """The client ID used in the member's latest join group request."""

    client_host: str = string()
    """The client host."""

    member_metadata: bytes = bytes_()
    """The metadata corresponding to the current group protocol in use."""

    member_assignment: bytes = bytes_()
    """The current assignment provided by the group leader."""


class DescribedGroup(Struct):
    """Element of `DescribeGroupsResponse.groups`.

    Source: `DescribeGroupsResponse.json`, struct `DescribedGroup`.
    """

    error_code: int = i16()
    """The describe error, or 0 if there was no error."""

    error_message: str | None = string(since=6, nullable_since=6, default=None)
    """The describe error message, or null if there was no error."""

    group_id: str = string()
    """The group ID string."""

    group_state: str = string()
    """The group state string, or the empty string."""

    protocol_type: str = string()
    """The group protocol type, or the empty string."""

    protocol_data: str = string()
    """The group protocol data, or the empty string."""

    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    """The group members."""

    authorized_operations: int = i32(since=3, default=-2147483648)
    """32-bit bitfield to represent authorized operations for this group."""


class DescribeGroupsResponse(Response, request=DescribeGroupsRequest):
    """Response to `DescribeGroupsRequest`.

    Version 1 added throttle time.

    Starting in version 2, on quota violation, brokers send out responses before throttling.

    Starting in version 3, brokers can send authorized operations.

    Starting in version 4, the response will optionally include group.instance.id info for
    members.

    Version 5 is the first flexible version.

    Version 6 returns error code GROUP_ID_NOT_FOUND if the group ID is not found (KIP-1043).

    Source: `DescribeGroupsResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    groups: list[DescribedGroup] = array(DescribedGroup)
    """Each described group."""
