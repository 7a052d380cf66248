"""Functions that the handlers of ACLs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.connection.request_context import CloseConnection
from aiokq.core.acl_types import Operation, PatternType, PermissionType, ResourceType
from aiokq.core.errors import SecurityDisabled

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Acls
    from aiokq.broker.metadata.controller.acl_changes import AclFilter
    from aiokq.broker.metadata.image.principals_image import AclValue

__all__ = ["acl_line", "check_enforced", "check_filter", "refuse_zero"]


def refuse_zero(*codes: int) -> None:
    """Close the connection if a code is 0, as Kafka does.

    Raises:
        CloseConnection: a code is 0.
    """
    if 0 in codes:
        raise CloseConnection("an ACL or a filter of ACLs has the code 0 (UNKNOWN)")


def check_filter(acl_filter: AclFilter) -> None:
    """Close the connection if a code of a filter is 0.

    Raises:
        CloseConnection: a code is 0.
    """
    refuse_zero(
        acl_filter.resource_type,
        acl_filter.pattern_type,
        acl_filter.operation,
        acl_filter.permission_type,
    )


def check_enforced(acls: Acls) -> None:
    """Check that ACLs have an effect on this broker.

    Raises:
        SecurityDisabled: they have no effect.
    """
    if not acls.are_enforced:
        raise SecurityDisabled("No Authorizer is configured on the broker")


def acl_line(value: AclValue) -> str:
    """Return an ACL as a line for the audit log, in the form of `aiokq.core.acls`."""
    from aiokq.core.acls import Acl

    resource_type, name, pattern_type, principal, host, operation, permission_type = value
    return str(
        Acl(
            principal,
            Operation(operation),
            ResourceType(resource_type),
            name,
            PatternType(pattern_type),
            PermissionType(permission_type),
            host,
        )
    )
