"""Owns when lingering is of no use: nobody is left who would add to what waits. Sends nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aiokq.fastpath.produce import Batch

__all__ = ["LingerWatch"]

_NOTHING: Final = 0
"""What the first look finds to compare with."""
_UNAWAITED: Final = -1
"""The first look found records that nobody awaits; the second one decides."""


class LingerWatch:
    """Looks at the end of a turn of the event loop, once something began or ended.

    A program that awaits each `send()` gives the next record only when it has the outcome of this
    one. So when all records that the producer holds are awaited, and none is on its way, lingering
    is a pause for everybody (Nagle's algorithm knows the case). When the loop has been through a
    turn without another record, the open batches are cut. A record that nobody awaits, or an
    answer that is due, and lingering is as ever. Awaiting what `send_many` gave is a wait for
    each of its records.

    Nothing runs while nothing changes, and nothing at all per record.

    Until `start` it ignores what it is told.
    """

    __slots__ = ("_batches", "_cut", "_looking", "_loop")

    def __init__(self) -> None:
        self._batches: Iterable[Batch] = ()
        self._cut: Callable[[], None]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking = False

    def start(self, batches: Iterable[Batch], cut: Callable[[], None]) -> None:
        """Start watching, on the running loop.

        Args:
            batches: the batches that are neither delivered nor failed.
            cut: sends the open batches; called when lingering is of no use.
        """
        self._batches = batches
        self._cut = cut
        self._loop = asyncio.get_running_loop()

    def changed(self) -> None:
        """A batch was begun or finished."""
        if not self._looking and self._loop is not None:
            self._looking = True
            self._loop.call_soon(self._look, _NOTHING)

    def _look(self, before: int) -> None:
        """One look; `before` is how many records the last one saw."""
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
            # gather() and wait_for() begin to wait in a task, which has its first turn now.
            self._loop.call_soon(self._look, _UNAWAITED)
        elif awaited and records != before:
            self._loop.call_soon(self._look, records)
        else:
            self._looking = False
            if awaited and records:
                self._cut()
