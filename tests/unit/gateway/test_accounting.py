"""Accounting: the books balance, by topic and in all, and numbers outlive topics."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from aiokq.fastpath.gateway import (
    BAD_TOPIC,
    ERROR_ACK,
    NO_MEMORY,
    RATE_LIMIT,
    REASONS,
    SHUTDOWN,
    TOO_LONG,
    Pool,
    Refused,
)
from aiokq.gateway import GatewaySettings
from aiokq.gateway.accounting import Accounting, Discard
from aiokq.gateway.client import encode
from aiokq.gateway.dead_letters import LETTER_OVERHEAD, Letter
from aiokq.gateway.engine import TopicState


class Books:
    """A pool, its accounting, and the topic `orders`."""

    def __init__(self, pool: Pool | None = None) -> None:
        self.pool = Pool(1_000_000) if pool is None else pool
        self.accounting = Accounting(self.pool)
        self.topic = self.register("orders")

    def register(self, name: str) -> TopicState:
        topic = TopicState(name, GatewaySettings().of_topic(name))
        topic.slot = self.pool.register(name.encode(), max_message_bytes=10)
        self.accounting.registered(topic)
        return topic

    def feed(self, topic: str, *values: bytes) -> None:
        for n, value in enumerate(values):
            self.pool.feed(encode(topic, value, timestamp_ms=1000 + n))

    def check(self) -> None:
        snapshot = self.accounting.snapshot()
        for totals in (snapshot.total, *snapshot.topics.values()):
            known = totals.acked + sum(totals.discarded) + totals.dead_lettered
            assert totals.received == known + totals.in_flight


def test_each_message_is_counted_once_by_topic_and_in_all():
    """Received, refused by the pool, held, taken, acknowledged, discarded."""
    books = Books()
    books.feed("orders", b"a", b"b", b"c", b"too long for it")
    books.feed("unknown", b"x")
    books.pool.feed(b"\0\0\0\x06xx")
    books.check()
    taken = books.pool.take(books.topic.slot)
    assert taken is not None
    books.check()
    books.accounting.acked(books.topic, taken, [0, 2], 0)
    books.check()
    books.accounting.discarded(books.topic, taken, [1], ERROR_ACK, taken.charge)
    books.pool.discard_unresolved(b"unknown", BAD_TOPIC)
    books.check()
    document = books.accounting.snapshot().document()
    assert document == {
        "received": 6,
        "acked": 2,
        "discarded": {"malformed": 1, "too_long": 1, "bad_topic": 1, "error_ack": 1},
        "dead_lettered": 0,
        "in_flight": 0,
        "possible_duplicates": 0,
        "topics": {
            "orders": {
                "received": 4,
                "acked": 2,
                "discarded": {"too_long": 1, "error_ack": 1},
                "dead_lettered": 0,
                "in_flight": 0,
                "possible_duplicates": 0,
            }
        },
    }
    assert books.pool.counts().used_bytes == 0


def test_the_numbers_of_a_deleted_topic_stay_and_go_on_when_it_is_created_again():
    """Its slot is another one then."""
    books = Books()
    books.feed("orders", b"a", b"too long for it")
    books.pool.forget(books.topic.slot)
    books.accounting.forget(books.topic)
    taken = books.pool.take(books.topic.slot)
    assert taken is not None
    books.accounting.discarded(books.topic, taken, range(1), BAD_TOPIC, taken.charge)
    assert books.pool.take(books.topic.slot) is None
    books.check()
    books.feed("orders", b"b")
    again = books.register("orders")
    books.check()
    taken = books.pool.take(again.slot)
    assert taken is not None
    books.accounting.acked(again, taken, range(1), taken.charge)
    books.check()
    totals = books.accounting.snapshot().topics["orders"]
    assert (totals.received, totals.acked, sum(totals.discarded)) == (3, 1, 2)


def test_a_name_of_a_deleted_topic_that_is_ended_is_not_counted_for_the_topic():
    """A slot has counted no message that waited for a lookup."""
    pool = Pool(
        1_000_000,
        max_topic_names=1,
        refused_bytes=1 << 20,
        refused_reasons=(TOO_LONG, BAD_TOPIC),
        refused_whole=(TOO_LONG, BAD_TOPIC),
    )
    books = Books(pool)
    letters: Any = Letters()
    books.accounting.dead_letters = letters
    books.feed("orders", b"a", b"too long for it")
    pool.forget(books.topic.slot)
    books.accounting.forget(books.topic)
    taken = pool.take(books.topic.slot, flush=True)
    assert taken is not None
    books.accounting.acked(books.topic, taken, range(1), taken.charge)
    assert pool.take(books.topic.slot) is None
    books.feed("orders", b"b", b"c")  # which waits for a lookup, until another name ends it
    books.feed("other", b"d")
    books.check()
    document = books.accounting.snapshot().document()
    assert document["topics"]["orders"]["discarded"] == {}
    assert document["in_flight"] == 4
    for letter in letters.accepted:
        books.accounting.dead_lettered(letter, letter.rows, letter.charge)
    books.check()
    document = books.accounting.snapshot().document()
    assert document["dead_lettered"] == 3
    assert document["topics"]["orders"]["discarded"] == {}
    assert document["topics"]["orders"]["dead_lettered"] == 1


def test_a_message_that_is_refused_during_a_snapshot_is_counted_on_both_sides():
    """Regression: it was discarded, but not received, so one less was in flight."""
    pool = Pool(1_000_000, refused_bytes=1 << 20, refused_reasons=(TOO_LONG,))
    late = [encode("orders", b"too long for it")]

    class Late:
        """The pool; a message arrives right after its counts were read."""

        def __getattr__(self, name: str) -> Any:
            return getattr(pool, name)

        def counts(self, **options: Any) -> Any:
            found = pool.counts(**options)
            if late:
                pool.feed(late.pop())
            return found

    given: Any = Late()
    books = Books(given)
    books.accounting.on_refused.append(lambda refused: None)
    books.feed("orders", b"a")
    found = []
    for _ in range(2):
        total = books.accounting.snapshot().total
        found.append((total.received, total.discarded[TOO_LONG], total.in_flight))
    assert found == [(1, 0, 1), (2, 1, 1)]


@pytest.mark.parametrize("reason", [TOO_LONG, RATE_LIMIT, NO_MEMORY])
def test_a_topic_has_no_discard_that_the_total_lacks(reason: int):
    """Regression: what the discard log had not read yet was discarded for the topic only."""
    pool = Pool(10_000, refused_bytes=1 << 20, refused_reasons=(TOO_LONG, RATE_LIMIT, NO_MEMORY))

    class Flood:
        """The pool; a message arrives right before its counts are read."""

        def __getattr__(self, name: str) -> Any:
            return getattr(pool, name)

        def counts(self, **options: Any) -> Any:
            pool.feed(encode("orders", bytes(11 if reason == TOO_LONG else 1)))
            return pool.counts(**options)

    given: Any = Flood()
    books = Books(given)
    logged: list[Refused] = []
    books.accounting.on_refused.append(logged.extend)
    most = 1 if reason == RATE_LIMIT else -1
    pool.configure(
        books.topic.slot, max_message_bytes=10, rate_interval_ms=10**9, rate_max_messages=most
    )
    books.feed("orders", *[b"v"] * 300)
    for new_window in (False, True, False):
        snapshot = books.accounting.snapshot(new_window=new_window)
        orders = snapshot.topics["orders"]
        assert orders.discarded == snapshot.total.discarded
        assert orders.in_flight == snapshot.total.in_flight
        assert orders.discarded[reason] > 0
    books.check()
    books.accounting.drain()
    found = Counter(one.reason for one in logged)
    assert found[reason] == pool.counts().discarded[reason]


class Letters:
    """Accepts the dead letters of all messages that the pool refused."""

    enabled = True

    def __init__(self) -> None:
        self.accepted: list[Letter] = []

    def wants(self, topic: str, reason: int, more: int = 0) -> bool:
        return True

    def grant(self, messages: int) -> int:
        return messages

    def accept(self, letter: Letter) -> None:
        self.accepted.append(letter)


def test_a_discard_is_told_with_reason_messages_and_timestamps():
    """Reports and logs are made of these."""
    books = Books()
    noted: list[Discard] = []
    books.accounting.on_discard.append(noted.append)
    books.feed("orders", b"a", b"b", b"c", b"d")
    taken = books.pool.take(books.topic.slot)
    assert taken is not None
    books.accounting.discarded(books.topic, taken, [1, 2], ERROR_ACK, 0, attempts=3)
    books.accounting.discarded(books.topic, taken, [0, 3], SHUTDOWN, taken.charge)
    first, second = noted
    assert (REASONS[first.reason], first.messages, first.attempts) == ("error_ack", 2, 3)
    assert [first.taken.message(row).value for row in first.rows if first.taken] == [b"b", b"c"]
    assert (second.earliest_ms, second.latest_ms) == (1000, 1003)


def test_possible_duplicates_are_counted_and_told():
    """They are no outcome: the messages are still in flight."""
    books = Books()
    told: list[tuple[str, int]] = []
    books.accounting.on_duplicates.append(lambda topic, _, rows: told.append((topic, len(rows))))
    books.feed("orders", b"a", b"b")
    taken = books.pool.take(books.topic.slot)
    assert taken is not None
    books.accounting.possible_duplicates(books.topic, taken, [0, 1])
    assert told == [("orders", 2)]
    snapshot = books.accounting.snapshot()
    assert snapshot.total.possible_duplicates == 2
    assert snapshot.topics["orders"].in_flight == 2


def test_memory_cannot_be_released_twice():
    """A bug of an engine shows at once."""
    books = Books()
    books.feed("orders", b"a")
    taken = books.pool.take(books.topic.slot)
    assert taken is not None
    books.accounting.acked(books.topic, taken, [0], taken.charge)
    with pytest.raises(ValueError, match="were not taken"):
        books.accounting.acked(books.topic, taken, [0], taken.charge)


def test_a_message_that_the_queue_has_cut_does_not_become_a_dead_letter():
    pool = Pool(
        1_000_000,
        refused_bytes=1 << 20,
        refused_reasons=(TOO_LONG,),
        refused_whole=(TOO_LONG,),
        refused_prefix=4,
    )
    pool.limit_whole(1)
    books, letters = Books(pool), Letters()
    dead: Any = letters
    books.accounting.dead_letters = dead
    books.feed("orders", *[b"too long for it"] * 3)
    assert books.accounting.snapshot().total.in_flight == 1
    (letter,) = letters.accepted
    assert letter.taken.message(0).value == b"too long for it"
    assert books.accounting.snapshot().total.discarded[TOO_LONG] == 2
    books.check()


def test_a_count_of_a_topic_does_not_decrease_when_a_message_becomes_a_dead_letter():
    """Regression: a message that waited for its dead letter was counted as discarded."""
    pool = Pool(
        1_000_000, refused_bytes=1 << 20, refused_reasons=(TOO_LONG,), refused_whole=(TOO_LONG,)
    )

    class Flood:
        """The pool; a message arrives right before its counts are read."""

        def __getattr__(self, name: str) -> Any:
            return getattr(pool, name)

        def counts(self, **options: Any) -> Any:
            pool.feed(encode("orders", b"too long for it"))
            return pool.counts(**options)

    given: Any = Flood()
    books, letters = Books(given), Letters()
    dead: Any = letters
    books.accounting.dead_letters = dead
    for _ in range(3):
        snapshot = books.accounting.snapshot()
        orders = snapshot.topics["orders"]
        assert orders.discarded[TOO_LONG] == snapshot.total.discarded[TOO_LONG] == 0
        assert orders.in_flight == orders.received == snapshot.total.in_flight > 0
    books.accounting.drain()
    for letter in letters.accepted:
        books.accounting.dead_letter_failed(letter, letter.rows, letter.charge)
    assert pool.used_bytes() == 0
    counts = pool.counts(topics=True).topics[books.topic.slot]
    assert counts.too_long == counts.queued == sum(len(one.rows) for one in letters.accepted)
    books.accounting.forget(books.topic)
    assert books.accounting.snapshot().topics["orders"].discarded[TOO_LONG] == counts.too_long


def test_a_dead_letter_is_charged_with_what_it_keeps_in_memory():
    """Regression: the other messages of its batch released the memory of all of them."""
    books, letters = Books(), Letters()
    dead: Any = letters
    books.accounting.dead_letters = dead
    books.feed("orders", *[b"%d" % n for n in range(10)])
    taken = books.pool.take(books.topic.slot)
    assert taken is not None
    books.accounting.discarded(books.topic, taken, [3, 5], ERROR_ACK, 0)
    books.accounting.acked(books.topic, taken, [0, 1, 2, 4, 6, 7, 8, 9], taken.charge)
    books.check()
    (letter,) = letters.accepted
    assert [letter.taken.message(row).value for row in letter.rows] == [b"3", b"5"]
    assert [letter.taken.message(row).sequence for row in letter.rows] == [3, 5]
    charge = 2 * (1 + Pool.MESSAGE_OVERHEAD) + LETTER_OVERHEAD
    assert books.pool.used_bytes() == letter.charge == charge
    books.accounting.dead_lettered(letter, letter.rows, letter.charge)
    counts = books.pool.counts()
    assert (counts.held, counts.used_bytes) == (0, 0)
    books.check()
