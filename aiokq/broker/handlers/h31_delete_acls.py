"""DeleteAcls (31), versions 1-3: delete the ACLs that match filters.

An ACL that several filters match is in the result of each. A filter that matches nothing is no
error. The deleted ACLs are no longer in force when the request is answered.

Errors of a filter: CLUSTER_AUTHORIZATION_FAILED, SECURITY_DISABLED (the broker has no authorizer
that decides by ACLs), INVALID_REQUEST, KAFKA_STORAGE_ERROR. A filter with the code 0 closes the
connection, as in Kafka.

v2  flexible   v3  the resource type USER

Source: Kafka ``AclApis.handleDeleteAcls``, ``DeleteAclsRequest.java``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.broker.handlers.acl_calls import acl_line, check_enforced, check_filter
from aiokq.broker.metadata.controller.acl_changes import AclFilter
from aiokq.broker.metadata.image.principals_image import acl_value
from aiokq.broker.permissions import Operation, ResourceType
from aiokq.core.errors import BrokerError
from aiokq.wire.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiokq.broker.handlers.areas import Acls
    from aiokq.broker.handlers.call import Call
    from aiokq.wire.principal_records import AccessControlEntryRecord


async def handle(acls: Acls, request: DeleteAclsRequest, call: Call) -> DeleteAclsResponse:
    """Delete the ACLs that match a filter, and list them by filter."""
    filters = [
        AclFilter(
            each.resource_type_filter,
            each.resource_name_filter,
            each.pattern_type_filter,
            each.principal_filter,
            each.host_filter,
            each.operation,
            each.permission_type,
        )
        async for each in call.each(request.filters)
    ]
    async for each in call.each(filters):
        check_filter(each)
    results: Sequence[Sequence[AccessControlEntryRecord] | BrokerError]
    try:
        call.authorize(Operation.ALTER, ResourceType.CLUSTER)
        check_enforced(acls)
        results = await acls.delete(filters, call.pace)
    except BrokerError as error:
        results = [error] * len(filters)
    deleted = {
        acl.id: acl for found in results if not isinstance(found, BrokerError) for acl in found
    }
    await call.changed_many("ACL deleted", (acl_line(acl_value(acl)) for acl in deleted.values()))
    answers = []
    for found in results:
        answers.append(await _result(found, call))
        if call.pace.spend():
            await call.pace.next()
    return DeleteAclsResponse(filter_results=answers)


async def _result(
    found: Sequence[AccessControlEntryRecord] | BrokerError, call: Call
) -> DeleteAclsFilterResult:
    if isinstance(found, BrokerError):
        return DeleteAclsFilterResult(error_code=found.code, error_message=found.message)
    return DeleteAclsFilterResult(
        error_code=0,
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_code=0,
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            async for acl in call.each(found)
        ],
    )
