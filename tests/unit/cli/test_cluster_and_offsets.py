"""`aiokq cluster` and `aiokq offsets`, on a broker in memory."""

from __future__ import annotations

import pytest

from tests.unit.cli.harness import CommandLine


def test_the_cluster_is_described(cli: CommandLine):
    """The output has id, controller and brokers."""
    done = cli("cluster")
    assert done.code == 0
    assert done.lines[0].endswith("controller 0")
    assert done.lines[1].split() == ["broker", "host", "port", "rack"]
    assert done.lines[2].split() == ["0", "127.0.0.1", "9092", "-"]
    document = cli("cluster", "--json").json
    assert document["cluster_id"] in done.lines[0]
    assert document["brokers"] == [
        {"node_id": 0, "host": "127.0.0.1", "port": 9092, "rack": None, "fenced": False}
    ]


def test_fenced_brokers_are_told_apart_or_refused_by_old_brokers(cli: CommandLine):
    """An older broker cannot answer: the option is refused."""
    done = cli("cluster", "--fenced")
    if done.code == 0:
        assert done.lines[2].endswith("in service")
    else:
        assert "older" in done.complaint


def test_offsets_of_each_partition(cli: CommandLine):
    """First offset, end, and offset by time; none where no record is that young."""
    cli("topics", "create", "t", "--partitions", "2")
    cli("produce", "t", "-p", "1", stdin=b"a\nb\n")
    done = cli("offsets", "t", "--at", "@0", "--at", "2999-01-01T00:00:00Z")
    assert done.code == 0
    assert done.lines[0].split()[:4] == ["topic", "partition", "earliest", "latest"]
    rows = [line.split() for line in done.lines[1:]]
    assert rows[0] == ["t", "0", "0", "0", "-", "-", "-", "-"]
    assert rows[1][:5] == ["t", "1", "0", "2", "0"]
    assert rows[1][5].startswith("2023-11-14T")
    first, second = cli("offsets", "t", "--at", "@0", "--json").json
    assert first["times"] == [{"at_ms": 0, "offset": None, "timestamp_ms": None, "error": None}]
    assert (second["earliest"], second["latest"], second["times"][0]["offset"]) == (0, 2, 0)


def test_a_topic_that_is_not_there_is_named_beside_the_others(cli: CommandLine):
    """The exit code is 1, and the topic is named in one line."""
    cli("topics", "create", "t")
    done = cli("offsets", "nope", "t")
    assert done.code == 1
    assert "nope" in done.complaint
    assert done.lines[1].split() == ["t", "0", "0", "0"]


@pytest.mark.parametrize("text", ["soon", "12", "@x"])
def test_what_is_no_time_is_wrong_usage(alone: CommandLine, text: str):
    """The text is refused before a cluster is contacted."""
    done = alone("offsets", "t", "--at", text)
    assert done.code == 2
    assert "is not a time" in done.complaint


def test_log_directories_are_described(cli: CommandLine):
    """The output has content, free space and failures of each disk."""
    cli("topics", "create", "t", "--partitions", "2")
    cli("produce", "t", "-p", "1", stdin=b"a\nb\n")
    done = cli("log-dirs")
    assert done.lines[0].split() == ["broker", "directory", "partitions", "bytes", "free", "state"]
    row = done.lines[1].split()
    assert (row[0], row[2], row[-1]) == ("0", "2", "online")
    done = cli("log-dirs", "--partitions", "--broker", "0")
    assert [line.split()[2:4] for line in done.lines[1:]] == [["t", "0"], ["t", "1"]]
    [broker] = cli("log-dirs", "--json").json
    [directory] = broker["log_dirs"]
    assert (broker["node_id"], directory["error"]) == (0, None)
    assert [one["size_bytes"] > 0 for one in directory["partitions"]] == [False, True]
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    done = cli("log-dirs", "--broker", "7")
    assert done.code == 1
