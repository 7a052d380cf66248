"""The queue report: where the messages in flight are."""

from __future__ import annotations

import json
import time

from aiokq.fastpath.gateway import BAD_TOPIC
from aiokq.gateway.engine import InEngine
from aiokq.gateway.reports.cached import Cached
from aiokq.gateway.reports.queues import Queues, TopicQueue, queues
from tests.unit.gateway.report_support import Desk, message


def test_point_46_the_sum_of_all_states_is_in_flight():
    desk = Desk()
    busy = desk.topic("busy", batch_messages=1000)
    desk.topic("idle")
    desk.feed(*[message("busy")] * 10, *[message("unknown")] * 3)
    taken = desk.take(busy)
    desk.feed(*[message("busy")] * 4)
    found = queues(
        desk.pool.counts(topics=True), desk.accounting.names, {"busy": InEngine(7, taken.count - 7)}
    )
    assert found.topics == [TopicQueue("busy", 4, 7, 3)]
    assert found.new == 3
    assert found.new + sum(found.totals()) == desk.accounting.in_all().in_flight == 17


def test_messages_of_a_deleted_topic_are_still_there():
    desk = Desk()
    topic = desk.topic("doomed")
    desk.feed(message("doomed"), message("doomed"))
    taken = desk.take(topic)
    desk.accounting.forget(topic)
    desk.pool.forget(topic.slot)
    found = queues(
        desk.pool.counts(topics=True), desk.accounting.names, {"doomed": InEngine(0, taken.count)}
    )
    assert (found.new, found.topics) == (0, [TopicQueue("doomed", 0, 0, 2)])


def test_dead_letters_are_not_new_messages():
    desk = Desk(refused_bytes=1 << 20, refused_reasons=[BAD_TOPIC], refused_whole=[BAD_TOPIC])
    topic = desk.topic("orders")
    desk.feed(*[message("orders")] * 5, message("unknown"), *[message("no/name")] * 4)
    taken = desk.take(topic)
    assert (taken.count, len(desk.pool.refused())) == (5, 4)
    found = queues(
        desk.pool.counts(topics=True),
        desk.accounting.names,
        {"orders": InEngine(0, 2)},
        7,
        {"orders": 3, "deleted": 2},
    )
    assert found == (1, [TopicQueue("deleted", 0, 0, 0, 2), TopicQueue("orders", 0, 0, 2, 3)], 7)
    assert found.in_flight == 10  # of the seven, two are of topics that do not exist


def test_the_text_has_a_line_per_topic_and_the_totals():
    desk = Desk()
    desk.topic("orders", batch_messages=1000)
    desk.feed(message("orders"), message("unknown"))
    lines = list(queues(desk.pool.counts(topics=True), desk.accounting.names, {}).lines())
    assert lines == [
        "batch:          1  send_wait:          0  ack_wait:          0  dead_letter:          0  "
        "topic: [orders]",
        "",
        "         1 total new",
        "         1 total batch",
        "         0 total send_wait",
        "         0 total ack_wait",
        "         0 total dead_letter",
        "         2 total (all states: new + batch + send_wait + ack_wait + dead_letter)",
    ]


def test_the_json_has_a_row_per_topic_whatever_its_name():
    rows = [TopicQueue('quote"\n', 1, 2, 3), TopicQueue("orders", 4, 5, 6, 9)]
    found = json.loads("{" + Queues(7, rows, 8).json() + "}")
    assert found == {"sending": [row._asdict() for row in rows], "new": 7, "dead_letter": 8}


def test_reading_5000_topics_100_times_a_second_computes_the_report_seldom():
    """A report takes at most about a twentieth of the time, however often it is read."""
    clock, made = 0.0, 0

    def make() -> str:
        nonlocal clock, made
        clock += 0.010  # 10 ms
        made += 1
        return "report"

    cached = Cached(make, clock=lambda: clock)
    for _ in range(100):
        assert cached.get() == "report"
        clock += 0.010
    assert made <= 6


def test_a_cheap_report_is_computed_for_each_reader():
    values = iter(range(10))
    cached = Cached(lambda: next(values), clock=lambda: 0.0)
    assert [cached.get() for _ in range(3)] == [0, 1, 2]


def test_the_queues_of_5000_topics_take_milliseconds():
    desk = Desk(64 << 20)
    for n in range(5000):
        desk.topic(f"topic-{n}", batch_messages=1000)
    desk.feed(*(message(f"topic-{n}") for n in range(5000)))
    best = 1.0
    for _ in range(5):
        began = time.perf_counter()
        found = queues(desk.pool.counts(topics=True), desk.accounting.names, {})
        best = min(best, time.perf_counter() - began)
    assert len(found.topics) == 5000
    assert best < 0.5
