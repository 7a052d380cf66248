"""Deadline: when a call of several requests has to be done, and what each of them may take."""

from __future__ import annotations

from aiokq.cluster.engine import ClusterEngine

__all__ = ["Deadline"]


class Deadline:
    """The end of a call, by the engine's clock.

    Attributes:
        total: seconds for all of it.

    Args:
        timeout: seconds; None for ``default_api_timeout_ms``.
    """

    def __init__(self, engine: ClusterEngine, timeout: float | None) -> None:
        self.total = engine.settings.default_api_timeout if timeout is None else timeout
        self._now = engine.now
        self._end = engine.now() + self.total

    def left(self) -> float:
        """Seconds to the end."""
        return max(0.0, self._end - self._now())

    def part(self) -> float:
        """Seconds for a step that others follow.

        An item that hangs (a partition without a leader, a group whose coordinator loads) is given
        up after it, so that there is time for what the others need.
        """
        return self.left() / 2
