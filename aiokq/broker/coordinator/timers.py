"""Timers without a clock: machines say what is due when, whoever owns the clock takes what is due.

Owns deadlines by key. The runtime runs it on the loop, tests turn the time by hand.

Source: Kafka ``CoordinatorTimer.java`` (a key has one timer; scheduling it anew replaces it).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.coordinator.outcome import Outcome

__all__ = ["Action", "Instant", "Timers"]


class Instant(NamedTuple):
    """The time of an input, on both clocks."""

    now: float
    """Monotonic seconds: what timers and timeouts count in."""
    timestamp_ms: int
    """Wall clock in milliseconds: what records carry."""


Action = Callable[[Instant], "Outcome[None] | None"]
"""What happens when a timer is due; its records are written as those of a request."""


class _Timer:
    __slots__ = ("action", "at", "queued_at", "sequence")

    def __init__(self, at: float, sequence: int, action: Action) -> None:
        self.at = at
        self.queued_at = at
        self.sequence = sequence
        self.action = action


class Timers:
    """The timers of one shard.

    Due ones come out by deadline, equal deadlines in the order they were scheduled: a simulation
    repeats itself. To push a deadline back, as each heartbeat does, costs no sorting.
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
        """Have `action` called at `at` (monotonic seconds); replaces the key's earlier timer."""
        timer = self._timers.get(key)
        self._sequence += 1
        if timer is None or at < timer.queued_at:
            self._timers[key] = timer = _Timer(at, self._sequence, action)
            heapq.heappush(self._queue, (at, self._sequence, key))
            return
        # Its entry in the queue comes up first and is put back then.
        timer.at = at
        timer.action = action

    def cancel(self, key: Hashable) -> None:
        """Forget the key's timer, if it has one."""
        self._timers.pop(key, None)
        if len(self._queue) > 64 and len(self._queue) > 4 * len(self._timers):
            self._queue = [entry for entry in self._queue if self._is_current(entry)]
            heapq.heapify(self._queue)

    def deadline(self, key: Hashable) -> float | None:
        """When the key's timer is due; None if it has none."""
        timer = self._timers.get(key)
        return None if timer is None else timer.at

    @property
    def next_at(self) -> float | None:
        """When somebody should ask again for what is due: at or before the first deadline."""
        self._drop_stale()
        return self._queue[0][0] if self._queue else None

    def take_due(self, now: float) -> tuple[Hashable, Action] | None:
        """Remove and give the first timer that is due; None if there is none."""
        while True:
            self._drop_stale()
            if not self._queue or self._queue[0][0] > now:
                return None
            _, _, key = heapq.heappop(self._queue)
            timer = self._timers[key]
            if timer.at <= now:
                del self._timers[key]
                return key, timer.action
            self._sequence += 1
            timer.queued_at = timer.at
            timer.sequence = self._sequence
            heapq.heappush(self._queue, (timer.at, self._sequence, key))

    def _drop_stale(self) -> None:
        while self._queue and not self._is_current(self._queue[0]):
            heapq.heappop(self._queue)

    def _is_current(self, entry: tuple[float, int, Hashable]) -> bool:
        timer = self._timers.get(entry[2])
        return timer is not None and timer.sequence == entry[1]
