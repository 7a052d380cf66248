"""How many messages the engine holds, and for how many it has room."""

from __future__ import annotations

from aiokq.gateway.bruce.holdings import LEAST_ROOM, MOST_ROOM, Holdings
from aiokq.gateway.engine import InEngine
from tests.unit.gateway.bruce.messages import Messages


def test_a_topic_that_is_stuck_leaves_room_for_the_others() -> None:
    """It may hold half of the limit, and a second stuck topic half of the rest."""
    holdings = Holdings(1_000_000)
    messages = Messages()
    stuck, other = messages.topic("stuck"), messages.topic("other")
    while holdings.room(stuck):
        holdings.accepted(stuck, messages.taken("stuck", b"x" * 10_000))

    assert 400_000 < holdings.bytes < 600_000
    assert holdings.room(other) > LEAST_ROOM
    assert holdings.with_room_again() == []
    assert holdings.room(messages.topic("third")) <= MOST_ROOM
    assert Holdings(1 << 30).room(other) == MOST_ROOM


def test_messages_are_counted_by_state() -> None:
    """Waiting, in flight, back, and ended; the memory of a load is free with its last message."""
    holdings = Holdings(1_000_000)
    messages = Messages()
    chunk = messages.chunk("t", b"a", b"b", b"c")
    taken = chunk.load.taken
    topic = messages.topic("t")
    holdings.accepted(topic, taken)
    assert holdings.counts() == {"t": InEngine(3, 0)}
    first, rest = chunk.split(1)
    holdings.sent(first)
    holdings.sent(rest)
    holdings.queued(rest)
    assert holdings.counts() == {"t": InEngine(2, 1)}
    charge = chunk.load.settle(1)
    assert charge == 0
    holdings.ended(first, charge, in_flight=True)
    assert holdings.bytes == taken.charge
    charge = chunk.load.settle(2)
    assert charge == taken.charge
    holdings.ended(rest, charge, in_flight=False)
    assert (holdings.counts(), holdings.bytes, bool(holdings)) == ({}, 0, False)


def test_a_topic_has_room_again_when_memory_is_free() -> None:
    """The engine calls on_room then."""
    holdings = Holdings(200_000)
    messages = Messages()
    topic = messages.topic("t")
    chunk = messages.chunk("t", b"x" * 150_000)
    holdings.accepted(topic, chunk.load.taken)
    assert holdings.room(topic) == 0
    assert holdings.with_room_again() == []
    holdings.ended(chunk, chunk.load.settle(1), in_flight=False)
    assert holdings.with_room_again() == [topic]
    assert holdings.with_room_again() == []
