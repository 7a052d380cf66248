"""The discard report's windows: what falls into which, and what is kept."""

from __future__ import annotations

from types import SimpleNamespace

from aiokq.fastpath.gateway import (
    API_KEY,
    API_VERSION,
    BAD_TOPIC,
    ERROR_ACK,
    MALFORMED,
    NO_MEMORY,
    RATE_LIMIT,
    TOO_LONG,
)
from aiokq.gateway.dead_letters import Letter
from aiokq.gateway.reports.windows import KEPT, TopicSpan, UncleanDisconnects
from tests.unit.gateway.report_support import NOW, Desk, message

BROKEN = message("orders")[:8] + b"\x00\x01" + message("orders")[10:]
"""A message with Flags 1."""


def with_version(version: int) -> bytes:
    good = bytearray(message("orders"))
    good[6:8] = version.to_bytes(2, "big")
    return bytes(good)


def test_point_44_ids_increment_and_the_finished_report_is_the_previous_one():
    desk = Desk()
    windows = desk.windows(10)
    desk.feed(BROKEN)
    first = windows.unfinished()
    assert (first.report_id, first.start_time) == (0, NOW // 1000)
    assert not windows.finished
    desk.move(10)
    desk.feed(BROKEN, BROKEN)
    # The second window begins only now, when a report is read: the first one has all three.
    second = windows.unfinished()
    assert (second.report_id, second.start_time) == (1, NOW // 1000 + 10)
    assert second.discarded[MALFORMED] == 0
    assert windows.finished[-1].discarded[MALFORMED] == 3
    desk.feed(BROKEN)
    desk.move(10)
    assert windows.unfinished().report_id == 2
    assert [report.report_id for report in windows.finished] == [0, 1]
    assert windows.finished[-1].discarded[MALFORMED] == 1


def test_windows_that_nobody_turned_are_empty_and_lose_nothing():
    """Dory throws the window away when the clock has moved by more than one window."""
    desk = Desk()
    windows = desk.windows(10)
    desk.feed(BROKEN)
    desk.move(35)
    assert windows.unfinished().report_id == 3
    assert [report.report_id for report in windows.finished] == [0, 1, 2]
    assert [report.discarded[MALFORMED] for report in windows.finished] == [1, 0, 0]
    desk.move(10 * 1000)
    windows.advance()
    assert len(windows.finished) == KEPT
    assert windows.finished[-1].report_id == windows.unfinished().report_id - 1


def test_windows_in_which_nobody_read_the_reports_are_counted():
    desk = Desk()
    windows = desk.windows(10)
    windows.unfinished()
    desk.move(10)
    windows.advance()
    assert windows.unread == 0
    desk.move(10)
    windows.advance()
    assert windows.unread == 1
    windows.bad_topics()  # the status page is not a monitor
    desk.move(20)
    windows.advance()
    assert windows.unread == 3


def test_point_5_the_client_timestamps_of_discarded_messages():
    """Of messages that the core discards, and of those that are discarded after they were taken."""
    desk = Desk()
    windows = desk.windows(10)
    limited = desk.topic("limited", max_message_bytes=3)
    refused = desk.topic("refused")
    desk.feed(
        message("limited", b"1234", timestamp_ms=500),
        message("limited", b"1234", timestamp_ms=90),
        message("limited", b"12", timestamp_ms=1),
        message("refused", timestamp_ms=-7),
        message("refused", timestamp_ms=7_000),
        message("refused", timestamp_ms=3),
    )
    taken = desk.take(refused)
    desk.accounting.discarded(refused, taken, [0, 1], ERROR_ACK, 0)
    report = windows.unfinished()
    assert report.topics == [
        TopicSpan("limited", 90, 500, 2),
        TopicSpan("refused", -7, 7_000, 2),
    ]
    desk.move(10)
    desk.feed(message("limited", b"1234", timestamp_ms=400))
    assert windows.unfinished().topics == []  # it was counted before the window was turned
    desk.feed(message("limited", b"12345", timestamp_ms=600))
    assert windows.unfinished().topics == [TopicSpan("limited", 600, 600, 1)]
    assert windows.finished[-1].topics[0] == TopicSpan("limited", 90, 500, 3)
    assert limited.slot >= 0


def test_point_30_messages_above_the_rate_limit_are_in_both_maps():
    desk = Desk()
    windows = desk.windows(60)
    desk.topic("orders", rate_interval_ms=10_000, rate_max_messages=5)
    desk.feed(*(message("orders", b"%d" % n, timestamp_ms=n) for n in range(8)))
    report = windows.unfinished()
    assert report.rate_limited == [("orders", 3)]
    assert report.topics == [TopicSpan("orders", 5, 7, 3)]
    assert report.discarded[RATE_LIMIT] == 3


def test_point_29_discards_for_no_memory_name_topics_that_are_not_known_yet():
    """Monitoring reads only the map of topics, so they must be there, too."""
    desk = Desk(8 * 1024)
    windows = desk.windows(60)
    desk.feed(*(message("early", bytes(500), timestamp_ms=n) for n in range(100)))
    report = windows.unfinished()
    lost = report.discarded[NO_MEMORY]
    assert 80 < lost < 100
    assert report.topics == [TopicSpan("early", 100 - lost, 99, lost)]
    # A topic of which the pool holds nothing has no counts of its own.
    desk.feed(*(message(f"made-up-{n}", bytes(500)) for n in range(1000)))
    report = windows.unfinished()
    assert [topic.topic for topic in report.topics] == ["early", ""]
    assert sum(topic.messages for topic in report.topics) == report.discarded[NO_MEMORY]


def test_made_up_topics_leave_their_25_newest_names():
    desk = Desk()
    windows = desk.windows(60)
    for n in range(1000):
        desk.feed(message(f"made-up-{n}"))
        desk.accounting.discard_unresolved(f"made-up-{n}", BAD_TOPIC)
    report = windows.unfinished()
    assert report.discarded[BAD_TOPIC] == 1000
    assert report.topics == []
    assert list(report.bad_topics) == [b"made-up-%d" % n for n in range(999, 974, -1)]
    desk.move(60)
    windows.advance()
    assert windows.bad_topics() == list(report.bad_topics)
    desk.feed(message("no such topic"))
    assert windows.bad_topics() == [b"no such topic", *list(report.bad_topics)[:24]]


def test_point_28_the_beginning_of_messages_that_are_too_long():
    desk = Desk(sample_bytes=20)
    windows = desk.windows(60)
    desk.topic("orders", max_message_bytes=3)
    desk.feed(message("orders", b"a" * 100), message("orders", b"b" * 10))
    report = windows.unfinished()
    assert report.discarded[TOO_LONG] == 2
    assert list(report.too_long) == [b"orders bbbbbbbbbb", b"orders aaaaaaaaaaaaa"]


def test_versions_and_api_keys_count_in_their_window():
    desk = Desk()
    windows = desk.windows(10)
    desk.feed(with_version(1), with_version(1), with_version(7))
    bad_key = bytearray(message("orders"))
    bad_key[4:6] = (258).to_bytes(2, "big")
    desk.feed(bytes(bad_key))
    report = windows.unfinished()
    assert report.versions == {1: 2, 7: 1}
    assert report.discarded[API_VERSION] == 3
    assert report.discarded[API_KEY] == 1
    desk.move(10)
    windows.advance()
    desk.feed(with_version(7))
    assert windows.unfinished().versions == {7: 1}


def test_unclean_disconnects_count_by_transport():
    desk = Desk()
    windows = desk.windows(10)
    desk.unclean = UncleanDisconnects(2, 1)
    report = windows.unfinished()
    assert (report.unix_stream_unclean_count, report.tcp_unclean_count) == (2, 1)
    desk.move(10)
    windows.advance()
    desk.unclean = UncleanDisconnects(2, 5)
    report = windows.unfinished()
    assert (report.unix_stream_unclean_count, report.tcp_unclean_count) == (0, 4)


def test_possible_duplicates_have_a_map_of_their_own():
    desk = Desk()
    windows = desk.windows(10)
    topic = desk.topic("orders")
    desk.feed(*(message("orders", timestamp_ms=n) for n in (5, 9, 1)))
    taken = desk.take(topic)
    desk.accounting.possible_duplicates(topic, taken, [0, 1])
    report = windows.unfinished()
    assert report.duplicates == [TopicSpan("orders", 5, 9, 2)]
    assert report.topics == []
    desk.move(10)
    windows.advance()
    assert windows.unfinished().duplicates == []


def test_a_topic_that_was_deleted_keeps_its_discards():
    desk = Desk()
    windows = desk.windows(10)
    topic = desk.topic("doomed", max_message_bytes=2)
    desk.feed(message("doomed", b"123", timestamp_ms=42))
    desk.accounting.forget(topic)
    desk.pool.forget(topic.slot)
    assert windows.unfinished().topics == [TopicSpan("doomed", 42, 42, 1)]


def test_a_topic_that_becomes_known_has_no_discards_of_earlier_windows():
    """Regression: they were reported again, with timestamps of 0."""
    desk = Desk(8 * 1024)
    windows = desk.windows(10)
    desk.feed(*(message("early", bytes(500), timestamp_ms=n) for n in range(100)))
    lost = windows.unfinished().discarded[NO_MEMORY]
    desk.move(10)
    windows.advance()
    assert windows.finished[-1].topics == [TopicSpan("early", 100 - lost, 99, lost)]
    topic = desk.topic("early")
    assert windows.unfinished().topics == []
    desk.feed(*(message("early", bytes(500), timestamp_ms=n) for n in range(300, 400)))
    report = windows.unfinished()
    lost = report.discarded[NO_MEMORY]
    assert 90 < lost <= 100
    assert report.topics == [TopicSpan("early", 400 - lost, 399, lost)]
    desk.move(10)
    windows.advance()
    assert windows.finished[-1].topics == report.topics
    assert windows.unfinished().topics == []
    # The same after the topic was deleted and created again.
    desk.accounting.forget(topic)
    desk.pool.forget(topic.slot)
    while (taken := desk.take(topic)) is not None:
        desk.accounting.acked(topic, taken, range(taken.count), taken.charge)
    desk.feed(*(message("early", bytes(500), timestamp_ms=n) for n in range(500, 600)))
    lost = windows.unfinished().discarded[NO_MEMORY]
    desk.move(10)
    windows.advance()
    desk.topic("early")
    assert windows.unfinished().topics == []
    assert lost > 80


def test_a_message_whose_dead_letter_failed_keeps_its_timestamp():
    """Regression: its window had begun after the pool had refused it, and reported a time of 0."""
    desk = Desk(
        1 << 20, refused_bytes=1 << 20, refused_reasons=(TOO_LONG,), refused_whole=(TOO_LONG,)
    )
    letters: list[Letter] = []
    desk.accounting.dead_letters = SimpleNamespace(  # type: ignore[assignment]
        wants=lambda *given: True, grant=lambda messages: messages, accept=letters.append
    )
    windows = desk.windows(10)
    desk.topic("orders", max_message_bytes=3)
    desk.feed(*(message("orders", b"1234", timestamp_ms=stamp) for stamp in (70, 90, 80)))
    assert windows.unfinished().topics == []
    desk.move(10)
    windows.advance()
    assert windows.finished[-1].topics == []
    (letter,) = letters
    desk.accounting.dead_letter_failed(letter, letter.rows, letter.charge)
    assert windows.unfinished().topics == [TopicSpan("orders", 70, 90, 3)]
