"""`AclFilter`, and the calls that list, create and delete ACLs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from enum import IntEnum
from typing import TypeAlias, TypeVar

from aiokq.admin.results import Results, results_of
from aiokq.admin.retrying import per_item, repeated
from aiokq.cluster.engine import ClusterEngine
from aiokq.cluster.targets import ANY, CONTROLLER
from aiokq.core.acl_types import Operation, PatternType, PermissionType, ResourceType
from aiokq.core.acls import Acl, parse_acl
from aiokq.core.errors import ConfigError, KafkaError, ProtocolError, error_for, raise_for
from aiokq.core.frozen import frozen
from aiokq.wire.create_acls import AclCreation, CreateAclsRequest
from aiokq.wire.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl, DeleteAclsRequest
from aiokq.wire.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource

__all__ = [
    "AclCreated",
    "AclFilter",
    "AclLike",
    "AclsDeleted",
    "create_acls",
    "delete_acls",
    "describe_acls",
]

E = TypeVar("E", bound=IntEnum)


@frozen
class AclFilter:
    """A filter of ACLs. A field that is None, or ANY, matches every value.

    Other values match only themselves: the operation READ does not match an ACL with ALL.

    Attributes:
        pattern_type: ANY matches patterns of any type with exactly `resource_name`; LITERAL and
            PREFIXED match patterns of this type; MATCH matches all patterns that cover a resource
            named `resource_name`.
    """

    principal: str | None = None
    operation: Operation = Operation.ANY
    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    permission_type: PermissionType = PermissionType.ANY
    host: str | None = None

    @classmethod
    def of(cls, acl: Acl) -> AclFilter:
        """Return the filter that matches only this ACL."""
        return cls(
            acl.principal,
            acl.operation,
            acl.resource_type,
            acl.resource_name,
            acl.pattern_type,
            acl.permission_type,
            acl.host,
        )


AclLike: TypeAlias = Acl | str
"""An ACL, or a line of text that `Acl.parse` reads."""


@frozen
class AclCreated:
    """The result of creating one ACL."""

    acl: Acl
    error: KafkaError | None = None


@frozen
class AclsDeleted:
    """The result of deleting the ACLs that match one filter.

    Attributes:
        acls: the deleted ACLs; empty if no ACL matches the filter.
    """

    filter: AclFilter
    acls: tuple[Acl, ...] = ()
    error: KafkaError | None = None


async def describe_acls(
    engine: ClusterEngine, acl_filter: AclFilter, *, timeout: float | None
) -> tuple[Acl, ...]:
    """Implement `Admin.describe_acls`."""
    if not isinstance(acl_filter, AclFilter):
        raise TypeError(f"filter must be an AclFilter or None, not {acl_filter!r}")

    async def ask(remaining: float) -> tuple[Acl, ...]:
        response = await engine.router.request(
            lambda _: DescribeAclsRequest(
                resource_type_filter=acl_filter.resource_type,
                resource_name_filter=acl_filter.resource_name,
                pattern_type_filter=acl_filter.pattern_type,
                principal_filter=acl_filter.principal,
                host_filter=acl_filter.host,
                operation=acl_filter.operation,
                permission_type=acl_filter.permission_type,
            ),
            DescribeAclsRequest,
            ANY,
            timeout=remaining,
        )
        raise_for(response.error_code, response.error_message, api="DescribeAcls")
        found = [
            _described(resource, entry)
            for resource in response.resources
            for entry in resource.acls
        ]
        return tuple(sorted(found, key=_order))

    return await repeated(engine, ask, api="DescribeAcls", timeout=timeout)


async def create_acls(
    engine: ClusterEngine, acls: Iterable[AclLike], *, timeout: float | None
) -> Results[Acl, AclCreated]:
    """Implement `Admin.create_acls`."""
    wanted = dict.fromkeys(acl for each in _listed(acls, "acls") for acl in _acls_of(each))

    async def attempt(
        left: Mapping[Acl, None], remaining: float
    ) -> dict[Acl, AclCreated | KafkaError]:
        response = await engine.request(
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=acl.resource_type,
                        resource_name=acl.resource_name,
                        resource_pattern_type=acl.pattern_type,
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission_type,
                    )
                    for acl in left
                ]
            ),
            node=CONTROLLER,
            timeout=remaining,
        )
        _check_count(left, response.results, "CreateAcls")
        return {
            acl: _error(result.error_code, result.error_message, "CreateAcls") or AclCreated(acl)
            for acl, result in zip(left, response.results, strict=True)
        }

    outcomes = await per_item(engine, wanted, attempt, api="CreateAcls", timeout=timeout)
    return results_of(outcomes, AclCreated)


async def delete_acls(
    engine: ClusterEngine,
    filters: Iterable[AclFilter | AclLike],
    *,
    timeout: float | None,
) -> Results[AclFilter, AclsDeleted]:
    """Implement `Admin.delete_acls`."""
    wanted = dict.fromkeys(one for each in _listed(filters, "filters") for one in _filters_of(each))

    async def attempt(
        left: Mapping[AclFilter, None], remaining: float
    ) -> dict[AclFilter, AclsDeleted | KafkaError]:
        response = await engine.request(
            DeleteAclsRequest(
                filters=[
                    DeleteAclsFilter(
                        resource_type_filter=each.resource_type,
                        resource_name_filter=each.resource_name,
                        pattern_type_filter=each.pattern_type,
                        principal_filter=each.principal,
                        host_filter=each.host,
                        operation=each.operation,
                        permission_type=each.permission_type,
                    )
                    for each in left
                ]
            ),
            node=CONTROLLER,
            timeout=remaining,
        )
        _check_count(left, response.filter_results, "DeleteAcls")
        outcomes: dict[AclFilter, AclsDeleted | KafkaError] = {}
        for each, result in zip(left, response.filter_results, strict=True):
            error = _error(result.error_code, result.error_message, "DeleteAcls")
            # An ACL that could not be deleted has its own error.
            errors = [
                _error(acl.error_code, acl.error_message, "DeleteAcls")
                for acl in result.matching_acls
            ]
            error = error or next((found for found in errors if found is not None), None)
            deleted = [
                _matched(acl)
                for acl, failed in zip(result.matching_acls, errors, strict=True)
                if failed is None
            ]
            outcomes[each] = error or AclsDeleted(each, tuple(sorted(deleted, key=_order)))
        return outcomes

    outcomes = await per_item(engine, wanted, attempt, api="DeleteAcls", timeout=timeout)
    return results_of(outcomes, lambda each, error: AclsDeleted(each, (), error))


def _error(code: int, message: str | None, api: str) -> KafkaError | None:
    return error_for(code, message, api=api) if code else None


def _listed(given: Iterable[object], name: str) -> Iterable[object]:
    if isinstance(given, str | Acl | AclFilter) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a list, not {given!r}")
    return given


def _acls_of(given: object) -> Iterable[Acl]:
    if isinstance(given, Acl):
        _check_codes(given)
        return (given,)
    if isinstance(given, str):
        return parse_acl(given)
    raise TypeError(f"an ACL must be an Acl or a line of text, not {given!r}")


def _filters_of(given: object) -> Iterable[AclFilter]:
    if isinstance(given, AclFilter):
        return (given,)
    if isinstance(given, Acl | str):
        return map(AclFilter.of, _acls_of(given))
    raise TypeError(f"a filter must be an AclFilter, an Acl or a line of text, not {given!r}")


def _check_codes(acl: Acl) -> None:
    if (
        acl.operation == Operation.ANY
        or acl.resource_type == ResourceType.ANY
        or acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED)
        or acl.permission_type == PermissionType.ANY
    ):
        raise ConfigError("an ACL cannot have ANY or MATCH; only an AclFilter can")


def _check_count(asked: Sized, results: Sized, api: str) -> None:
    if len(results) != len(asked):
        raise ProtocolError(f"{len(asked)} items, but {len(results)} results", api=api)


def _described(resource: DescribeAclsResource, entry: AclDescription) -> Acl:
    return Acl(
        entry.principal,
        _known(Operation, entry.operation),
        _known(ResourceType, resource.resource_type),
        resource.resource_name,
        _known(PatternType, resource.pattern_type),
        _known(PermissionType, entry.permission_type),
        entry.host,
    )


def _matched(acl: DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        acl.principal,
        _known(Operation, acl.operation),
        _known(ResourceType, acl.resource_type),
        acl.resource_name,
        _known(PatternType, acl.pattern_type),
        _known(PermissionType, acl.permission_type),
        acl.host,
    )


def _known(kind: type[E], code: int) -> E:
    try:
        return kind(code)
    except ValueError:
        raise ProtocolError(
            f"an ACL has the {kind.__name__} {code}, which is newer than this client"
        ) from None


def _order(acl: Acl) -> tuple[object, ...]:
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.permission_type,
        acl.operation,
        acl.host,
    )
