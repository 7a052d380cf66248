"""The periodic jobs of a node, and the task that runs each of them.

``jobs`` returns the jobs. The failure of a job is logged and counted, and the job is retried.

Source: Kafka ``LogManager.startupWithConfigOverrides``,
``ReplicaManager.startHighWatermarkCheckPointThread``.
Tests: ``tests/unit/broker/test_maintenance.py``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.core.background import LONGEST_PAUSE
from aiokq.core.errors import KafkaStorage
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.log.cleaner.cleaner import LogCleaner
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.log.retention import RetentionPolicy
    from aiokq.broker.storage import Storage
    from aiokq.core.background import BackgroundWork
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.environment import Environment
    from aiokq.core.supervisor import Supervisor

__all__ = ["CleanerJobs", "Job", "Maintenance", "jobs"]

FIRST_AFTER_MS: Final = 30_000
"""Maximum delay of a job's first run, in ms: Kafka's default of ``log.initial.task.delay.ms``."""

LEAST_INTERVAL_MS: Final = 10
"""Minimum interval of a job, in ms: with an interval of 0, the job would keep the loop busy."""


class Job(NamedTuple):
    """A periodic job.

    Attributes:
        interval_ms: returns the interval in ms; called before each wait.
        run: runs the job once, on the node's loop, with long work in an executor. If `run` raises,
            it is retried.
        wanted: returns whether the job still has to run; called before each run.
    """

    name: str
    interval_ms: Callable[[], int]
    run: Callable[[], Awaitable[None]]
    wanted: Callable[[], bool] = lambda: True


class MaintainedNode(Protocol):
    """The parts of a node that its periodic jobs use."""

    environment: Environment
    counters: BrokerCounters
    cold_reads: ColdReads
    retention_policies: list[RetentionPolicy]

    @property
    def settings(self) -> BrokerSettings:
        """The settings in effect, which may change while the node runs."""
        ...

    @property
    def storage(self) -> Storage: ...

    def purge_later(self) -> None: ...


class CleanerJobs:
    """The jobs of a node's log cleaner: `log.cleaner.threads` jobs that share one cleaner."""

    def __init__(self, node: MaintainedNode) -> None:
        self._node = node

    @functools.cached_property
    def _cleaner(self) -> LogCleaner:
        """The cleaner, which is imported and created at its first run, not during the start."""
        from aiokq.broker.log.cleaner.cleaner import LogCleaner

        node = self._node
        return LogCleaner(
            node.environment,
            lambda: node.settings,
            lambda: node.storage.directories.online,
            swapped=node.purge_later,
            cold_reads=node.cold_reads,
            counters=node.counters,
        )

    async def _clean(self) -> None:
        """Compact the logs that are due by their dirty ratio or max.compaction.lag.ms."""
        await self._cleaner.clean_all()

    def __call__(self) -> list[Job]:
        """Return the cleaner jobs for the settings in effect; none without `log.cleaner.enable`."""
        node = self._node
        if not node.settings.log_cleaner_enable:
            return []

        def is_wanted(number: int) -> bool:
            return number < node.settings.log_cleaner_threads

        return [
            Job(
                f"log cleaner {number}",
                lambda: node.settings.log_cleaner_backoff_ms,
                self._clean,
                functools.partial(is_wanted, number),
            )
            for number in range(node.settings.log_cleaner_threads)
        ]


def jobs(node: MaintainedNode, cleaners: CleanerJobs | None = None) -> list[Job]:
    """Return the jobs of a node, including the jobs of its log cleaner."""

    async def expire_producers() -> None:
        """Remove the state of producers that were inactive for producer.id.expiration.ms."""
        now_ms = node.environment.clock.timestamp_ms()
        for log in list(node.storage.directories.logs()):
            log.expire_producers(now_ms, node.settings.producer_id_expiration_ms)
            await asyncio.sleep(0)

    async def delete_old_segments() -> None:
        """Delete segments that are past retention.

        Active segments that are past `segment.ms` are rolled first.
        """
        clock, read = node.environment.clock, node.cold_reads.read
        deleted = 0
        for log in list(node.storage.directories.logs()):
            now_ms = clock.timestamp_ms()
            try:
                await read(functools.partial(log.roll_idle, now_ms))
                deleted += await read(
                    functools.partial(log.retain, node.retention_policies, now_ms)
                )
            except KafkaStorage:
                # A failure of the disk is already logged. If the log was being truncated, the next
                # run of this job examines the log again.
                continue
            await asyncio.sleep(0)  # let other tasks run
        if deleted:
            node.counters.segments_deleted += deleted
            node.purge_later()

    settings = node.settings  # the intervals used here do not change while the node runs
    return [
        *(cleaners or CleanerJobs(node))(),
        Job(
            "expire producers",
            lambda: settings.producer_id_expiration_check_interval_ms,
            expire_producers,
        ),
        Job(
            "recovery point checkpoint",
            lambda: settings.log_flush_offset_checkpoint_interval_ms,
            node.storage.save_recovery_points,
        ),
        Job(
            "log start offset checkpoint",
            lambda: settings.log_flush_start_offset_checkpoint_interval_ms,
            node.storage.save_log_starts,
        ),
        Job(
            "high watermark checkpoint",
            lambda: settings.replica_high_watermark_checkpoint_interval_ms,
            node.storage.save_high_watermarks,
        ),
        Job("retention", lambda: settings.log_retention_check_interval_ms, delete_old_segments),
    ]


class Maintenance:
    """Runs each job in a task of its own.

    The task ends when the job is no longer wanted, or when the supervisor is closed.
    """

    def __init__(self, supervisor: Supervisor, background: BackgroundWork) -> None:
        self._supervisor = supervisor
        self._background = background
        self._running: set[str] = set()

    def start(self, jobs: list[Job]) -> None:
        """Start a task for each job, except jobs that have the name of a running job."""
        for job in jobs:
            if job.name not in self._running:
                self._running.add(job.name)
                self._supervisor.spawn(self._repeat(job), name=job.name)

    async def _repeat(self, job: Job) -> None:
        task = self._background.task(job.name)
        wait_ms: float = min(job.interval_ms(), FIRST_AFTER_MS)
        while True:
            await asyncio.sleep(max(wait_ms, LEAST_INTERVAL_MS) / 1000)
            if not job.wanted():
                self._running.discard(job.name)
                return
            try:
                await job.run()
            except Exception as error:  # noqa: BLE001 - retried; the other jobs continue
                pause_ms = 1000 * task.failed(error)
                wait_ms = max(pause_ms, min(job.interval_ms(), 1000 * LONGEST_PAUSE))
            else:
                task.succeeded()
                wait_ms = job.interval_ms()
