"""Decisions about CreateAcls and DeleteAcls requests.

The functions return the metadata records to write. They depend only on their arguments, and have no
side effects. They yield after some steps, so that other tasks can run: a request may have very many
filters, and each filter is compared with all ACLs.

Source: Kafka ``AclControlManager.java``, ``ResourcePatternFilter.java``,
``AccessControlEntryFilter.java`` (4.2).
Tests: ``tests/unit/broker/metadata/controller/test_acl_changes.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.controller.decision import Decision
from aiokq.broker.metadata.image.principals_image import AclValue
from aiokq.connection.turn import STEPS_PER_LOOK
from aiokq.core.acl_types import (
    ANY_NAME,
    CLUSTER_NAME,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from aiokq.core.errors import BrokerError, InvalidRequest
from aiokq.core.named_tuple import NamedTuple
from aiokq.wire.principal_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.connection.turn import Steps

__all__ = ["AclFilter", "create_acls", "delete_acls"]

MOST_RECORDS: Final = 10_000
"""Maximum number of ACLs that one request creates or deletes, as in Kafka."""

MOST_MATCHES: Final = 10 * MOST_RECORDS
"""Maximum number of ACLs in the results of all filters of one request.

An ACL is in the result of each filter that it matches. Without this limit, a small request could
have a response of any size.
"""

MATCHES_PER_STEP: Final = 8
"""Number of comparisons of an ACL with a filter that count as one step."""


class AclFilter(NamedTuple):
    """A filter of ACLs with Kafka's codes. ANY, or None in a text field, matches every value.

    The pattern type MATCH finds the literal and prefixed patterns that cover the resource name.
    Every other value matches only itself: an operation does not match ALL, and a host does not
    match ``*``.
    """

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, acl: AccessControlEntryRecord) -> bool:
        """Return whether an ACL passes the filter."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
            and self._matches_pattern(acl.pattern_type, acl.resource_name)
        )

    def _matches_pattern(self, pattern_type: int, name: str) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.resource_name == name
        if pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(name)
        return name in (self.resource_name, ANY_NAME)

    def check(self) -> None:
        """Check that all codes are known.

        Raises:
            InvalidRequest: a code is unknown.
        """
        if not (
            ResourceType.ANY <= self.resource_type <= max(ResourceType)
            and PatternType.ANY <= self.pattern_type <= max(PatternType)
        ):
            raise InvalidRequest("Unknown patternFilter.")
        if not (
            Operation.ANY <= self.operation <= max(Operation)
            and PermissionType.ANY <= self.permission_type <= max(PermissionType)
        ):
            raise InvalidRequest("Unknown entryFilter.")


def create_acls(
    image: MetadataImage, acls: Sequence[AclValue], *, new_id: Callable[[], uuid.UUID]
) -> Steps[Decision[list[BrokerError | None]]]:
    """Return an error or None for each ACL, and the records of the ACLs that do not exist yet.

    Raises:
        InvalidRequest: there are too many ACLs.
    """
    results: list[BrokerError | None] = []
    existing = image.principals.acl_values
    created: dict[AclValue, AccessControlEntryRecord] = {}
    for count, acl in enumerate(acls, 1):
        if not count % STEPS_PER_LOOK:
            yield
        error = _refusal(acl)
        results.append(error)
        if error is not None or acl in existing or acl in created:
            continue
        if len(created) >= MOST_RECORDS:
            raise InvalidRequest(f"Cannot create more than {MOST_RECORDS} acls in a request.")
        created[acl] = _record(acl, new_id())
    return Decision(results, list(created.values()))


def delete_acls(
    image: MetadataImage, filters: Iterable[AclFilter]
) -> Steps[Decision[list[Sequence[AccessControlEntryRecord] | BrokerError]]]:
    """Return for each filter its ACLs or its error, and the records that remove these ACLs.

    An ACL that matches several filters is in the result of each.

    Raises:
        InvalidRequest: too many ACLs match.
    """
    search = _Search(list(image.principals.acls.values()))
    matches = 0
    known: dict[AclFilter, list[AccessControlEntryRecord]] = {}
    results: list[Sequence[AccessControlEntryRecord] | BrokerError] = []
    removed: dict[uuid.UUID, RemoveAccessControlEntryRecord] = {}
    for count, each in enumerate(filters, 1):
        if not count % STEPS_PER_LOOK:
            yield
        try:
            each.check()
        except InvalidRequest as error:
            results.append(error)
            continue
        matching = known.get(each)
        if matching is None:
            matching = known[each] = yield from search.matching(each)
        matches += len(matching)
        if matches > MOST_MATCHES:
            raise InvalidRequest(
                f"The filters match more than {MOST_MATCHES} acls, counting an acl for each filter."
            )
        for acl in matching:
            removed[acl.id] = RemoveAccessControlEntryRecord(id=acl.id)
        if len(removed) > MOST_RECORDS:
            raise InvalidRequest(
                f"Cannot remove more than {MOST_RECORDS} acls in a single delete operation."
            )
        results.append(matching)
    return Decision(results, list(removed.values()))


class _Search:
    """Finds the ACLs that match filters, by indexes of resource names and principals."""

    def __init__(self, acls: Sequence[AccessControlEntryRecord]) -> None:
        self._all = acls
        self._by_name: dict[str, list[AccessControlEntryRecord]] = {}
        self._by_principal: dict[str, list[AccessControlEntryRecord]] = {}

    def matching(self, each: AclFilter) -> Steps[list[AccessControlEntryRecord]]:
        """Return the ACLs that match a filter, in the order of their creation."""
        if not self._by_name:
            for count, acl in enumerate(self._all, 1):
                self._by_name.setdefault(acl.resource_name, []).append(acl)
                self._by_principal.setdefault(acl.principal, []).append(acl)
                if not count % STEPS_PER_LOOK:
                    yield
        acls = self._all
        if each.resource_name is not None and each.pattern_type != PatternType.MATCH:
            acls = self._by_name.get(each.resource_name, ())
        if each.principal is not None:
            acls = min(acls, self._by_principal.get(each.principal, ()), key=len)
        matching: list[AccessControlEntryRecord] = []
        size = MATCHES_PER_STEP * STEPS_PER_LOOK
        for start in range(0, len(acls), size):
            matching += filter(each.matches, acls[start : start + size])
            yield
        return matching


def _record(acl: AclValue, acl_id: uuid.UUID) -> AccessControlEntryRecord:
    resource_type, name, pattern_type, principal, host, operation, permission_type = acl
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=resource_type,
        resource_name=name,
        pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission_type,
    )


def _refusal(acl: AclValue) -> InvalidRequest | None:
    """Return the error of an ACL that cannot be created; None if it can."""
    resource_type, name, pattern_type, principal, _, operation, permission_type = acl
    if resource_type == ResourceType.CLUSTER and name != CLUSTER_NAME:
        return InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        return InvalidRequest("Invalid empty resource name")
    if not ResourceType.TOPIC <= resource_type <= max(ResourceType):
        return InvalidRequest("Invalid resourceType UNKNOWN")
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return InvalidRequest("Invalid patternType UNKNOWN")
    if not Operation.ALL <= operation <= max(Operation):
        return InvalidRequest("Invalid operation UNKNOWN")
    if permission_type not in (PermissionType.DENY, PermissionType.ALLOW):
        return InvalidRequest("Invalid permissionType UNKNOWN")
    if ":" not in principal:
        return InvalidRequest(
            f"Could not parse principal from `{principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )
    return None
