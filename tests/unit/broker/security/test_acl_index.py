"""AclIndex finds what a scan of all ACLs finds."""

from __future__ import annotations

import random
import uuid

from aiokq.broker.security.authorization.acl_index import EVERY_OPERATION, AclIndex
from aiokq.core.acl_types import Operation, PatternType, PermissionType, ResourceType
from aiokq.core.acls import parse_acl
from aiokq.wire.principal_records import AccessControlEntryRecord

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
IMPLIES_DESCRIBE = {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}


def record(line, number=0):
    """Return the record of an ACL that is given as a line."""
    [acl] = parse_acl(line)
    return AccessControlEntryRecord(
        id=uuid.UUID(int=number),
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def covers(acl, kind, name):
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def applies(acl, principal, host):
    return acl.principal in (principal, "User:*") and acl.host in (host, "*")


def scanned(acls, kind, name, principal, host, operation):
    """Decide as the documentation of Kafka says, by a scan."""
    covering = [acl for acl in acls if covers(acl, kind, name)]
    if not covering:
        return None
    applying = [acl for acl in covering if applies(acl, principal, host)]
    for acl in applying:
        if acl.permission_type == PermissionType.DENY and acl.operation in (
            operation,
            Operation.ALL,
        ):
            return False
    for acl in applying:
        if acl.permission_type != PermissionType.ALLOW:
            continue
        if acl.operation in (operation, Operation.ALL):
            return True
        if operation == Operation.DESCRIBE and acl.operation in IMPLIES_DESCRIBE:
            return True
        if operation == Operation.DESCRIBE_CONFIGS and acl.operation == Operation.ALTER_CONFIGS:
            return True
    return False


def scanned_any(acls, kind, principal, host, operation):
    """Decide as Kafka's Authorizer.authorizeByResourceType, after its first check."""
    deny, allow = [], []
    for acl in acls:
        if acl.resource_type != kind or not applies(acl, principal, host):
            continue
        if acl.operation not in (operation, Operation.ALL):
            continue
        (deny if acl.permission_type == PermissionType.DENY else allow).append(
            (acl.pattern_type, acl.resource_name)
        )
    if (PatternType.LITERAL, "*") in deny:
        return False
    if (PatternType.LITERAL, "*") in allow:
        return True
    for pattern, name in allow:
        if pattern == PatternType.LITERAL and (PatternType.LITERAL, name) in deny:
            continue
        if any(kind == PatternType.PREFIXED and name.startswith(prefix) for kind, prefix in deny):
            continue
        return True
    return False


def made(rng, number):
    name = "".join(rng.choices("ab", k=rng.randint(1, 4)))
    return AccessControlEntryRecord(
        id=uuid.UUID(int=number),
        resource_type=rng.choice((TOPIC, TOPIC, GROUP)),
        resource_name=rng.choice((name, name, name, "*")),
        pattern_type=rng.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        principal=rng.choice(("User:a", "User:b", "User:*")),
        host=rng.choice(("*", "*", "1.1.1.1", "2.2.2.2")),
        operation=rng.choice([operation for operation in Operation if operation != Operation.ANY]),
        permission_type=rng.choice(
            (PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY)
        ),
    )


def value(acl):
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def test_the_index_decides_as_a_scan_while_acls_come_and_go():
    rng = random.Random(18)
    for world in range(60):
        index, acls = AclIndex(), []
        for step in range(40):
            if acls and rng.random() < 0.35:
                index.remove(acls.pop(rng.randrange(len(acls))))
            else:
                acl = made(rng, world * 1000 + step)
                if value(acl) not in map(value, acls):
                    acls.append(acl)
                    index.add(acl)
            for _ in range(6):
                kind = rng.choice((TOPIC, GROUP, ResourceType.CLUSTER))
                name = "".join(rng.choices("ab*", k=rng.randint(1, 5)))
                principal = rng.choice(("User:a", "User:b", "User:c"))
                host = rng.choice(("1.1.1.1", "3.3.3.3"))
                operation = rng.choice(
                    (
                        Operation.READ,
                        Operation.DESCRIBE,
                        Operation.WRITE,
                        Operation.DESCRIBE_CONFIGS,
                    )
                )
                found = index.allowed(kind, name, principal, host)
                expected = scanned(acls, kind, name, principal, host, operation)
                assert (None if found is None else bool(found >> operation & 1)) == expected
            assert index.allows_any(Operation.WRITE, TOPIC, "User:a", "1.1.1.1") == scanned_any(
                acls, TOPIC, "User:a", "1.1.1.1", Operation.WRITE
            )
        for acl in acls:
            index.remove(acl)
        for patterns in index._types.values():
            assert not patterns.literals
            assert not patterns.prefixes
            assert not patterns.of_clients
            assert not patterns._lengths
            assert not patterns._times


def test_all_means_every_operation():
    index = AclIndex()
    index.add(record("User:a Allow All Topic:t"))
    assert index.allowed(TOPIC, "t", "User:a", "1.1.1.1") == EVERY_OPERATION
    index.add(record("User:a Deny Write Topic:t"))
    assert index.allowed(TOPIC, "t", "User:a", "1.1.1.1") == EVERY_OPERATION & ~(
        1 << Operation.WRITE
    )


def test_a_host_matches_in_every_form_of_its_address():
    """Java writes IPv6 addresses without `::`, people with it."""
    for written in ("::1", "0:0:0:0:0:0:0:1"):
        index = AclIndex()
        acl = record("User:a Allow Read Topic:t")
        acl.host = written
        index.add(acl)
        assert index.allowed(TOPIC, "t", "User:a", "::1")
        assert not index.allowed(TOPIC, "t", "User:a", "::2")
        index.remove(acl)
        assert index.allowed(TOPIC, "t", "User:a", "::1") is None


def test_a_prefix_that_is_a_star_is_a_plain_character():
    index = AclIndex()
    acl = record("User:a Allow Read Group:PREFIXED:*")
    index.add(acl)
    assert index.allowed(GROUP, "g", "User:a", "h") is None
    assert index.allowed(GROUP, "*g", "User:a", "h")


def test_acls_of_unknown_kinds_have_no_effect():
    """A newer controller may have written them."""
    index = AclIndex()
    acl = record("User:a Allow Read Topic:t")
    for field in ("pattern_type", "permission_type"):
        strange = record("User:a Allow Read Topic:t")
        setattr(strange, field, 77)
        index.add(strange)
        assert not index.allowed(TOPIC, "t", "User:a", "h")
        index.remove(strange)
    strange = record("User:a Allow Read Topic:t")
    strange.operation = 60
    index.add(strange)
    assert not index.allowed(TOPIC, "t", "User:a", "h") & (1 << Operation.READ)
    index.add(acl)
    assert index.allowed(TOPIC, "t", "User:a", "h") & (1 << Operation.READ)
