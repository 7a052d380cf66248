"""Removal of deleted files after a delay.

The delay is `file.delete.delay.ms` of the topic for the files of segments, and
`log.segment.delete.delay.ms` of the broker for the files of deleted partitions.

The deleted files have been renamed, and only responses in progress still read them. When the node
stops, all files that wait for their delay are removed immediately. Files that a killed node leaves
are removed at the next start.

Source: Kafka ``LocalLog.deleteSegmentFiles``, ``LogManager.deleteLogs``.
Tests: ``tests/unit/broker/log/test_file_deletion.py``.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from aiokq.core.named_tuple import NamedTuple
from aiokq.core.supervisor import shielded

if TYPE_CHECKING:
    from aiokq.core.background import BackgroundTask, BackgroundWork
    from aiokq.core.offload import Offload
    from aiokq.core.supervisor import Supervisor

__all__ = ["FileDeletion"]

_Remove: TypeAlias = "Callable[[], None]"
"""A function that removes files. It is called in an executor, because removing a gigabyte takes a
tenth of a second. It logs I/O errors itself; if it raises, it is called again later.
"""


class _Removal(NamedTuple):
    """One removal, and the backoff of its retries."""

    remove: _Remove
    task: BackgroundTask


class FileDeletion:
    """The scheduled removals of deleted files of one node. Used on the node's loop only."""

    def __init__(
        self, offload: Offload, supervisor: Supervisor, background: BackgroundWork
    ) -> None:
        self._offload = offload
        self._supervisor = supervisor
        self._background = background
        self._stopped = False
        self._waiting: dict[int, tuple[asyncio.TimerHandle, _Removal]] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._waiting)

    def later(self, removals: Iterable[tuple[int, _Remove]]) -> None:
        """Run each removal after its delay in milliseconds."""
        for delay_ms, remove in removals:
            task = self._background.task("remove deleted files")
            self._schedule(delay_ms / 1000, _Removal(remove, task))

    def _schedule(self, seconds: float, removal: _Removal) -> None:
        number = next(self._numbers)
        timer = asyncio.get_running_loop().call_later(seconds, self._due, number)
        if self._stopped:  # `close` runs the removal
            timer.cancel()
        self._waiting[number] = timer, removal

    def _due(self, number: int) -> None:
        _, removal = self._waiting.pop(number)
        self._supervisor.spawn(self._run([removal]), name="remove deleted files")

    async def _run(self, removals: list[_Removal]) -> None:
        """Run removals in an executor; failed removals are scheduled again until `stop` is called.

        The removals are shielded from cancellation, so that they end before the node is closed:
        afterwards, another process may own the directory.
        """
        work = functools.partial(_all, removals)
        failed = await shielded(self._offload.run(work), name="remove deleted files")
        for removal, error in failed:
            seconds = removal.task.failed(error)
            if not self._stopped:  # after a stop, the next start removes the files
                self._schedule(seconds, removal)

    def hurry(self) -> None:
        """Start all scheduled removals now."""
        self._cancel_timers()
        waiting, self._waiting = self._waiting, {}
        if waiting:
            removals = [removal for _, removal in waiting.values()]
            self._supervisor.spawn(self._run(removals), name="remove deleted files")

    def stop(self) -> None:
        """Start no more removals; `close` runs the scheduled removals."""
        self._stopped = True
        self._cancel_timers()

    def _cancel_timers(self) -> None:
        for timer, _ in self._waiting.values():
            timer.cancel()

    async def close(self) -> None:
        """Run all scheduled removals and wait for them. May be called twice."""
        self.stop()
        waiting, self._waiting = self._waiting, {}
        if waiting:
            await self._run([removal for _, removal in waiting.values()])


def _all(removals: list[_Removal]) -> list[tuple[_Removal, Exception]]:
    """Run removals; return those that failed, with the error."""
    failed = []
    for removal in removals:
        try:
            removal.remove()
        except Exception as error:  # noqa: BLE001 - logged on the loop
            failed.append((removal, error))
    return failed
