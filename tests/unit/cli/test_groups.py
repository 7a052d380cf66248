"""`aiokq groups`, on a broker in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aiokq import wire
from aiokq.assign.model import Subscription
from aiokq.assign.protocol import encode_subscription
from aiokq.client.cluster import Cluster
from aiokq.cluster.targets import Coordinator, CoordinatorKind
from tests.unit.cli.harness import SERVERS, CommandLine


@pytest.fixture
def orders(cli: CommandLine) -> CommandLine:
    """A topic of two partitions, ten records in the first; the group has committed 4 and 0."""
    cli("topics", "create", "orders", "-p", "2")
    cli("produce", "orders", "--partition", "0", stdin=b"line\n" * 10)
    cli("groups", "reset", "g", "--topic", "orders:0", "--to-offset", "4", "--execute")
    cli("groups", "reset", "g", "--topic", "orders:1", "--to-earliest", "--execute")
    return cli


def joined(cli: CommandLine, group: str = "live") -> str:
    """Join a member of the classic protocol and return its id; it has no assignment yet."""

    async def join() -> str:
        cluster = Cluster(SERVERS, client_id="me", _environment=cli.session.environment)
        async with cluster:
            target = Coordinator(CoordinatorKind.GROUP, group)
            request = wire.JoinGroupRequest(
                group_id=group,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=45_000,
                protocol_type="consumer",
                protocols=[
                    wire.JoinGroupRequestProtocol(
                        name="range", metadata=encode_subscription(Subscription(("orders",)))
                    )
                ],
            )
            first = await cluster.request(request, node=target)
            request.member_id = first.member_id
            response = await cluster.request(request, node=target)
            assert not response.error_code
            return str(response.member_id)

    return cli.session.run(join())


def test_groups_are_listed_with_their_state(orders: CommandLine) -> None:
    """Most work on groups starts with this list."""
    joined(orders)
    assert orders("groups", "list").lines == [
        "group  state                type     protocol type  coordinator",
        "g      Empty                Classic  -                        0",
        "live   CompletingRebalance  Classic  consumer                 0",
    ]
    assert [g["group"] for g in orders("groups", "list", "--state", "empty", "--json").json] == [
        "g"
    ]
    assert orders("groups", "list", "--type", "consumer", "--json").json == []
    done = orders("groups", "list", "--state", "stabel")
    assert done.code == 1
    assert "'stabel' is not one of Empty, " in done.complaint


def test_a_group_is_described_with_its_lag(orders: CommandLine) -> None:
    """Lag and owner of each partition are shown."""
    done = orders("groups", "describe", "g")
    assert done.code == 0
    assert done.lines == [
        f"g: Empty, 0 members, lag 6, classic protocol, coordinator 0 ({SERVERS})",
        "topic   partition  committed  end  lag  member  host  client",
        "orders          0          4   10    6       -     -       -",
        "orders          1          0    0    0       -     -       -",
    ]
    (document,) = orders("groups", "describe", "g", "--json").json
    assert (document["state"], document["lag"], document["members"]) == ("Empty", 6, [])
    assert [p["committed"] for p in document["partitions"]] == [4, 0]


def test_members_are_described(orders: CommandLine) -> None:
    """A member with many partitions has one line."""
    member = joined(orders)
    done = orders("groups", "describe", "live", "--members")
    assert done.lines[1].split() == ["member", "instance", "host", "client", "partitions"] + [
        "assignment"
    ]
    assert done.lines[2].split()[0] == member
    (document,) = orders("groups", "describe", "live", "--json").json
    assert [(m["member"], m["client"]) for m in document["members"]] == [(member, "me")]


def test_the_lag_of_a_group_that_is_joining_is_unknown(orders: CommandLine) -> None:
    """Regression: while no member had a partition, the lag was shown as 0."""
    joined(orders)
    assert "1 member, lag unknown, " in orders("groups", "describe", "live").lines[0]
    (document,) = orders("groups", "describe", "live", "--json").json
    assert document["lag"] is None


def test_a_group_that_is_not_there_hides_no_other(orders: CommandLine) -> None:
    """The missing group is one line and exit code 1; the others are shown."""
    done = orders("groups", "describe", "nothing", "g")
    assert done.code == 1
    assert done.complaint == "aiokq: nothing: Group nothing not found. (GROUP_ID_NOT_FOUND)"
    assert done.lines[0].startswith("g: Empty")


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-current"], 4),
        (["--to-offset", "7"], 7),
        (["--shift-by", "-3"], 1),
        (["--to-datetime", "@0"], 0),
        (["--by-duration", "PT0S"], 10),
    ],
)
def test_a_reset_is_a_dry_run_unless_told_otherwise(
    orders: CommandLine, where: list[str], offset: int
) -> None:
    """As in Kafka's tool, nothing is changed without --execute."""
    command = ["groups", "reset", "g", "--topic", "orders:0", *where]
    done = orders(*command)
    assert done.code == 0
    assert done.lines == [
        "topic   partition  previous  offset",
        f"orders          0         4  {offset:6}",
    ]
    assert done.err == "dry run, nothing was changed: add --execute to make the changes\n"
    assert committed(orders) == [4, 0]
    done = orders(*command, "--execute", "--json")
    assert [(d["previous"], d["offset"], d["committed"]) for d in done.json] == [(4, offset, True)]
    assert committed(orders) == [offset, 0]


def committed(cli: CommandLine) -> list[int]:
    (group,) = cli("groups", "describe", "g", "--json").json
    return [partition["committed"] for partition in group["partitions"]]


def test_an_offset_outside_the_log_becomes_its_nearest_end(orders: CommandLine) -> None:
    """A note says which partitions are affected."""
    done = orders("groups", "reset", "g", "--all-topics", "--shift-by", "100", "--execute")
    assert (done.code, committed(orders)) == (0, [10, 0])
    assert "set to the log's start or end: orders-0, orders-1" in done.err


def test_a_partition_that_fails_hides_no_other(orders: CommandLine) -> None:
    """A partition without a committed offset cannot be shifted; the others are."""
    orders("topics", "alter", "orders", "--partitions", "3")
    done = orders("groups", "reset", "g", "--topic", "orders", "--shift-by", "1", "--execute")
    assert done.code == 1
    assert "orders-2: the group has no committed offset to shift" in done.err
    assert committed(orders) == [5, 0]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "no new position is given: give one of --to-earliest"),
        (["--to-earliest", "--to-latest", "--all-topics"], "not several"),
        (["--to-earliest"], "no topics are named: give either --topic or --all-topics"),
        (["--to-earliest", "--all-topics", "--topic", "t"], "no topics are named"),
        (["--to-earliest", "--topic", "t:x"], "is neither TOPIC nor TOPIC:0,1"),
        (["--by-duration", "1h", "--all-topics"], "is not a duration"),
        (["--to-datetime", "then", "--all-topics"], "is not a time"),
        (["--to-latest", "--all-topics", "--dry-run", "--execute"], "exclude each other"),
    ],
)
def test_a_reset_that_says_too_little_or_too_much_is_refused(
    alone: CommandLine, arguments: list[str], complaint: str
) -> None:
    """The options are refused before the cluster is contacted."""
    done = alone("groups", "reset", "g", *arguments)
    assert done.code == 2
    assert complaint in done.complaint


def test_offsets_are_reset_from_a_file_as_kafkas_tool_writes_it(
    orders: CommandLine, tmp_path: Path
) -> None:
    """Offsets saved before a deployment can be restored after it."""
    file = tmp_path / "offsets.csv"
    file.write_text('orders,0,7\n\n"g","orders",1,0\nother,orders,0,1\n')
    assert orders("groups", "reset", "g", "--from-file", str(file)).lines == [
        "topic   partition  previous  offset",
        "orders          0         4       7",
        "orders          1         0       0",
    ]
    assert committed(orders) == [4, 0]
    assert orders("groups", "rewind", "g", "--from-file", str(file), "--execute").code == 0
    assert committed(orders) == [7, 0]


def test_a_reset_of_a_group_that_committed_nothing_says_so(orders: CommandLine) -> None:
    """Otherwise a misspelt group id looks as if it had been reset."""
    done = orders("groups", "reset", "gg", "--all-topics", "--to-latest", "--execute")
    assert "group 'gg' has no committed offsets to reset" in done.err


@pytest.mark.parametrize(
    ("text", "arguments", "complaint"),
    [
        ("orders,0\n", [], "line 1: must be topic,partition,offset"),
        ("orders,0,7\norders,1,-1\n", [], "line 2: must be"),
        ("orders,0,9223372036854775808\n", [], "line 1: must be"),
        (",0,1\n", [], "line 1: must be"),
        ("orders,0,7\norders,0,8\n", [], "line 2: orders-0 occurs twice"),
        ("other,orders,0,7\n", [], "has no offsets of group 'g'"),
        ("", [], "has no offsets of group 'g'"),
        (None, [], "No such file"),
        ("orders,0,7\n", ["--all-topics"], "give no other position and no topics"),
        ("orders,0,7\n", ["--to-latest"], "give no other position and no topics"),
    ],
)
def test_a_file_of_offsets_that_is_none_is_refused(
    alone: CommandLine, tmp_path: Path, text: str | None, arguments: list[str], complaint: str
) -> None:
    """The error names the line of the file, before the cluster is contacted."""
    file = tmp_path / "offsets.csv"
    if text is not None:
        file.write_text(text)
    done = alone("groups", "reset", "g", "--from-file", str(file), *arguments)
    assert done.code == 2
    assert complaint in done.complaint


def test_a_group_with_members_is_neither_reset_nor_deleted(orders: CommandLine) -> None:
    """Members would continue at their own positions; the error says what to do."""
    joined(orders)
    done = orders("groups", "reset", "live", "--topic", "orders", "--to-latest")
    assert done.code == 1
    assert "group 'live' has members" in done.complaint
    assert "stop the members first" in done.complaint
    done = orders("groups", "delete", "live", "g")
    assert (done.code, done.lines) == (1, ["g: deleted"])
    assert done.complaint == "aiokq: live: The group is not empty. (NON_EMPTY_GROUP)"


def test_groups_and_offsets_are_deleted(orders: CommandLine) -> None:
    """With --topic the offsets of one topic are deleted, then the group; a terminal asks first."""
    done = orders("groups", "delete", "g", "--topic", "orders:1", "--yes")
    assert (done.code, done.lines) == (0, ["g: orders-1 deleted"])
    assert committed(orders) == [4]
    done = orders("groups", "delete", "g", stdin=b"n\n", terminal=True)
    assert done.code == 130
    done = orders("groups", "delete", "g", "--json")
    assert done.json == [{"group": "g", "deleted": True, "error": None}]
    done = orders("groups", "delete", "g", "--if-exists")
    assert (done.code, done.lines) == (0, ["g: does not exist"])
    assert orders("groups", "delete", "g").code == 1
    assert orders("groups", "delete", "g", "--topic", "orders").code == 1
    assert orders("groups", "delete", "g", "--topic", "orders", "--if-exists").code == 0


def test_a_group_whose_offsets_cannot_be_deleted_hides_no_other(orders: CommandLine) -> None:
    """Regression: the error of the first group ended the command, without results of the others."""
    done = orders("groups", "delete", "nobody", "", "g", "--topic", "orders:1", "--json")
    assert done.code == 1
    assert [(each["group"], each["deleted"]) for each in done.json] == [("g", True)]
    assert len(done.err.splitlines()) == 2
    assert committed(orders) == [4]


DUMP = """\
/consumers/g/offsets/orders/0:9
/consumers/g/offsets/gone/0:1
/consumers/old/offsets/orders/0:3
/consumers/old/offsets/orders/1:5
/consumers/old/offsets/orders/x:1
/consumers/old/ids/me:{}
/consumers/bad/offsets/orders/0:none
"""


def test_offsets_of_zookeeper_are_imported_from_a_dump(orders: CommandLine, tmp_path: Path) -> None:
    """Existing offsets are kept, failures are printed, all other offsets are committed."""
    dump = tmp_path / "offsets.txt"
    dump.write_text(DUMP)
    command = ["groups", "import-zookeeper", str(dump)]
    done = orders(*command)
    assert done.code == 1
    assert done.lines == [
        "group  topic   partition  given  previous  offset  outcome",
        "g      gone            0      1         -       -  would fail",
        "g      orders          0      9         4       4  kept",
        "old    orders          0      3         -       3  would be imported",
        "old    orders          1      5         -       -  would fail",
    ]
    complaints = done.err.splitlines()
    assert complaints[0] == "aiokq: line 7: 'none' is not an offset of orders-0 of group 'bad'"
    assert complaints[1].startswith("aiokq: g: gone-0: there is no such topic")
    assert "old: orders-1: offset 5 is outside the log, which has 0 to 0" in complaints[2]
    assert complaints[3].startswith("dry run")
    assert orders("groups", "describe", "old").code == 1
    done = orders(*command, "--group", "old", "--clip", "--execute", "--json")
    assert [(d["offset"], d["committed"], d["clipped"]) for d in done.json] == [
        (3, True, False),
        (0, True, True),
    ]
    done = orders(*command, "--group", "g", "--overwrite", "--execute")
    assert [line.split()[-1] for line in done.lines[1:]] == ["failed", "imported"]
    assert committed(orders) == [9, 0]


def test_a_dump_comes_by_a_pipe_too(orders: CommandLine) -> None:
    """A dump without offsets prints a note, and fails only if a group was named."""
    done = orders("groups", "import-zookeeper", "-", "--execute", stdin=DUMP.encode())
    assert "old    orders          0      3         -       3  imported" in done.lines
    done = orders("groups", "import-zookeeper", "-", stdin=b"/brokers/ids/0\t{}\n")
    assert (done.code, done.err) == (0, "no consumer offsets found (1 other nodes)\n")
    done = orders("groups", "import-zookeeper", "-", "--group", "x", "--json", stdin=b"")
    assert (done.code, done.json) == (1, [])


def test_an_import_says_from_where(alone: CommandLine, tmp_path: Path) -> None:
    """Giving both sources or none is wrong usage; a missing file is one line."""
    for arguments in ([], ["x", "--zookeeper", "h:2181"]):
        done = alone("groups", "import-zookeeper", *arguments)
        assert done.code == 2
        assert "no source is given" in done.complaint
    done = alone("groups", "import-zookeeper", str(tmp_path / "none"))
    assert done.code == 1
    assert "No such file" in done.complaint


def test_a_live_zookeeper_takes_an_extra(
    alone: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without kazoo the error says what to install."""
    real = __import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("kazoo"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr("builtins.__import__", without)
    done = alone("groups", "import-zookeeper", "--zookeeper", "127.0.0.1:1")
    assert done.code == 1
    assert "pip install 'aiokq[zookeeper]'" in done.complaint


def test_what_is_exported_can_be_reset_from(orders: CommandLine, tmp_path: Path) -> None:
    """An export taken before a reset can undo it."""
    command = ["groups", "reset", "g", "--all-topics"]
    done = orders(*command, "--to-current", "--export")
    assert (done.code, done.lines) == (0, ["orders,0,4", "orders,1,0"])
    saved = tmp_path / "saved.csv"
    saved.write_bytes(done.out)
    assert orders(*command, "--to-latest", "--export", "--execute").lines[0] == "orders,0,10"
    assert orders("groups", "reset", "g", "--from-file", str(saved), "--execute").code == 0
    assert orders(*command, "--to-current", "--export").lines == done.lines


def test_all_groups_are_reset_but_those_with_members(orders: CommandLine) -> None:
    """Regression: one group with members kept the others from being reset."""
    orders("groups", "reset", "a,b", "--topic", "orders:0", "--to-offset", "2", "--execute")
    joined(orders)
    command = ["groups", "reset", "--all-groups", "--topic", "orders:0", "--to-earliest"]
    done = orders(*command, "--export", "--execute")
    assert done.code == 1
    assert done.lines == ['"a,b",orders,0,0', "g,orders,0,0"]
    assert "live: " in done.complaint
    done = orders("groups", "reset", "g", "a,b", "--all-topics", "--to-current")
    assert [line.split() for line in done.lines] == [
        ["group", "topic", "partition", "previous", "offset"],
        ["g", "orders", "0", "0", "0"],
        ["g", "orders", "1", "0", "0"],
        ["a,b", "orders", "0", "0", "0"],
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--topic", "t", "--to-latest"], "no groups are named"),
        (["g", "--all-groups", "--topic", "t", "--to-latest"], "no groups are named"),
        (["g", "--topic", "t", "--to-latest", "--export", "--json"], "exclude each other"),
        (["--all-groups", "--from-file", "f"], "needs group ids"),
    ],
)
def test_a_reset_of_no_clear_groups_is_refused(
    alone: CommandLine, arguments: list[str], text: str
) -> None:
    """The options are refused before the user is asked for a confirmation."""
    done = alone("groups", "reset", *arguments)
    assert done.code == 2
    assert text in done.err


def test_the_settings_of_a_group_are_altered_and_shown(cli: CommandLine) -> None:
    """Regression: they could be set only with Kafka's own tools."""
    session = "consumer.session.timeout.ms"
    done = cli("groups", "alter", "g", "--set", f"{session}=50000", "--dry-run")
    assert (done.code, done.lines) == (0, ["g: could be altered"])
    done = cli("groups", "alter", "g", "--set", f"{session}=50000")
    assert (done.code, done.lines) == (0, ["g: altered"])
    rows = [line.split() for line in cli("groups", "configs", "g").lines]
    assert ["g", session, "50000", "group"] in rows
    assert ["consumer.heartbeat.interval.ms", "broker"] in [[row[1], row[-1]] for row in rows]
    (document,) = cli("groups", "configs", "g", "--json").json
    assert document["configs"][session] == {"value": "50000", "own": True}
    assert cli("groups", "alter", "g", "--delete", session, "--json").json == [
        {"group": "g", "altered": True, "error": None}
    ]
    (document,) = cli("groups", "configs", "g", "--json").json
    assert not document["configs"][session]["own"]


def test_an_alteration_of_groups_that_fails_hides_no_other(cli: CommandLine) -> None:
    """The exit code is 1, with a line for each failure and the broker's message."""
    done = cli("groups", "alter", "g", "--set", "consumer.session.timeout.ms=1")
    assert done.code == 1
    assert "group.consumer.min.session.timeout.ms" in done.complaint
    assert "nothing to alter" in cli("groups", "alter", "g").err
