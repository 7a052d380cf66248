"""Liveness: notices that nobody asks a member for records any more (``max_poll_interval_ms``).

By looking now and then, never per record. What follows is membership.py's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import MaxPollExceeded

if TYPE_CHECKING:
    from aiokq.consumer.outlet import Outlet
    from aiokq.consumer.values import ConsumerValues

__all__ = ["Liveness"]

LOOKS: Final = 10
"""Times that it is looked in one interval: how late a dead reader may be noticed."""


class Liveness:
    """Watches the readers of one consumer.

    Args:
        outlets: those that may be read now.
        member: whether there is a membership to end.
        exceeded: called with what is wrong.
    """

    def __init__(
        self,
        settings: ConsumerValues,
        outlets: Callable[[], list[Outlet]],
        *,
        member: Callable[[], bool],
        exceeded: Callable[[MaxPollExceeded], None],
    ) -> None:
        self._interval = settings.max_poll_interval
        self._outlets = outlets
        self._member = member
        self._exceeded = exceeded

    async def run(self) -> None:
        """Look after them for ever."""
        loop = asyncio.get_running_loop()
        seen: dict[Outlet, tuple[tuple[int, int], float]] = {}
        while True:
            now = loop.time()
            if not self._member():
                seen.clear()
            else:
                outlets = self._outlets()
                seen = {outlet: self._look(outlet, seen.get(outlet), now) for outlet in outlets}
                # One of several streams that is stuck holds its partitions up as well.
                if any(now - since >= self._interval for _, since in seen.values()):
                    seen.clear()
                    self._exceeded(
                        MaxPollExceeded(
                            f"no record was asked for during {self._interval:.3g} s "
                            "(max_poll_interval_ms): the member leaves its group, and joins again "
                            "when it is read from"
                        )
                    )
            await asyncio.sleep(self._interval / LOOKS)

    @staticmethod
    def _look(
        outlet: Outlet, before: tuple[tuple[int, int], float] | None, now: float
    ) -> tuple[tuple[int, int], float]:
        progress = outlet.progress
        if before is None or progress != before[0] or outlet.reader_waits or not outlet.states:
            return progress, now
        return before
