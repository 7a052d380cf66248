"""`aiokq acls list`, `add` and `remove`."""

from __future__ import annotations

import pytest

from aiokq.broker.security.authorization.standard_authorizer import StandardAuthorizer
from tests.unit.cli.harness import CommandLine

LINE = "User:alice Allow Read Topic:orders"
OTHER = "User:bob Deny All Topic:order* from 192.0.2.7"


@pytest.fixture
def guarded(cli: CommandLine) -> CommandLine:
    """A command line whose user may do everything on a broker with ACLs."""
    node = cli.session.kafka.node
    authorizer = StandardAuthorizer(["User:ANONYMOUS"])
    node.gate.authorizer = node._standard_authorizer = authorizer
    node.storage.publisher.principal_listeners.append(authorizer.apply)
    node.dispatcher._areas = node._areas()
    return cli


def test_acls_are_lines(guarded: CommandLine, tmp_path):
    done = guarded("acls", "add", LINE, OTHER, "User:x Allow Read,Describe Group:g")
    assert (done.code, done.lines) == (
        0,
        [
            f"added: {LINE}",
            f"added: {OTHER}",
            "added: User:x Allow Read Group:g",
            "added: User:x Allow Describe Group:g",
        ],
    )
    done = guarded("acls", "list")
    assert set(done.lines) == {
        LINE,
        OTHER,
        "User:x Allow Read Group:g",
        "User:x Allow Describe Group:g",
    }
    file = tmp_path / "acls.txt"
    file.write_text("# all of them\n\n" + done.out.decode())
    done = guarded("acls", "remove", "--file", str(file))
    assert done.code == 0
    assert len(done.lines) == 4
    assert guarded("acls", "list").lines == []
    done = guarded("acls", "add", "--file", "-", stdin=file.read_bytes())
    assert done.code == 0
    assert len(guarded("acls", "list").lines) == 4


def test_a_list_is_filtered(guarded: CommandLine):
    guarded(
        "acls", "add", LINE, OTHER, "User:alice Allow Read Group:g", "User:a Allow Alter Cluster"
    )
    assert guarded("acls", "list", "--principal", "User:alice").lines == [
        LINE,
        "User:alice Allow Read Group:g",
    ]
    assert guarded("acls", "list", "--covering", "Topic:orders").lines == [OTHER, LINE]
    assert guarded("acls", "list", "--of", "Topic:order*").lines == [OTHER]
    assert guarded("acls", "list", "--of", "topic").lines == [OTHER, LINE]
    assert guarded("acls", "list", "--of", "Cluster").lines == ["User:a Allow Alter Cluster"]


def test_json_has_the_fields(guarded: CommandLine):
    [added] = guarded("acls", "add", OTHER, "--json").json
    assert added == {
        "acl": OTHER,
        "principal": "User:bob",
        "permission": "DENY",
        "operation": "ALL",
        "resource_type": "TOPIC",
        "resource_name": "order",
        "pattern_type": "PREFIXED",
        "host": "192.0.2.7",
        "error": None,
    }
    [listed] = guarded("acls", "list", "--json").json
    assert listed["acl"] == OTHER
    [removed] = guarded("acls", "remove", OTHER, "--json").json
    assert removed["removed"] is True


def test_a_missing_acl_is_an_error(guarded: CommandLine):
    done = guarded("acls", "remove", LINE)
    assert done.code == 1
    assert f"{LINE}: there is no such ACL" in done.complaint


def test_without_an_authorizer_the_command_says_so(cli: CommandLine):
    done = cli("acls", "list")
    assert done.code == 1
    assert "No Authorizer is configured" in done.complaint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add",), "give an ACL"),
        (("add", "alice Allow Read Topic:t"), "such as User:alice"),
        (("remove", "--file", "/no/such/file"), "/no/such/file"),
        (("list", "--covering", "Topic"), "--covering needs the name"),
        (("list", "--of", "Topics:t"), "unknown type of resource"),
        (("list", "--of", "Topic:t", "--covering", "Topic:t"), "exclude each other"),
    ],
)
def test_wrong_usage(alone: CommandLine, arguments, message):
    done = alone("acls", *arguments)
    assert done.code == 2
    assert message in " ".join(done.err.split())
