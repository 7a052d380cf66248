"""LingerWatch: ends lingering when all records are awaited and no batch is in flight."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiokq.fastpath.produce import Batch

__all__ = ["LingerWatch"]

_NOTHING: Final = 0
"""Value of `before` in the first check after a change."""
_UNAWAITED: Final = -1
"""Value of `before` in the second check, if the first check found unawaited records."""


class LingerWatch:
    """Sends the open batches early when callers wait for the outcome of every record.

    A program that awaits each `send()` sends a record only after the outcome of the previous
    record. When all records of the producer are awaited and no batch is in flight, lingering delays
    every caller (as Nagle's algorithm does). In this state, the open batches are closed and sent
    after one turn of the event loop without a new record. While a record is not awaited, or a batch
    is in flight, batches linger as configured. Awaiting the Deliveries of `append_many` or
    `append_columns` awaits all of their records. Awaiting GatheredDeliveries awaits one record at a
    time, so the other records count as not awaited.

    A check is scheduled when a batch was opened or finished, never per record. Before `start`,
    changes are ignored.
    """

    __slots__ = ("_batches", "_cut", "_looking", "_loop")

    def __init__(self) -> None:
        self._batches: Iterable[Batch] = ()
        self._cut: Callable[[], None]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking = False

    def start(self, batches: Iterable[Batch], cut: Callable[[], None]) -> None:
        """Start watching on the running loop.

        Args:
            batches: the batches that are neither delivered nor failed.
            cut: called to send the open batches without lingering.
        """
        self._batches = batches
        self._cut = cut
        self._loop = asyncio.get_running_loop()

    def changed(self) -> None:
        """Schedule a check, because a batch was opened or finished."""
        if not self._looking and self._loop is not None:
            self._looking = True
            self._loop.call_soon(self._look, _NOTHING)

    def _look(self, before: int) -> None:
        """Send the open batches if all records are awaited and none was added since the last check.

        Otherwise check again in the next iteration of the loop, or stop until the next change.

        Args:
            before: the number of records that the previous check counted if all were awaited; else
                `_NOTHING` or `_UNAWAITED`.
        """
        assert self._loop is not None
        records = 0
        awaited = True
        for batch in self._batches:
            if batch.sealed:
                self._looking = False
                return
            awaited = awaited and batch.awaited
            records += batch.count
        if not awaited and before == _NOTHING:
            # Check again, because gather() and wait_for() await the Deliveries in new tasks, which
            # run before the next check.
            self._loop.call_soon(self._look, _UNAWAITED)
        elif awaited and records != before:
            self._loop.call_soon(self._look, records)
        else:
            self._looking = False
            if awaited and records:
                self._cut()
