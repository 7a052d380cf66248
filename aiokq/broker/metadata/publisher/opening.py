"""Opening of logs, with retries if the disk failed or the process lacked resources.

At a start, logs that were closed by a clean shutdown are opened first; then the other logs are
recovered, one or several at a time. A log that cannot be opened is tried again with growing pauses,
but not while its directory is offline. A log is read and repaired in an executor; the partition
gets the log on the loop, in one step.

Source: Kafka ``LogManager.loadLogs``. Unlike Kafka, the node serves logs that are open while other
logs are recovered.
Tests: ``tests/unit/broker/metadata/publisher/test_opening.py``, ``test_publisher.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from aiokq.core.errors import Closed, KafkaStorage
from aiokq.core.offload import THREADS
from aiokq.core.supervisor import Supervisor, shielded

if TYPE_CHECKING:
    from aiokq.broker.log.directories import LogDirectories
    from aiokq.broker.log.partition_log import PartitionLog
    from aiokq.broker.log.recovery import RecoveryProgress
    from aiokq.broker.replica.partition import Partition
    from aiokq.core.background import BackgroundWork
    from aiokq.core.environment import Environment

__all__ = ["LogOpening"]

logger = logging.getLogger("aiokq.broker")

R = TypeVar("R")

CLEAN_PER_TURN: Final = 64
"""Maximum number of logs that one executor call opens; each log takes about 0.2 ms."""

RECOVERED_AT_ONCE: Final = 32
SMALL_LOGS: Final = 1024 * 1024
"""Maximum number of bytes to check in one executor call that recovers several logs at a start.
Small logs share a call, because the call itself takes longer than the recovery of one of them. A
larger log has a call of its own.
"""

MOST_THREADS: Final = THREADS // 3
"""Maximum number of executor threads that recover logs at a start. The recovery of a log of a
terabyte occupies a thread for a quarter of an hour; other work of the executor, such as flushes,
must not wait for it.
"""

JUDGED_SECONDS: Final = 0.1
"""Seconds of recovery after which it is decided whether to add a worker."""

STALL_SECONDS: Final = 1.0
"""Seconds without a finished executor call after which a worker is added: a large log, or a slow
disk, must not delay the other logs.
"""

REPORT_SECONDS: Final = 5.0
"""Minimum seconds between two warnings about the progress of a recovery. The end of a recovery that
takes this long is logged as a warning, too.
"""


class _Stopped(Exception):
    """The recovery was stopped: the node is closing, or does not have the partition any more."""


class _Attempt:
    """An attempt to recover one log, or to open it again.

    Attributes:
        bytes: number of bytes to check, as estimated before the recovery.
        checked: number of bytes checked so far.
    """

    __slots__ = ("bytes", "checked", "partition", "stopped")

    def __init__(self, partition: Partition, nbytes: int = 0) -> None:
        self.partition = partition
        self.bytes = nbytes
        self.checked = 0
        self.stopped = False


class LogOpening:
    """Opens the logs of partitions.

    Args:
        threads: maximum number of executor threads that recover logs at a start; a number above
            ``MOST_THREADS`` counts as ``MOST_THREADS``.
        epoch_of: returns the epoch in which this node leads a partition; -1 if this node is not the
            leader. Called in any thread.
        by_kafka: whether Apache Kafka may have written to the logs.
        supervisor: runs the retries.
        background: counts failures, and returns the delays between retries.
        opened: called on the loop with each partition whose log was opened, and with the log.
    """

    def __init__(
        self,
        environment: Environment,
        directories: LogDirectories,
        *,
        threads: int,
        epoch_of: Callable[[Partition], int],
        by_kafka: bool,
        supervisor: Supervisor,
        background: BackgroundWork,
        opened: Callable[[Partition, PartitionLog], None],
    ) -> None:
        self._clock = environment.clock
        self._offload = environment.offload
        self._directories = directories
        self._supervisor = supervisor
        self._threads = min(threads, MOST_THREADS)
        self._epoch_of = epoch_of
        self._by_kafka = by_kafka
        self._background = background
        self._opened = opened
        self._waiting: deque[_Attempt] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        """The tasks that recover logs, each in one thread at a time."""
        self._calls = 0
        """Number of executor calls that have recovered logs."""
        self._elapsed = self._waited = 0.0
        """Seconds that threads spent on recoveries since the last decision whether to add a worker,
        and the part of these seconds in which the threads waited.
        """
        self._running: list[_Attempt] = []
        self._settled = asyncio.Event()
        self._closed = False
        self._refused: dict[Partition, bool] = {}
        """The partitions whose logs could not be opened, and whether each of these logs is new."""
        self._retrying = False
        # progress reported by the recovering threads
        self._lock = threading.Lock()
        self._reported = self._began = 0.0
        self._done = self._done_bytes = self._all_bytes = self._all = 0

    @property
    def pending(self) -> list[Partition]:
        """The partitions whose logs are being recovered or opened again, or wait for recovery."""
        return [attempt.partition for attempt in (*self._running, *self._waiting)]

    async def open_clean(self, partitions: Sequence[Partition]) -> None:
        """Open the logs that need no recovery; ``recover`` opens the other logs.

        ``recover`` begins with the logs of internal topics, because groups wait for them. The other
        logs follow by size, the smallest first, so that most partitions are available soon.
        """
        clean = [found for found in partitions if self._directories.was_clean(found.name)]
        for first in range(0, len(clean), CLEAN_PER_TURN):
            some = clean[first : first + CLEAN_PER_TURN]
            logs = await shielded(self._offload.run(self._open_all, some), name="open logs")
            for partition, log in zip(some, logs, strict=True):
                self._settle(partition, log)
        if len(clean) == len(partitions):
            return
        rest = [found for found in partitions if not self._directories.was_clean(found.name)]
        sizes = await shielded(self._offload.run(self._sizes, rest), name="look at logs")
        waiting = [_Attempt(*found) for found in zip(rest, sizes, strict=True)]
        waiting.sort(key=lambda one: (not one.partition.topic.is_internal, one.bytes))
        self._waiting.extend(waiting)
        self._all, self._all_bytes = len(rest), sum(sizes)

    def _sizes(self, partitions: Iterable[Partition]) -> list[int]:
        return [self._directories.bytes_to_check(partition.name) for partition in partitions]

    def _open_all(self, partitions: Iterable[Partition]) -> list[PartitionLog | Exception]:
        return [self._open(partition) for partition in partitions]

    def _open(
        self,
        partition: Partition,
        attempt: _Attempt | None = None,
        *,
        is_new: bool = False,
    ) -> PartitionLog | Exception:
        """Open or recover a log, in any thread; return the error if that fails."""

        def progress(so_far: RecoveryProgress) -> None:
            assert attempt is not None
            if attempt.stopped:
                raise _Stopped
            self._report(attempt, so_far)

        try:
            log = self._directories.load_partition(
                partition.name,
                partition.topic.topic_id,
                partition.topic.config,
                now_ms=self._clock.timestamp_ms(),
                is_new=is_new,
                is_kafkas=self._by_kafka,
                progress=None if attempt is None else progress,
            )
            epoch = self._epoch_of(partition)
            if epoch > max(log.epochs.latest_epoch, 0):
                # Records that were lost in an unclean shutdown may be replaced by other records at
                # the same offsets. The new epoch lets readers detect the loss (KIP-320).
                log.assign_epoch(epoch)
            return log
        except KafkaStorage as error:
            # The partition keeps the returned error. It must be a new exception, because the
            # traceback of `error` keeps files open.
            return KafkaStorage(error.message, topic_partition=partition.name)
        except _Stopped:
            raise
        except Exception as error:  # noqa: BLE001 - a bug, which must not affect the other logs
            return error

    def _settle(self, partition: Partition, log: PartitionLog | Exception) -> None:
        if isinstance(log, Exception):
            self.open_later(partition, self._storage_error(partition, log), is_new=False)
        else:
            self._give(partition, log)

    def _storage_error(self, partition: Partition, error: Exception) -> KafkaStorage:
        """Return the error that requests for the partition get; log an unexpected error."""
        if isinstance(error, KafkaStorage):
            return error
        self._background.task("open logs").failed(error)
        return KafkaStorage(
            f"log of {partition.name} cannot be opened: {error!r}", topic_partition=partition.name
        )

    def _give(self, partition: Partition, log: PartitionLog) -> None:
        if log.failed:  # its directory failed after the log was opened
            log.close(clean=False)
            partition.take_offline(
                KafkaStorage(f"the log directory of {partition.name} is offline")
            )
            return
        if log.config is not partition.topic.config:
            log.update_config(partition.topic.config)  # changed while the log was opened
        self._directories.add(log)  # after the update, so that retention never uses old settings
        self._opened(partition, log)

    def open_later(self, partition: Partition, error: KafkaStorage, *, is_new: bool) -> None:
        """Take a partition offline, and retry opening its log until that succeeds.

        A log that is or may be in an offline directory is not tried again: the directory is offline
        until the broker restarts.

        Args:
            is_new: whether the log is new and therefore cannot be in an offline directory.
        """
        partition.take_offline(error)
        if self._is_lost(partition, is_new=is_new):
            return
        self._refused[partition] = is_new
        if not self._retrying:
            with contextlib.suppress(Closed):  # the node is stopping
                self._supervisor.spawn(self._open_refused(), name="open logs again")
                self._retrying = True

    def _is_lost(self, partition: Partition, *, is_new: bool) -> bool:
        """Return whether an offline directory prevents the opening of the log until a restart."""
        directory = self._directories.directory_of(partition.name)
        if directory is not None:
            return directory.disk.failure is not None
        return bool(self._directories.offline) and not (is_new and self._directories.online)

    async def _open_refused(self) -> None:
        """Retry opening the refused logs until each is open, is lost, or is not needed any more."""
        task = self._background.task("open logs")
        while self._refused and not self._closed:
            first = next(iter(self._refused))
            assert isinstance(first.unavailable, KafkaStorage)
            await asyncio.sleep(task.failed(first.unavailable))
            refused = list(self._refused)
            for start in range(0, len(refused), RECOVERED_AT_ONCE):
                some = refused[start : start + RECOVERED_AT_ONCE]
                await shielded(self._open_again(some), name="open logs again")
        self._retrying = False

    async def _open_again(self, partitions: Sequence[Partition]) -> None:
        attempts = [_Attempt(one) for one in partitions if one in self._refused]
        self._running += attempts
        logs = await self._in_thread(self._try_again, attempts)
        for attempt, log in zip(attempts, logs, strict=True):
            partition = attempt.partition
            if attempt.stopped or self._closed:
                _close(log)
            elif isinstance(log, Exception):
                partition.take_offline(self._storage_error(partition, log))
                if self._is_lost(partition, is_new=self._refused[partition]):
                    del self._refused[partition]
            elif log is not None:
                del self._refused[partition]
                self._give(partition, log)

    def _try_again(self, attempts: Iterable[_Attempt]) -> list[PartitionLog | Exception | None]:
        return [
            self._recover(attempt, is_new=self._refused.get(attempt.partition, False))
            for attempt in attempts
        ]

    async def recover(self) -> None:
        """Recover the logs that ``open_clean`` did not open.

        Most of a recovery is short system calls, each of which releases the interpreter's lock.
        Two threads that compete for the lock take longer than one thread (measured for 10,000 small
        logs: 5.0 s with two threads, 3.0 s with one). So one worker begins. A worker is added in
        three cases: the threads mostly wait for the disk; no executor call has ended for
        ``STALL_SECONDS``; a worker takes a large log, which is read and copied without the lock.

        Raises:
            Exception: no thread could be started, or a recovery failed because of a bug.
        """
        if not self._waiting:
            return
        self._began = self._reported = self._clock.monotonic()
        logger.info("recovering logs partitions=%d bytes=%d", self._all, self._all_bytes)
        async with Supervisor("recover logs") as supervisor:
            self._add_worker(supervisor)
            while self._workers and supervisor.failed is None:
                calls = self._calls
                ended, _ = await asyncio.wait(
                    self._workers, timeout=STALL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if not ended and self._calls == calls:
                    self._add_worker(supervisor)
            if supervisor.failed is not None:
                raise supervisor.failed
        seconds = self._clock.monotonic() - self._began
        logger.log(
            logging.INFO if seconds < REPORT_SECONDS else logging.WARNING,
            "logs recovered partitions=%d bytes=%d seconds=%.1f",
            self._done,
            self._done_bytes,
            seconds,
        )
        self._all = 0

    def _add_worker(self, supervisor: Supervisor) -> None:
        if self._waiting and not self._closed and len(self._workers) < self._threads:
            worker = supervisor.spawn(self._work(supervisor), name="recover logs")
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _work(self, supervisor: Supervisor) -> None:
        while self._waiting and not self._closed:
            attempts = self._take()
            if attempts[0].bytes > SMALL_LOGS:
                self._add_worker(supervisor)
            await shielded(
                self._recover_together(attempts),
                name=f"recover {attempts[0].partition.name} and {len(attempts) - 1} more",
            )
            self._calls += 1
            if self._elapsed >= JUDGED_SECONDS:
                # The workers and the loop compete for the interpreter's lock, for which a worker
                # waits at most the share `competing` of its time. If the workers wait longer, they
                # also wait for something else, usually the disk, so another worker helps.
                competing = (len(self._workers) + 1) / (len(self._workers) + 2)
                if self._waited > competing * self._elapsed:
                    self._add_worker(supervisor)
                self._elapsed = self._waited = 0.0

    async def _recover_together(self, attempts: list[_Attempt]) -> None:
        """Recover logs in one thread, and give each log that is still needed to its partition."""
        try:
            logs, elapsed, waited = await self._in_thread(self._recover_all, attempts)
        except BaseException:
            self._waiting.extendleft(reversed(attempts))  # a stop must not count them as recovered
            raise
        self._elapsed += elapsed
        self._waited += waited
        for attempt, log in zip(attempts, logs, strict=True):
            if attempt.stopped or self._closed:
                _close(log)
            elif log is not None:
                self._done += 1
                self._done_bytes += attempt.bytes
                self._settle(attempt.partition, log)

    def _take(self) -> list[_Attempt]:
        """Begin the next attempts for one thread: one log, or several small logs.

        The attempts count as running from now on, although their thread begins in a later iteration
        of the loop: `abandon` and `stop` must find each attempt.
        """
        taken = [self._waiting.popleft()]
        size = taken[0].bytes
        while self._waiting and len(taken) < RECOVERED_AT_ONCE:
            size += self._waiting[0].bytes
            if size > SMALL_LOGS:
                break
            taken.append(self._waiting.popleft())
        self._running += taken
        return taken

    async def _in_thread(
        self,
        open_logs: Callable[[Iterable[_Attempt]], R],
        attempts: list[_Attempt],
    ) -> R:
        """Open the logs of running attempts in one thread; the attempts end when this call ends."""
        try:
            return await self._offload.run(open_logs, attempts)
        finally:  # also after an error: `abandon` waits for these attempts to end
            for attempt in attempts:
                self._running.remove(attempt)
            self._settled.set()

    def _recover_all(
        self, attempts: Iterable[_Attempt]
    ) -> tuple[list[PartitionLog | Exception | None], float, float]:
        """Recover logs in the calling thread.

        Returns:
            The logs, the elapsed seconds, and the number of these seconds in which the thread
            waited.
        """
        began, used = self._clock.monotonic(), self._clock.thread_time()
        logs = [self._recover(attempt) for attempt in attempts]
        elapsed = self._clock.monotonic() - began
        return logs, elapsed, elapsed - (self._clock.thread_time() - used)

    def _recover(
        self, attempt: _Attempt, *, is_new: bool = False
    ) -> PartitionLog | Exception | None:
        """Recover a log, in any thread; return None if the recovery was stopped."""
        if attempt.stopped or self._closed:
            return None
        try:
            return self._open(attempt.partition, attempt, is_new=is_new)
        except _Stopped:
            return None

    def _report(self, attempt: _Attempt, so_far: RecoveryProgress) -> None:
        """Record the progress of a recovery. Called in the recovering threads."""
        attempt.checked = so_far.checked_bytes
        logger.info(
            "recovering partition=%s checked=%d bytes=%d",
            so_far.topic_partition,
            so_far.checked_bytes,
            so_far.total_bytes,
        )
        if not self._all:  # the start has ended; this is a later attempt to open a log
            return
        now = self._clock.monotonic()
        with self._lock:
            if now - self._reported < REPORT_SECONDS:
                return
            self._reported = now
        checked = self._done_bytes + sum(other.checked for other in list(self._running))
        logger.warning(
            "still recovering logs after an unclean shutdown partitions=%d/%d bytes=%d/%d "
            "seconds=%.0f",
            self._done,
            self._all,
            checked,
            self._all_bytes,
            now - self._began,
        )

    async def abandon(self, partitions: Iterable[Partition]) -> None:
        """Stop opening the logs of partitions; return when no thread uses them."""
        partitions = list(partitions)
        for partition in partitions:
            self._refused.pop(partition, None)
        gone = set(map(id, partitions))
        self._waiting = deque(one for one in self._waiting if id(one.partition) not in gone)
        while any(id(attempt.partition) in gone for attempt in self._running):
            for attempt in self._running:
                if id(attempt.partition) in gone:
                    attempt.stopped = True
            self._settled.clear()
            await self._settled.wait()

    def stop(self) -> None:
        """Stop recovering logs. Recoveries in progress end early; the next start repeats them."""
        self._closed = True
        for attempt in self._running:
            attempt.stopped = True


def _close(log: PartitionLog | Exception | None) -> None:
    """Close a log without a clean shutdown, because the log is not needed any more."""
    if log is not None and not isinstance(log, Exception):
        log.close(clean=False)
