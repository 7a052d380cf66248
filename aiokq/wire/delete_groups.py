"""DeleteGroups (API key 42): delete groups and their committed offsets."""

from __future__ import annotations

from aiokq.wire.fields import array, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["DeletableGroupResult", "DeleteGroupsRequest", "DeleteGroupsResponse"]


class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    """Request of the DeleteGroups API.

    Version 1 is the same as version 0.

    Version 2 is the first flexible version.

    Source: `DeleteGroupsRequest.json`.
    """

    API_KEY = 42
    NAME = "DeleteGroups"
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_SINCE = 2

    groups_names: list[str] = array(string)
    """The ids of the groups to delete."""


class DeletableGroupResult(Struct):
    """Result for one group: an element of `DeleteGroupsResponse.results`.

    Source: `DeleteGroupsResponse.json`, struct `DeletableGroupResult`.
    """

    group_id: str = string()
    """The id of the group that was to be deleted."""

    error_code: int = i16()
    """The error code, or 0 if the deletion succeeded."""


class DeleteGroupsResponse(Response, request=DeleteGroupsRequest):
    """Response to `DeleteGroupsRequest`.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Source: `DeleteGroupsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    results: list[DeletableGroupResult] = array(DeletableGroupResult)
    """The result for each group."""
