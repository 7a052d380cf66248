"""ListGroups (API key 16): list the groups that a broker coordinates."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["ListGroupsRequest", "ListGroupsResponse", "ListedGroup"]


class ListGroupsRequest(Request["ListGroupsResponse"]):
    """Request of the ListGroups API.

    Versions 1 and 2 are the same as version 0.

    Version 3 is the first flexible version.

    Version 4 adds StatesFilter (KIP-518).

    Version 5 adds TypesFilter (KIP-848).

    Source: `ListGroupsRequest.json`.
    """

    API_KEY = 16
    NAME = "ListGroups"
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_SINCE = 3

    states_filter: list[str] = array(string, since=4)
    """The states of the groups to list; empty for all states."""

    types_filter: list[str] = array(string, since=5)
    """The types of the groups to list; empty for all types."""


class ListedGroup(Struct):
    """One group: an element of `ListGroupsResponse.groups`.

    Source: `ListGroupsResponse.json`, struct `ListedGroup`.
    """

    group_id: str = string()
    """The id of the listed group."""

    protocol_type: str = string()
    """The protocol type of the group, such as `consumer`."""

    group_state: str = string(since=4, ignorable=True)
    """The state of the group, such as `Stable`."""

    group_type: str = string(since=5, ignorable=True)
    """The type of the group, such as `consumer` or `classic`."""


class ListGroupsResponse(Response, request=ListGroupsRequest):
    """Response to `ListGroupsRequest`.

    Version 1 adds the throttle time.

    From version 2 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 3 is the first flexible version.

    Version 4 adds GroupState (KIP-518).

    Version 5 adds GroupType (KIP-848).

    Source: `ListGroupsResponse.json`.
    """

    throttle_time_ms: int = i32(since=1, ignorable=True)
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    groups: list[ListedGroup] = array(ListedGroup)
    """The groups that match the filters of the request."""
