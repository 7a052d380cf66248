"""`aiokq produce`, on a broker in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path

import pytest

from aiokq.records.compression import NONE, ZSTD
from aiokq.records.header import iter_headers
from tests.unit.cli.harness import CommandLine


def records(cli: CommandLine, topic: str = "t") -> list[dict[str, object]]:
    done = cli("consume", topic, "--until-end", "--json")
    assert done.code == 0, done.err
    return sorted(map(json.loads, done.lines), key=lambda r: (r["partition"], r["offset"]))


def test_each_line_becomes_a_record(cli: CommandLine):
    """Empty lines, lines of a Windows file and a last line without a line feed count."""
    done = cli("produce", "t", stdin=b"one\n\nt\xc3\xbcr\r\n\xff\nlast")
    assert done.code == 0
    assert (
        done.lines == ["5 records (12 bytes) delivered to t in 0.00 s"]
        or "5 records" in done.lines[0]
    )
    assert [r["value"] for r in records(cli)] == ["one", "", "tür", {"base64": "/w=="}, "last"]
    assert {r["key"] for r in records(cli)} == {None}


def test_no_input_is_no_record(cli: CommandLine):
    """Scripts may run `aiokq produce t < /dev/null`."""
    done = cli("produce", "t", "--json")
    assert done.code == 0
    assert done.json["delivered"] == 0


def test_keys_headers_and_nulls(cli: CommandLine):
    """Only the first separator splits a line."""
    done = cli(
        *("produce", "t", "-K", "\\t", "-H", "source=test", "-H", "empty=", "--null-marker", "NIL"),
        stdin=b"k\tv\tw\nNIL\tx\nk2\tNIL\n",
    )
    assert done.code == 0
    found = records(cli)
    assert [(r["key"], r["value"]) for r in found] == [("k", "v\tw"), (None, "x"), ("k2", None)]
    assert {json.dumps(r["headers"]) for r in found} == {'[["source", "test"], ["empty", ""]]'}


def test_a_line_without_a_separator_is_named_and_the_others_are_sent(cli: CommandLine):
    """A broken line in a million must not cost the others, nor go unnoticed."""
    done = cli("produce", "t", "-K", ":", "--json", stdin=b"a:1\nbroken\nb:2\n")
    assert done.code == 1
    assert "line 2" in done.complaint
    assert (done.json["delivered"], done.json["failed"]) == (2, 1)
    assert [r["value"] for r in records(cli)] == ["1", "2"]


def test_lines_that_fail_alike_are_one_complaint(cli: CommandLine):
    """A million messages with the same cause are useless."""
    done = cli("produce", "t", "-K", ":", stdin=b"broken\n" * 50)
    assert done.code == 1
    assert done.complaint == "aiokq: lines 1 to 50: the line has no key separator"
    done = cli("produce", "t", "-K", ":", stdin=b"a:1\nbroken\nb:2\nbroken\nc:3\n")
    assert done.complaint == "aiokq: 2 lines from 2 to 4: the line has no key separator"


def test_many_different_complaints_are_counted(cli: CommandLine):
    """Ten messages are printed; the number of the others shows the extent."""
    cli("topics", "create", "t", "--set", "max.message.bytes=1000")
    lines = [b"x" * (2000 + 20_000 * n) for n in range(15)]
    done = cli("produce", "t", stdin=b"\n".join(lines))
    assert done.code == 1
    complaints = done.err.splitlines()
    assert len(complaints) == 11
    assert complaints[-1] == "aiokq: and 5 more lines failed"


def test_all_records_go_to_the_partition_that_was_named(cli: CommandLine):
    """--offsets prints their positions."""
    cli("topics", "create", "t", "--partitions", "3")
    done = cli("produce", "t", "--partition", "2", "--offsets", stdin=b"a\nb\n")
    assert done.lines[:2] == ["t-2@0", "t-2@1"]
    done = cli("produce", "t", "--partition", "2", "--offsets", "--json", stdin=b"c\n")
    assert json.loads(done.lines[0])["offset"] == 2
    assert json.loads(done.lines[1])["delivered"] == 1


def test_a_partition_that_is_not_there_is_one_error(cli: CommandLine):
    """One error, not one per line."""
    cli("topics", "create", "t", "--partitions", "3")
    done = cli("produce", "t", "--partition", "3", stdin=b"a\nb\n")
    assert done.code == 1
    assert "0 to 2" in done.complaint
    assert done.out == b""


def test_the_codec_that_was_asked_for_is_used(cli: CommandLine):
    """The log has the compressed batch."""
    lines = b"".join(b"%d\n" % (number % 10) for number in range(5000))
    for codec in ("none", "zstd"):
        assert cli("produce", codec, "--compression-type", codec, stdin=lines).code == 0
    disk = cli.session.world.disk()
    log = Path("/aiokq-ephemeral/{}-0/00000000000000000000.log")
    codecs = {
        codec: {
            header.codec for header in iter_headers(disk.read_bytes(Path(str(log).format(codec))))
        }
        for codec in ("none", "zstd")
    }
    assert codecs == {"none": {NONE}, "zstd": {ZSTD}}


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (("--compression-type", "rar"), "rar", 1),
        (("--header", "nothing"), "NAME=VALUE", 2),
        (("--key-separator", ""), "empty", 2),
        (("--partition", "-1"), "--partition", 2),
    ],
)
def test_options_that_mean_nothing_are_refused_at_once(
    alone: CommandLine, arguments: tuple[str, ...], says: str, code: int
):
    """The options are refused before a cluster is contacted or a line is read."""
    done = alone("produce", "t", *arguments)
    assert done.code == code
    assert says in done.complaint


def test_a_name_that_cannot_be_a_topics_is_one_error(cli: CommandLine):
    """One error, not one per line, and without a wait."""
    done = cli("produce", "no/name", stdin=b"a\nb\n")
    assert done.code == 1
    assert "no/name" in done.complaint


def test_a_line_longer_than_a_record_may_be(cli: CommandLine):
    """Earlier lines are delivered, and the long line is not read into memory."""
    done = cli("produce", "t", stdin=b"fine\n" + b"x" * 3_000_000 + b"\nrest\n")
    assert done.code == 1
    assert "line 2" in done.err
    assert "max_request_size" in done.err
    assert records(cli)[0]["value"] == "fine"


def test_a_record_that_the_topic_refuses_is_named(cli: CommandLine):
    """MESSAGE_TOO_LARGE comes from the broker, for one record."""
    cli("topics", "create", "t", "--set", "max.message.bytes=1000")
    done = cli("produce", "t", stdin=b"fine\n" + b"x" * 5000 + b"\nalso fine\n")
    assert done.code == 1
    assert "line 2" in done.complaint
    assert [r["value"] for r in records(cli)] == ["fine", "also fine"]


def test_a_full_disk_is_named_with_what_to_do(cli: CommandLine):
    """Regression: after two minutes the error was "not delivered", without a reason."""
    cli("topics", "create", "t")
    cli.session.world.disk().capacity = 5000
    done = cli("produce", "t", stdin=b"fine\n" + b"x" * 20_000 + b"\nrest\n")
    cli.session.world.disk().capacity = None
    assert done.code == 1
    waiting, failed = done.err.splitlines()
    assert "line 1 waits for its acknowledgement" in waiting
    assert "delivery_timeout_ms=120000" in waiting
    assert failed.startswith("aiokq: lines 1 to 3: ")
    assert failed.count("No space left on device") == 1
    assert " -> free space on the disk" in failed


def test_ctrl_c_does_not_hide_why_nothing_was_delivered(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
):
    """'The producer was closed' would be the effect of Ctrl-C, not the cause."""
    session = cli.session
    run = session.run

    def interrupted(main: Coroutine[object, object, None]) -> None:
        async def main_cancelled_by_ctrl_c() -> None:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(3, task.cancel)
            await main

        try:
            run(main_cancelled_by_ctrl_c())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    cli("topics", "create", "t")
    cli.session.world.disk().capacity = 5000
    with monkeypatch.context() as patch:
        patch.setattr(session, "run", interrupted)
        done = cli("produce", "t", "--json", stdin=b"a\n" + b"x" * 20_000)
    cli.session.world.disk().capacity = None
    assert done.code == 130
    assert done.json["interrupted"] is True
    assert done.json["failed"] == 2
    assert "No space left on device" in done.err.splitlines()[-1]


def test_a_record_too_large_says_which_limit_to_raise(cli: CommandLine):
    """The limits of the topic and of the client are raised in different places."""
    cli("topics", "create", "t", "--set", "max.message.bytes=1000")
    done = cli("produce", "t", stdin=b"x" * 5000)
    assert "aiokq topics alter TOPIC --set max.message.bytes=N" in done.complaint
    done = cli("produce", "t", stdin=b"x" * 1_048_570)
    assert "max.request.size" in done.complaint
