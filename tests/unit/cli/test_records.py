"""Records as text, JSON and bytes."""

from __future__ import annotations

import json

import pytest

from aiokq.cli.record_options import PrintOptions
from aiokq.cli.records import Format, formatter, shown, unescaped
from aiokq.fastpath.consume import Record


def record(
    value: bytes | None = b"v",
    key: bytes | None = b"k",
    headers: tuple[tuple[str, bytes | None], ...] = (),
    timestamp_ms: int = 1_700_000_000_000,
    timestamp_type: int = 0,
) -> Record:
    return Record("t", 1, 5, timestamp_ms, timestamp_type, key, value, headers)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "<null>"),
        (b"", ""),
        ("grüße €".encode(), "grüße €"),
        (b"a\tb", "a\tb"),
        (b"\xff\xfe", "\\xff\\xfe"),
        (b"two\nlines\r", "two\\nlines\\r"),
        (b"\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("\u202egnp.exe".encode(), "\\u202egnp.exe"),
        ("\u009b2J".encode(), "\\x9b2J"),
    ],
)
def test_bytes_are_shown_without_obeying_them(data: bytes | None, text: str):
    """A record must not clear the screen, set the title or reverse the text."""
    assert shown(data) == text


def test_text_shows_what_was_asked_for_in_one_order():
    """`cut` needs columns in a fixed order."""
    line = formatter(Format.TEXT, PrintOptions(True, True, True, True))
    assert line(record(headers=(("h", b"1"), ("n", None)))) == (
        b"t-1@5\t2023-11-14T22:13:20.000Z\tk\th=1,n=<null>\tv\n"
    )
    assert line(record(timestamp_ms=-1, key=None)) == b"t-1@5\t-\t<null>\t-\tv\n"
    assert formatter(Format.TEXT, PrintOptions())(record()) == b"v\n"


def test_json_has_everything_and_one_line():
    """Bytes that are not UTF-8 are base64 in an object, so that no string is mistaken for them."""
    line = formatter(Format.JSON, PrintOptions())(
        record(b"\xff\n", headers=(("h", b"\xff"), ("n", None)))
    )
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "t",
        "partition": 1,
        "offset": 5,
        "timestamp_ms": 1_700_000_000_000,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value": {"base64": "/wo="},
        "headers": [["h", {"base64": "/w=="}], ["n", None]],
    }


@pytest.mark.parametrize(
    ("kind", "name"), [(-1, "NoTimestampType"), (0, "CreateTime"), (1, "LogAppendTime")]
)
def test_json_names_the_kind_of_time_as_kafka_does(kind: int, name: str):
    """A record from before Kafka 0.10 has no timestamp, and no type of timestamp."""
    line = formatter(Format.JSON, PrintOptions())(record(timestamp_type=kind))
    assert json.loads(line)["timestamp_type"] == name


def test_raw_is_the_bytes():
    """Nothing is escaped, and only the line feed is added."""
    assert formatter(Format.RAW, PrintOptions())(record(b"\xff\x00")) == b"\xff\x00\n"
    assert formatter(Format.RAW, PrintOptions(keys=True, separator=":"))(record(None)) == b"k:\n"


@pytest.mark.parametrize(
    ("typed", "meant"), [("\\t", "\t"), ("\\0", "\0"), ("\\\\", "\\"), (":", ":"), ("a\\t", "a\\t")]
)
def test_separators_that_shells_make_hard_to_type(typed: str, meant: str):
    """A tab is the most common separator."""
    assert unescaped(typed) == meant
