"""`aiokq topics`, on a broker in memory."""

from __future__ import annotations

import pytest

from tests.unit.cli.harness import CommandLine


def test_topics_are_created_listed_and_described(cli: CommandLine):
    """These are the commands that a new user tries first."""
    done = cli("topics", "create", "b", "a", "--partitions", "2", "--set", "retention.ms=1000")
    assert (done.code, done.lines) == (0, ["b: created", "a: created"])
    assert cli("topics", "list").lines == [
        "topic  partitions",
        "a               2",
        "b               2",
    ]
    listed = cli("topics", "list", "--json").json
    assert [(t["name"], t["partitions"], t["internal"]) for t in listed] == [
        ("a", 2, False),
        ("b", 2, False),
    ]
    described = cli("topics", "describe", "a")
    assert described.lines[0].startswith("a: 2 partitions, id ")
    assert described.lines[1:] == [
        "  retention.ms=1000",
        "partition  leader  epoch  replicas  isr  offline",
        "        0       0      0  0         0          -",
        "        1       0      0  0         0          -",
    ]
    (document,) = cli("topics", "describe", "a", "--json").json
    assert document["configs"] == {"retention.ms": "1000"}
    assert [p["partition"] for p in document["partitions"]] == [0, 1]
    everything = cli("topics", "describe", "a", "--json", "--all-configs").json[0]["configs"]
    assert everything["cleanup.policy"] == "delete"


def test_an_empty_cluster_lists_nothing(cli: CommandLine):
    """It is not an error."""
    done = cli("topics", "list", "--json")
    assert (done.code, done.json) == (0, [])


def test_one_topic_that_fails_does_not_hide_the_others(cli: CommandLine):
    """The exit code is 1, and each failure is one line."""
    cli("topics", "create", "there")
    done = cli("topics", "create", "there", "new", "no/name")
    assert done.code == 1
    assert done.lines == ["new: created"]
    assert [line.split(": ")[1] for line in done.err.splitlines()] == ["there", "no/name"]
    done = cli("topics", "create", "there", "newer", "--json")
    assert done.code == 1
    assert [(d["name"], d["created"]) for d in done.json] == [("there", False), ("newer", True)]
    assert done.json[0]["error"]["name"] == "TOPIC_ALREADY_EXISTS"


def test_if_not_exists_and_if_exists_make_scripts_repeatable(cli: CommandLine):
    """The second run of a set-up script must not fail."""
    for expected in ("t: created", "t: already exists"):
        done = cli("topics", "create", "t", "--if-not-exists")
        assert (done.code, done.lines) == (0, [expected])
    for expected in ("t: deleted", "t: does not exist"):
        done = cli("topics", "delete", "t", "--if-exists")
        assert (done.code, done.lines) == (0, [expected])


def test_a_dry_run_changes_nothing(cli: CommandLine):
    """The cluster validates the request nevertheless."""
    done = cli("topics", "create", "t", "--dry-run")
    assert (done.code, done.lines) == (0, ["t: could be created"])
    assert cli("topics", "create", "t", "--dry-run", "--set", "no.such=1").code == 1
    assert cli("topics", "list", "--json").json == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--replication-factor", "3"), "INVALID_REPLICATION_FACTOR"),
        (("--set", "retention.ms=soon"), "INVALID_CONFIG"),
        (("--set", "retention.mss=1"), "INVALID_CONFIG"),
    ],
)
def test_what_the_cluster_refuses_is_told_in_its_words(
    cli: CommandLine, arguments: tuple[str, ...], says: str
):
    """It is one line, and the exit code is 1."""
    done = cli("topics", "create", "t", *arguments)
    assert done.code == 1
    assert says in done.complaint


def test_deleting_names_what_was_not_there(cli: CommandLine):
    """The other topics are deleted."""
    cli("topics", "create", "t")
    done = cli("topics", "delete", "t", "nope", "--json")
    assert done.code == 1
    assert [(d["name"], d["deleted"]) for d in done.json] == [("t", True), ("nope", False)]
    assert "nope" in done.complaint


def test_on_a_terminal_deleting_asks_first(cli: CommandLine, monkeypatch: pytest.MonkeyPatch):
    """`aiokq topics delete` cannot be undone."""
    cli("topics", "create", "t")
    asked = []

    def refuse(text: str, **options: object) -> None:
        import typer

        asked.append(text)
        raise typer.Abort

    monkeypatch.setattr("typer.confirm", refuse)
    assert cli("topics", "delete", "t", terminal=True).code == 130
    assert asked == ["Delete t with all records permanently?"]
    assert cli("topics", "delete", "t", "--yes", terminal=True).code == 0


def test_describing_a_topic_that_is_not_there(cli: CommandLine):
    """The other topics are described."""
    cli("topics", "create", "t")
    done = cli("topics", "describe", "nope", "t")
    assert done.code == 1
    assert done.lines[0].startswith("t: 1 partition, id ")
    assert "nope" in done.complaint
    assert "topics list" in done.complaint


def test_partitions_and_configs_are_altered(cli: CommandLine):
    """Changed configs have the new value, deleted ones their default."""
    cli("topics", "create", "t", "--set", "retention.ms=1000", "--set", "max.message.bytes=5000")
    done = cli(
        *("topics", "alter", "t", "--partitions", "3"),
        *("--set", "cleanup.policy=compact", "--delete", "retention.ms"),
    )
    assert (done.code, done.lines) == (0, ["t: altered"])
    (document,) = cli("topics", "describe", "t", "--json").json
    assert len(document["partitions"]) == 3
    assert document["configs"] == {"cleanup.policy": "compact", "max.message.bytes": "5000"}


def test_altering_tells_of_each_part_that_failed(cli: CommandLine):
    """Partitions cannot be removed; the config is set nevertheless."""
    cli("topics", "create", "t", "--partitions", "2")
    done = cli("topics", "alter", "t", "--partitions", "1", "--set", "retention.ms=7", "--json")
    assert done.code == 1
    assert "partitions" in done.complaint
    assert done.json[0]["partitions_error"]["name"] == "INVALID_PARTITIONS"
    assert done.json[0]["configs_error"] is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "nothing to alter"),
        (("--set", "retention.ms"), "NAME=VALUE"),
        (("--set", "=1"), "NAME=VALUE"),
        (("--set", "a=1", "--delete", "a"), "both"),
    ],
)
def test_an_alteration_that_means_nothing_is_wrong_usage(
    alone: CommandLine, arguments: tuple[str, ...], says: str
):
    """The options are refused before a cluster is contacted."""
    done = alone("topics", "alter", "t", *arguments)
    assert done.code == 2
    assert says in done.complaint
