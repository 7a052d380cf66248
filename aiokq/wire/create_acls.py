"""CreateAcls (API key 30): create access control lists (ACLs)."""

from __future__ import annotations

from aiokq.wire.fields import array, i8, i16, i32, string
from aiokq.wire.struct import Request, Response, Struct

__all__ = ["AclCreation", "AclCreationResult", "CreateAclsRequest", "CreateAclsResponse"]


class AclCreation(Struct):
    """ACL to create: an element of `CreateAclsRequest.creations`.

    Source: `CreateAclsRequest.json`, struct `AclCreation`.
    """

    resource_type: int = i8()
    """The resource type, as numbered in Kafka's ResourceType."""

    resource_name: str = string()
    """The name or the name prefix of the resources, or `*` for all resources."""

    resource_pattern_type: int = i8(since=1, default=3)
    """The pattern type of the resource name: 3 (LITERAL) or 4 (PREFIXED)."""

    principal: str = string()
    """The principal, such as `User:alice`."""

    host: str = string()
    """The host, or `*` for all hosts."""

    operation: int = i8()
    """The operation that the ACL allows or denies, as numbered in Kafka's AclOperation."""

    permission_type: int = i8()
    """The permission type: 2 (DENY) or 3 (ALLOW)."""


class CreateAclsRequest(Request["CreateAclsResponse"]):
    """Request of the CreateAcls API.

    Apache Kafka 4.0 removed version 0.

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
    """Result for one ACL: an element of `CreateAclsResponse.results`.

    Source: `CreateAclsResponse.json`, struct `AclCreationResult`.
    """

    error_code: int = i16()
    """The error code, or 0 if there was no error."""

    error_message: str | None = string(nullable_since=0)
    """The error message, or null if there was no error."""


class CreateAclsResponse(Response, request=CreateAclsRequest):
    """Response to `CreateAclsRequest`.

    Apache Kafka 4.0 removed version 0.

    From version 1 on, a client that exceeds a quota gets the response immediately, and then has to
    pause for `throttle_time_ms` (KIP-219).

    Version 2 is the first flexible version.

    Version 3 adds the resource type USER.

    Source: `CreateAclsResponse.json`.
    """

    throttle_time_ms: int = i32()
    """The throttle time in milliseconds if the client exceeded a quota; 0 otherwise."""

    results: list[AclCreationResult] = array(AclCreationResult)
    """The result for each ACL."""
