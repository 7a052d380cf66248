"""JoinGroup (API key 11): join a classic group, and take part in its next generation."""

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
    """One protocol that the member supports: an element of `JoinGroupRequest.protocols`.

    Source: `JoinGroupRequest.json`, struct `JoinGroupRequestProtocol`.
    """

    name: str = string()
    """The name of the protocol, such as `range`."""

    metadata: bytes = bytes_()
    """The member's metadata for the protocol, such as its subscription."""


class JoinGroupRequest(Request["JoinGroupResponse"]):
    """Request of the JoinGroup API.

    Version 1 adds RebalanceTimeoutMs. Versions 2 and 3 are the same as version 1.

    From version 4 on, a new dynamic member gets its member id with the error MEMBER_ID_REQUIRED,
    and joins with a second request that has the id.

    Version 5 adds the field group_instance_id, which identifies a member across restarts.

    Version 6 is the first flexible version.

    Version 7 is the same as version 6.

    Version 8 adds Reason (KIP-800).

    Version 9 is the same as version 8.

    Source: `JoinGroupRequest.json`.
    """

    API_KEY = 11
    NAME = "JoinGroup"
    MIN_VERSION = 0
    MAX_VERSION = 9
    FLEXIBLE_SINCE = 6

    group_id: str = string()
    """The id of the group to join."""

    session_timeout_ms: int = i32()
    """The time in milliseconds without a heartbeat after which the coordinator removes the member.
    """

    rebalance_timeout_ms: int = i32(since=1, default=-1, ignorable=True)
    """The maximum time in milliseconds that the coordinator waits for each member to rejoin in a
    rebalance.
    """

    member_id: str = string()
    """The member id that the coordinator assigned; empty if it has not assigned an id yet."""

    group_instance_id: str | None = string(since=5, nullable_since=5, default=None)
    """The group.instance.id of the member (static membership), or null."""

    protocol_type: str = string()
    """The protocol type of the group, such as `consumer`."""

    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    """The protocols that the member supports, in the order of its preference."""

    reason: str | None = string(since=8, nullable_since=8, default=None, ignorable=True)
    """The reason why the member joins or rejoins the group, or null."""


class JoinGroupResponseMember(Struct):
    """One member, as described to the group's leader: an element of `JoinGroupResponse.members`.

    Source: `JoinGroupResponse.json`, struct `JoinGroupResponseMember`.
    """

    member_id: str = string()
    """The id of the group's member."""

    group_instance_id: str | None = string(since=5, nullable_since=5, default=None, ignorable=True)
    """The group.instance.id of the member (static membership), or null."""

    metadata: bytes = bytes_()
    """The member's metadata for the selected protocol."""


class JoinGroupResponse(Response, request=JoinGroupRequest):
    """Response to `JoinGroupRequest`.

    Version 1 is the same as version 0.

    Version 2 adds the throttle time.

    From version 3 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    From version 4 on, a new dynamic member gets its member id with the error MEMBER_ID_REQUIRED,
    and joins with a second request that has the id.

    Version 5 adds the group.instance.id of each member, which identifies the member across
    restarts.

    Version 6 is the first flexible version.

    Version 7 adds ProtocolType (KIP-559).

    Version 8 is the same as version 7.

    Version 9 adds SkipAssignment.

    Source: `JoinGroupResponse.json`.
    """

    throttle_time_ms: int = i32(since=2, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    generation_id: int = i32(default=-1)
    """The generation ID of the group."""

    protocol_type: str | None = string(since=7, nullable_since=7, default=None, ignorable=True)
    """The protocol type of the group, such as `consumer`, or null."""

    protocol_name: str | None = string(nullable_since=7)
    """The name of the protocol that the coordinator selected, such as `range`, or null."""

    leader: str = string()
    """The member id of the group's leader."""

    skip_assignment: bool = boolean(since=9)
    """Whether the leader must not compute an assignment."""

    member_id: str = string()
    """The member ID assigned by the group coordinator."""

    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
    """The members of the group if the response is for the group's leader; empty otherwise."""
