"""The dispatcher of one broker: what each answer does to the messages."""

from __future__ import annotations

import sys
import time
from random import Random
from typing import Any

import pytest

from aiokq.errors import ConnectionLost, KafkaError, ProtocolError
from aiokq.gateway.bruce.batching import BatchLimits, Now
from aiokq.gateway.bruce.chunk import in_order
from aiokq.gateway.bruce.dispatcher import MAX_IN_FLIGHT, Dispatcher, DispatcherOptions, Request
from aiokq.gateway.bruce.error_tables import ERROR_TABLES
from aiokq.gateway.bruce.packing import RequestLimits
from aiokq.producer.produce_once import ProduceResult
from tests.unit.gateway.bruce.messages import WALL_MS, Messages, Outcomes, acked, refused, values

PLACE = ("t", 0)


class World:
    """A dispatcher whose AnyPartition messages go to partition 0."""

    def __init__(self, table: str = "seed", *, limits: Any = None, attempts: int = 5) -> None:
        self.messages = Messages()
        self.outcomes = Outcomes()
        self.pauses: list[KafkaError] = []
        self.now = 100.0
        self.dispatcher = Dispatcher(
            1,
            DispatcherOptions(
                ERROR_TABLES[table], attempts, limits or RequestLimits(1_000_000, 1_000_000)
            ),
            lambda topic: 0,
            self.outcomes,
            Random(1),
            lambda dispatcher, error: self.pauses.append(error),
        )

    def enqueue(self, *values: bytes, **options: Any) -> None:
        self.dispatcher.enqueue(self.messages.chunk("t", *values, **options))

    def request(self) -> Request:
        request = self.dispatcher.next_request()
        assert request is not None
        return request

    def answer(self, request: Request, *results: ProduceResult) -> None:
        self.dispatcher.answered(request, dict(zip(request.sets, results, strict=True)), self.now)

    def wait(self) -> float:
        """Let time pass until the dispatcher has something to do; return the seconds."""
        deadline = self.dispatcher.deadline()
        assert deadline is not None
        waited, self.now = deadline - self.now, deadline
        self.dispatcher.tick(self.now)
        return waited

    @property
    def left(self) -> list[bytes]:
        return values(*in_order(self.dispatcher.take_all()))


def sent(request: Request) -> list[bytes]:
    return values(*request.chunks())


def test_requests_are_pipelined_and_acknowledged_in_order() -> None:
    """Several are in flight; queued batches join the next request."""
    world = World(limits=RequestLimits(2, 1_000_000))
    for n in range(MAX_IN_FLIGHT + 2):
        world.enqueue(b"%d" % n, b"x")
    requests = [world.request() for _ in range(MAX_IN_FLIGHT)]
    assert world.dispatcher.next_request() is None
    assert sum(world.outcomes.states.values()) == 2 * MAX_IN_FLIGHT

    world.answer(requests[0], acked())
    world.answer(requests[1], acked())
    assert world.outcomes.acks == [b"0", b"x", b"1", b"x"]
    assert sent(world.request()) == [b"5", b"x"]
    assert not world.pauses


def test_point_24_a_combined_batch_mixes_topics_and_one_of_a_topic_does_not() -> None:
    """Three messages of three topics complete the combined batch; those of t have their own."""
    world = World()
    now = Now(world.now, WALL_MS)
    combined, own = BatchLimits(messages=3), BatchLimits(messages=2)
    for topic, value in (("u", b"1"), ("v", b"2")):
        world.dispatcher.batch(None, combined, world.messages.chunk(topic, value), now)
    world.dispatcher.batch("t", own, world.messages.chunk("t", b"a", partition=1), now)
    assert world.dispatcher.next_request() is None

    world.dispatcher.batch(None, combined, world.messages.chunk("w", b"3"), now)
    request = world.request()
    assert set(request.sets) == {("u", 0), ("v", 0), ("w", 0)}
    assert world.dispatcher.next_request() is None

    world.dispatcher.batch("t", own, world.messages.chunk("t", b"b", partition=2), now)
    assert set(world.request().sets) == {("t", 1), ("t", 2)}


def test_batches_are_completed_by_time_and_by_flush() -> None:
    """The deadline of the oldest batch is the dispatcher's."""
    world = World()
    now = Now(world.now, WALL_MS)
    world.dispatcher.batch("t", BatchLimits(time_ms=500), world.messages.chunk("t", b"a"), now)
    world.dispatcher.batch(None, BatchLimits(time_ms=200), world.messages.chunk("u", b"b"), now)
    assert world.wait() == pytest.approx(0.2)
    assert sent(world.request()) == [b"b"]
    world.dispatcher.flush()
    assert sent(world.request()) == [b"a"]
    assert world.dispatcher.deadline() is None


def test_a_batch_after_a_flush_has_the_limits_that_come_with_it() -> None:
    """A reload flushes the batches."""
    world = World()
    now = Now(world.now, WALL_MS)
    world.dispatcher.batch("t", BatchLimits(time_ms=60_000), world.messages.chunk("t", b"a"), now)
    assert world.dispatcher.deadline() == world.now + 60
    world.dispatcher.flush()
    assert world.dispatcher.deadline() is None
    limits = BatchLimits(time_ms=10, messages=2)
    world.dispatcher.batch("t", limits, world.messages.chunk("t", b"b"), now)
    assert world.dispatcher.deadline() == pytest.approx(world.now + 0.01)
    world.dispatcher.batch("t", limits, world.messages.chunk("t", b"c"), now)
    assert sent(world.request()) == [b"a", b"b", b"c"]
    assert world.dispatcher.deadline() is None


def test_a_deadline_costs_no_look_at_all_batches() -> None:
    """Each batch has its own deadline, and complete batches leave nothing behind."""
    world = World(limits=RequestLimits(10_000_000, 1_000_000))
    limits = BatchLimits(time_ms=1000, messages=2)
    for n in range(300):
        now = Now(world.now + n / 1000, WALL_MS)
        world.dispatcher.batch(f"t{n}", limits, world.messages.chunk(f"t{n}", b"%d" % n), now)
    for n in range(3000):
        now = Now(world.now + n / 10_000, WALL_MS)
        for value in (b"x", b"y"):
            world.dispatcher.batch("often", limits, world.messages.chunk("often", value), now)
    dispatcher = world.dispatcher
    assert len(dispatcher._batches) == 300
    assert len(dispatcher._deadlines) < 700
    assert len(sent(world.request())) == 6000
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        dispatcher.tick(world.now)
        deadline = dispatcher.deadline()
    finally:
        sys.setprofile(None)
    assert calls < 50
    assert deadline == world.now + 1
    for n in range(300):
        assert world.dispatcher.deadline() == pytest.approx(world.now + 1 + n / 1000)
        world.dispatcher.tick(world.now + 1 + n / 1000 + 0.0001)
        assert sent(world.request()) == [b"%d" % n]
        world.dispatcher.in_flight.clear()
    assert world.dispatcher.deadline() is None
    assert not dispatcher._batches


@pytest.mark.parametrize("code", [5, 6, 7])
@pytest.mark.parametrize("table", ERROR_TABLES)
def test_point_32_codes_5_6_and_7_pause_and_keep_the_messages(code: int, table: str) -> None:
    """The message set waits for the router, with one failed attempt; other sets are delivered."""
    world = World(table)
    world.enqueue(b"a", b"b", partition=0)
    world.enqueue(b"c", partition=1)
    request = world.request()
    world.enqueue(b"d")

    world.answer(request, refused(code), acked())

    assert world.outcomes.acks == [b"c"]
    assert len(world.pauses) == 1
    assert world.dispatcher.next_request() is None  # stopped
    chunks = in_order(world.dispatcher.take_all())
    assert values(*chunks) == [b"a", b"b", b"d"]
    assert [chunk.attempts for chunk in chunks] == [1, 0]
    assert world.outcomes.discards == []
    # REQUEST_TIMED_OUT comes after the append.
    assert world.outcomes.doubled == ([b"a", b"b"] if code == 7 else [])


@pytest.mark.parametrize(
    ("table", "pauses"),
    [("seed", True), ("bruce-2016", False), ("dory", False)],
)
@pytest.mark.parametrize("code", [8, 9])
def test_point_34_codes_8_and_9_follow_the_table(table: str, pauses: bool, code: int) -> None:
    """The seed pauses, its successors discard."""
    world = World(table)
    world.enqueue(b"a")
    world.answer(world.request(), refused(code))

    assert bool(world.pauses) == pauses
    assert world.left == ([b"a"] if pauses else [])
    assert world.outcomes.discards == ([] if pauses else [(b"a", "error_ack")])


@pytest.mark.parametrize("code", [10, -1, 99])
@pytest.mark.parametrize("table", ERROR_TABLES)
def test_point_35_a_discard_does_not_affect_the_next_message(code: int, table: str) -> None:
    """No pause; the next request is sent and acknowledged."""
    world = World(table)
    world.enqueue(b"bad")
    request = world.request()
    world.enqueue(b"good")
    world.answer(request, refused(code))
    world.answer(world.request(), acked())

    assert world.outcomes.discards == [(b"bad", "error_ack")]
    assert world.outcomes.acks == [b"good"]
    assert not world.pauses
    assert world.left == []


@pytest.mark.parametrize("table", ERROR_TABLES)
def test_point_36_the_sixth_failure_discards_at_limit_5(table: str) -> None:
    """CORRUPT_MESSAGE is sent again by each table; each resend counts, and waits longer."""
    world = World(table)
    world.enqueue(b"a", b"b")
    waits = []
    for _ in range(5):
        world.answer(world.request(), refused(2))
        assert world.dispatcher.next_request() is None
        if world.pauses:
            pytest.fail("a resend is no pause")
        waits.append(world.wait())
    assert world.outcomes.discards == []
    world.answer(world.request(), refused(2))

    assert world.outcomes.discards == [(b"a", "attempt_limit"), (b"b", "attempt_limit")]
    assert world.left == []
    assert all(
        0.5 * base <= wait <= 1.5 * base
        for wait, base in zip(waits, (0.1, 0.4, 1.6, 6.4, 25.6), strict=True)
    )


def test_point_36_messages_of_one_set_are_counted_separately() -> None:
    """A message that joins later is not discarded with those that have failed before."""
    world = World(attempts=1)
    world.enqueue(b"old")
    world.answer(world.request(), refused(2))
    world.wait()
    world.enqueue(b"new")
    request = world.request()
    assert sent(request) == [b"old", b"new"]
    world.answer(request, refused(2))

    assert world.outcomes.discards == [(b"old", "attempt_limit")]
    world.wait()
    world.answer(world.request(), acked())
    assert world.outcomes.acks == [b"new"]


def test_point_36_a_bad_topic_counts_as_such_when_it_failed_too_often() -> None:
    """Code 3 with the table modern."""
    for table, reason in (("modern", "bad_topic"), ("seed", "attempt_limit")):
        world = World(table, attempts=0)
        world.enqueue(b"a")
        world.answer(world.request(), refused(3))
        assert world.outcomes.discards == [(b"a", reason)]
        assert len(world.pauses) == 1


def test_point_37_a_lost_connection_pauses_and_notes_duplicates() -> None:
    """All messages in flight are routed again; this is no failed attempt of theirs."""
    world = World(limits=RequestLimits(1, 1_000_000))
    world.enqueue(b"a")
    world.enqueue(b"b")
    world.enqueue(b"c")
    first, second = world.request(), world.request()
    lost = ConnectionLost("gone", may_have_been_written=True)
    world.dispatcher.failed(first, lost)
    world.dispatcher.failed(second, lost)

    assert world.outcomes.doubled == [b"a", b"b"]
    assert sum(world.outcomes.states.values()) == 0
    chunks = in_order(world.dispatcher.take_all())
    assert values(*chunks) == [b"a", b"b", b"c"]
    assert {chunk.attempts for chunk in chunks} == {0}
    assert world.pauses == [lost, lost]


def test_point_37_a_request_that_was_not_written_is_no_duplicate() -> None:
    """The connection could not be opened."""
    world = World()
    world.enqueue(b"a")
    world.dispatcher.failed(world.request(), ConnectionLost("no", may_have_been_written=False))
    assert world.outcomes.doubled == []
    assert world.left == [b"a"]


def test_an_answer_without_the_partition_pauses() -> None:
    """Short lists, or a wrong topic."""
    world = World()
    world.enqueue(b"a")
    missing = ProtocolError("not mentioned", may_have_been_written=True)
    world.answer(world.request(), ProduceResult(missing, -1, -1, -1, {}))
    assert world.pauses == [missing]
    assert world.outcomes.doubled == [b"a"]
    assert world.left == [b"a"]


@pytest.mark.parametrize("table", ERROR_TABLES)
def test_named_records_are_discarded_and_the_others_sent_again(table: str) -> None:
    """With every table, without a wait, and without a failed attempt of the others."""
    world = World(table)
    world.enqueue(b"0", b"1", b"2")
    world.enqueue(b"3")
    world.enqueue(b"4", b"5")
    world.answer(world.request(), refused(87, {1: "bad", 3: None, 5: "bad"}))

    assert world.outcomes.discards == [(b"%d" % n, "error_ack") for n in (1, 3, 5)]
    request = world.request()
    assert sent(request) == [b"0", b"2", b"4"]
    assert {chunk.attempts for chunk in request.chunks()} == {0}
    world.answer(request, acked())
    assert world.outcomes.acks == [b"0", b"2", b"4"]
    assert not world.pauses


@pytest.mark.parametrize("table", ERROR_TABLES)
def test_a_refused_timestamp_becomes_the_time_of_arrival(table: str) -> None:
    """Once; if the topic refuses this time too, the message is discarded."""
    world = World(table)
    world.enqueue(b"0", b"1", b"2", timestamp_ms=5)
    world.answer(world.request(), refused(32, {1: "too old"}))

    assert world.outcomes.discards == []
    request = world.request()
    assert sent(request) == [b"0", b"2", b"1"]
    first, second = request.chunks()
    assert [first.columns.record(row)[3] for row in first.rows] == [5, 5]
    (row,) = second.rows
    assert second.columns.record(row)[2:4] == ([("aiokq.timestamp", b"5")], WALL_MS)
    world.answer(request, refused(32, {2: "too new"}))
    assert world.outcomes.discards == [(b"1", "error_ack")]
    world.answer(world.request(), acked())
    assert world.outcomes.acks == [b"0", b"2"]


def test_errors_that_name_no_record_of_the_set_follow_the_table() -> None:
    """A broker that names records which were not sent would be asked for ever."""
    world = World()
    world.enqueue(b"a", b"b")
    world.answer(world.request(), refused(87, {2: "not there", -1: None}))
    assert world.outcomes.discards == [(b"a", "error_ack"), (b"b", "error_ack")]


def test_record_errors_that_a_broker_makes_up_take_no_time() -> None:
    """Regression: each of them was compared with each chunk of the set."""
    world = World()
    for n in range(400):
        world.enqueue(b"%d" % n)
    errors: dict[int, str | None] = dict.fromkeys(range(100, 1_000_000))
    began = time.process_time()
    world.answer(world.request(), refused(87, errors))
    assert time.process_time() - began < 5  # it took a minute
    assert [int(value) for value, _ in world.outcomes.discards] == [*range(100, 400)]
    assert sent(world.request()) == [b"%d" % n for n in range(100)]


@pytest.mark.parametrize("code", [32, 87])
def test_a_bad_record_that_is_not_named_is_found_by_splitting(code: int) -> None:
    """The table modern, with a broker from before KIP-467: one of 1,000."""
    world = World("modern")
    world.enqueue(*(b"%d" % n for n in range(1000)))
    requests = 0
    while (request := world.dispatcher.next_request()) is not None:
        requests += 1
        bad = b"678" in sent(request)
        world.answer(request, *[refused(code) if bad else acked()] * len(request.sets))
    if code == 32:
        requests -= 1  # sent once more, with the time of arrival

    assert world.outcomes.discards == [(b"678", "error_ack")]
    assert world.outcomes.acks == [b"%d" % n for n in range(1000) if n != 678]
    assert requests < 25


def test_a_set_that_is_too_large_is_split_until_one_message_is() -> None:
    """The table modern: only the message that is too large by itself is discarded."""
    world = World("modern")
    world.enqueue(b"0", b"1", b"2")
    world.enqueue(b"3", b"4")
    requests = 0
    while (request := world.dispatcher.next_request()) is not None:
        requests += 1
        too_large = b"3" in sent(request)
        world.answer(request, *[refused(10) if too_large else acked()] * len(request.sets))

    assert world.outcomes.discards == [(b"3", "error_ack")]
    assert world.outcomes.acks == [b"0", b"1", b"2", b"4"]
    assert requests == 7
    assert not world.pauses


def test_requests_are_abandoned_with_their_messages() -> None:
    """A restart does not wait for ever; what is not answered may be written."""
    world = World(limits=RequestLimits(1, 1_000_000))
    world.enqueue(b"a")
    world.enqueue(b"b")
    request = world.request()
    assert world.dispatcher.abandon() == [request]
    assert request.ended
    assert world.outcomes.doubled == [b"a"]
    assert world.left == [b"a", b"b"]
    assert world.left == []
