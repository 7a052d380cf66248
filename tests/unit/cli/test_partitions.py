"""`aiokq partitions`, on a broker in memory."""

from __future__ import annotations

import pytest

from tests.unit.cli.harness import CommandLine


def test_leaders_that_are_as_they_should_be_are_no_failure(cli: CommandLine):
    """A script that elects leaders after each restart must not fail on a healthy cluster."""
    cli("topics", "create", "t", "--partitions", "2")
    done = cli("partitions", "elect", "t")
    assert (done.code, done.lines) == (
        0,
        ["t-0: already has its preferred leader", "t-1: already has its preferred leader"],
    )
    assert cli("partitions", "elect").lines == []  # no partition needs an election
    assert cli("partitions", "elect", "t:1", "--unclean").lines == ["t-1: already has a leader"]
    done = cli("partitions", "elect", "t:1", "--unclean", "--json")
    assert (done.code, done.json) == (
        0,
        [{"topic": "t", "partition": 1, "elected": False, "error": None}],
    )


def test_a_partition_that_does_not_exist_is_told_and_the_others_are_done(cli: CommandLine):
    """The exit code is 1."""
    cli("topics", "create", "t")
    done = cli("partitions", "elect", "t:0,5")
    assert done.code == 1
    assert done.lines == ["t-0: already has its preferred leader"]
    assert "t-5" in done.complaint
    assert cli("partitions", "elect", "absent").code == 1


def test_partitions_are_reassigned_by_broker_ids(cli: CommandLine):
    """The only broker may be named; an unknown broker is refused with its id."""
    cli("topics", "create", "t", "--partitions", "2")
    done = cli("partitions", "reassign", "t:0=0", "t:1=7")
    assert done.code == 1
    assert done.lines == ["t-0: reassigned"]
    assert "t-1" in done.complaint
    assert "broker 7" in done.complaint
    done = cli("partitions", "reassign", "--cancel", "t:0", "--json")
    assert done.code == 1
    assert done.json[0]["error"]["name"] == "NO_REASSIGNMENT_IN_PROGRESS"


def test_what_is_under_way_is_listed(cli: CommandLine):
    """A cluster of one node has no reassignments."""
    cli("topics", "create", "t")
    done = cli("partitions", "reassignments")
    assert (done.code, done.lines) == (0, ["topic  partition  replicas  adding  removing"])
    assert cli("partitions", "reassignments", "t", "--json").json == []


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("t=1",),
        ("t:0",),
        ("t:0=",),
        ("t:0=a",),
        ("t:0=-1",),
        ("t:x=1",),
        ("--cancel", "t"),
    ],
)
def test_what_cannot_be_read_is_wrong_usage(cli: CommandLine, arguments: tuple[str, ...]):
    """The exit code is 2, and the cluster is not contacted."""
    assert cli("partitions", "reassign", *arguments).code == 2
