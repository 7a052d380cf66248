"""DescribeAcls (29), versions 1-3: list the ACLs that match a filter.

Errors: CLUSTER_AUTHORIZATION_FAILED, SECURITY_DISABLED (the broker has no authorizer that decides
by ACLs). A filter with the code 0 closes the connection, as in Kafka.

v2  flexible   v3  the resource type USER

Source: Kafka ``AclApis.handleDescribeAcls``, ``DescribeAclsRequest.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.acl_calls import check_enforced, check_filter
from aiokq.broker.metadata.controller.acl_changes import AclFilter
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Acls
    from aiokq.broker.handlers.call import Call


async def handle(acls: Acls, request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    """List the matching ACLs, grouped by resource pattern; within a group, the oldest is first."""
    acl_filter = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    check_filter(acl_filter)
    try:
        call.authorize(Operation.DESCRIBE, ResourceType.CLUSTER)
        check_enforced(acls)
    except BrokerError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    found: dict[tuple[int, int, str], DescribeAclsResource] = {}
    async for acl in call.each(await acls.matching(acl_filter, call.pace)):
        pattern = acl.resource_type, acl.pattern_type, acl.resource_name
        resource = found.get(pattern)
        if resource is None:
            resource = found[pattern] = DescribeAclsResource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
            )
        resource.acls.append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
    return DescribeAclsResponse(
        error_code=0,
        error_message="",
        resources=list(found.values()),
    )
