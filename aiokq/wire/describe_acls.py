"""The DescribeAcls API (key 29), all versions."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["AclDescription", "DescribeAclsRequest", "DescribeAclsResource", "DescribeAclsResponse"]


class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    """Request of the DescribeAcls API.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.

    Version 1 adds resource pattern type.

    Version 2 enables flexible versions.

    Version 3 adds user resource type.

    Source: `DescribeAclsRequest.json`.
    """

    API_KEY = 29
    NAME = "DescribeAcls"
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_SINCE = 2

    resource_type_filter: int = i8()
    """The resource type."""

    resource_name_filter: str | None = string(nullable_since=0)
    """The resource name, or null to match any resource name."""

    pattern_type_filter: int = i8(since=1, default=3)
    """The resource pattern to match."""

    principal_filter: str | None = string(nullable_since=0)
    """The principal to match, or null to match any principal."""

    host_filter: str | None = string(nullable_since=0)
    """The host to match, or null to match any host."""

    operation: int = i8()
    """The operation to match."""

    permission_type: int = i8()
    """The permission type to match."""


class AclDescription(Struct):
    """Element of `DescribeAclsResource.acls`.

    Source: `DescribeAclsResponse.json`, struct `AclDescription`.
    """

    principal: str = string()
    """The ACL principal."""

    host: str = string()
    """The ACL host."""

    operation: int = i8()
    """The ACL operation."""

    permission_type: int = i8()
    """The ACL permission type."""


class DescribeAclsResource(Struct):
    """Element of `DescribeAclsResponse.resources`.

    Source: `DescribeAclsResponse.json`, struct `DescribeAclsResource`.
    """

    resource_type: int = i8()
    """The resource type."""

    resource_name: str = string()
    """The resource name."""

    pattern_type: int = i8(since=1, default=3)
    """The resource pattern type."""

    acls: list[AclDescription] = array(AclDescription)
    """The ACLs."""


class DescribeAclsResponse(Response, request=DescribeAclsRequest):
    """Response to `DescribeAclsRequest`.

    Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.

    Version 1 adds PatternType.

    Starting in version 1, on quota violation, brokers send out responses before throttling.

    Version 2 enables flexible versions.

    Version 3 adds user resource type.

    Source: `DescribeAclsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The duration in milliseconds for which the request was throttled due to a quota violation,
    or zero if the request did not violate any quota.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""

    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
    """Each Resource that is referenced in an ACL."""
