"""What a node does now and then by itself: its periodic jobs, and the loop that runs each of them.

Owns when a job runs and what becomes of its failure; what it does is its owner's. ``jobs`` is the
list: whoever has something to do regularly adds a line there.

Source: Kafka ``LogManager.startupWithConfigOverrides``, ``ReplicaManager.startHighWatermark``.
Tests: ``tests/unit/broker/test_maintenance.py``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from aiokq.core.background import LONGEST_PAUSE
from aiokq.core.errors import KafkaStorage

if TYPE_CHECKING:
    from aiokq.broker.log.cleaner.cleaner import LogCleaner
    from aiokq.broker.log.cold_reads import ColdReads
    from aiokq.broker.log.retention import RetentionPolicy
    from aiokq.broker.settings import BrokerSettings
    from aiokq.broker.storage import Storage
    from aiokq.core.background import BackgroundWork
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.environment import Environment
    from aiokq.core.supervisor import Supervisor

__all__ = ["Job", "Maintenance", "jobs"]

FIRST_AFTER_MS: Final = 30_000
"""When a job runs first, at the latest: a start has other things to do. Kafka's
``log.initial.task.delay.ms``."""

LEAST_INTERVAL_MS: Final = 10
"""An interval of 0 is a legal setting; the loop has other things to do, too."""

EXPIRE_PRODUCERS_MS: Final = 600_000
"""How often silent producers are looked for. Kafka's
``producer.id.expiration.check.interval.ms``."""


class Job(NamedTuple):
    """Something to do regularly.

    Attributes:
        interval_ms: asked before each wait, so that a setting may change while the node runs.
        run: does it once. It runs on the node's loop and sends what takes long off it. If it
            raises, it is run again.
    """

    name: str
    interval_ms: Callable[[], int]
    run: Callable[[], Awaitable[None]]


class MaintainedNode(Protocol):
    """What the jobs use of a node."""

    settings: BrokerSettings
    environment: Environment
    counters: BrokerCounters
    cold_reads: ColdReads
    retention_policies: list[RetentionPolicy]

    @property
    def storage(self) -> Storage: ...

    def purge_later(self) -> None: ...


def jobs(node: MaintainedNode) -> list[Job]:
    """The jobs of a node, in no order that matters."""
    settings = node.settings

    async def expire_producers() -> None:
        """Forget producers that have been silent for producer.id.expiration.ms."""
        now_ms = node.environment.clock.timestamp_ms()
        for log in list(node.storage.directories.logs()):
            log.expire_producers(now_ms, settings.producer_id_expiration_ms)
            await asyncio.sleep(0)

    async def delete_old_segments() -> None:
        """Let go of what retention allows, and of newest segments that nobody appends to."""
        clock = node.environment.clock
        deleted = 0
        for log in list(node.storage.directories.logs()):
            try:
                log.roll_idle(clock.timestamp_ms())
                deleted += await node.cold_reads.read(
                    functools.partial(log.retain, node.retention_policies, clock.timestamp_ms())
                )
            except KafkaStorage:  # logged, and no reason to keep what others have
                continue
            await asyncio.sleep(0)  # each may read from the disk
        if deleted:
            node.counters.segments_deleted += deleted
            node.purge_later()

    cleaners: list[Job] = []
    if settings.log_cleaner_enable:

        @functools.cache
        def cleaner() -> LogCleaner:
            """Imported and made when it runs first: a start does without."""
            from aiokq.broker.log.cleaner.cleaner import LogCleaner

            return LogCleaner(
                node.environment,
                settings,
                lambda: node.storage.directories.online,
                swapped=node.purge_later,
                cold_reads=node.cold_reads,
                counters=node.counters,
            )

        async def clean() -> None:
            """Compact what is dirty enough."""
            await cleaner().clean_all()

        cleaners = [
            Job(f"log cleaner {number}", lambda: settings.log_cleaner_backoff_ms, clean)
            for number in range(settings.log_cleaner_threads)
        ]
    return [
        *cleaners,
        Job("expire producers", lambda: EXPIRE_PRODUCERS_MS, expire_producers),
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
    """Runs jobs, each in a task of its own, until its supervisor is closed."""

    def __init__(self, supervisor: Supervisor, background: BackgroundWork) -> None:
        self._supervisor = supervisor
        self._background = background

    def start(self, jobs: list[Job]) -> None:
        """Run these from now on."""
        for job in jobs:
            self._supervisor.spawn(self._repeat(job), name=job.name)

    async def _repeat(self, job: Job) -> None:
        task = self._background.task(job.name)
        wait_ms: float = min(job.interval_ms(), FIRST_AFTER_MS)
        while True:
            await asyncio.sleep(max(wait_ms, LEAST_INTERVAL_MS) / 1000)
            try:
                await job.run()
            except Exception as error:  # noqa: BLE001 - the others go on, and it is tried again
                pause_ms = 1000 * task.failed(error)
                wait_ms = max(pause_ms, min(job.interval_ms(), 1000 * LONGEST_PAUSE))
            else:
                task.succeeded()
                wait_ms = job.interval_ms()
