"""PollIntervalMonitor: detects a consumer that is not polled within `max_poll_interval_ms`.

The monitor checks at intervals instead of once per record. The member's reaction is in
membership.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import MaxPollExceeded

if TYPE_CHECKING:
    from aiokq.consumer.record_source import RecordSource
    from aiokq.consumer.values import ConsumerValues

__all__ = ["PollIntervalMonitor"]

LOOKS: Final = 10
"""The number of checks per `max_poll_interval_ms`.

A stuck reader is detected up to two checks late.
"""


class PollIntervalMonitor:
    """Checks that the readers of one consumer keep requesting records.

    Args:
        sources: returns the record sources that can be read now.
        member: returns whether the consumer is a member of its group.
        exceeded: called with the error when the interval is exceeded.
    """

    def __init__(
        self,
        settings: ConsumerValues,
        sources: Callable[[], list[RecordSource]],
        *,
        member: Callable[[], bool],
        exceeded: Callable[[MaxPollExceeded], None],
    ) -> None:
        self._interval = settings.max_poll_interval
        self._sources = sources
        self._member = member
        self._exceeded = exceeded

    async def run(self) -> None:
        """Check until cancelled."""
        loop = asyncio.get_running_loop()
        seen: dict[RecordSource, tuple[tuple[int, int], float]] = {}
        while True:
            now = loop.time()
            if not self._member():
                seen.clear()
            else:
                sources = self._sources()
                seen = {source: self._look(source, seen.get(source), now) for source in sources}
                # One stuck stream blocks its partitions, even if the other streams are read.
                if any(now - since >= self._interval for _, since in seen.values()):
                    seen.clear()
                    self._exceeded(
                        MaxPollExceeded(
                            f"no record was requested for {self._interval:.3g} s "
                            "(max_poll_interval_ms): the member leaves its group, and rejoins "
                            "when a record is requested again"
                        )
                    )
            await asyncio.sleep(self._interval / LOOKS)

    @staticmethod
    def _look(
        source: RecordSource, before: tuple[tuple[int, int], float] | None, now: float
    ) -> tuple[tuple[int, int], float]:
        progress = source.progress
        if before is None or progress != before[0] or source.reader_waits or not source.states:
            return progress, now
        return before
