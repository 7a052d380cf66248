"""Timers, with the time given to each call."""

from __future__ import annotations

from aiokq.broker.coordinator.timers import Timers


def due(timers, now):
    """Return the keys of the due timers in their order."""
    keys = []
    while (one := timers.take_due(now)) is not None:
        keys.append(one[0])
    return keys


def test_timers_come_by_deadline_and_then_by_order():
    """A simulation must take the same course for the same seed."""
    timers = Timers()
    for key, at in (("c", 3), ("a", 1), ("b", 2), ("a2", 1)):
        timers.schedule(key, at, lambda instant: None)
    assert timers.next_at == 1
    assert due(timers, 0.9) == []
    assert due(timers, 2) == ["a", "a2", "b"]
    assert due(timers, 9) == ["c"]
    assert timers.next_at is None


def test_scheduling_anew_replaces_the_timer():
    """A key has one deadline, the last that was set, whether earlier or later."""
    timers = Timers()
    timers.schedule("late", 5, lambda instant: None)
    timers.schedule("late", 9, lambda instant: None)
    timers.schedule("early", 9, lambda instant: None)
    timers.schedule("early", 4, lambda instant: None)
    assert timers.deadline("late") == 9
    assert due(timers, 5) == ["early"]
    assert due(timers, 8.9) == []
    assert due(timers, 9) == ["late"]
    assert len(timers) == 0


def test_a_cancelled_timer_does_not_come():
    """No wake-up is scheduled for it either."""
    timers = Timers()
    timers.schedule("a", 1, lambda instant: None)
    timers.schedule("b", 2, lambda instant: None)
    timers.cancel("a")
    timers.cancel("never was")
    assert timers.next_at == 2
    assert "a" not in timers
    assert due(timers, 9) == ["b"]


def test_a_timer_may_be_scheduled_from_its_own_action():
    """Periodic timers reschedule themselves."""
    timers = Timers()
    timers.schedule("a", 1, lambda instant: None)
    assert timers.take_due(1) is not None
    timers.schedule("a", 2, lambda instant: None)
    assert due(timers, 2) == ["a"]


def test_many_heartbeats_leave_no_litter():
    """Each heartbeat postpones a deadline, which must not use more memory each time."""
    timers = Timers()
    for now in range(10_000):
        timers.schedule("session", now + 10, lambda instant: None)
        timers.schedule(("join", now), now + 1, lambda instant: None)
        timers.cancel(("join", now))
    assert len(timers._queue) < 200


def test_moved_timers_are_taken_in_the_order_of_their_deadlines():
    """All are due at once, for example after a pause of the process."""
    timers = Timers()
    timers.schedule("moved", 1, lambda instant: None)
    timers.schedule("moved", 3, lambda instant: None)
    timers.schedule("second", 2, lambda instant: None)
    assert due(timers, 5) == ["second", "moved"]
