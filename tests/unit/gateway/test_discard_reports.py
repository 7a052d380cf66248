"""The discard report as JSON and as text."""

from __future__ import annotations

import json
from base64 import b64encode

from aiokq.fastpath.gateway import REASONS
from aiokq.gateway.reports.discards import discard_document, discard_lines
from aiokq.gateway.reports.windows import DiscardReport, TopicSpan
from tests.unit.gateway.report_support import Desk, message

DORY = {
    "id", "start_time", "malformed_msg_count", "unix_stream_unclean_disconnect_count",
    "tcp_unclean_disconnect_count", "unsupported_api_key_msg_count",
    "unsupported_version_msg_count", "bad_topic_msg_count", "recent_malformed",
    "unix_stream_unclean_disconnect", "tcp_unclean_disconnect", "unsupported_msg_version",
    "recent_bad_topic", "recent_too_long_msg", "rate_limit_discard", "discard_topic",
    "possible_duplicate_topic",
}  # fmt: skip
"""The keys of Dory's reports."""

FULL = DiscardReport(
    3,
    1_700_000_000,
    (4, 3, 2, 1, 0, 1, 5, 0, 6, *[0] * (len(REASONS) - 9)),
    1,
    2,
    {1: 2},
    [b"\x00\xff"],
    [b"u"],
    [b"t1", b"t2"],
    [b'quote"', b"new\nline", b"\xff\xfe", "\u00fc".encode()],
    [b"topic value"],
    [("orders", 5)],
    [TopicSpan("orders", 10, 20, 6)],
    [TopicSpan("again", -1, 7, 1)],
)


def test_a_report_has_every_key_of_dory():
    document = json.loads(json.dumps(discard_document(FULL)))
    assert document.keys() == DORY | {"discarded"}
    assert discard_document(DiscardReport(0, 0)).keys() == document.keys()
    assert document["tcp_unclean_disconnect"] == ["dDE=", "dDI="]  # Dory shows the UNIX list here
    assert document["unsupported_msg_version"] == [{"version": 1, "count": 2}]
    assert document["discard_topic"] == [
        {"topic": "orders", "min_timestamp": 10, "max_timestamp": 20, "count": 6}
    ]
    assert document["possible_duplicate_topic"][0]["min_timestamp"] == -1
    assert document["rate_limit_discard"] == [{"topic": "orders", "count": 5}]


def test_point_45_names_of_topics_are_text_in_json_whatever_their_bytes():
    names = json.loads(json.dumps(discard_document(FULL)))["recent_bad_topic"]
    assert names == ['quote"', "new\nline", "\\xff\\xfe", "\u00fc"]


def test_text_has_one_line_per_entry():
    lines = list(discard_lines(FULL))
    assert '    recent bad topic: 6[quote"]' in lines
    assert "    recent bad topic: 9[new\\nline]" in lines
    assert "    recent malformed msg: 4[AP8=]" in lines
    assert "    unsupported msg version: 1 count: 2" in lines
    assert "    discard topic: 6[orders] begin [10] end [20] count 6" in lines
    assert "    possible duplicate topic: 5[again] begin [-1] end [7] count 1" in lines
    assert "    rate limit discard topic: 6[orders] count 5" in lines
    assert not any("\n" in line for line in lines)


def test_point_15_the_bytes_of_an_unclean_disconnect_are_those_that_arrived():
    half = message("orders", b"value")[:17]
    document = discard_document(DiscardReport(0, 0, unix_stream_unclean=[half]))
    assert document["unix_stream_unclean_disconnect"] == [b64encode(half).decode()]


def test_a_window_of_a_real_pool_is_json():
    desk = Desk()
    windows = desk.windows()
    desk.feed(*(message(bytes([n]) + b'"\\') for n in range(1, 256)))
    document = json.loads(json.dumps(discard_document(windows.unfinished())))
    assert document["bad_topic_msg_count"] == 255
    assert len(document["recent_bad_topic"]) == 25
