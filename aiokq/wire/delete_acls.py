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
    """Filter of the ACLs to delete: an element of `DeleteAclsRequest.filters`.

    Source: `DeleteAclsRequest.json`, struct `DeleteAclsFilter`.
    """

    resource_type_filter: int = i8()
    """The resource type to match, as numbered in Kafka's ResourceType; 1 matches any type."""

    resource_name_filter: str | None = string(nullable_since=0)
    """The resource name to match, or null to match any name."""

    pattern_type_filter: int = i8(since=1, default=3)
    """The pattern type to match, as numbered in Kafka's PatternType; 1 matches any type."""

    principal_filter: str | None = string(nullable_since=0)
    """The principal to match, or null to match any principal."""

    host_filter: str | None = string(nullable_since=0)
    """The host to match, or null to match any host."""

    operation: int = i8()
    """The operation to match, as numbered in Kafka's AclOperation; 1 matches any operation."""

    permission_type: int = i8()
    """The permission type to match, as numbered in Kafka's AclPermissionType; 1 matches any type.
    """


class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    """Request of the DeleteAcls API.

    Apache Kafka 4.0 removed version 0.

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
    """The filters; an ACL is deleted if it matches one of them."""


class DeleteAclsMatchingAcl(Struct):
    """ACL that matches the filter: an element of `DeleteAclsFilterResult.matching_acls`.

    Source: `DeleteAclsResponse.json`, struct `DeleteAclsMatchingAcl`.
    """

    error_code: int = i16()
    """The error code, or 0 if the ACL was deleted."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if the ACL was deleted."""

    resource_type: int = i8()
    """The resource type, as numbered in Kafka's ResourceType."""

    resource_name: str = string()
    """The name of the resource that the ACL applies to."""

    pattern_type: int = i8(since=1, default=3)
    """The pattern type of the resource name: 3 (LITERAL) or 4 (PREFIXED)."""

    principal: str = string()
    """The principal, such as `User:alice`."""

    host: str = string()
    """The host, or `*` for all hosts."""

    operation: int = i8()
    """The operation, as numbered in Kafka's AclOperation."""

    permission_type: int = i8()
    """The permission type, as numbered in Kafka's AclPermissionType."""


class DeleteAclsFilterResult(Struct):
    """Result for one filter: an element of `DeleteAclsResponse.filter_results`.

    Source: `DeleteAclsResponse.json`, struct `DeleteAclsFilterResult`.
    """

    error_code: int = i16()
    """The error code, or 0 if the filter succeeded."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if the filter succeeded."""

    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)
    """The ACLs that match the filter."""


class DeleteAclsResponse(Response, request=DeleteAclsRequest):
    """Response to `DeleteAclsRequest`.

    Apache Kafka 4.0 removed version 0.

    Version 1 adds the pattern type of the resource.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Version 3 adds the resource type USER.

    Source: `DeleteAclsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
    """The result for each filter."""
