"""`AclIndex`: finds the ACLs that cover a resource, without a scan of all ACLs.

An ACL is found by the name of its pattern, then by its principal and host. The cost of a lookup
grows with the number of different lengths of prefixes, not with the number of ACLs.

Source: Kafka ``StandardAuthorizerData.java``, ``Authorizer.authorizeByResourceType``.
Tests: ``tests/unit/broker/security/test_acl_index.py``.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import TYPE_CHECKING, Final, TypeAlias

from aiokq.core.acl_types import (
    ANY_HOST,
    ANY_NAME,
    ANY_USER,
    Operation,
    PatternType,
    PermissionType,
)
from aiokq.core.acls import canonical_host

if TYPE_CHECKING:
    from aiokq.wire.principal_records import AccessControlEntryRecord

__all__ = ["EVERY_OPERATION", "AclIndex"]

EVERY_OPERATION: Final = (1 << 64) - 1
"""The bit field in which every operation is set; ACLs of the operation ALL have it."""

_IMPLIED: Final[dict[int, int]] = {
    **dict.fromkeys(
        (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER), Operation.DESCRIBE
    ),
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}
"""The operation that an ALLOW of another operation includes. A DENY includes nothing."""

_Client: TypeAlias = tuple[str, str]
"""The principal and the host of an ACL. Each can be a wildcard: ``User:*`` or ``*``."""


class _Grant:
    """The operations that the ACLs of one pattern allow and deny one client.

    Attributes:
        allowed, denied: bit fields of operations.
    """

    __slots__ = ("_entries", "allowed", "denied")

    def __init__(self) -> None:
        self._entries: dict[tuple[int, int], int] = {}
        self.allowed = self.denied = 0

    def change(self, operation: int, permission: int, count: int) -> bool:
        """Add an entry (`count` 1) or remove it (-1); return whether any entry is left."""
        entry = operation, permission
        left = self._entries.pop(entry, 0) + count
        if left > 0:
            self._entries[entry] = left
            self._take(entry)
        else:
            self.allowed = self.denied = 0
            for entry in self._entries:
                self._take(entry)
        return bool(self._entries)

    def _take(self, entry: tuple[int, int]) -> None:
        operation, permission = entry
        bits = EVERY_OPERATION if operation == Operation.ALL else _bit(operation)
        if permission == PermissionType.ALLOW:
            implied = _IMPLIED.get(operation)
            self.allowed |= bits | (0 if implied is None else 1 << implied)
        elif permission == PermissionType.DENY:
            self.denied |= bits


def _bit(operation: int) -> int:
    """Return the bit of an operation; 0 for a code outside 1 to 63."""
    return 1 << operation if 0 < operation < 64 else 0


_Pattern: TypeAlias = dict[_Client, _Grant]


class _Patterns:
    """The resource patterns of one resource type, with their ACLs."""

    __slots__ = ("_lengths", "_times", "literals", "of_clients", "prefixes")

    def __init__(self) -> None:
        self.literals: dict[str, _Pattern] = {}
        self.prefixes: dict[str, _Pattern] = {}
        self.of_clients: dict[_Client, dict[tuple[int, str], _Grant]] = {}
        """For each client, its grants by the type and the name of the pattern."""
        self._lengths: list[int] = []
        """The different lengths of `prefixes`, sorted."""
        self._times: dict[int, int] = {}
        """The number of prefixes of each length."""

    def covering(self, name: str) -> list[_Pattern]:
        """Return the literal and prefixed patterns that cover a resource."""
        found = self.prefixes_of(name) if self.prefixes else []
        literal, of_all = self.literals.get(name), self.literals.get(ANY_NAME)
        if literal is not None:
            found.append(literal)
        if of_all is not None and of_all is not literal:
            found.append(of_all)
        return found

    def prefixes_of(self, name: str) -> list[_Pattern]:
        """Return the prefixed patterns that cover a resource."""
        # Hot path, measured by benchmarks/micro/acls.py.
        lengths, get = self._lengths, self.prefixes.get
        return [
            found
            for length in lengths[: bisect_right(lengths, len(name))]
            if (found := get(name[:length])) is not None
        ]

    def change(self, record: AccessControlEntryRecord, count: int) -> None:
        """Add an ACL (`count` 1) or remove it (-1); ignore unknown pattern types."""
        name, kind = record.resource_name, record.pattern_type
        if kind == PatternType.LITERAL:
            patterns = self.literals
        elif kind == PatternType.PREFIXED:
            patterns = self.prefixes
        else:
            return
        pattern = patterns.get(name)
        if pattern is None:
            pattern = patterns[name] = {}
            if patterns is self.prefixes:
                self._count(len(name), 1)
        client = record.principal, canonical_host(record.host)
        grant = pattern.get(client)
        if grant is None:
            grant = pattern[client] = _Grant()
            self.of_clients.setdefault(client, {})[kind, name] = grant
        if grant.change(record.operation, record.permission_type, count):
            return
        del pattern[client], self.of_clients[client][kind, name]
        if not self.of_clients[client]:
            del self.of_clients[client]
        if not pattern:
            del patterns[name]
            if patterns is self.prefixes:
                self._count(len(name), -1)

    def _count(self, length: int, count: int) -> None:
        times = self._times.pop(length, 0)
        if not times:
            insort(self._lengths, length)
        if times + count:
            self._times[length] = times + count
        else:
            self._lengths.remove(length)


class AclIndex:
    """The ACLs of a cluster by resource type and pattern."""

    __slots__ = ("_types",)

    def __init__(self) -> None:
        self._types: dict[int, _Patterns] = {}

    def add(self, record: AccessControlEntryRecord) -> None:
        """Add an ACL."""
        self._types.setdefault(record.resource_type, _Patterns()).change(record, 1)

    def remove(self, record: AccessControlEntryRecord) -> None:
        """Remove an ACL that was added."""
        self._types[record.resource_type].change(record, -1)

    def allowed(self, resource_type: int, name: str, principal: str, host: str) -> int | None:
        """Return the operations that ACLs allow a client on a resource, as a bit field.

        Args:
            host: the client's IP address, as returned by `canonical_host`.

        Returns:
            The operations that an ACL allows and no ACL denies; None if the resource has no ACL for
            any client.
        """
        patterns = self._types.get(resource_type)
        if patterns is None:
            return None
        covering = patterns.covering(name)
        if not covering:
            return None
        clients = _clients(principal, host)
        allowed = denied = 0
        for pattern in covering:
            for client in clients:
                grant = pattern.get(client)
                if grant is not None:
                    allowed |= grant.allowed
                    denied |= grant.denied
        return allowed & ~denied

    def allows_any(self, operation: int, resource_type: int, principal: str, host: str) -> bool:
        """Return whether an ACL allows a client an operation on some resource of a type.

        An ALLOW counts unless a DENY covers all resources of its pattern. The resources need not
        exist.
        """
        patterns = self._types.get(resource_type)
        if patterns is None:
            return False
        bit = 1 << operation
        clients = _clients(principal, host)

        def has(pattern: _Pattern, permission: str) -> bool:
            return any(
                getattr(pattern[client], permission) & bit
                for client in clients
                if client in pattern
            )

        of_all = patterns.literals.get(ANY_NAME)
        if of_all is not None:
            if has(of_all, "denied"):
                return False
            if has(of_all, "allowed"):
                return True
        for client in clients:
            for (kind, name), grant in patterns.of_clients.get(client, {}).items():
                if not grant.allowed & bit:
                    continue
                denying = patterns.prefixes_of(name)
                if kind == PatternType.LITERAL and has(patterns.literals[name], "denied"):
                    continue
                if not any(has(pattern, "denied") for pattern in denying):
                    return True
        return False


def _clients(principal: str, host: str) -> tuple[_Client, ...]:
    """Return the pairs of principal and host whose ACLs apply to a client."""
    return (
        (principal, host),
        (principal, ANY_HOST),
        (ANY_USER, host),
        (ANY_USER, ANY_HOST),
    )
