"""Deadline of a call that makes several requests."""

from __future__ import annotations

from aiokq.cluster.engine import ClusterEngine

__all__ = ["Deadline"]


class Deadline:
    """The time limit of a call, by the engine's clock.

    Attributes:
        total: seconds for the whole call.

    Args:
        timeout: seconds; None for ``default_api_timeout_ms``.
    """

    def __init__(self, engine: ClusterEngine, timeout: float | None) -> None:
        self.total = engine.settings.default_api_timeout if timeout is None else timeout
        self._now = engine.now
        self._end = engine.now() + self.total

    def left(self) -> float:
        """Return the remaining seconds."""
        return max(0.0, self._end - self._now())

    def part(self) -> float:
        """Return the time limit in seconds for a step after which other steps follow.

        The limit is half of the remaining time. A step stops waiting for items that hang (a
        partition without a leader, a group whose coordinator is loading), and the following steps
        still have time for the other items.
        """
        return self.left() / 2
