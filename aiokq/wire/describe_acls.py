"""DescribeAcls (API key 29): list the access control lists (ACLs) that match a filter."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["AclDescription", "DescribeAclsRequest", "DescribeAclsResource", "DescribeAclsResponse"]


class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    """Request of the DescribeAcls API.

    Apache Kafka 4.0 removed version 0.

    Version 1 adds the pattern type of the resource.

    Version 2 is the first flexible version.

    Version 3 adds the resource type USER.

    Source: `DescribeAclsRequest.json`.
    """

    API_KEY = 29
    NAME = "DescribeAcls"
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_SINCE = 2

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


class AclDescription(Struct):
    """One ACL of the resource: an element of `DescribeAclsResource.acls`.

    Source: `DescribeAclsResponse.json`, struct `AclDescription`.
    """

    principal: str = string()
    """The principal, such as `User:alice`."""

    host: str = string()
    """The host, or `*` for all hosts."""

    operation: int = i8()
    """The operation, as numbered in Kafka's AclOperation."""

    permission_type: int = i8()
    """The permission type, as numbered in Kafka's AclPermissionType."""


class DescribeAclsResource(Struct):
    """ACLs of one resource: an element of `DescribeAclsResponse.resources`.

    Source: `DescribeAclsResponse.json`, struct `DescribeAclsResource`.
    """

    resource_type: int = i8()
    """The resource type, as numbered in Kafka's ResourceType."""

    resource_name: str = string()
    """The name of the resource that the ACLs apply to."""

    pattern_type: int = i8(since=1, default=3)
    """The pattern type of the resource name: 3 (LITERAL) or 4 (PREFIXED)."""

    acls: list[AclDescription] = array(AclDescription)
    """The ACLs of the resource that match the filter."""


class DescribeAclsResponse(Response, request=DescribeAclsRequest):
    """Response to `DescribeAclsRequest`.

    Apache Kafka 4.0 removed version 0.

    Version 1 adds PatternType.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Version 3 adds the resource type USER.

    Source: `DescribeAclsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""

    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
    """The resources that have a matching ACL."""
