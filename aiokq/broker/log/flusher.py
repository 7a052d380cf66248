"""Syncs the logs of one log directory in an executor, in one pass after the other.

Syncs requested during a pass are done together in the next pass, so many producers share one sync.
By default only finished segments are synced; a topic's ``flush.messages`` and ``flush.ms`` require
more syncs. When a sync has ended, the log notifies its replica, which answers the Produce requests
that wait for the sync.

Source: Kafka ``UnifiedLog.flush``, ``LogManager.flushDirtyLogs``.
Tests: ``tests/unit/broker/log/test_flusher.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.core.errors import KafkaStorage
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.supervisor import Supervisor, shielded

if TYPE_CHECKING:
    from aiokq.broker.log.disk_trouble import DiskTrouble
    from aiokq.broker.log.segment import Segment
    from aiokq.core.background import BackgroundWork
    from aiokq.core.files import File, Files
    from aiokq.core.offload import Offload
    from aiokq.core.types import TopicPartition

__all__ = ["FlushableLog", "Flusher", "PendingFlush"]

AGAIN_SECONDS: Final = 1.0
"""Delay before the retry of a sync that failed for lack of file descriptors."""

SHARES: Final = 2
"""The maximum number of threads that sync logs in a pass.

Concurrent syncs share a commit of the file system, but more threads would delay the other work of
the executor.
"""


class FlushableLog(Protocol):
    """The part of a log that the flusher uses."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the log."""

    @property
    def directory(self) -> str:
        """The path of the log's directory."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def recovery_point(self) -> int:
        """The offset before which all records are durable."""

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed or deleted."""

    def begin_flush(self, before: int | None) -> PendingFlush | None:
        """Return the files to sync so that records are durable; see ``LocalLog.begin_flush``."""

    def end_flush(self, done: PendingFlush) -> None:
        """Record that a flush has ended, and notify the replica."""

    def redo_flush(self, failed: PendingFlush) -> None:
        """Mark the files of a failed flush for another flush."""

    def notify_replica(self) -> None:
        """Notify the replica, which may then commit more records."""


class PendingFlush(NamedTuple):
    """The files to sync so that a log is durable up to an offset.

    Attributes:
        generation: the log's generation when the flush began; a truncation raises it.
        end_offset: records before this offset are durable after the flush.
        segments: the segments with files to sync.
        files: open files of these segments, of producer snapshots and of leader epochs.
        directories: directories with new file names.
    """

    log: FlushableLog
    generation: int
    end_offset: int
    segments: Sequence[Segment]
    files: Sequence[File]
    directories: Sequence[str]

    def sync(self, files: Files) -> None:
        """Sync files and directories; waits for the disk. Raises OSError."""
        for file in self.files:
            file.sync()
        for directory in self.directories:
            files.sync_dir(directory)


class Flusher:
    """The flusher of one log directory. Used on the loop."""

    def __init__(
        self, files: Files, offload: Offload, disk: DiskTrouble, background: BackgroundWork
    ) -> None:
        self._files = files
        self._offload = offload
        self._disk = disk
        self._task = background.task("flush logs")
        # The offset up to which each log has to be synced; None means the log end offset when the
        # sync begins.
        self._wanted: dict[FlushableLog, int | None] = {}
        self._timers: dict[FlushableLog, asyncio.TimerHandle] = {}
        self._due = asyncio.Event()

    def start(self, supervisor: Supervisor) -> None:
        """Start the task that does the syncs; it runs until the supervisor closes."""
        supervisor.spawn(self._run(), name="flush logs")

    def flush(self, log: FlushableLog, before: int | None = None) -> None:
        """Request a sync of a log in the next pass.

        Args:
            before: only records before this offset have to be synced; None means all.
        """
        wanted = self._wanted.get(log, 0)
        self._wanted[log] = None if before is None or wanted is None else max(before, wanted)
        self._due.set()

    def flush_within(self, log: FlushableLog, seconds: float) -> None:
        """Begin a sync of a log after ``seconds`` at the latest, unless all records are durable."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(log)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()  # the timer was set with a longer flush.ms, or for a retry
        self._timers[log] = loop.call_later(seconds, self._time_is_up, log)

    def _time_is_up(self, log: FlushableLog) -> None:
        del self._timers[log]
        if log.recovery_point < log.log_end_offset:
            self.flush(log)

    def give_up(self) -> None:
        """Discard all requests, because the directory is offline or closing.

        The replicas of the logs for which a sync was requested are notified.
        """
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        wanted, self._wanted = self._wanted, {}
        for log in wanted:
            log.notify_replica()

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
        """Do all requested syncs, shielded from cancellation, so that a close waits for them."""
        wanted, self._wanted = self._wanted, {}
        pending: list[PendingFlush] = []
        try:
            for log, before in wanted.items():
                try:
                    one = log.begin_flush(before)
                except KafkaStorage:  # already logged
                    if self._disk.failure is None:
                        self.flush_within(log, AGAIN_SECONDS)  # the process lacked descriptors
                else:
                    if one is not None:
                        pending.append(one)
            if pending:
                await shielded(self._finish(pending), name="sync logs")
        except Exception as error:  # noqa: BLE001 - it is unknown what was synced
            seconds = self._task.failed(error)
            for one in pending:
                one.log.redo_flush(one)
            for log in wanted:
                self.flush_within(log, seconds)
        else:
            self._task.succeeded()
        finally:
            for log in wanted:
                log.notify_replica()

    async def _finish(self, pending: Sequence[PendingFlush]) -> None:
        failure = await self._sync(pending)
        for done in pending:
            if failure is None:
                done.log.end_flush(done)
            elif self._disk.failure is None:
                done.log.redo_flush(done)
                self.flush_within(done.log, AGAIN_SECONDS)

    async def _sync(self, pending: Sequence[PendingFlush]) -> KafkaStorage | None:
        """Sync in several threads; return when all of them have ended.

        Returns:
            The first error; None if all syncs succeeded. After an error it is unknown which bytes
            are durable.
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
                    continue  # the log was deleted meanwhile and its directory renamed
                return self._disk.refused(log.topic_partition, "flush failed", error, log.directory)
        return None
