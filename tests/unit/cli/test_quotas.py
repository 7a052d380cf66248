"""`aiokq quotas` on a cluster in memory."""

from __future__ import annotations

import pytest

from tests.unit.cli.harness import CommandLine


def test_quotas_are_set_listed_and_removed(cli: CommandLine):
    """By user, client id, both, address, and the default of each."""
    done = cli("quotas", "set", "producer_byte_rate=1000000", "request_percentage=12.5",
               "--user", "alice")  # fmt: skip
    assert done.code == 0
    assert done.lines == [
        "user 'alice': producer_byte_rate set to 1000000",
        "user 'alice': request_percentage set to 12.5",
    ]
    both = ("--user", "alice", "--default", "client-id")
    assert cli("quotas", "set", "consumer_byte_rate=7", *both).code == 0
    assert cli("quotas", "set", "connection_creation_rate=5", "--ip", "10.0.0.1").code == 0
    assert cli("quotas", "set", "connection_creation_rate=6", "--default", "ip").code == 0
    rows = [line.split("  ") for line in cli("quotas", "list").lines]
    found = [[cell.strip() for cell in row if cell] for row in rows]
    assert found == [
        ["entity", "quota", "rate"],
        ["ip '10.0.0.1'", "connection_creation_rate", "5"],
        ["ip <default>", "connection_creation_rate", "6"],
        ["user 'alice'", "producer_byte_rate", "1000000"],
        ["user 'alice'", "request_percentage", "12.5"],
        ["user 'alice', client-id <default>", "consumer_byte_rate", "7"],
    ]
    assert cli("quotas", "list", "--default", "ip", "--json").json == [
        {
            "user": None,
            "client_id": None,
            "ip": {"default": True},
            "quotas": {"connection_creation_rate": 6.0},
        }
    ]
    assert len(cli("quotas", "list", "--user", "alice", "--json").json) == 2
    assert len(cli("quotas", "list", "--user", "alice", "--strict", "--json").json) == 1
    done = cli("quotas", "remove", "request_percentage", "unknown_key", "--user", "alice")
    assert done.code == 0
    assert done.lines[0] == "user 'alice': request_percentage removed"
    [alice] = cli("quotas", "list", "--user", "alice", "--strict", "--json").json
    assert alice["quotas"] == {"producer_byte_rate": 1_000_000.0}


def test_a_dry_run_is_checked_by_the_cluster(cli: CommandLine):
    """Nothing changes; what the cluster would refuse is an error."""
    done = cli("quotas", "set", "producer_byte_rate=5", "--client-id", "c", "--dry-run")
    assert done.lines == ["client-id 'c': producer_byte_rate can be set to 5"]
    done = cli("quotas", "set", "producer_byte_rate=0.5", "--client-id", "c", "--dry-run")
    assert done.code == 1
    assert "cannot be a fractional value" in done.complaint
    done = cli("quotas", "set", "no_such_rate=5", "--client-id", "c", "--json")
    assert done.code == 1
    assert done.json["error"]["name"] == "INVALID_REQUEST"
    assert cli("quotas", "list", "--json").json == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "producer_byte_rate=5"), "name whose quotas"),
        (("set", "producer_byte_rate", "--user", "a"), "KEY=RATE"),
        (("set", "producer_byte_rate=x", "--user", "a"), "needs a number above 0"),
        (("set", "producer_byte_rate=-1", "--user", "a"), "needs a number above 0"),
        (("set", "request_percentage=nan", "--user", "a"), "needs a number above 0"),
        (("set", "request_percentage=1e999", "--user", "a"), "needs a number above 0"),
        (("set", "a=1", "a=2", "--user", "a"), "a is given twice"),
        (("set", "a=1", "--user", ""), "must not be empty"),
        (("set", "a=1", "--user", "a", "--default", "user"), "exclude each other"),
        (("set", "a=1", "--default", "group"), "needs user, client-id or ip"),
        (("remove", "a", "--ip", "10.0.0.1", "--user", "a"), "it excludes users"),
    ],
)
def test_wrong_usage(cli: CommandLine, arguments: tuple[str, ...], message: str):
    """The exit code is 2, and nothing is sent."""
    done = cli("quotas", *arguments)
    assert done.code == 2
    assert message in " ".join(done.err.replace("│", " ").split())
