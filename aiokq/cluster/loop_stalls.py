"""`LoopStallWatch`, which reports stalls of the event loop as events and counts them."""

from __future__ import annotations

from aiokq.cluster.events import LoopStalled
from aiokq.cluster.state_store import ClusterStateStore
from aiokq.cluster.values import ClusterValues
from aiokq.core.clock import Clock
from aiokq.core.counters import ClientCounters
from aiokq.core.watchdog import Watchdog

__all__ = ["LoopStallWatch"]


class LoopStallWatch:
    """Watches for stalls of the event loop, unless ``loop_stall_ms`` is 0.

    Args:
        watchdog: the class of the watchdog that calls `stalled`; None to watch nothing, as in a
            simulation.
    """

    def __init__(
        self,
        settings: ClusterValues,
        counters: ClientCounters,
        clock: Clock,
        store: ClusterStateStore,
        watchdog: type[Watchdog] | None,
    ) -> None:
        self._threshold = settings.loop_stall_ms / 1000
        self._counters = counters
        self._clock = clock
        self._store = store
        self._make = watchdog
        self._watchdog: Watchdog | None = None

    def start(self) -> None:
        """Watch the running loop. Does nothing if already started."""
        if self._threshold and self._watchdog is None and self._make is not None:
            self._watchdog = self._make(
                self.stalled, threshold=self._threshold, interval=self._threshold / 2
            )
            self._watchdog.start()

    def stop(self) -> None:
        """Stop watching. Does nothing if not started."""
        if self._watchdog is not None:
            self._watchdog.stop()

    def suspended(self, seconds: float) -> float:
        """Return for how many of the last `seconds` the whole process was suspended.

        The result is 0 if stalls are not watched. See `Watchdog.suspended`.
        """
        return 0.0 if self._watchdog is None else self._watchdog.suspended(seconds)

    def stalled(self, seconds: float, stack: str) -> None:
        """Report that the loop was blocked for `seconds`; `stack` shows where."""
        self._counters.loop_stalls += 1
        self._store.announce(LoopStalled(round(seconds * 1000), stack, self._clock.timestamp_ms()))
