"""Owns when the logs of one directory are synced, and does it off the loop: one pass at a time.

Group commit: what is asked for while a pass waits for the disk is the next one's, so that many
producers share one sync. By default only finished segments are synced; a topic's
``flush.messages`` and ``flush.ms`` ask for more. Knows no requests: the log tells its replica when
a flush has ended.

Source: Kafka ``UnifiedLog.flush``, ``LogManager.flushDirtyLogs``.
Tests: ``tests/unit/broker/log/test_flusher.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokq.core.errors import KafkaStorage
from aiokq.core.supervisor import Supervisor, shielded

if TYPE_CHECKING:
    from aiokq.broker.log.disk_trouble import DiskTrouble
    from aiokq.broker.log.local_log import LocalLog
    from aiokq.broker.log.segment import Segment
    from aiokq.core.background import BackgroundWork
    from aiokq.core.files import File, Files
    from aiokq.core.offload import Offload

__all__ = ["Flusher", "PendingFlush"]

AGAIN_SECONDS: Final = 1.0
"""How long a log waits that could not be synced for want of descriptors."""

SHARES: Final = 2
"""Threads that one pass takes: syncs that wait together are committed together, and others need
the executor as well."""


class PendingFlush(NamedTuple):
    """What has to be synced so that a log is durable up to an offset.

    Attributes:
        generation: of the log, when the flush began.
        segments: which of them were written to.
        files: of these.
        directories: whose names are new.
    """

    log: LocalLog
    generation: int
    end_offset: int
    segments: Sequence[Segment]
    files: Sequence[File]
    directories: Sequence[str]

    def sync(self, files: Files) -> None:
        """Wait for the disk. Raises OSError."""
        for file in self.files:
            file.sync()
        for directory in self.directories:
            files.sync_dir(directory)


class Flusher:
    """The flusher of one log directory. Used on the loop only, between ``start`` and the end of
    its supervisor."""

    def __init__(
        self, files: Files, offload: Offload, disk: DiskTrouble, background: BackgroundWork
    ) -> None:
        self._files = files
        self._offload = offload
        self._disk = disk
        self._task = background.task("flush logs")
        # up to which offset each log is to be synced; None for its end by then
        self._wanted: dict[LocalLog, int | None] = {}
        self._timers: dict[LocalLog, asyncio.TimerHandle] = {}
        self._due = asyncio.Event()

    def start(self, supervisor: Supervisor) -> None:
        """Sync what is asked for, from now until the supervisor closes."""
        supervisor.spawn(self._run(), name="flush logs")

    def flush(self, log: LocalLog, before: int | None = None) -> None:
        """Sync a log soon.

        Args:
            before: records from this offset on may wait; None for none of them.
        """
        wanted = self._wanted.get(log, 0)
        self._wanted[log] = None if before is None or wanted is None else max(before, wanted)
        self._due.set()

    def flush_within(self, log: LocalLog, seconds: float) -> None:
        """Sync a log at the latest in this time."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(log)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()  # of a flush.ms that was longer
        self._timers[log] = loop.call_later(seconds, self._time_is_up, log)

    def _time_is_up(self, log: LocalLog) -> None:
        del self._timers[log]
        if log.recovery_point < log.log_end_offset:
            self.flush(log)

    def give_up(self) -> None:
        """The directory is offline, or closes: nothing more is synced; the replicas are told."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        wanted, self._wanted = self._wanted, {}
        for log in wanted:
            log.tell_replica()

    async def _run(self) -> None:
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                if self._disk.failure is None:
                    await self._pass()
                else:
                    self.give_up()
        finally:
            self.give_up()

    async def _pass(self) -> None:
        """Sync all that is wanted by now. Shielded: a close may not overtake it."""
        wanted, self._wanted = self._wanted, {}
        pending: list[PendingFlush] = []
        try:
            for log, before in wanted.items():
                try:
                    one = log.begin_flush(before)
                except KafkaStorage:  # logged where it was met
                    if self._disk.failure is None:
                        self.flush_within(log, AGAIN_SECONDS)  # when there may be descriptors
                else:
                    if one is not None:
                        pending.append(one)
            if pending:
                await shielded(self._finish(pending), name="sync logs")
        except Exception as error:  # noqa: BLE001 - what was synced is not known
            seconds = self._task.failed(error)
            for one in pending:
                one.log.redo_flush(one)
            for log in wanted:
                self.flush_within(log, seconds)
        else:
            self._task.succeeded()
        finally:
            for log in wanted:
                log.tell_replica()

    async def _finish(self, pending: Sequence[PendingFlush]) -> None:
        failure = await self._sync(pending)
        for done in pending:
            if failure is None:
                done.log.end_flush(done)
            elif self._disk.failure is None:
                done.log.redo_flush(done)
                self.flush_within(done.log, AGAIN_SECONDS)

    async def _sync(self, pending: Sequence[PendingFlush]) -> KafkaStorage | None:
        """In some threads, all of which are done when it ends.

        Returns:
            What the disk refused; what of all this it has written, nobody knows.
        """
        async with Supervisor("sync logs") as supervisor:
            shares = [
                supervisor.spawn(self._offload.run(self._sync_share, share), name="sync logs")
                for share in (pending[first::SHARES] for first in range(SHARES))
                if share
            ]
            failures = [await share for share in shares]
        return next((failure for failure in failures if failure is not None), None)

    def _sync_share(self, share: Sequence[PendingFlush]) -> KafkaStorage | None:
        for pending in share:
            if self._disk.failure is not None:
                return self._disk.failure
            try:
                pending.sync(self._files)
            except OSError as error:
                log = pending.log
                if log.is_closed and isinstance(error, FileNotFoundError):
                    continue  # it was deleted meanwhile, and its directory renamed
                return self._disk.refused(log.topic_partition, "flush failed", error, log.directory)
        return None
