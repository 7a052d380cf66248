"""CreateAcls (API key 30): create access control lists (ACLs)."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["AclCreation", "AclCreationResult", "CreateAclsRequest", "CreateAclsResponse"]


class AclCreation(Struct):
    """Element of `CreateAclsRequest.creations`.

    Source: `CreateAclsRequest.json`, struct `AclCreation`.
    """

    resource_type: int = i8()
    """The type of the resource."""

    resource_name: str = string()
    """The resource name for the ACL."""

    resource_pattern_type: int = i8(since=1, default=3)
    """The pattern type for the ACL."""

    principal: str = string()
    """The principal for the ACL."""

    host: str = string()
    """The host for the ACL."""

    operation: int = i8()
    """The operation type for the ACL (read, write, etc.)."""

    permission_type: int = i8()
    """The permission type for the ACL (allow, deny, etc.)."""


class CreateAclsRequest(Request["CreateAclsResponse"]):
    """Request of the CreateAcls API.

    Apache Kafka 4.0 removed the versions before 1.

    Version 1 adds the pattern type of the resource.

    Version 2 is the first flexible version.

    Version 3 adds the resource type USER.

    Source: `CreateAclsRequest.json`.
    """

    API_KEY = 30
    NAME = "CreateAcls"
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_SINCE = 2

    creations: list[AclCreation] = array(AclCreation)
    """The ACLs to create."""


class AclCreationResult(Struct):
    """Element of `CreateAclsResponse.results`.

    Source: `CreateAclsResponse.json`, struct `AclCreationResult`.
    """

    error_code: int = i16()
    """The result error, or zero if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The result message, or null if there was no error."""


class CreateAclsResponse(Response, request=CreateAclsRequest):
    """Response to `CreateAclsRequest`.

    Apache Kafka 4.0 removed the versions before 1.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Version 3 adds the resource type USER.

    Source: `CreateAclsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """How long the client is throttled because it violated a quota, in milliseconds; 0 if it did
    not.
    """

    results: list[AclCreationResult] = array(AclCreationResult)
    """The results for each ACL creation."""
