"""`aiokq consume`, on a broker in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aiokq.consumer.consumer import Consumer
from aiokq.core.errors import KafkaStorage
from aiokq.records.header import iter_headers
from tests.unit.broker.log.samples import NOW_MS, batch
from tests.unit.cli.harness import CommandLine


@pytest.fixture
def filled(cli: CommandLine) -> CommandLine:
    """Topic `t` with partitions 0 (ten records), 1 (five) and 2 (none)."""
    cli("topics", "create", "t", "--partitions", "3")
    for partition, count in ((0, 10), (1, 5)):
        lines = "".join(f"{partition}.{number}\n" for number in range(count))
        done = cli("produce", "t", "--partition", str(partition), stdin=lines.encode())
        assert done.code == 0, done.err
    return cli


def values(cli: CommandLine, *arguments: str) -> list[str]:
    done = cli("consume", *arguments)
    assert done.code == 0, done.err
    return done.lines


def test_until_end_prints_everything_and_ends(filled: CommandLine):
    """An empty partition does not delay the end."""
    found = values(filled, "t", "--until-end")
    assert [v for v in found if v[0] == "0"] == [f"0.{n}" for n in range(10)]
    assert [v for v in found if v[0] == "1"] == [f"1.{n}" for n in range(5)]


def test_nothing_to_print_ends_at_once(filled: CommandLine):
    """One partition is empty, the other is read from its end."""
    assert values(filled, "t", "--partition", "2", "--until-end") == []
    assert values(filled, "t", "--from", "end", "--until-end") == []


@pytest.mark.parametrize(
    ("start", "first"), [("7", "0.7"), ("-2", "0.8"), ("beginning", "0.0"), ("@0", "0.0")]
)
def test_reading_starts_where_it_was_told_to(filled: CommandLine, start: str, first: str):
    """Offsets from the start, from the end, and times."""
    assert values(filled, "t", "-p", "0", "--from", start, "-n", "1") == [first]


def test_a_time_after_the_last_record_is_the_end(filled: CommandLine):
    """No record is later than the time."""
    assert values(filled, "t", "--from", "@99999999999999", "--until-end") == []


def test_an_offset_outside_a_log_is_moved_into_it_and_told(filled: CommandLine):
    """Partitions have different lengths: one of them must not stop the others."""
    done = filled("consume", "t", "--from", "7", "--until-end")
    assert done.code == 0
    assert done.lines == ["0.7", "0.8", "0.9"]
    assert "t-1 has the offsets 0 to 4: reading from 5" in done.err
    assert "t-2 is empty" in done.err


def test_max_messages_ends_a_reader_that_follows(filled: CommandLine):
    """Not one record more is printed."""
    assert len(values(filled, "t", "--max-messages", "12")) == 12
    assert len(values(filled, "t", "--max-messages", "12", "--until-end")) == 12


def test_several_topics_and_json(filled: CommandLine):
    """Each record names its topic."""
    filled("produce", "u", "-K", ":", stdin=b"k:v\n")
    found = [json.loads(line) for line in values(filled, "t", "u", "--until-end", "-o", "json")]
    assert len(found) == 16
    (of_u,) = [r for r in found if r["topic"] == "u"]
    assert (of_u["key"], of_u["value"]) == ("k", "v")


def test_text_shows_keys_headers_timestamps_and_offsets_on_request(cli: CommandLine):
    """Unprintable characters are escaped."""
    cli("produce", "u", "-K", ":", "-H", "h=1", stdin=b"k:\x1b[2J\xff\n")
    (line,) = values(
        cli,
        "u",
        "--until-end",
        "--keys",
        "--headers",
        "--timestamps",
        "--offsets",
        "--separator",
        "|",
    )
    offset, timestamp, key, headers, value = line.split("|")
    assert (offset, key, headers, value) == ("u-0@0", "k", "h=1", "\\x1b[2J\\xff")
    assert timestamp.startswith("2023-11-14T")


def test_raw_gives_the_bytes_back(cli: CommandLine):
    """The output is the same file as the input."""
    data = bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"") + b"\n\xff\xfe\n"
    cli("produce", "u", stdin=data)
    assert cli("consume", "u", "--until-end", "--format", "raw").out == data


def test_a_topic_that_is_not_there_is_one_line_and_is_not_created(cli: CommandLine):
    """Reading must not create a topic, although the cluster would."""
    done = cli("consume", "nope", "--until-end")
    assert done.code == 1
    assert "'nope'" in done.complaint
    assert cli("topics", "list", "--json").json == []


def test_a_partition_that_is_not_there_is_one_line(filled: CommandLine):
    """The line names the partitions that exist."""
    done = filled("consume", "t", "--partition", "9")
    assert done.code == 1
    assert "0 to 2" in done.complaint


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("t", "u", "--partition", "0"), "one topic"),
        (("t", "--from", "yesterday"), "--from"),
        (("t", "--from", "1e3"), "time"),
        (("t", "--from", "9" * 30), "no such offset"),
        (("t", "--from", "--5"), "--from"),
        (("t", "--max-messages", "0"), "--max-messages"),
        (("t", "--format", "raw", "--headers"), "raw"),
    ],
)
def test_options_that_mean_nothing_are_refused_at_once(
    alone: CommandLine, arguments: tuple[str, ...], says: str
):
    """The options are refused before a cluster is contacted."""
    done = alone("consume", *arguments)
    assert done.code == 2
    assert says in done.complaint


def test_a_group_in_the_environment_is_refused_not_ignored(
    alone: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    """A user who sets group.id expects committed offsets."""
    monkeypatch.setenv("KAFKA_GROUP_ID", "billing")
    done = alone("consume", "t")
    assert done.code == 1
    assert "group_id" in done.complaint


def test_an_end_that_is_never_reached_is_an_error(
    filled: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With --until-end a script must not wait forever for a stopped broker."""
    for _ in range(5):  # more batches than are fetched ahead
        filled("produce", "t", "--partition", "0", stdin=b"more\n")
    config = tmp_path / "client.properties"
    config.write_text(
        "default.api.timeout.ms=5000\nqueued.max.bytes=1\nmax.partition.fetch.bytes=1\n"
    )
    world = filled.session.world
    read = Consumer.getmany
    began: list[float] = []

    async def getmany(consumer: Consumer, **arguments: Any) -> Any:
        if not began:
            began.append(world.loop.time())
            world.network.delay_host("127.0.0.1", 1000.0)
        return await read(consumer, **arguments)

    monkeypatch.setattr(Consumer, "getmany", getmany)
    done = filled("consume", "t", "--until-end", "--config", str(config))
    world.network.heal()
    assert done.code == 1
    assert "no records of t-0 arrived for 5 s" in done.complaint
    assert world.loop.time() - began[0] < 30


def take_offline(line: CommandLine, partition: int) -> None:
    """Fail the partition as if its disk had failed."""
    found = line.session.kafka.node.topics.partition("t", partition)  # type: ignore[attr-defined]
    found.take_offline(KafkaStorage("its log directory is offline"))


def test_a_partition_that_is_offline_hides_no_other(filled: CommandLine):
    """Regression: an offline partition delayed all output by a minute."""
    take_offline(filled, 0)
    done = filled("consume", "t", "--until-end")
    assert done.lines == [f"1.{n}" for n in range(5)]
    assert done.code == 1
    waits, gives_up = done.err.splitlines()
    assert "no broker leads t-0" in waits
    assert "nothing of t-0 was read, because the partition had no leader" in gives_up


def test_what_was_wanted_may_lie_in_other_partitions(filled: CommandLine):
    """If enough records were printed, an offline partition is no failure."""
    take_offline(filled, 0)
    done = filled("consume", "t", "--until-end", "--max-messages", "3")
    assert (done.code, done.lines) == (0, ["1.0", "1.1", "1.2"])


@pytest.mark.parametrize(("start", "printed"), [("beginning", 15), ("end", 1)])
def test_a_partition_that_is_offline_keeps_no_other_from_being_followed(
    filled: CommandLine, start: str, printed: int
):
    """The partition is read as soon as it has a leader."""
    found = filled.session.kafka.node.topics.partition("t", 0)  # type: ignore[attr-defined]
    log = found.log
    take_offline(filled, 0)
    loop = filled.session.world.loop  # type: ignore[attr-defined]
    data = batch(b"new")

    def written() -> None:
        found.append(memoryview(data), list(iter_headers(data)), now_ms=NOW_MS)

    loop.call_later(300.0, found.bring_online, log, 0, 1)
    if start == "end":
        loop.call_later(400.0, written)
    done = filled("consume", "t", "--from", start, "--max-messages", str(printed))
    assert done.code == 0, done.err
    if start == "end":
        assert done.lines == ["new"]
    else:
        assert done.lines[:5] == [f"1.{n}" for n in range(5)]
        assert done.lines[5:] == [f"0.{n}" for n in range(10)]


def test_json_is_one_document_a_line(cli: CommandLine):
    """Every listing with --json has this form; --format json is the same."""
    cli("produce", "t", stdin=b"one\ntwo\n")
    done = cli("consume", "t", "--until-end", "--json")
    assert done.code == 0
    assert [json.loads(line)["value"] for line in done.lines] == ["one", "two"]
    assert cli("consume", "t", "--until-end", "--format", "json").out == done.out
    assert cli("consume", "t", "--until-end", "--format", "json", "--json").out == done.out


def test_json_and_another_format_are_refused(alone: CommandLine):
    """One of the two options would be ignored."""
    done = alone("consume", "t", "--json", "--format", "raw")
    assert done.code == 2
    assert "--format raw" in done.complaint


def test_a_member_goes_on_where_its_group_is(filled: CommandLine):
    """Printed records are committed; the next run continues after them."""
    first = values(filled, "t", "--group", "billing", "--max-messages", "6")
    rest = values(filled, "t", "-g", "billing", "-n", "9")
    assert sorted(first + rest) == sorted(
        [f"0.{n}" for n in range(10)] + [f"1.{n}" for n in range(5)]
    )
    described = filled("groups", "describe", "billing", "--json")
    assert json.loads(described.out)[0]["lag"] == 0


def test_a_member_from_the_end_prints_what_comes_later(filled: CommandLine):
    """`--from end` applies only while the group has no committed offset."""
    values(filled, "t", "--group", "old", "-n", "15")
    filled("produce", "t", "--partition", "2", stdin=b"late\n")
    assert values(filled, "t", "--group", "old", "--from", "end", "-n", "1") == ["late"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--partition", "0"), "members of a group share all partitions"),
        (("--from", "7"), "aiokq groups reset"),
        (("--until-end",), "--max-messages"),
    ],
)
def test_what_a_member_cannot_do_is_refused_at_once(
    alone: CommandLine, arguments: tuple[str, ...], says: str
):
    """These options have no meaning for a member of a group."""
    done = alone("consume", "t", "--group", "billing", *arguments)
    assert done.code == 2
    assert says in done.complaint
