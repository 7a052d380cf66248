"""StandardAuthorizer and filters of ACLs decide as a scan of all ACLs by Kafka's rules does."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from aiokq.broker.metadata.controller.acl_changes import AclFilter
from aiokq.broker.security.authorization.standard_authorizer import StandardAuthorizer
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import RequestContext
from aiokq.core.acl_types import (
    SUPPORTED_OPERATIONS,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from aiokq.wire.principal_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY

LONG = "n" * 249
NAMES = (
    "", "*", "**", "a", "aa", "aaa", "aab", "ab", "b", "*a", "a*", "A", "ä", "a\u0308",
    "\U0001f600", "\U0001f600a", "a\0", "a b", ".", "..", "hardcode",
    LONG, f"{LONG}n", LONG[:-1], "n" * 65_535,
)  # fmt: skip
HOSTS = ("192.0.2.7", "192.0.2.70", "::1")
WRITTEN_HOSTS = ("*", "*", *HOSTS, "0:0:0:0:0:0:0:1", "192.0.2.0/24", "localhost")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice", "User:ALICE", "User:")
TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER)
OPERATIONS = tuple(operation for operation in Operation if operation is not Operation.ANY)
IMPLIES = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}

acls = st.builds(
    AccessControlEntryRecord,
    id=st.uuids(),
    resource_type=st.sampled_from(TYPES).map(int),
    resource_name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from((LITERAL, LITERAL, PREFIXED)).map(int),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(WRITTEN_HOSTS),
    operation=st.sampled_from(OPERATIONS).map(int),
    permission_type=st.sampled_from((ALLOW, ALLOW, DENY)).map(int),
)
changes = st.lists(st.one_of(acls, st.integers(0, 20)), max_size=30)
"""ACLs to add, and numbers of ACLs to remove."""

clients = st.tuples(
    st.sampled_from(
        (
            Principal("User", "alice"),
            Principal("User", "bob"),
            Principal("User", "root"),
            Principal("Group", "alice"),
            Principal("User", "ANONYMOUS"),
        )
    ),
    st.sampled_from(HOSTS),
)


def covers(acl, kind, name):
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def applies(acl, principal, host, operation):
    written = "::1" if acl.host == "0:0:0:0:0:0:0:1" else acl.host
    if acl.principal not in (principal, "User:*") or written not in ("*", host):
        return False
    if acl.operation in (Operation.ALL, operation):
        return True
    return acl.permission_type == ALLOW and acl.operation in IMPLIES.get(operation, ())


def expected(in_force, principal, host, operation, kind, name, *, super_users, is_open):
    """Decide by a scan."""
    if principal in super_users:
        return True
    covering = [acl for acl in in_force if covers(acl, kind, name)]
    if not covering:
        return is_open
    applying = [acl for acl in covering if applies(acl, principal, host, operation)]
    if any(acl.permission_type == DENY for acl in applying):
        return False
    return any(acl.permission_type == ALLOW for acl in applying)


def expected_any(in_force, principal, host, operation, kind, **rules):
    """Decide as ``Authorizer.authorizeByResourceType`` does."""
    if expected(in_force, principal, host, operation, kind, "hardcode", **rules):
        return True
    exact = [
        acl
        for acl in in_force
        if acl.resource_type == kind and applies(acl, principal, host, operation)
    ]
    denied = {(a.pattern_type, a.resource_name) for a in exact if a.permission_type == DENY}
    if (LITERAL, "*") in denied:
        return False
    for acl in exact:
        if acl.permission_type != ALLOW:
            continue
        name = acl.resource_name
        if acl.pattern_type == LITERAL and name == "*":
            return True
        if acl.pattern_type == LITERAL and (LITERAL, name) in denied:
            continue
        if not any(kind == PREFIXED and name.startswith(prefix) for kind, prefix in denied):
            return True
    return False


@given(st.data(), st.booleans(), changes)
def test_every_decision_is_that_of_a_scan(data, is_open, todo):
    """While ACLs come and go; what is kept of earlier decisions changes nothing."""
    super_users = ("User:root",)
    made = StandardAuthorizer(super_users, allows_without_acl=is_open)
    rules = {"super_users": super_users, "is_open": is_open}
    in_force = []
    for change in todo:
        if isinstance(change, int):
            if change < len(in_force):
                removed = in_force.pop(change)
                made.apply([RemoveAccessControlEntryRecord(id=removed.id)])
        elif not any(change.id == acl.id for acl in in_force):
            in_force.append(change)
            made.apply([change])
        principal, host = data.draw(clients)
        context = RequestContext(1, f"{host}:1", f"[{host}]" if ":" in host else host, "L")
        context.session.principal = principal
        kind = data.draw(st.sampled_from(TYPES))
        operation = data.draw(st.sampled_from(SUPPORTED_OPERATIONS[kind]))
        names = data.draw(st.sets(st.sampled_from(NAMES), min_size=1, max_size=4))
        about = in_force, str(principal), host, operation, kind
        should = {name for name in names if expected(*about, name, **rules)}
        assert set(made.authorize(context, operation, kind, names)) == should
        for name in names:
            assert (name in made.authorize(context, operation, kind, (name,))) == (name in should)
            bits = made.operations(context, kind, name)
            for each in SUPPORTED_OPERATIONS[kind]:
                assert bool(bits >> each & 1) == expected(
                    in_force, str(principal), host, each, kind, name, **rules
                )
        if operation not in IMPLIES:
            # Kafka does not consider implied operations here.
            assert made.authorize_any(context, operation, kind) == expected_any(*about, **rules)
            assert made.authorize_any(context, operation, kind) == expected_any(*about, **rules)


filters = st.builds(
    AclFilter,
    resource_type=st.sampled_from((ResourceType.ANY, *TYPES)).map(int),
    resource_name=st.none() | st.sampled_from(NAMES),
    pattern_type=st.sampled_from(PatternType).map(int),
    principal=st.none() | st.sampled_from(PRINCIPALS),
    host=st.none() | st.sampled_from(WRITTEN_HOSTS),
    operation=st.sampled_from(Operation).map(int),
    permission_type=st.sampled_from(PermissionType).map(int),
)


@given(filters, acls)
def test_a_filter_matches_by_kafkas_rules(chosen, acl):
    """ANY is the exact name of either type; MATCH X is X, ``*`` and the prefixes of X."""
    named = chosen.resource_name
    if chosen.pattern_type == PatternType.MATCH and named is not None:
        if acl.pattern_type == PREFIXED:
            fits = named.startswith(acl.resource_name)
        else:
            fits = acl.resource_name in (named, "*")
    else:
        any_type = (PatternType.ANY, PatternType.MATCH)
        fits = chosen.pattern_type in (*any_type, acl.pattern_type)
        fits = fits and named in (None, acl.resource_name)
    fits = fits and chosen.resource_type in (ResourceType.ANY, acl.resource_type)
    fits = fits and chosen.principal in (None, acl.principal)
    fits = fits and chosen.host in (None, acl.host)
    fits = fits and chosen.operation in (Operation.ANY, acl.operation)
    fits = fits and chosen.permission_type in (PermissionType.ANY, acl.permission_type)
    assert chosen.matches(acl) == fits


def test_ten_thousand_acls_of_one_principal_are_answered_like_few():
    """The index is not slow, and forgets what a client has made up."""
    made = StandardAuthorizer()
    made.load(
        AccessControlEntryRecord(
            id=uuid.UUID(int=number),
            resource_type=ResourceType.TOPIC,
            resource_name=f"topic-{number}",
            pattern_type=LITERAL if number % 2 else PREFIXED,
            principal="User:alice",
            host="*",
            operation=Operation.READ,
            permission_type=ALLOW,
        )
        for number in range(10_000)
    )
    context = RequestContext(1, "192.0.2.7:1", "192.0.2.7", "L")
    context.session.principal = Principal("User", "alice")
    kind = ResourceType.TOPIC
    assert made.authorize(context, Operation.READ, kind, ("topic-777",))
    assert made.authorize(context, Operation.READ, kind, ("topic-88-more",))
    assert not made.authorize(context, Operation.READ, kind, ("tonic",))
    assert not made.authorize_any(context, Operation.WRITE, kind)
    made_up = [f"made-up-{number}" for number in range(100_000)]
    for start in range(0, len(made_up), 1000):
        assert not made.authorize(context, Operation.READ, kind, made_up[start : start + 1000])
    assert made._cached <= 32_768
    assert sum(len(of) for each in made._clients.values() for of in each) <= 32_768
