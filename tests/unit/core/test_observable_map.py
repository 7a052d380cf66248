"""ObservableMap: what subscribers see, in which order, and how they may fail."""

from __future__ import annotations

import asyncio
import logging

import pytest

from aiokq.core.errors import Closed
from aiokq.core.observable_map import ObservableMap


def test_emit_calls_subscribers_at_once_with_the_new_value_stored():
    """A subscriber that reads the map must see the value it was called with."""
    signal: ObservableMap[str, int] = ObservableMap()
    seen = []
    signal.subscribe(lambda key, value: seen.append((key, value, signal.get(key))))
    assert signal.emit("a", 1)
    assert seen == [("a", 1, 1)]


def test_an_equal_value_is_suppressed_until_it_is_forgotten():
    """Retries emit the same state repeatedly; subscribers need only changes."""
    signal: ObservableMap[str, int] = ObservableMap()
    seen = []
    signal.subscribe(lambda key, value: seen.append(value))
    assert [signal.emit("a", v) for v in (1, 1, 2, 1)] == [True, False, True, True]
    signal.forget("a")
    assert signal.get("a") is None
    assert signal.emit("a", 1)
    assert seen == [1, 2, 1, 1]


def test_a_late_subscriber_gets_the_latest_value_of_each_key_first():
    """A subscriber that comes after a failure must still learn of it."""
    signal: ObservableMap[str, int] = ObservableMap()
    for key, value in (("a", 1), ("b", 2), ("a", 3)):
        signal.emit(key, value)
    seen = []
    signal.subscribe(lambda *event: seen.append(event))
    assert seen == [("a", 3), ("b", 2)]
    quiet = []
    signal.subscribe(lambda *event: quiet.append(event), replay=False)
    signal.emit("b", 4)
    assert quiet == [("b", 4)]
    assert signal.snapshot() == {"a": 3, "b": 4}


def test_an_event_emitted_during_dispatch_waits_for_the_current_one():
    """Otherwise the second subscriber would see the effect before the cause."""
    signal: ObservableMap[str, int] = ObservableMap()
    seen = []

    def first(key: str, value: int) -> None:
        seen.append(("first", key, value))
        if key == "cause":
            signal.emit("effect", value)

    signal.subscribe(first)
    signal.subscribe(lambda key, value: seen.append(("second", key, value)))
    signal.emit("cause", 1)
    assert seen == [
        ("first", "cause", 1),
        ("second", "cause", 1),
        ("first", "effect", 1),
        ("second", "effect", 1),
    ]


def test_a_subscriber_of_a_running_dispatch_gets_each_event_once():
    """The queued events were already in its replay and must not be delivered again."""
    signal: ObservableMap[str, int] = ObservableMap()
    late = []

    def first(key: str, value: int) -> None:
        if key == "cause":
            signal.emit("effect", 1)
            signal.subscribe(lambda *event: late.append(event))

    signal.subscribe(first)
    signal.emit("cause", 1)
    assert late == [("cause", 1), ("effect", 1)]
    signal.emit("later", 1)
    assert late[2:] == [("later", 1)]


def test_events_caused_by_a_replay_are_delivered_after_it():
    signal: ObservableMap[str, int] = ObservableMap()
    signal.emit("a", 1)
    signal.emit("b", 1)
    seen = []

    def callback(key: str, value: int) -> None:
        seen.append((key, value))
        if key == "a" and value == 1:
            signal.emit("a", 2)

    signal.subscribe(callback)
    assert seen == [("a", 1), ("b", 1), ("a", 2)]


def test_a_subscription_closed_during_dispatch_is_not_called_any_more():
    """Its owner may be partly closed."""
    signal: ObservableMap[str, int] = ObservableMap()
    seen = []
    signal.subscribe(lambda *_: second.close())
    second = signal.subscribe(lambda *event: seen.append(event), replay=False)
    signal.emit("a", 1)
    assert seen == []
    assert second.closed
    second.close()


def test_a_subscription_can_close_itself():
    """One-shot subscribers do this."""
    signal: ObservableMap[str, int] = ObservableMap()
    seen = []

    def once(key: str, value: int) -> None:
        seen.append(value)
        subscription.close()

    subscription = signal.subscribe(once)
    signal.emit("a", 1)
    signal.emit("a", 2)
    assert seen == [1]


def test_a_raising_subscriber_is_logged_and_does_not_stop_the_others(caplog):
    """One failing subscriber must not keep the producer from learning of a leader change."""
    signal: ObservableMap[str, int] = ObservableMap()
    seen = []

    def broken(key: str, value: int) -> None:
        raise ValueError("broken listener")

    signal.subscribe(broken)
    signal.subscribe(lambda *event: seen.append(event))
    with caplog.at_level(logging.ERROR, "aiokq.core"):
        assert signal.emit("a", 1)
    assert seen == [("a", 1)]
    assert "subscription callback failed: callback=" in caplog.text
    assert "broken listener" in caplog.text


def test_an_interrupt_in_a_subscriber_leaves_the_signal_usable():
    """Ctrl-C may arrive anywhere; later events must still be dispatched."""
    signal: ObservableMap[str, int] = ObservableMap()
    seen = []

    def interrupted(key: str, value: int) -> None:
        if value == 1:
            raise KeyboardInterrupt

    signal.subscribe(interrupted)
    signal.subscribe(lambda *event: seen.append(event))
    with pytest.raises(KeyboardInterrupt):
        signal.emit("a", 1)
    signal.emit("a", 2)
    assert seen == [("a", 2)]


async def test_wait_for_looks_at_the_latest_state_first():
    """An earlier event will not be emitted again."""
    signal: ObservableMap[str, int] = ObservableMap()
    signal.emit("a", 1)
    assert await signal.wait_for(lambda key, value: value == 1) == ("a", 1)


async def test_wait_for_wakes_on_a_later_event():
    signal: ObservableMap[str, int] = ObservableMap()
    waiter = asyncio.create_task(signal.wait_for(lambda key, value: value > 1))
    await asyncio.sleep(0)
    signal.emit("a", 1)
    signal.emit("b", 5)
    signal.emit("b", 0)
    assert await waiter == ("b", 5)
    assert not signal._subscriptions


async def test_a_cancelled_wait_for_leaves_nothing_behind():
    """A thousand timed-out waits must not leave a thousand subscribers."""
    signal: ObservableMap[str, int] = ObservableMap()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await signal.wait_for(lambda key, value: True)
    assert not signal._subscriptions


async def test_a_raising_predicate_raises_in_the_waiter():
    signal: ObservableMap[str, int] = ObservableMap()
    waiter = asyncio.create_task(signal.wait_for(lambda key, value: 1 // value > 0))
    await asyncio.sleep(0)
    signal.emit("a", 0)
    with pytest.raises(ZeroDivisionError):
        await waiter


async def test_closing_ends_every_wait_with_an_error_of_its_own():
    """Nothing more will be emitted, so a waiter without a timeout would hang."""
    signal: ObservableMap[str, int] = ObservableMap()
    waiters = [asyncio.create_task(signal.wait_for(lambda *_: False)) for _ in range(2)]
    await asyncio.sleep(0)
    error = Closed("the cluster is closed")
    signal.close(error)
    raised = await asyncio.gather(*waiters, return_exceptions=True)
    assert [str(e) for e in raised] == ["the cluster is closed"] * 2
    assert raised[0] is not raised[1]
    assert error not in raised
    with pytest.raises(Closed):
        await signal.wait_for(lambda *_: True)
