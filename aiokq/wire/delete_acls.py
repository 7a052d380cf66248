"""DeleteAcls (API key 31): delete the access control lists (ACLs) that match filters."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = [
    "DeleteAclsFilter",
    "DeleteAclsFilterResult",
    "DeleteAclsMatchingAcl",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
]


class DeleteAclsFilter(Struct):
    """Element of `DeleteAclsRequest.filters`.

    Source: `DeleteAclsRequest.json`, struct `DeleteAclsFilter`.
    """

    resource_type_filter: int = i8()
    """The resource type."""

    resource_name_filter: str | None = string(nullable_since=0)
    """The resource name, or null to match any resource name."""

    pattern_type_filter: int = i8(since=1, default=3)
    """The pattern type."""

    principal_filter: str | None = string(nullable_since=0)
    """The principal filter, or null to accept all principals."""

    host_filter: str | None = string(nullable_since=0)
    """The host filter, or null to accept all hosts."""

    operation: int = i8()
    """The ACL operation."""

    permission_type: int = i8()
    """The permission type."""


class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    """Request of the DeleteAcls API.

    Apache Kafka 4.0 removed the versions before 1.

    Version 1 adds the pattern type.

    Version 2 is the first flexible version.

    Version 3 adds the resource type USER.

    Source: `DeleteAclsRequest.json`.
    """

    API_KEY = 31
    NAME = "DeleteAcls"
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_SINCE = 2

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)
    """The filters to use when deleting ACLs."""


class DeleteAclsMatchingAcl(Struct):
    """Element of `DeleteAclsFilterResult.matching_acls`.

    Source: `DeleteAclsResponse.json`, struct `DeleteAclsMatchingAcl`.
    """

    error_code: int = i16()
    """The deletion error code, or 0 if the deletion succeeded."""

    error_message: str | None = string(nullable_since=0)
    """The deletion error message, or null if the deletion succeeded."""

    resource_type: int = i8()
    """The ACL resource type."""

    resource_name: str = string()
    """The ACL resource name."""

    pattern_type: int = i8(since=1, default=3)
    """The ACL resource pattern type."""

    principal: str = string()
    """The ACL principal."""

    host: str = string()
    """The ACL host."""

    operation: int = i8()
    """The ACL operation."""

    permission_type: int = i8()
    """The ACL permission type."""


class DeleteAclsFilterResult(Struct):
    """Element of `DeleteAclsResponse.filter_results`.

    Source: `DeleteAclsResponse.json`, struct `DeleteAclsFilterResult`.
    """

    error_code: int = i16()
    """The error code, or 0 if the filter succeeded."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if the filter succeeded."""

    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)
    """The ACLs which matched this filter."""


class DeleteAclsResponse(Response, request=DeleteAclsRequest):
    """Response to `DeleteAclsRequest`.

    Apache Kafka 4.0 removed the versions before 1.

    Version 1 adds the pattern type of the resource.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Version 3 adds the resource type USER.

    Source: `DeleteAclsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
    """The results for each filter."""
