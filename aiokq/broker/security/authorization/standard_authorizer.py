"""`StandardAuthorizer`: authorizes by the ACLs in the cluster's metadata, as Kafka's class does.

The operations allowed to a client on a resource are cached until an ACL changes or the cache is
full. Those on a resource with a very long name, and those of a client with one, are not cached.

Source: Kafka ``StandardAuthorizer.java``, ``StandardAuthorizerData.java`` (4.2).
Tests: ``tests/unit/broker/security/test_standard_authorizer.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.broker.permissions import Operation, ResourceType
from aiokq.broker.security.authorization.acl_index import EVERY_OPERATION, AclIndex
from aiokq.core.acls import canonical_host
from aiokq.wire.principal_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)

if TYPE_CHECKING:
    import uuid

    from aiokq.connection.principal import Principal
    from aiokq.connection.request_context import RequestContext
    from aiokq.wire.struct import Message

__all__ = ["StandardAuthorizer"]

MOST_CACHED: Final = 32768
"""Number of answers, over all clients and resources, above which all are discarded."""

LONGEST_CACHED: Final = 255
"""Maximum length of the name of a resource or principal whose answer is cached.

Names of topics have at most 249 characters. A client may choose long names, and `MOST_CACHED` does
not count their bytes.
"""

MANY: Final = 500
"""If at least this number of ACLs changes at once, a new index is made while other tasks run."""

ADDED_AT_ONCE: Final = 200
"""Number of ACLs that are added to a new index before other tasks run."""

_ANY_RESOURCE: Final = "hardcode"
"""The name that Kafka checks first when a client needs an operation on any resource of a type."""

_OF_ACLS: Final = AccessControlEntryRecord, RemoveAccessControlEntryRecord

_Answers: TypeAlias = "list[dict[str, int]]"
"""The operations that a client may perform, as bit fields: by type of resource, then by name."""


class _Everything(dict[str, int]):
    """The operations of a super user: every operation on every name."""

    def get(self, name: str, default: object = None) -> int:
        return EVERY_OPERATION


_OF_SUPER_USERS: Final[_Answers] = [_Everything() for _ in range(max(ResourceType) + 1)]


class StandardAuthorizer:
    """Authorizes by ACLs. Implements `gate.Authorizer`.

    Args:
        super_users: the principals, as text, that may do everything.
        allows_without_acl: whether a resource that no ACL covers is open to every client
            (`allow.everyone.if.no.acl.found`).
    """

    asks_caller = False

    __slots__ = ("_acls", "_any", "_cached", "_clients", "_default", "_index", "_super_users")

    def __init__(
        self, super_users: Collection[str] = (), *, allows_without_acl: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._default = EVERY_OPERATION if allows_without_acl else 0
        self._acls: dict[uuid.UUID, AccessControlEntryRecord] = {}
        self._index = AclIndex()
        self._clients: dict[tuple[Principal, str], _Answers] = {}
        self._any: dict[tuple[Principal, str, Operation, ResourceType], bool] = {}
        self._cached = 0

    def load(self, acls: Iterable[AccessControlEntryRecord]) -> None:
        """Add the ACLs of the cluster when the node starts."""
        self.apply(tuple(acls))

    def apply(self, records: Iterable[Message]) -> None:
        """Add and remove ACLs; the next decision considers them. Other records are ignored."""
        changed = False
        for record in records:
            if isinstance(record, AccessControlEntryRecord):
                self._acls[record.id] = record
                self._index.add(record)
                changed = True
            elif isinstance(record, RemoveAccessControlEntryRecord):
                removed = self._acls.pop(record.id, None)
                if removed is not None:
                    self._index.remove(removed)
                    changed = True
        if changed:
            self._forget()

    def change(self, records: Sequence[Message]) -> Awaitable[None] | None:
        """Make the changes of one append of the metadata log, all at the same time.

        Calls must be made one at a time.

        Returns:
            None if the changes are in force already. For `MANY` changes or more, an awaitable that
            makes them in steps; none of them is in force before it ends.
        """
        if len(records) >= MANY:  # most of them may be of users or quotas
            records = [record for record in records if isinstance(record, _OF_ACLS)]
        if len(records) < MANY:
            self.apply(records)
            return None
        return self._change_many(records)

    async def _change_many(self, records: Sequence[Message]) -> None:
        acls, index = dict(self._acls), AclIndex()
        for record in records:
            if isinstance(record, AccessControlEntryRecord):
                acls[record.id] = record
            elif isinstance(record, RemoveAccessControlEntryRecord):
                acls.pop(record.id, None)
        for count, acl in enumerate(acls.values(), 1):
            index.add(acl)
            if not count % ADDED_AT_ONCE:
                await asyncio.sleep(0)
        self._acls, self._index = acls, index
        self._forget()

    def acls(self) -> Collection[AccessControlEntryRecord]:
        """Return the ACLs in force."""
        return self._acls.values()

    def authorize(
        self,
        connection: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        names: Collection[str],
    ) -> Collection[str]:
        """Return the `names` of resources on which the operation is allowed."""
        # Hot path, measured by benchmarks/micro/acls.py.
        client = connection.session.principal, connection.peer_host
        known = (self._clients.get(client) or self._answers(client))[resource_type]
        if len(names) == 1:
            [name] = names
            operations = known.get(name)
            if operations is None:
                operations = self._find(client, resource_type, name, known)
            return names if operations >> operation & 1 else ()
        allowed = set()  # a set, because callers test each of many names
        for name in names:
            operations = known.get(name)
            if operations is None:
                operations = self._find(client, resource_type, name, known)
            if operations >> operation & 1:
                allowed.add(name)
        return allowed

    def authorize_any(
        self, connection: RequestContext, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether the operation is allowed on at least one resource of this type."""
        if self.authorize(connection, operation, resource_type, (_ANY_RESOURCE,)):
            return True
        principal, host = connection.session.principal, connection.peer_host
        question = principal, host, operation, resource_type
        allows = self._any.get(question)
        if allows is None:
            allows = self._index.allows_any(
                operation, resource_type, str(principal), canonical_host(host)
            )
            if len(principal.name) <= LONGEST_CACHED:  # cached, as all ACLs were considered
                self._count()
                self._any[question] = allows
        return allows

    def operations(self, connection: RequestContext, resource_type: ResourceType, name: str) -> int:
        """Return the operations that are allowed on a resource, as a bit field."""
        client = connection.session.principal, connection.peer_host
        known = self._answers(client)[resource_type]
        operations = known.get(name)
        return self._find(client, resource_type, name, known) if operations is None else operations

    def _answers(self, client: tuple[Principal, str]) -> _Answers:
        """Return the cached operations of a client, by resource type and name.

        Those of a client with a very long name are cached only while the result is in use.
        """
        known = self._clients.get(client)
        if known is None:
            if str(client[0]) in self._super_users:
                known = _OF_SUPER_USERS
            else:
                known = [{} for _ in range(max(ResourceType) + 1)]
            if len(client[0].name) <= LONGEST_CACHED:
                self._count()
                self._clients[client] = known
        return known

    def _find(
        self,
        client: tuple[Principal, str],
        resource_type: ResourceType,
        name: str,
        known: dict[str, int],
    ) -> int:
        """Return a client's allowed operations on a resource as a bit field, and cache them."""
        principal, host = str(client[0]), canonical_host(client[1])
        found = self._index.allowed(resource_type, name, principal, host)
        operations = self._default if found is None else found
        if len(name) <= LONGEST_CACHED:
            self._count()
            known[name] = operations
        return operations

    def _count(self) -> None:
        if self._cached >= MOST_CACHED:
            self._forget()
        self._cached += 1

    def _forget(self) -> None:
        self._clients.clear()
        self._any.clear()
        self._cached = 0
