"""EventStream: which events a reader of events() receives, and which a slow reader loses."""

from __future__ import annotations

import asyncio

import pytest

from aiokq.cluster.event_stream import EventStream
from aiokq.cluster.events import (
    Assigned,
    BrokerDown,
    BrokerUp,
    Event,
    EventKey,
    Lost,
    Revoked,
)
from aiokq.core.errors import Closed
from aiokq.core.observable_map import ObservableMap
from aiokq.core.types import TopicPartition


def emit(signal: ObservableMap[EventKey, Event], event: Event) -> None:
    signal.emit(event.key, event)


async def test_the_latest_state_comes_first():
    """A late subscriber receives the current state, not the history."""
    signal: ObservableMap[EventKey, Event] = ObservableMap()
    emit(signal, BrokerUp(1, "a", 1))
    emit(signal, BrokerUp(2, "b", 1))
    emit(signal, BrokerDown(1, "gone"))
    stream = EventStream(signal)
    emit(signal, BrokerUp(3, "c", 1))
    assert [await anext(stream) for _ in range(3)] == [
        BrokerDown(1, "gone"),
        BrokerUp(2, "b", 1),
        BrokerUp(3, "c", 1),
    ]
    stream.close()


async def test_each_assignment_and_revocation_is_delivered_even_when_repeated():
    """Assigned and Revoked had separate keys: a repeated assignment was dropped as a duplicate."""
    one, two = TopicPartition("t", 1), TopicPartition("t", 2)
    signal: ObservableMap[EventKey, Event] = ObservableMap()
    stream = EventStream(signal)
    given = Assigned("g", "m", frozenset({one}), frozenset({one}))
    taken = Revoked("g", "m", frozenset({one}), frozenset())
    lost = Lost("g", "m", frozenset({one}), frozenset())
    happened = [given, taken, given, lost, given]
    for event in happened:
        emit(signal, event)
    assert [stream.get_nowait() for _ in happened] == happened
    assert given.key != Assigned("h", "m", frozenset(), frozenset()).key
    more = Assigned("g", "m", frozenset({two}), frozenset({one, two}))
    emit(signal, more)
    late = EventStream(signal)
    assert late.get_nowait() == more, "it says all that the member owns"
    assert late.get_nowait() is None
    signal.forget(more.key)
    assert EventStream(signal).get_nowait() is None, "it left the group"


async def test_a_slow_reader_loses_the_oldest_counted():
    """A reader that hangs must not make the client's memory grow."""
    signal: ObservableMap[EventKey, Event] = ObservableMap()
    dropped: list[None] = []
    stream = EventStream(signal, limit=2, on_drop=lambda: dropped.append(None))
    for node in range(5):
        emit(signal, BrokerUp(node, "a", 1))
    assert len(stream) == 2
    assert stream.dropped == len(dropped) == 3
    assert [(await anext(stream)).node_id, (await anext(stream)).node_id] == [3, 4]
    stream.close()


async def test_a_closed_stream_ends_after_its_pending_events():
    """Closing the cluster must not discard the event that explains the closing."""
    signal: ObservableMap[EventKey, Event] = ObservableMap()
    async with EventStream(signal) as stream:
        emit(signal, BrokerUp(1, "a", 1))
    emit(signal, BrokerUp(2, "a", 1))
    assert [event.node_id async for event in stream] == [1]
    with pytest.raises(Closed):
        stream.get_nowait()
    await stream.aclose()


async def test_closing_wakes_all_readers():
    """Several tasks share a stream; none of them may hang."""
    stream = EventStream(ObservableMap())
    readers = [asyncio.create_task(anext(stream, None)) for _ in range(3)]
    await asyncio.sleep(0)
    stream.close()
    assert await asyncio.gather(*readers) == [None, None, None]


async def test_a_cancelled_reader_loses_nothing():
    """A reader is woken and cancelled at the same moment: the next reader gets the event."""
    signal: ObservableMap[EventKey, Event] = ObservableMap()
    stream = EventStream(signal)
    first = asyncio.create_task(anext(stream))
    second = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    emit(signal, BrokerUp(1, "a", 1))
    first.cancel()
    assert (await second).node_id == 1
    with pytest.raises(asyncio.CancelledError):
        await first
    stream.close()
