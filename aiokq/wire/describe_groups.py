"""DescribeGroups (API key 15): describe groups of the classic protocol and their members."""

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

    Version 3 adds IncludeAuthorizedOperations.

    From version 4 on, the response has the group.instance.id of each member.

    Version 5 is the first flexible version.

    From version 6 on, a group that does not exist gets the error GROUP_ID_NOT_FOUND (KIP-1043).

    Source: `DescribeGroupsRequest.json`.
    """

    API_KEY = 15
    NAME = "DescribeGroups"
    MIN_VERSION = 0
    MAX_VERSION = 6
    FLEXIBLE_SINCE = 5

    groups: list[str] = array(string)
    """The ids of the groups to describe."""

    include_authorized_operations: bool = boolean(since=3)
    """Whether the response should have the authorized operations of each group."""


class DescribedGroupMember(Struct):
    """Description of one member: an element of `DescribedGroup.members`.

    Source: `DescribeGroupsResponse.json`, struct `DescribedGroupMember`.
    """

    member_id: str = string()
    """The id of the described member."""

    group_instance_id: str | None = string(since=4, nullable_since=4, default=None, ignorable=True)
    """The group.instance.id of the member (static membership), or null."""

    client_id: str = string()
    """The client id of the member's latest JoinGroup request."""

    client_host: str = string()
    """The host from which the member connected."""

    member_metadata: bytes = bytes_()
    """The member's metadata for the protocol that the group uses."""

    member_assignment: bytes = bytes_()
    """The assignment that the group's leader computed for the member."""


class DescribedGroup(Struct):
    """Description of one group: an element of `DescribeGroupsResponse.groups`.

    Source: `DescribeGroupsResponse.json`, struct `DescribedGroup`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(since=6, nullable_since=6, default=None)
    """The error message, or null if there was no error."""

    group_id: str = string()
    """The id of the described group."""

    group_state: str = string()
    """The state of the group, such as `Stable`; the empty string if it is unknown."""

    protocol_type: str = string()
    """The group protocol type, or the empty string."""

    protocol_data: str = string()
    """The name of the protocol that the group uses, or the empty string."""

    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    """The group members."""

    authorized_operations: int = i32(since=3, default=-2147483648)
    """The operations on the group that the client may do: bit n is operation n of Kafka's
    AclOperation; -2147483648 if the response does not give the operations.
    """


class DescribeGroupsResponse(Response, request=DescribeGroupsRequest):
    """Response to `DescribeGroupsRequest`.

    Version 1 adds the throttle time.

    From version 2 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 3 adds the authorized operations.

    Version 4 adds the group.instance.id of each member, which may be null.

    Version 5 is the first flexible version.

    From version 6 on, a group that does not exist gets the error GROUP_ID_NOT_FOUND (KIP-1043).

    Source: `DescribeGroupsResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    groups: list[DescribedGroup] = array(DescribedGroup)
    """The result for each group."""
