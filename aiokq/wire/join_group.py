"""The JoinGroup API (key 11), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, boolean, bytes_, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "JoinGroupRequest",
    "JoinGroupRequestProtocol",
    "JoinGroupResponse",
    "JoinGroupResponseMember",
]


class JoinGroupRequestProtocol(Struct):
    """Element of `JoinGroupRequest.protocols`.

    Source: `JoinGroupRequest.json`, struct `JoinGroupRequestProtocol`.
    """

    name: str = string()
    """The protocol name."""

    metadata: bytes = bytes_()
    """The protocol metadata."""


class JoinGroupRequest(Request["JoinGroupResponse"]):
    """Request of the JoinGroup API.

    Version 1 adds RebalanceTimeoutMs. Version 2 and 3 are the same as version 1.

    Starting from version 4, the client needs to issue a second request to join group.

    Starting from version 5, we add a new field called groupInstanceId to indicate member
    identity across restarts. with assigned id.

    Version 6 is the first flexible version.

    Version 7 is the same as version 6.

    Version 8 adds the Reason field (KIP-800).

    Version 9 is the same as version 8.

    Source: `JoinGroupRequest.json`.
    """

    API_KEY = 11
    NAME = "JoinGroup"
    MIN_VERSION = 0
    MAX_VERSION = 9
    FLEXIBLE_SINCE = 6

    group_id: str = string()
    """The group identifier."""

    session_timeout_ms: int = i32()
    """The coordinator considers the consumer dead if it receives no heartbeat after this timeout
    in milliseconds.
    """

    rebalance_timeout_ms: int = i32(since=1, default=-1, ignorable=True)
    """The maximum time in milliseconds that the coordinator will wait for each member to rejoin
    when rebalancing the group.
    """

    member_id: str = string()
    """The member id assigned by the group coordinator."""

    group_instance_id: str | None = string(since=5, nullable_since=5, default=None)
    """The unique identifier of the consumer instance provided by end user."""

    protocol_type: str = string()
    """The unique name the for class of protocols implemented by the group we want to join."""

    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    """The list of protocols that the member supports."""

    reason: str | None = string(since=8, nullable_since=8, default=None, ignorable=True)
    """The reason why the member (re-)joins the group."""


class JoinGroupResponseMember(Struct):
    """Element of `JoinGroupResponse.members`.

    Source: `JoinGroupResponse.json`, struct `JoinGroupResponseMember`.
    """

    member_id: str = string()
    """The group member ID."""

    group_instance_id: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The unique identifier of the consumer instance provided by end user."""

    metadata: bytes = bytes_()
    """The group member metadata."""


class JoinGroupResponse(Response, request=JoinGroupRequest):
    """Response to `JoinGroupRequest`.

    Version 1 is the same as version 0.

    Version 2 adds throttle time.

    Starting in version 3, on quota violation, brokers send out responses before throttling.

    Starting in version 4, the client needs to issue a second request to join group with
    assigned id.

    Version 5 is bumped to apply group.instance.id to identify member across restarts.

    Version 6 is the first flexible version.

    Starting from version 7, the broker sends back the Protocol Type to the client (KIP-559).

    Version 8 is the same as version 7.

    Version 9 adds the SkipAssignment field.

    Source: `JoinGroupResponse.json`.
    """

    throttle_time_ms: int = i32(since=2, ignorable=True)
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    generation_id: int = i32(default=-1)
    """The generation ID of the group."""

    protocol_type: str | None = string(since=7, nullable_since=7, default=None, ignorable=True)
    """The group protocol name."""

    protocol_name: str | None = string(nullable_since=7)
    """The group protocol selected by the coordinator."""

    leader: str = string()
    """The leader of the group."""

    skip_assignment: bool = boolean(since=9)
    """True if the leader must skip running the assignment."""

    member_id: str = string()
    """The member ID assigned by the group coordinator."""

    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
    """The group members."""
