"""aiokq.core.acls: ACLs as lines of text."""

from __future__ import annotations

import random
import time

import pytest

from aiokq.core.acl_types import (
    SUPPORTED_OPERATIONS,
    Operation,
    PatternType,
    PermissionType,
    ResourceType,
)
from aiokq.core.acls import Acl, canonical_host, parse_acl
from aiokq.core.errors import ConfigError

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE = Operation.READ, Operation.WRITE
PREFIXED, LITERAL = PatternType.PREFIXED, PatternType.LITERAL
DENY, ALLOW = PermissionType.DENY, PermissionType.ALLOW


@pytest.mark.parametrize(
    ("line", "acls"),
    [
        ("User:alice Allow Read Topic:orders", [Acl("User:alice", READ, TOPIC, "orders")]),
        (
            " user:alice  ALLOW read,WRITE  topic:orders ",
            [Acl("user:alice", READ, TOPIC, "orders"), Acl("user:alice", WRITE, TOPIC, "orders")],
        ),
        (
            "User:a Deny All Topic:* from 192.0.2.7",
            [Acl("User:a", Operation.ALL, TOPIC, "*", LITERAL, DENY, "192.0.2.7")],
        ),
        ("User:a Allow Read Group:billing-*", [Acl("User:a", READ, GROUP, "billing-", PREFIXED)]),
        ("User:* Allow Describe Cluster", [Acl("User:*", Operation.DESCRIBE, CLUSTER)]),
        (
            "User:a allow IDEMPOTENT_WRITE cluster:kafka-cluster",
            [Acl("User:a", Operation.IDEMPOTENT_WRITE, CLUSTER)],
        ),
        (
            "User:a Allow TwoPhaseCommit TransactionalId:t",
            [Acl("User:a", Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, "t")],
        ),
        ("User:a Allow Read Group:LITERAL:a*", [Acl("User:a", READ, GROUP, "a*")]),
        ("User:a Allow Read Group:PREFIXED:*", [Acl("User:a", READ, GROUP, "*", PREFIXED)]),
        ("User:a Allow Read Group:a:b c", [Acl("User:a", READ, GROUP, "a:b c")]),
        (
            "User:CN=Allow Read, O=x Allow Read Topic:t",
            [Acl("User:CN=Allow Read, O=x", READ, TOPIC, "t")],
        ),
        (
            "User:a Allow Read Topic:t from ::1",
            [Acl("User:a", READ, TOPIC, "t", host="::1")],
        ),
        ("User:a Allow Read Group:x from *", [Acl("User:a", READ, GROUP, "x")]),
        (
            '"User:a b " Allow Read Group:" x from y*" from "::1"',
            [Acl("User:a b ", READ, GROUP, " x from y*", host="::1")],
        ),
        (
            'User:a Deny Read Group:PREFIXED:"a\\n\\"b\\u00e9"',
            [Acl("User:a", READ, GROUP, 'a\n"b\xe9', PREFIXED, DENY)],
        ),
        ('User:a Allow Read Group:"a" b', [Acl("User:a", READ, GROUP, '"a" b')]),
    ],
)
def test_a_line_is_read(line, acls):
    assert parse_acl(line) == tuple(acls) == Acl.parse(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "the form is PRINCIPAL Allow"),
        ("alice Allow Read Topic:orders", "such as User:alice"),
        (":alice Allow Read Topic:orders", "such as User:alice"),
        ("User: Allow Read Topic:orders", "such as User:User"),
        ("User:alice Permit Read Topic:orders", "the form is"),
        ("User:alice Allow Topic:orders", "the form is"),
        ("User:alice Allow Raed Topic:orders", "unknown operation 'Raed': did you mean Read"),
        ("User:alice Allow Any Topic:orders", "unknown operation 'Any'"),
        ("User:alice Allow Read Topics:orders", "unknown type of resource 'Topics': did you mean"),
        ("User:alice Allow Read Any:orders", "unknown type of resource 'Any'"),
        ("User:alice Allow IdempotentWrite Topic:orders", "Topic has no operation IdempotentWrite"),
        ("User:alice Allow Read Topic", "Topic:NAME"),
        ("User:alice Allow Read Topic:", "Topic:NAME"),
        ("User:alice Allow Read Topic:LITERAL:", "is empty"),
        ("User:alice Allow Alter Cluster:x", "there is one cluster"),
        ("User:alice Allow Read Topic:orders from example.com", "IP address"),
        ("User:alice Allow Read Topic:orders from 10.0.0.0/8", "IP address"),
        ('User:alice Allow Read Topic:orders from ""', "IP address"),
        ('User:alice Allow Read Topic:""', "is empty"),
        ('"alice" Allow Read Topic:orders', "such as User:alice"),
        (r'User:alice Allow Read Topic:"\x"', "not a valid JSON string"),
        (17, "line of text"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(line, message):
    with pytest.raises(ConfigError) as caught:
        parse_acl(line)
    assert message in str(caught.value)
    if isinstance(line, str):
        assert repr(line) in str(caught.value)


def test_every_acl_has_a_line_that_gives_it_back():
    """Also one whose names look like other parts of a line."""
    rng = random.Random(5)
    parts = [
        *("a", "*", "LITERAL:", "PREFIXED:", " from 1.2.3.4", "x y", ":", " Allow Read ", "é"),
        *(" ", "\n", '"', "\\", "#", "\u2028", "Allow Read Topic:x", "\x1b[2J"),
    ]
    kinds = [kind for kind in ResourceType if kind not in (ResourceType.ANY, CLUSTER)]
    for _ in range(5000):
        kind = rng.choice(kinds)
        name = "".join(rng.choices(parts, k=rng.randint(1, 3)))
        owner = "".join(rng.choices(["b c", "=", ",", *parts], k=rng.randint(1, 3)))
        acl = Acl(
            rng.choice(("User:", "User:", "#a:", "Group:x:")) + owner,
            rng.choice((Operation.ALL, *SUPPORTED_OPERATIONS[kind])),
            kind,
            name,
            rng.choice((LITERAL, PREFIXED)),
            rng.choice((ALLOW, DENY)),
            rng.choice(("*", "192.0.2.1", "::1")),
        )
        line = str(acl)
        assert parse_acl(line) == (acl,), acl
        assert line.isprintable()
        assert not line.startswith("#")


def test_a_line_is_never_that_of_another_acl():
    """Kafka's tools can create ACLs that no line can; such a line is refused."""
    for principal in ("User:", "User: ", "User:a", " User:a", ":a"):
        for host in ("", " ", "localhost", "h from *", "1.2.3.4 ", "*"):
            acl = Acl(principal, READ, GROUP, "g", host=host)
            try:
                assert parse_acl(str(acl)) == (acl,)
            except ConfigError:
                continue


def test_a_hostile_name_takes_no_time():
    """A client with the permission may create an ACL whose name has 32,767 spaces."""
    acl = Acl("User:a", READ, GROUP, " " * 32_767)
    before = time.process_time()
    assert str(acl).startswith('User:a Allow Read Group:LITERAL:" ')
    assert parse_acl(str(acl)) == (acl,)
    assert time.process_time() - before < 0.5


def test_lines_of_usual_acls_are_short():
    for line in (
        "User:alice Allow Read Topic:orders",
        "User:alice Deny DescribeConfigs Topic:orders-* from 192.0.2.7",
        "User:* Allow All Group:*",
        "User:admin Allow Alter Cluster",
    ):
        assert str(parse_acl(line)[0]) == line


@pytest.mark.parametrize(
    ("host", "form"),
    [
        ("*", "*"),
        ("192.0.2.7", "192.0.2.7"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("example.com", "example.com"),
        ("", ""),
    ],
)
def test_an_address_has_one_form(host, form):
    assert canonical_host(host) == form
