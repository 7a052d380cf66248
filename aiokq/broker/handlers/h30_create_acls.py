"""CreateAcls (30), versions 1-3: create ACLs, which are in force when the request is answered.

Errors of an ACL: CLUSTER_AUTHORIZATION_FAILED, SECURITY_DISABLED (the broker has no authorizer that
decides by ACLs), INVALID_REQUEST, KAFKA_STORAGE_ERROR. An ACL that exists already is no error. As
in Kafka, a code that only filters may have (ANY, MATCH) fails the whole request with
UNKNOWN_SERVER_ERROR, and the code 0 closes the connection.

v2  flexible   v3  the resource type USER

Source: Kafka ``AclApis.handleCreateAcls``, ``CreateAclsRequest.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.acl_calls import acl_line, check_enforced, refuse_zero
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.acl_types import PatternType, PermissionType
from aiokq.core.errors import BrokerError, UnknownServer
from aiokq.wire.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.broker.handlers.areas import Acls
    from aiokq.broker.handlers.call import Call


async def handle(acls: Acls, request: CreateAclsRequest, call: Call) -> CreateAclsResponse:
    """Create each ACL; the error of one does not affect the others, unless it fails the request."""
    async for each in call.each(request.creations):
        refuse_zero(
            each.resource_type, each.resource_pattern_type, each.operation, each.permission_type
        )
    values = [
        (
            each.resource_type,
            each.resource_name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        async for each in call.each(request.creations)
    ]
    results: Sequence[BrokerError | None]
    try:
        call.authorize(Operation.ALTER, ResourceType.CLUSTER)
        check_enforced(acls)
        async for each in call.each(request.creations):
            if _has_filter_code(each):
                raise UnknownServer("An ACL must not have the types ANY or MATCH, as a filter may.")
        results = await acls.create(values, call.pace)
    except BrokerError as error:
        results = [error] * len(values)
    else:
        created = [acl for acl, error in zip(values, results, strict=True) if error is None]
        await call.changed_many("ACL created", map(acl_line, dict.fromkeys(created)))
    return CreateAclsResponse(
        results=[
            AclCreationResult(
                error_code=0 if error is None else error.code,
                error_message="" if error is None else error.message,
            )
            async for error in call.each(results)
        ]
    )


def _has_filter_code(acl: AclCreation) -> bool:
    return (
        acl.resource_type == ResourceType.ANY
        or acl.resource_pattern_type in (PatternType.ANY, PatternType.MATCH)
        or acl.operation == Operation.ANY
        or acl.permission_type == PermissionType.ANY
    )
