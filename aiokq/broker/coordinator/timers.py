"""Timers without a clock: a shard schedules actions, and the owner of the clock takes due actions.

The runtime takes due timers on the event loop; tests advance the time themselves.

Source: Kafka ``CoordinatorTimer.java`` (a key has one timer, which the next ``schedule`` replaces).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.coordinator.outcome import Outcome

__all__ = ["Action", "Instant", "Timers"]


class Instant(NamedTuple):
    """The time of a request or timer, on both clocks."""

    now: float
    """Monotonic seconds: the base of timers and timeouts."""
    timestamp_ms: int
    """Wall clock in milliseconds: the timestamp of records."""


Action = Callable[[Instant], "Outcome[None] | None"]
"""Called when a timer is due; the records of its outcome are written like those of a request."""


class _Timer:
    __slots__ = ("action", "at", "queued_at", "sequence")

    def __init__(self, at: float, sequence: int, action: Action) -> None:
        self.at = at
        self.queued_at = at
        self.sequence = sequence
        self.action = action


class Timers:
    """The timers of one shard.

    Due timers are taken in the order of their deadlines. Moving a deadline to a later time, as each
    heartbeat does, leaves the earlier deadline in the heap until that deadline is reached. The
    order of timers with equal deadlines depends only on the calls made before, so that a simulation
    is repeatable.
    """

    def __init__(self) -> None:
        self._timers: dict[Hashable, _Timer] = {}
        self._queue: list[tuple[float, int, Hashable]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._timers

    def schedule(self, key: Hashable, at: float, action: Action) -> None:
        """Schedule `action` for `at` (monotonic seconds), and replace the key's earlier timer."""
        timer = self._timers.get(key)
        self._sequence += 1
        if timer is None or at < timer.queued_at:
            self._timers[key] = timer = _Timer(at, self._sequence, action)
            heapq.heappush(self._queue, (at, self._sequence, key))
            return
        # The timer's entry stays in the heap; `take_due` moves the entry to `at` when it is due.
        timer.at = at
        timer.action = action

    def cancel(self, key: Hashable) -> None:
        """Remove the key's timer, if it has one."""
        self._timers.pop(key, None)
        if len(self._queue) > 64 and len(self._queue) > 4 * len(self._timers):
            self._queue = [entry for entry in self._queue if self._is_current(entry)]
            heapq.heapify(self._queue)

    def deadline(self, key: Hashable) -> float | None:
        """Return when the key's timer is due, in monotonic seconds; None if it has no timer."""
        timer = self._timers.get(key)
        return None if timer is None else timer.at

    @property
    def next_at(self) -> float | None:
        """When to call `take_due` next, in monotonic seconds; None without timers.

        The time is not after the first deadline, but may be before it.
        """
        first = self._first()
        return None if first is None else first[0]

    def take_due(self, now: float) -> tuple[Hashable, Action] | None:
        """Remove and return a timer that is due; None if no timer is due. See `Timers`."""
        while True:
            first = self._first()
            if first is None or first[0] > now:
                return None
            _, _, key = heapq.heappop(self._queue)
            timer = self._timers[key]
            if timer.at == first[0]:
                del self._timers[key]
                return key, timer.action
            self._sequence += 1
            timer.queued_at = timer.at
            timer.sequence = self._sequence
            heapq.heappush(self._queue, (timer.at, self._sequence, key))

    def _first(self) -> tuple[float, int, Hashable] | None:
        """Return the first entry of a timer that exists, and remove the entries before it."""
        queue, timers = self._queue, self._timers
        while queue:
            entry = queue[0]
            timer = timers.get(entry[2])
            if timer is not None and timer.sequence == entry[1]:
                return entry
            heapq.heappop(queue)
        return None

    def _is_current(self, entry: tuple[float, int, Hashable]) -> bool:
        timer = self._timers.get(entry[2])
        return timer is not None and timer.sequence == entry[1]
